# Rendered by cogsmith from models/tiny.yaml. Edit the spec, not this file.
# Cog reads the signature below without running it, so every type, default and limit in it is a literal.
from typing import Optional

from cog import BasePredictor, ConcatenateIterator, Input

from cogsmith_runtime.predictor import Model


class Predictor(BasePredictor):
    async def setup(self, weights: Optional[str] = None) -> None:
        self.model = await Model.start(weights, self.record_metric)

    async def predict(
        self,
        prompt: str = Input(default="", description="The user's message to the model."),
        system_prompt: str = Input(default="", description="Instructions that the model follows through the whole answer."),
        messages: str = Input(default="", description='A conversation instead of `prompt`, as a JSON list such as [{"role": "user", "content": "Hello"}].'),
        max_tokens: int = Input(default=512, description="The most tokens to generate.", ge=1, le=2048),
        min_tokens: int = Input(default=0, description="The fewest tokens to generate before the model may stop.", ge=0, le=2048),
        temperature: float = Input(default=0.6, description="Randomness: 0 takes the likeliest token each time.", ge=0.0, le=2.0),
        top_p: float = Input(default=0.9, description="Choose among the likeliest tokens that together have this probability.", ge=0.001, le=1.0),
        top_k: int = Input(default=0, description="Choose among this many of the likeliest tokens. 0 means all.", ge=0, le=1000000),
        presence_penalty: float = Input(default=0.0, description="Above 0: favour tokens that were not used yet.", ge=-2.0, le=2.0),
        frequency_penalty: float = Input(default=0.0, description="Above 0: favour tokens in proportion to how rarely they were used.", ge=-2.0, le=2.0),
        repetition_penalty: float = Input(default=1.0, description="Above 1: discourage tokens of the prompt and of the answer so far.", ge=0.001, le=10.0),
        stop: str = Input(default="", description='Texts that end the answer, as a JSON list such as ["END", "###"], at most 4.'),
        seed: Optional[int] = Input(default=None, description="Repeats an answer. Left out, each answer is a new one.", ge=0, le=4294967295),
    ) -> ConcatenateIterator[str]:
        return self.model.stream(
            {
                "prompt": prompt,
                "system_prompt": system_prompt,
                "messages": messages,
                "max_tokens": max_tokens,
                "min_tokens": min_tokens,
                "temperature": temperature,
                "top_p": top_p,
                "top_k": top_k,
                "presence_penalty": presence_penalty,
                "frequency_penalty": frequency_penalty,
                "repetition_penalty": repetition_penalty,
                "stop": stop,
                "seed": seed,
            }
        )

    def healthcheck(self) -> bool:
        return self.model.healthy()
