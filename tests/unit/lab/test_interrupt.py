"""Signals are raised once, as KeyboardInterrupt, and never between the start of a process and its registration."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress

import pytest

from ingest.lab.interrupt import apart, interrupted_by, uninterrupted


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_raises_keyboard_interrupt(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interrupted_by(signal.SIGTERM):
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_second_signal_does_not_disturb_the_cleanup() -> None:
    cleaned = False
    with pytest.raises(KeyboardInterrupt), interrupted_by(signal.SIGTERM):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            cleaned = True
    assert cleaned


def test_a_signal_within_uninterrupted_is_raised_at_its_end() -> None:
    started = []
    with pytest.raises(KeyboardInterrupt), interrupted_by(signal.SIGTERM), uninterrupted():
        os.kill(os.getpid(), signal.SIGTERM)
        started.append("known")
    assert started == ["known"]


def test_a_suppressed_interrupt_ends_the_work_before_its_next_process_starts() -> None:
    started = []
    with pytest.raises(KeyboardInterrupt), interrupted_by(signal.SIGTERM):
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        with uninterrupted():
            started.append(1)
    with interrupted_by(signal.SIGTERM), uninterrupted():
        started.append(2)
    assert started == [2], "and new work starts normally"


def test_work_that_suppresses_interrupts_is_abandoned() -> None:
    """kafka-python treats an exception raised within its loop as a failed task, and continues."""
    end = threading.Event()

    def suppresses() -> None:
        with suppress(KeyboardInterrupt):
            end.wait(30)
        end.wait(30)

    with pytest.raises(KeyboardInterrupt), interrupted_by(signal.SIGTERM):
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        apart(suppresses)
    end.set()
    assert apart(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        apart(lambda: 1 / 0)
