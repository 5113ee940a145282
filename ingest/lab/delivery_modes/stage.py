"""The environment of a trial: its topics, its processes, and waits with a deadline."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from kafka import KafkaConsumer, TopicPartition

from ingest.delivery.kafka.group_positions import begin_group
from ingest.delivery.kafka.mode import AtLeastOnce
from ingest.delivery.kafka.producer import Producer
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.delivery_modes.mode_verdict import ModeVerdict, Reader, judge, stuck
from ingest.lab.delivery_modes.mode_worker import Working
from ingest.lab.delivery_modes.reported import Reported
from ingest.lab.delivery_modes.sender import Sending
from ingest.lab.process import launch

PARTITIONS: Final = 2
# A bounced broker is down for some seconds; a dead member's partitions stay unassigned for its session of 6 s.
_WITHIN_S: Final = 90.0
# Failed processes are restarted, as a service manager would do.
_RESTARTS_MAX: Final = 5
_CHECK_EVERY_S: Final = 0.05
# A woken member polls after one more record, and is in the group again after one rebalance.
_QUIET_S: Final = 1.5


class Stage(AbstractContextManager["Stage"]):
    """One candidate in one trial. A context manager that ends all of its processes. Use it from the main thread."""

    def __init__(self, broker: Broker, folder: Path, mode: str, records: int, group: int) -> None:
        self.broker, self.mode, self.records, self.group = broker, mode, records, group
        self._folder = folder
        self.name = f"trial-{uuid.uuid4().hex[:10]}"
        self.source, self.sink, position = (f"{self.name}-{what}" for what in ("in", "out", "position"))
        for topic, partitions in ((self.source, PARTITIONS), (self.sink, PARTITIONS), (position, 1)):
            broker.create_topic(topic, partitions)
        begin_group(self.source, self.source, broker.bootstrap_servers)
        self.reported = Reported(folder / f"{self.name}.told")
        self.sending = Sending(
            mode, broker.bootstrap_servers, self.source, position, PARTITIONS, records, group, str(folder / f"{self.name}.told")
        )
        self.working = Working(mode, broker.bootstrap_servers, self.source, self.sink, group)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.restarts = 0

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait(30)

    def start(self, job: Sending | Working) -> subprocess.Popen[bytes]:
        """Start a sender or a worker in a separate process."""
        module = type(job).__module__
        command = [sys.executable, "-m", module, json.dumps(asdict(job))]
        process, _ = launch(command, marker=module, output=self._log, cwd=Path.cwd(), die_with_parent=True)
        self._processes.append(process)
        return process

    def killed(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the process has killed itself."""
        self.until(lambda: process.poll() is not None, "a process kills itself")
        if process.returncode != -signal.SIGKILL:
            raise stuck(f"a process ended with {process.returncode} before its fault: {self._last_lines()}")

    def ended(self, process: subprocess.Popen[bytes], job: Sending) -> None:
        """Wait until a sender has finished; restart it if it fails."""
        while True:
            self.until(lambda: process.poll() is not None, "a sender ends")  # noqa: B023
            if process.returncode == 0:
                return
            process = self._restarted(replace(job, crash_point=None), process.returncode)

    def worked_off(self, process: subprocess.Popen[bytes], job: Working) -> subprocess.Popen[bytes]:
        """Wait until the group has committed all visible records of the source; restart a failed worker. Returns the current worker."""
        with Reader(self.servers, self.source, "read_committed") as reader:
            ends = {number: found[-1][0] + 1 for number, found in enumerate(reader.read()) if found}
        current = process

        def done() -> bool:
            nonlocal current
            if (code := current.poll()) is not None:
                current = self._restarted(replace(job, crash_point=None), code)
            committed = self.committed()
            return all(committed.get(number, 0) >= end for number, end in ends.items())

        self.until(done, "all records are processed")
        return current

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """Stop a worker with SIGTERM."""
        process.send_signal(signal.SIGTERM)
        self.until(lambda: process.poll() is not None, "a worker ends after SIGTERM")

    def fill(self) -> None:
        """Fill the source without faults, for trials of workers."""
        with Producer(AtLeastOnce(), self.servers) as producer:
            for number in range(self.records):
                producer.send(self.source, b"%d" % number, partition=number % PARTITIONS)

    def committed(self) -> dict[int, int]:
        """The group's committed offsets by partition, without those of open transactions."""
        with KafkaConsumer(
            bootstrap_servers=self.servers, group_id=self.source, enable_auto_commit=False, isolation_level="read_committed"
        ) as reader:
            return {number: reader.committed(TopicPartition(self.source, number)) or 0 for number in range(PARTITIONS)}

    def seen(self, topic: str, level: str = "read_committed") -> list[list[int]]:
        """The record numbers that a reader of this isolation level sees, per partition in offset order."""
        with Reader(self.servers, topic, level) as reader:
            return [[number for _, number in found] for found in reader.read()]

    def settled(self, topic: str) -> None:
        """Wait until no transaction is open in the topic."""
        self.until(
            lambda: self._ends(topic, "read_committed") == self._ends(topic, "read_uncommitted"), f"no transaction is open in {topic}"
        )

    def quiet(self, topic: str) -> None:
        """Wait until nothing has been written to the topic for a while."""
        last, since = self._ends(topic, "read_uncommitted"), time.monotonic()

        def quiet() -> bool:
            nonlocal last, since
            if (now := self._ends(topic, "read_uncommitted")) != last:
                last, since = now, time.monotonic()
            return time.monotonic() - since > _QUIET_S

        self.until(quiet, f"nothing more is written to {topic}")

    def verdict(self, topic: str) -> ModeVerdict:
        """The verdict on the records of this topic, after its transactions have ended."""
        self.settled(topic)
        reported = self.reported.entries() if topic == self.source else ()
        return judge(self.records, self.seen(topic), self.seen(topic, "read_uncommitted"), reported)

    def until(self, reached: Callable[[], bool], what: str) -> None:
        """Poll until `reached` returns True. Raises RunStopped TRIAL_STUCK."""
        deadline = time.monotonic() + _WITHIN_S
        while not reached():
            if time.monotonic() > deadline:
                raise stuck(f"not within {_WITHIN_S:g} s for {self.mode}: {what}. Last lines: {self._last_lines()}")
            time.sleep(_CHECK_EVERY_S)

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    @property
    def _log(self) -> Path:
        return self._folder / f"{self.name}.log"

    def _restarted(self, job: Sending | Working, code: int) -> subprocess.Popen[bytes]:
        self.restarts += 1
        if self.restarts > _RESTARTS_MAX:
            raise stuck(f"a process of {self.mode} failed {self.restarts} times, last with {code}: {self._last_lines()}")
        return self.start(job)

    def said(self) -> list[str]:
        """The lines that the trial's processes have printed."""
        return self._log.read_text(errors="replace").splitlines() if self._log.exists() else []

    def _last_lines(self) -> str:
        return " / ".join(self.said()[-3:]) or "nothing"

    def _ends(self, topic: str, level: str) -> dict[TopicPartition, int]:
        with KafkaConsumer(bootstrap_servers=self.servers, enable_auto_commit=False, isolation_level=level) as reader:
            ends: dict[TopicPartition, int] = reader.end_offsets([TopicPartition(topic, number) for number in range(PARTITIONS)])
            return ends
