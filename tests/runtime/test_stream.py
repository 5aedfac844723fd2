"""The bridge from a task to a generator, called as Cog's worker calls it: coroutines from another thread."""

import asyncio
import gc
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
from cog import CancelationException

from cogsmith_runtime import stream


async def running() -> int:
    return len(asyncio.all_tasks()) - 1


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


class Producer:
    def __init__(self, count: int, delay: float = 0.0, error: Exception | None = None) -> None:
        self.count, self.delay, self.error = count, delay, error
        self.ended = threading.Event()

    async def pieces(self) -> AsyncGenerator[str, None]:
        try:
            for i in range(self.count):
                await asyncio.sleep(self.delay)
                yield str(i)
            if self.error:
                raise self.error
        finally:
            self.ended.set()

    async def run(self) -> Iterator[str]:
        return stream.live(self.pieces(), asyncio.get_running_loop())


def test_pieces_come_in_order_and_the_error_last(loop: asyncio.AbstractEventLoop) -> None:
    producer = Producer(3, error=ValueError("at the end"))
    seen = []
    with pytest.raises(ValueError, match="at the end"):
        for piece in asyncio.run_coroutine_threadsafe(producer.run(), loop).result():
            seen.append(piece)
    assert seen == ["0", "1", "2"]


def test_cancel_after_the_call_ended_stops_the_producer(loop: asyncio.AbstractEventLoop) -> None:
    producer = Producer(100, delay=0.1)
    future = asyncio.run_coroutine_threadsafe(producer.run(), loop)
    pieces = future.result()
    assert next(pieces) == "0"
    future.cancel()
    with pytest.raises(CancelationException):
        next(pieces)
    assert producer.ended.wait(1)


def test_cancel_before_the_call_began(loop: asyncio.AbstractEventLoop) -> None:
    producer = Producer(100, delay=0.1)
    loop.call_soon_threadsafe(time.sleep, 0.1)
    future: Any = asyncio.run_coroutine_threadsafe(producer.run(), loop)
    assert future.cancel()
    time.sleep(0.2)
    tasks = asyncio.run_coroutine_threadsafe(running(), loop).result()
    assert tasks == 0, "nothing goes on in the loop"


def test_a_generator_that_is_given_up_stops_the_producer(loop: asyncio.AbstractEventLoop) -> None:
    producer = Producer(100, delay=0.05)
    pieces: Any = asyncio.run_coroutine_threadsafe(producer.run(), loop).result()
    next(pieces)
    pieces.close()
    assert producer.ended.wait(1)


def test_a_stopped_loop_does_not_leave_a_thread_waiting(loop: asyncio.AbstractEventLoop) -> None:
    producer = Producer(100, delay=0.05)
    pieces = asyncio.run_coroutine_threadsafe(producer.run(), loop).result()
    next(pieces)
    loop.call_soon_threadsafe(loop.stop)
    with pytest.raises(CancelationException):
        list(pieces)


def test_many_predictions_leave_nothing_behind(loop: asyncio.AbstractEventLoop) -> None:
    for _ in range(200):
        assert list(asyncio.run_coroutine_threadsafe(Producer(2).run(), loop).result()) == ["0", "1"]
    gc.collect()
    assert len(stream._futures) == 0
