"""The child process that queries the broker for `ingest status`: it returns errors as values and never outlives its caller."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import psutil
import pytest

from ingest.kafka.broker_answers import BrokerAnswers

MODULE = "ingest.kafka.broker_answers"


def test_a_broker_that_does_not_answer_is_an_error_for_each_topic() -> None:
    with socket.socket() as unused, BrokerAnswers() as broker:
        unused.bind(("127.0.0.1", 0))  # bound, but not listening
        broker.ask(f"127.0.0.1:{unused.getsockname()[1]}", ["orders", "payments"])
        answers = [broker.answer(topic) for topic in ("orders", "payments")]
    assert [isinstance(answer, dict) and answer["code"] for answer in answers] == ["BROKER_UNREACHABLE", "BROKER_UNREACHABLE"]


def test_a_process_that_was_never_asked_ends_with_its_context() -> None:
    with BrokerAnswers() as broker:
        pid = broker._process.pid
    assert not psutil.pid_exists(pid)


def test_a_killed_process_is_an_error_and_not_an_unknown_topic() -> None:
    with BrokerAnswers() as broker:
        broker._process.kill()
        broker._process.wait()
        with pytest.raises(RuntimeError, match="without an answer"):
            broker.answer("orders")


def test_it_ends_when_its_caller_is_killed() -> None:
    held = f"from {MODULE} import BrokerAnswers; b = BrokerAnswers(); print(b._process.pid, flush=True); import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", held], stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        child = psutil.Process(int(caller.stdout.readline()))
        caller.kill()
    deadline = time.monotonic() + 30
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the process that queries the broker is still running"
        time.sleep(0.05)
