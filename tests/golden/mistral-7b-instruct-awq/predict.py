# Rendered by cogsmith from models/mistral-7b-instruct-awq.yaml. Edit the spec, not this file.
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
        question: str = Input(description="What to ask, in plain words.", min_length=3, max_length=500),
        columns: str = Input(default="id, name, created_at", description="Names of the columns, with commas between them.", max_length=1000),
        table: str = Input(default="users", description="Name of the table.", regex="^[A-Za-z_][A-Za-z0-9_.]*$"),
        dialect: str = Input(default="PostgreSQL", description="The SQL to write.", choices=["PostgreSQL", "MySQL", "SQLite"]),
        max_tokens: int = Input(default=200, description="The most tokens to generate.", ge=1, le=500),
        temperature: float = Input(default=0, description="Randomness: 0 takes the likeliest token each time.", ge=0.0, le=2.0),
    ) -> ConcatenateIterator[str]:
        return self.model.stream(
            {
                "question": question,
                "columns": columns,
                "table": table,
                "dialect": dialect,
                "max_tokens": max_tokens,
                "temperature": temperature,
            }
        )

    def healthcheck(self) -> bool:
        return self.model.healthy()
