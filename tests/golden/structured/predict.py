# Rendered by cogsmith from models/tiny.yaml. Edit the spec, not this file.
# Cog reads the signature below without running it, so every type, default and limit in it is a literal.
from typing import Optional

from cog import BaseRunner, ConcatenateIterator, Input, concurrent, streaming

from cogsmith_runtime.predictor import Model


class Predictor(BaseRunner):
    async def setup(self, weights: Optional[str] = None) -> None:
        self.model = await Model.start(weights, self.record_metric)

    @streaming
    @concurrent(max=16)
    async def run(
        self,
        question: str = Input(description="What to ask, in plain words.", min_length=1, max_length=500),
        columns: str = Input(default="id, name", description="Names of the columns.", regex=r"^[\w, ]+$"),
        strict: bool = Input(default=True, description="Answer with nothing but the query."),
        max_tokens: int = Input(default=64, description="The most tokens to generate.", ge=1, le=256),
        temperature: float = Input(default=0.0, description="Randomness: 0 takes the likeliest token each time.", ge=0.0, le=2.0),
    ) -> ConcatenateIterator[str]:
        return self.model.stream(
            {
                "question": question,
                "columns": columns,
                "strict": strict,
                "max_tokens": max_tokens,
                "temperature": temperature,
            }
        )

    def healthcheck(self) -> bool:
        return self.model.healthy()
