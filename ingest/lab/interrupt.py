"""Signals that end the work at hand as Ctrl-C does, and the moments in which they have to wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
_waiting = False  # in `uninterrupted`
_came = False  # a signal, since `interrupted_by` began


@contextmanager
def interrupted_by(*signals: signal.Signals) -> Iterator[None]:
    """Let these signals and Ctrl-C raise KeyboardInterrupt, once: while that is cleaned up after, no further one disturbs."""

    def interrupt(number: int, _: Any) -> None:
        global _came
        for each in (*signals, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        _came = True
        if not _waiting:
            raise KeyboardInterrupt

    global _came
    _came = False
    # Ignored from outside (nohup) stays ignored, but for Ctrl-C: a shell's background job has it ignored and must still end.
    caught = [each for each in signals if signal.getsignal(each) is not signal.SIG_IGN] + [signal.SIGINT]
    before = {each: signal.signal(each, interrupt) for each in caught}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler or signal.SIG_DFL)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """What interrupts within `interrupted_by` waits for the end of this: a process started here is known to whoever must end it.

    None is started where a signal has come already, and its KeyboardInterrupt was lost: whoever was at work has dropped it.
    """
    global _waiting
    if _came:
        raise KeyboardInterrupt
    _waiting = True
    try:
        yield
    finally:
        _waiting = False
    if _came:
        raise KeyboardInterrupt


def apart(work: Callable[[], T]) -> T:
    """What `work` returns or raises, from a thread of its own: kafka-python 3.0.12 drops an interrupt that meets it within its loop."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="apart", daemon=True).start()
    return done.result()
