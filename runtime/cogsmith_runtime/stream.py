"""Live tokens from many predictions at once, with cancellation, under Cog 0.17 to 0.23.

Cog gathers an async generator whole before it sends anything, and allows more than one prediction at a time only when
`run` is a coroutine function. A *sync generator returned by a coroutine* is neither: Cog pulls it in a thread of its
own for each prediction and sends every item at once. So `run` starts an asyncio task that feeds a queue, and returns a
generator that drains the queue. The task may run in another event loop than Cog's: the one in which the model was started.

Cog considers `run` done as soon as it has that generator. For a cancel, or a client that went away, it then calls
`.cancel()` on the future of a call that is already over, which does nothing. That future comes from
`asyncio.run_coroutine_threadsafe`, so this module wraps that function to get hold of it and gives the one instance a
`cancel` that also ends the task. Where a Cog makes its future in another way none is found: nothing fails,
and a canceled prediction runs to its end.
"""

import asyncio
import concurrent.futures
import queue
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing
from typing import Any

from cog import CancelationException

_CANCEL_MESSAGE = "the prediction was canceled"
# How often a waiting generator looks whether anybody is left to feed it, in seconds.
_LOOK = 1.0

_Future = concurrent.futures.Future[Any]
# By the id of the coroutine. Weak, so that nothing has to be taken out: a future lives as long as its task does.
_futures: weakref.WeakValueDictionary[int, _Future] = weakref.WeakValueDictionary()
_lock = threading.Lock()
_run_coroutine_threadsafe = asyncio.run_coroutine_threadsafe


def _remembering(coro: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> _Future:
    # The loop may run the coroutine before this thread goes on; the lock makes it wait for the entry.
    with _lock:
        future = _futures[id(coro)] = _run_coroutine_threadsafe(coro, loop)
    return future


asyncio.run_coroutine_threadsafe = _remembering


def live(pieces: AsyncGenerator[str, None], loop: asyncio.AbstractEventLoop) -> Iterator[str]:
    """Start to consume `pieces` in a task of `loop`; return a generator of them for another thread.

    To be called in the coroutine that Cog awaits, and returned from it. An exception of `pieces` is raised from the
    generator; a cancel ends `pieces` at once and raises Cog's CancelationException.
    """
    items: queue.SimpleQueue[str | BaseException | None] = queue.SimpleQueue()
    task = _run_coroutine_threadsafe(_feed(pieces, items), loop)

    def end() -> None:
        task.cancel()
        # A task that is canceled before its first step says nothing itself.
        items.put(CancelationException(_CANCEL_MESSAGE))

    _hook_cancel(_current_future(), end)
    return _drain(items, loop, task)


async def _feed(
    pieces: AsyncGenerator[str, None], items: "queue.SimpleQueue[str | BaseException | None]"
) -> None:
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                items.put(piece)
    except asyncio.CancelledError:
        items.put(CancelationException(_CANCEL_MESSAGE))
    except Exception as error:
        items.put(error)
    else:
        items.put(None)


def _drain(
    items: "queue.SimpleQueue[str | BaseException | None]",
    loop: asyncio.AbstractEventLoop,
    task: _Future,
) -> Iterator[str]:
    try:
        while True:
            try:
                item = items.get(timeout=_LOOK)
            except queue.Empty:
                # A server that shuts down stops the loop first, and this thread would keep its process alive.
                if not loop.is_running():
                    raise CancelationException(_CANCEL_MESSAGE) from None
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        # Also when the thread was told to stop in another way: an exception injected into it, or a closed generator.
        if loop.is_running():
            task.cancel()


def _current_future() -> _Future | None:
    task = asyncio.current_task()
    with _lock:
        return _futures.get(id(task.get_coro())) if task is not None else None


def _hook_cancel(future: _Future | None, end: Callable[[], object]) -> None:
    if future is None:
        return
    if future.cancelled():
        # Between the making of the future and the first step of the coroutine, which takes that step all the same.
        end()
        return
    cancel = future.cancel

    def cancel_both() -> bool:
        end()
        return cancel()

    future.cancel = cancel_both  # type: ignore[method-assign]
