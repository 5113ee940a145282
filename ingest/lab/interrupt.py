"""Signals that end the current work as Ctrl-C does, and blocks that defer them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
_deferring = False  # inside `uninterrupted`
_received = False  # a signal arrived since `interrupted_by` started


@contextmanager
def interrupted_by(*signals: signal.Signals) -> Iterator[None]:
    """Let these signals and Ctrl-C raise KeyboardInterrupt once. Later signals are ignored, so that they cannot disturb the clean-up."""

    def interrupt(number: int, _: Any) -> None:
        global _received
        for each in (*signals, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        _received = True
        if not _deferring:
            raise KeyboardInterrupt

    global _received
    _received = False
    # A signal that the caller ignores (nohup) stays ignored, except SIGINT: shells ignore it for background jobs, which must still end.
    caught = [each for each in signals if signal.getsignal(each) is not signal.SIG_IGN] + [signal.SIGINT]
    before = {each: signal.signal(each, interrupt) for each in caught}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler or signal.SIG_DFL)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer the signals of `interrupted_by` to the end of this block, so that a process started in it is recorded before it must be ended.

    Raises KeyboardInterrupt before the block if a signal has already arrived: a library may have swallowed its KeyboardInterrupt.
    """
    global _deferring
    if _received:
        raise KeyboardInterrupt
    _deferring = True
    try:
        yield
    finally:
        _deferring = False
    if _received:
        raise KeyboardInterrupt


def apart(work: Callable[[], T]) -> T:
    """Run `work` on its own thread and return or raise its result: kafka-python 3.0.12 swallows a KeyboardInterrupt in its event loop."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="apart", daemon=True).start()
    return done.result()
