"""What runs inside the container, beside Cog and the engine. Plain Python: copied as it is into every image."""
