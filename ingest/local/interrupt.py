"""Signals that end the work at hand as Ctrl-C does, and the moments in which they have to wait."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_waiting = False  # in `uninterrupted`
_came = False  # a signal, while waiting


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

    None is started where a signal has come already, and its KeyboardInterrupt was lost: Python ignores what is raised in a finalizer.
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
