"""Interruption: once, as KeyboardInterrupt, and not between a process's start and the moment in which it is known."""

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


def test_a_second_one_does_not_disturb_the_cleaning_up() -> None:
    cleaned = False
    with pytest.raises(KeyboardInterrupt), interrupted_by(signal.SIGTERM):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            cleaned = True
    assert cleaned


def test_within_uninterrupted_it_waits_for_the_end() -> None:
    started = []
    with pytest.raises(KeyboardInterrupt), interrupted_by(signal.SIGTERM), uninterrupted():
        os.kill(os.getpid(), signal.SIGTERM)
        started.append("known")
    assert started == ["known"]


def test_one_that_was_dropped_ends_the_work_before_its_next_process_is_started() -> None:
    started = []
    with pytest.raises(KeyboardInterrupt), interrupted_by(signal.SIGTERM):
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        with uninterrupted():
            started.append(1)
    with interrupted_by(signal.SIGTERM), uninterrupted():
        started.append(2)
    assert started == [2], "and the next work begins anew"


def test_work_that_drops_interrupts_is_left_where_it_stands() -> None:
    """kafka-python takes what is raised within its loop for a failure of one of its tasks, and goes on."""
    end = threading.Event()

    def drops() -> None:
        with suppress(KeyboardInterrupt):
            end.wait(30)
        end.wait(30)

    with pytest.raises(KeyboardInterrupt), interrupted_by(signal.SIGTERM):
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        apart(drops)
    end.set()
    assert apart(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        apart(lambda: 1 / 0)
