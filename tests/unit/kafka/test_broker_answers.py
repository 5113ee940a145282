"""The process that asks the broker for `ingest status`: it answers, says its errors as values, and never outlives its caller."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import psutil
import pytest

from ingest.kafka.broker_answers import BrokerAnswers

MODULE = "ingest.kafka.broker_answers"


def test_a_broker_that_is_silent_is_an_error_of_each_topic() -> None:
    with socket.socket() as taken, BrokerAnswers() as broker:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        broker.ask(f"127.0.0.1:{taken.getsockname()[1]}", ["orders", "payments"])
        answers = [broker.answer(topic) for topic in ("orders", "payments")]
    assert [isinstance(answer, dict) and answer["code"] for answer in answers] == ["BROKER_UNREACHABLE", "BROKER_UNREACHABLE"]


def test_who_is_not_asked_is_gone_afterwards() -> None:
    with BrokerAnswers() as broker:
        asked = broker._process.pid
    assert not psutil.pid_exists(asked)


def test_one_that_dies_is_told_and_not_taken_for_an_unknown_topic() -> None:
    with BrokerAnswers() as broker:
        broker._process.kill()
        broker._process.wait()
        with pytest.raises(RuntimeError, match="without an answer"):
            broker.answer("orders")


def test_it_ends_with_its_caller_however_that_dies() -> None:
    held = f"from {MODULE} import BrokerAnswers; b = BrokerAnswers(); print(b._process.pid, flush=True); import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", held], stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        child = psutil.Process(int(caller.stdout.readline()))
        caller.kill()
    deadline = time.monotonic() + 30
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the process that asks the broker is left"
        time.sleep(0.05)
