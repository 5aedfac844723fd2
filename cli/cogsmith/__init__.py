"""Turn one small YAML per model into a Cog container that serves an open LLM."""

__version__ = "0.1.0"
