"""What predict.py calls: weights, engine and a first answer at setup, then one live stream per prediction."""

import asyncio
import contextlib
import importlib
import os
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self

import aiohttp

from . import errors, startup, stream
from .boot import Boot
from .client import Chunk, Client
from .engine import Engine
from .prompt import Prompts, Request
from .report import say
from .settings import Settings
from .watch import STALL, Watch
from .weights import obtain

_CACHE = "/var/cache/cogsmith"
_WARM_UP_TOKENS = 4
# A stream breaks up to a second before the engine's exit is seen.
_MOMENT = 3.0

_PROGRESS = 5.0
# To the first token of a constrained answer: its grammar is built before.
_CONSTRAINT_SECONDS = 60.0
_CANCELLED = re.compile("cancelled", re.IGNORECASE)

RecordMetric = Callable[[str, Any], None]


class Model:
    """One model, ready to answer: made by `Model.start` in Cog's event loop, or by `Model.start_apart` in one of its own.

    `stream` and `answer` are called in Cog's loop.
    """

    def __init__(
        self, settings: Settings, engine: Engine, client: Client, record_metric: RecordMetric
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._prompts = Prompts(settings)
        self._engine = engine
        self._client = client
        self._record_metric = record_metric
        # Settable because a test of a hang should not take half a minute.
        self._watch = Watch(engine, client, float(os.environ.get("COGSMITH_STALL_SECONDS", STALL)))
        self._answering: set[asyncio.Task[Any]] = set()
        engine.when_failed(self._end_answers)

    @classmethod
    async def start(cls, weights: str | None, record_metric: RecordMetric, root: Path | None = None) -> Self:
        """Fetch the weights, start the engine, and have it answer once.

        weights: where the weights are (Cog hands over COG_WEIGHTS), None: what the image says.
        root: the folder of settings.json and weights.json; the working folder by default.
        Raises an exception whose text is one coded sentence; nothing is left running.
        """
        root = root or Path.cwd()
        settings = Settings.load(root / "settings.json")
        Prompts(settings)
        boot = Boot()
        cache = Path(os.environ.get("COGSMITH_CACHE", _CACHE))
        source = None if weights is None else str(weights)
        say("cogsmith: fetching the weights")
        fetched = await asyncio.to_thread(
            obtain, source, root / "weights.json", settings.weights_url, cache, _Progress()
        )
        boot.fetched(fetched, 0.0)
        importing = asyncio.create_task(asyncio.to_thread(_import_what_cog_will))
        starting = boot.now()
        engine = await Engine.start(settings, fetched.folder, root)
        await importing
        model = cls(settings, engine, Client(engine.root, settings.context), record_metric)
        boot.add("engine_import", starting, engine.engine_start)
        boot.add("load", starting + engine.engine_start, engine.load)
        warming = boot.now()
        try:
            await model._warm_up()
        except BaseException:
            await model.stop()
            raise
        boot.add("warm_up", warming, boot.now() - warming)
        boot.report(engine.log.parent)
        # Cog closes the setup's log when setup returns, and a line written just before can miss it.
        await asyncio.sleep(0.1)
        return model

    @classmethod
    def start_apart(cls, weights: str | None, record_metric: RecordMetric) -> Self:
        """The same for a Cog that does not await `setup` (before 0.18): in an event loop that lives as long as the process."""
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="cogsmith", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(cls.start(weights, record_metric), loop).result()

    def stream(self, inputs: Mapping[str, object]) -> Iterator[str]:
        """Start one prediction; the pieces of its answer, live. To be returned from `async def run`.

        The iterator raises InputError or EngineError. See stream.py for how a cancel gets here.
        """
        return stream.live(self._prediction(inputs), self._loop)

    async def answer(self, inputs: Mapping[str, object]) -> str:
        """The whole answer of one prediction, for a `run` that returns text. A cancel of its task ends it.

        Raises InputError or EngineError.
        """
        whole = asyncio.run_coroutine_threadsafe(self._whole(inputs), self._loop)
        try:
            return await asyncio.wrap_future(whole)
        except errors.CodedError as error:
            # Cog reports an error that has this word in it, quoted from the input perhaps, as a canceled prediction.
            error.args = (_CANCELLED.sub("canceled", str(error)),)
            raise

    async def _whole(self, inputs: Mapping[str, object]) -> str:
        async with aclosing(self._prediction(inputs)) as pieces:
            return "".join([piece async for piece in pieces])

    def healthy(self) -> bool:
        return self._engine.failure is None

    async def stop(self) -> None:
        """End the engine. Not needed when the process ends: see lifeline.py."""
        await self._client.close()
        await self._engine.stop()

    async def _warm_up(self) -> None:
        """Have it answer once. Kernels that do not work show here, while /health has long said 200."""
        say("cogsmith: asking for a first answer")
        await self._client.learn_model()
        request = self._prompts.warm_up(_WARM_UP_TOKENS)
        try:
            async with (
                asyncio.timeout(self._settings.engine.start_timeout),
                aclosing(self._answer(request)) as pieces,
            ):
                async for _ in pieces:
                    pass
        except TimeoutError:
            raise startup.not_ready(self._settings.engine.start_timeout, self._engine.log_text()) from None
        except errors.EngineError as error:
            raise startup.explain(self._engine.log_text(), f"its first answer failed: {error}") from None

    async def _prediction(self, inputs: Mapping[str, object]) -> AsyncGenerator[str, None]:
        # All errors are raised here, from the iterator: of what `run` itself raises, Cog reports an error that has
        # the word "cancelled" in it, quoted from the input perhaps, as a canceled prediction.
        if self._engine.failure is not None:
            raise self._engine.failure
        async with aclosing(self._answer(self._prompts.request(inputs))) as pieces:
            async for piece in pieces:
                yield piece

    async def _answer(self, request: Request) -> AsyncGenerator[str, None]:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            async with aclosing(self._pieces(request)) as pieces:
                async for piece in pieces:
                    yield piece
        except (aiohttp.ClientError, ConnectionError, errors.EngineError) as error:
            raise await self._reason(error) from None
        except asyncio.CancelledError:
            if self._engine.failure is not None:
                raise self._engine.failure from None
            raise
        finally:
            self._answering.discard(task)

    async def _pieces(self, request: Request) -> AsyncGenerator[str, None]:
        counts = _Counts(self._record_metric)
        thinking = _Thinking(self._settings.output.reasoning == "show")
        with self._watch.prediction() as token:
            async with aclosing(self._chunks(request)) as chunks:
                async for chunk in chunks:
                    self._refuse_clipping(request, chunk)
                    token()
                    counts.add(chunk)
                    if text := thinking.text(chunk):
                        yield text
                    if chunk.finish_reason == "length" and request.constraint is not None:
                        raise errors.output_cut(request.max_tokens)
        counts.record()

    async def _chunks(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The events of an answer; under a constraint, only so long to the first of them."""
        async with aclosing(self._client.stream(request)) as chunks:
            if request.constraint is not None:
                try:
                    yield await asyncio.wait_for(anext(chunks), _CONSTRAINT_SECONDS)
                except TimeoutError:
                    raise errors.constraint_slow(_CONSTRAINT_SECONDS) from None
            async for chunk in chunks:
                yield chunk

    def _refuse_clipping(self, request: Request, chunk: Chunk) -> None:
        """vLLM shortens max_tokens to what fits, in silence; the first event has the count that shows it."""
        wanted, prompt = request.max_tokens, chunk.prompt_tokens
        if wanted is not None and prompt is not None and prompt + wanted > self._settings.context:
            raise errors.max_tokens_too_large(prompt, wanted, self._settings.context)

    async def _reason(self, error: Exception) -> errors.CodedError:
        """Why an answer broke off: that the engine died or hung explains more than a connection that closed."""
        # Out of the set, or the failure that is waited for would cancel this wait.
        self._answering -= {asyncio.current_task()}
        if failure := await self._engine.failed_within(_MOMENT):
            return failure
        if isinstance(error, errors.CodedError):
            return error
        return errors.stream_broken(f"the connection to the engine broke ({type(error).__name__})")

    def _end_answers(self) -> None:
        # A frozen engine leaves its streams open, and closing the client's session does not wake their readers.
        for task in self._answering:
            task.cancel()


class _Progress:
    """A line in the log each few seconds while weights are fetched."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, there: int, size: int) -> None:
        if time.monotonic() - self._said > _PROGRESS:
            self._said = time.monotonic()
            say(f"weights: {there / 2**30:.1f} of {size / 2**30:.1f} GiB")


class _Thinking:
    """Puts a model's thinking between <think> and </think>, or leaves it out."""

    def __init__(self, show: bool) -> None:
        self._show = show
        self._inside = False

    def text(self, chunk: Chunk) -> str:
        if not self._show:
            return chunk.text
        opens = bool(chunk.reasoning) and not self._inside
        closes = bool(chunk.text or chunk.finish_reason) and (self._inside or opens)
        self._inside = (self._inside or opens) and not closes
        return ("<think>" * opens) + chunk.reasoning + ("</think>" * closes) + chunk.text


def _import_what_cog_will() -> None:
    """Cog imports numpy, where there is one, at a process's first output: 0.3 s in which the first user's tokens wait."""
    with contextlib.suppress(ImportError):
        importlib.import_module("numpy")


class _Counts:
    """The metrics of one prediction."""

    def __init__(self, record: RecordMetric) -> None:
        self._record = record
        self._began = time.monotonic()
        self._first: float | None = None
        self._last = self._began
        self._prompt: int | None = None
        self._output = 0
        self._first_output = 0

    def add(self, chunk: Chunk) -> None:
        if chunk.prompt_tokens is not None and self._prompt is None:
            self._prompt = chunk.prompt_tokens
            self._record("input_token_count", chunk.prompt_tokens)
        if chunk.output_tokens is not None and chunk.output_tokens > self._output:
            self._output = chunk.output_tokens
            self._last = time.monotonic()
            if self._first is None:
                self._first, self._first_output = self._last, chunk.output_tokens
                self._record("time_to_first_token", self._first - self._began)

    def record(self) -> None:
        self._record("output_token_count", self._output)
        # Single-stream speed: the tokens after the first event, by the time they took.
        later = self._output - self._first_output
        if self._first is not None and later > 0 and self._last > self._first:
            self._record("tokens_per_second", later / (self._last - self._first))
