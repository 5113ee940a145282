"""A secured Kafka: TLS, a password that appears nowhere afterwards, and one clear error for each thing that goes wrong.

The broker and its certificate are real, and the runs are processes. A refusal before the first batch ends with exit code 4 and does not
start Spark. A refusal during the run ends with exit code 5.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from kafka.admin import ACLOperation

from ingest.lab.broker.embedded_broker import Broker
from tests.faults.driver import REPOSITORY, Driver, until
from tests.faults.pipeline import Pipeline
from tests.secured import CANARY, MECHANISM, USER, WRONG, Door, Secure, holding

pytestmark = pytest.mark.timeout(900)

# No Spark: Python and one connection; the rest is for a loaded machine.
REFUSED_WITHIN_S = 20.0
# Spark asks three times, a second apart; the rest is for a loaded machine.
STOPPED_WITHIN_S = 60.0


@pytest.fixture
def lake(door: Door, tmp_path: Path, quick: Mapping[str, str]) -> Iterator[Pipeline]:
    """A lake whose topic the user may read. Producers use the plain listener."""
    topic = f"secured-{uuid.uuid4().hex[:12]}"
    door.broker.create_topic(topic, 2)
    door.access.allow(USER, topic)
    made = Pipeline(tmp_path / "scenario", door.broker.bootstrap_servers, topic, batch=1500, environment=quick)
    yield made
    made.close()


def refused(driver: Driver, code: str) -> str:
    """Check that a run ended before Spark, with exit code 4 and one error; return its output."""
    started = time.monotonic()
    output = driver.ended(4)
    assert time.monotonic() - started < REFUSED_WITHIN_S
    assert output.count("ingest: ") == 1 and output.startswith(f"ingest: {code}: "), output
    assert len(output.splitlines()) == 3 and "Traceback" not in output, output
    assert CANARY not in output and WRONG not in output
    return output


def started_no_spark(lake: Pipeline) -> bool:
    return not list(lake.lake.rglob("spark-*")) and not lake.checkpoint().exists()


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a short-lived child of a driver ended since it was listed
        return ""


@pytest.mark.slow
def test_events_arrive_over_tls_and_the_password_appears_nowhere(door: Door, lake: Pipeline) -> None:
    """Searched are all files of lake, checkpoints, logs, output and broker, and the command lines of all processes."""
    lake.produce(3000, poison=20)
    driver = lake.start(environment=door.login())
    until(lambda: "shop.orders batch " in driver.said or driver.process.poll() is not None, "the first batch")
    commands = [command_line(process) for process in [*driver.left(), psutil.Process(door.broker.pid)]]
    driver.ended(0)
    assert len(lake.written()) > 1, "more than one batch, so that the JVM was still running when its command line was read"
    assert sum("spark" in command for command in commands) >= 1 and CANARY not in "".join(commands)
    folders = (lake.folder, door.broker.folder)
    assert holding(CANARY, *folders) == []
    assert holding(lake.topic, lake.lake / "logs") and holding(USER, door.broker.folder), "the search finds texts that do exist"
    lake.judge().assert_clean()


def test_a_wrong_password_is_refused_with_an_error_that_names_the_user_but_not_the_password(door: Door, lake: Pipeline) -> None:
    output = refused(lake.start(environment=door.login(WRONG)), "KAFKA_AUTHENTICATION")
    assert repr(USER) in output and door.secure.bootstrap_servers in output and MECHANISM in output
    document = json.loads(lake.start("--once", "--json", environment=door.login(WRONG)).ended(4))
    assert document["error"]["code"] == "KAFKA_AUTHENTICATION" and WRONG not in str(document) and holding(WRONG, lake.folder) == []
    assert started_no_spark(lake)


def test_a_mechanism_that_the_broker_does_not_offer_is_refused(door: Door, lake: Pipeline) -> None:
    output = refused(lake.start(environment=door.login(INGEST_KAFKA_SASL_MECHANISM="SCRAM-SHA-512")), "KAFKA_AUTHENTICATION")
    assert "SCRAM-SHA-512" in output


def test_the_doctor_uses_the_same_kafka_login(door: Door, tmp_path: Path) -> None:
    def output(password: str) -> str:
        environment = {**door.login(password), "INGEST_LAKE": str(tmp_path / "lake"), "INGEST_PROJECT": str(REPOSITORY)}
        return Driver(["doctor"], environment, tmp_path / "doctor.log").ended(0)

    assert f"{door.secure.bootstrap_servers} answers" in output(CANARY)
    assert "refused the user 'ann'" in output(WRONG)


def test_ingest_log_reports_a_wrong_password_too(door: Door, lake: Pipeline) -> None:
    lake.produce(100)
    words = ("log", lake.topic, "--bootstrap-servers", door.secure.bootstrap_servers)
    assert f"{lake.topic} partition 0" in lake.command(*words, environment=door.login()).ended(0)
    output = refused(lake.command(*words, environment=door.login(WRONG)), "KAFKA_AUTHENTICATION")
    assert repr(USER) in output


def test_an_unknown_topic_is_refused_by_name(door: Door, lake: Pipeline) -> None:
    """If the user may describe the topic. Otherwise the broker reports only a missing permission."""
    door.access.allow(USER, "no-such-topic")
    lake.write_contracts(topic="no-such-topic")
    assert "'no-such-topic'" in refused(lake.start(environment=door.login()), "TOPIC_UNKNOWN")
    assert started_no_spark(lake)


@pytest.mark.parametrize("left", [(), (ACLOperation.DESCRIBE,)], ids=["none", "describe"])
def test_a_run_without_read_permission_is_refused(door: Door, lake: Pipeline, left: tuple[ACLOperation, ...]) -> None:
    """Describe alone is not enough: the run could plan offsets but read no record."""
    door.access.forbid(USER, lake.topic)
    if left:
        door.access.allow(USER, lake.topic, left)
    output = refused(lake.start(environment=door.login()), "KAFKA_FORBIDDEN")
    assert repr(lake.topic) in output and repr(USER) in output
    assert started_no_spark(lake)


def test_a_certificate_for_another_host_is_refused(door: Door, lake: Pipeline) -> None:
    servers = door.secure.bootstrap_servers.replace("127.0.0.1", "localhost")
    output = refused(lake.start(environment=door.login(INGEST_BOOTSTRAP_SERVERS=servers)), "KAFKA_CERTIFICATE")
    assert "issued for another host" in output


@pytest.mark.slow
def test_an_expired_certificate_or_one_from_an_unknown_authority_is_refused(door: Door, lake: Pipeline, tmp_path: Path) -> None:
    secure = Secure(tmp_path / "tls", days=5, since_days=10)
    with Broker(tmp_path / "expired", beside=secure.listener) as broker:
        expired = Door(broker, secure).login()
        assert "has expired" in refused(lake.start(environment=expired), "KAFKA_CERTIFICATE")
        strange = {**expired, "INGEST_KAFKA_SSL_TRUSTSTORE_LOCATION": str(door.secure.authority)}
        assert "not trusted" in refused(lake.start(environment=strange), "KAFKA_CERTIFICATE")
    assert started_no_spark(lake)


@pytest.mark.slow
def test_a_permission_revoked_during_the_run_stops_it_soon_with_exit_code_5(door: Door, lake: Pipeline) -> None:
    lake.produce(1000)
    driver = lake.start("--every", "0s", environment=door.login())
    until(lambda: lake.batches() or driver.process.poll() is not None, "the first batch")
    door.access.forbid(USER, lake.topic)
    assert driver.died(STOPPED_WITHIN_S) == 5, driver.said
    output = driver.ended(5)
    assert "ingest: KAFKA_FORBIDDEN: shop.orders: " in output and repr(lake.topic) in output
    assert "Traceback" not in output and CANARY not in output and holding(CANARY, lake.folder) == []
