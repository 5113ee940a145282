"""The faults' effects on a round: one function for each fault name of `ingest.lab.chaos.schedule`."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from ingest.lab.chaos import clock, upkeep
from ingest.lab.chaos.scene import Scene, codes_of, last_of
from ingest.lab.chaos.schedule import ScheduledFault
from ingest.lab.proxy import Api
from ingest.lab.worker import Worker, until
from ingest.runtime.errors import Refused

# A start takes 10 s on an idle machine with two cores; a driver that takes this long hangs.
WORKING_WITHIN_S: Final = 600.0
FENCED_WITHIN_S: Final = 120.0
JVM_ENDS_WITHIN_S: Final = 60.0
REMOVED_WITHIN_S: Final = 10.0
# One driver fault in this many waits for a batch first, so that a round has more than starts.
PROGRESS_EVERY: Final = 3
REFUSED_WITHIN_S: Final = 120.0
# All faults in ON_DRIVER wait until the driver has its locks. Some of those in AT_ANY_TIME hit a start before that.
AT_ANY_TIME: Final = ("kill-driver", "kill-python", "kill-jvm", "lose-checkpoints", "damage-index")
ON_DRIVER: Final = (*AT_ANY_TIME, "second-driver", "optimize", "delete", "clock", "disk-full", "topic-joins")
Injection = Callable[[Scene, ScheduledFault], None]


def inject(scene: Scene, fault: ScheduledFault) -> None:
    """Wait for the state that the fault needs, inject it and count it; `scene.tend` restarts what it killed."""
    scene.tend()
    if fault.name in ON_DRIVER and not (fault.starting and fault.name in AT_ANY_TIME) and not _at_work(scene, fault):
        return
    scene.pass_time(fault.wait_s)
    if scene.findings:
        return
    scene.counts.injected[fault.name] += 1
    INJECTIONS[fault.name](scene, fault)


def _at_work(scene: Scene, fault: ScheduledFault) -> bool:
    if not scene.wait(scene.working, WORKING_WITHIN_S):
        scene.findings = scene.findings or [f"ingest run did not start working within {WORKING_WITHIN_S:.0f} s"]
        return False
    if fault.number % PROGRESS_EVERY == 0:
        done = scene.batches_done()
        if not scene.wait(lambda: scene.batches_done() > done, WORKING_WITHIN_S):
            scene.findings = scene.findings or [f"no batch was committed within {WORKING_WITHIN_S:.0f} s"]
            return False
    return True


def _driver(scene: Scene) -> Worker:
    scene.tend()
    assert scene.driver is not None
    return scene.driver


def _kill_driver(scene: Scene, _: ScheduledFault) -> None:
    _kill_all_of(scene, _driver(scene))


def _kill_all_of(scene: Scene, driver: Worker) -> None:
    scene.counts.sigkills += 1
    driver.kill()
    if scene.driver is driver:
        scene.driver = None


def _topic_joins(scene: Scene, _: ScheduledFault) -> None:
    """Between two runs, so that the next one reads a topic that has records before it starts."""
    _kill_all_of(scene, _driver(scene))
    if scene.writer is not None and scene.writer.poll() is None:
        scene.counts.sigkills += 1
        scene.writer.kill()
    scene.join_topic()


def _kill_python(scene: Scene, _: ScheduledFault) -> None:
    driver = _driver(scene)
    scene.counts.sigkills += 1
    os.kill(driver.pid, signal.SIGKILL)
    # The JVM completes its current write; the next start waits for its lock.
    until(lambda: driver.poll() is not None, JVM_ENDS_WITHIN_S)
    scene.driver = None
    scene.start_driver()
    if driver.ended(JVM_ENDS_WITHIN_S) is None:
        scene.findings.append(f"the JVM of a killed ingest run outlives it by {JVM_ENDS_WITHIN_S:.0f} s ({driver.output.name})")
        driver.kill()


def _kill_jvm(scene: Scene, _: ScheduledFault) -> None:
    driver = _driver(scene)
    if not until(driver.jvms, 2.0):
        _kill_all_of(scene, driver)  # it has no JVM yet
        return
    scene.counts.sigkills += 1
    for process in driver.jvms():
        with suppress(psutil.NoSuchProcess):
            process.kill()
    if driver.ended(WORKING_WITHIN_S) is None:
        scene.findings.append(f"ingest run still runs {WORKING_WITHIN_S:.0f} s after its JVM was killed ({driver.output.name})")


def _lose_checkpoints(scene: Scene, fault: ScheduledFault) -> None:
    """Delete all checkpoints: half of the time between two runs, else during a run, which opens another epoch by itself."""
    if fault.chance < 0.5:
        _kill_all_of(scene, _driver(scene))
    # A concurrent write of Spark may recreate a folder.
    until(lambda: _removed(scene.checkpoints), REMOVED_WITHIN_S)


def _removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def _damage_index(scene: Scene, fault: ScheduledFault) -> None:
    """Delete the index of event ids, put back a copy of one that was deleted, or damage it: cut each segment, or change a bit of it.

    What a process has mapped is damaged between two runs only: reading behind the end of a file kills it.
    """
    damage = fault.chance >= 0.6
    if damage or fault.number % 2:
        _kill_all_of(scene, _driver(scene))
    for ids in scene.checkpoints.glob("*/*/ids"):
        deleted = scene.folder / "deleted-index" / ids.parent.name
        with suppress(OSError):  # a run merges segments, or the disk is full
            if damage:
                for segment in ids.glob("*.ids"):
                    data, at = bytearray(segment.read_bytes()), int(fault.chance * segment.stat().st_size)
                    data[at] ^= 1
                    segment.write_bytes(data if fault.number % 2 else data[:at])
            elif fault.chance < 0.3:
                shutil.copytree(ids, deleted, dirs_exist_ok=True)
                shutil.rmtree(ids, ignore_errors=True)
            else:
                for segment in deleted.glob("*.ids"):
                    shutil.copy2(segment, back := ids / f"{segment.name}.back")
                    back.replace(ids / segment.name)


def _second_driver(scene: Scene, fault: ScheduledFault) -> None:
    driver = _driver(scene)
    driver.stop()
    try:
        began = time.monotonic()
        # A table refuses the second driver only if the stopped one holds its lock; while it starts or ends it may hold some or none.
        if all(scene.held(contract, driver) for contract in scene.contracts):
            _refused(scene, scene.another_driver())
        time.sleep(max(0.0, fault.hold_s - (time.monotonic() - began)))
    finally:
        driver.signal_all(signal.SIGCONT)


def _refused(scene: Scene, second: Worker) -> None:
    try:
        code = second.ended(REFUSED_WITHIN_S)
        if code != Refused.exit_code or set(codes_of(second)) != {"LOCKED"}:
            scene.findings.append(
                f"a second driver beside a stopped one was not refused as LOCKED: {code} {last_of(second)} ({second.output.name})"
            )
    finally:
        second.kill()


def _kill_broker(scene: Scene, fault: ScheduledFault) -> None:
    scene.counts.sigkills += 1
    scene.broker.kill()
    time.sleep(fault.hold_s)
    scene.broker.start()


def _pause_broker(scene: Scene, fault: ScheduledFault) -> None:
    os.kill(scene.broker.pid, signal.SIGSTOP)
    try:
        time.sleep(fault.hold_s)
    finally:
        os.kill(scene.broker.pid, signal.SIGCONT)


def _kill_producer(scene: Scene, fault: ScheduledFault) -> None:
    if scene.writer is not None and scene.writer.poll() is None:
        scene.counts.sigkills += 1
        scene.writer.kill()
    scene.start_writer(again=fault.chance < 0.3)


def _fence_producer(scene: Scene, _: ScheduledFault) -> None:
    """Run two producers with one transactional id: one is fenced and ends, usually the older; a reconnect can reverse that."""
    older = scene.writer
    newer = scene.start_writer()
    if older is None or older.poll() is not None:
        return
    until(lambda: older.poll() is not None or newer.poll() is not None, FENCED_WITHIN_S)
    if older.poll() is None:
        if newer.poll() is None:
            scene.findings.append(f"two producers of one transactional id wrote side by side for {FENCED_WITHIN_S:.0f} s")
            older.kill()
        else:
            scene.writer = older
            # The last manifest must be the live writer's; the oracle does not depend on their order.
            scene.manifests[-1], scene.manifests[-2] = scene.manifests[-2], scene.manifests[-1]


def _lose_reply(scene: Scene, fault: ScheduledFault) -> None:
    kinds = (Api.END_TXN, Api.PRODUCE, Api.ADD_PARTITIONS_TO_TXN, Api.INIT_PRODUCER_ID)
    api = kinds[int(fault.chance * 100) % len(kinds)]
    if fault.chance < 0.5:
        scene.proxy.cut_reply(api)
    elif fault.chance < 0.8:
        scene.proxy.cut_request(api)
    else:
        scene.proxy.delay_reply(api, fault.hold_s)


def _optimize(scene: Scene, fault: ScheduledFault) -> None:
    _beside(scene, lambda: upkeep.optimize(scene, _pick(scene, fault)))


def _delete(scene: Scene, fault: ScheduledFault) -> None:
    _beside(scene, lambda: upkeep.delete(scene, _pick(scene, fault), fault.chance))


def _pick(scene: Scene, fault: ScheduledFault) -> int:
    return fault.number % len(scene.contracts)


def _beside(scene: Scene, work: Callable[[], None]) -> None:
    """Kill the driver, and let the other engine write while the next driver waits for the lock.

    On a local disk two engines must not write at the same time; our lock prevents that.
    """
    _kill_all_of(scene, _driver(scene))
    with upkeep.locked(scene):
        scene.start_driver()
        work()


def _disk_full(scene: Scene, fault: ScheduledFault) -> None:
    assert scene.disk is not None
    scene.disk.fill()
    try:
        scene.pass_time(2 + fault.hold_s)
    finally:
        scene.disk.clear()


def _clock(scene: Scene, fault: ScheduledFault) -> None:
    _kill_all_of(scene, _driver(scene))
    assert scene.clock_library is not None
    scene.clock = clock.moved(scene.clock_library, fault.chance)
    scene.start_driver()
    scene.clock = {}


INJECTIONS: Final[dict[str, Injection]] = {
    "kill-driver": _kill_driver,
    "kill-python": _kill_python,
    "kill-jvm": _kill_jvm,
    "lose-checkpoints": _lose_checkpoints,
    "damage-index": _damage_index,
    "second-driver": _second_driver,
    "kill-broker": _kill_broker,
    "pause-broker": _pause_broker,
    "kill-producer": _kill_producer,
    "fence-producer": _fence_producer,
    "lose-reply": _lose_reply,
    "optimize": _optimize,
    "delete": _delete,
    "disk-full": _disk_full,
    "clock": _clock,
    "topic-joins": _topic_joins,
}
