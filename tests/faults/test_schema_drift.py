"""A producer changes its events: fields are added, dropped or change their type, and numbers arrive as text (I5).

Three tables read one topic, one for each way in which a contract can treat unknown fields. The run is killed while it reads the changed
events, between the commits of quarantine and target.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
import yaml
from kafka import KafkaProducer

from ingest.lab.oracle import OracleVerdict
from ingest.lab.oracle.oracle_tables import select
from ingest.lab.samples.shop import SampleEvent, Shop
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import REPOSITORY
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WAYS = ("ignore", "keep", "quarantine")
PAYLOAD = ("customer_id", "status", "channel", "currency", "amount", "ordered_at", "coupon", "items")
EACH = 25


@dataclass(frozen=True)
class Drift:
    """The text `by` replaces `column` of the sample's order.

    `reason` is the quarantine reason under every contract (None: all accept it). `unknown` contains the fields that the contract does not
    name, as text.
    """

    name: str
    column: str
    by: str
    reason: str | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)

    def events(self) -> Iterator[SampleEvent]:
        for event in Shop(self.name).orders(EACH):
            text, count = re.subn(rf'"{self.column}":("[^"]*"|[^",]+),', lambda _: self.by, event.value.decode(), count=1)
            assert count == 1, event.value
            yield event._replace(value=text.encode())

    def becomes(self, way: str) -> tuple[str | None, Mapping[str, str]]:
        """The reason in quarantine, and the unknown fields that a row keeps."""
        reason = self.reason or ("unknown_field" if self.unknown and way == "quarantine" else None)
        return reason, self.unknown if way == "keep" and reason is None else {}


DRIFTS = (
    Drift("fields added", "channel", '"channel":"web","points":120,"device":{"os":"x"},', None, {"points": "120", "device": '{"os":"x"}'}),
    Drift("a field renamed", "channel", '"sales_channel":"web",', None, {"sales_channel": "web"}),
    Drift("a field dropped", "channel", ""),
    Drift("a field dropped that must be there", "currency", "", "missing_value"),
    Drift("text becomes a number", "customer_id", '"customer_id":4711,', "wrong_type"),
    Drift("a number becomes an object", "amount", '"amount":{"value":12.50},', "wrong_type"),
    Drift("a decimal comes as text", "amount", '"amount":"12.50",'),
    Drift("a whole number comes", "channel", '"channel":"web","items":3,'),
    Drift("a whole number comes as text", "channel", '"channel":"web","items":"3",', "wrong_type"),
)


@dataclass(frozen=True)
class Story:
    lake: Pipeline
    sent: Mapping[str, Drift]
    verdicts: Mapping[str, OracleVerdict]


@pytest.fixture(scope="module")
def story(shared_pipeline: PipelineFactory) -> Story:
    lake = shared_pipeline(tables=tuple(f"orders_{way}" for way in WAYS))
    for way in WAYS:
        write_contract(lake, way)
    lake.produce(1500, poison=20)
    drifted = [(drift, event) for drift in DRIFTS for event in drift.events()]
    send(lake, [event for _, event in drifted])
    lake.produce(800, poison=20, seed=2)
    send(lake, [event for _, event in drifted])  # a producer's retries, batches later
    lake.crash("after_quarantine:kill@3")
    lake.complete()
    lake.verified()
    verdicts = {way: lake.judge(f"orders_{way}", payload_columns=PAYLOAD) for way in WAYS}
    return Story(lake, {event.event_id: drift for drift, event in drifted}, verdicts)


def write_contract(lake: Pipeline, way: str) -> None:
    """The repository's contract of orders, changed: `channel` is nullable, and there is a column `items`."""
    contract = yaml.safe_load((REPOSITORY / "tables" / "orders.yml").read_text(encoding="utf-8"))
    del contract["suite"]  # this test's project has no suite
    (channel,) = (column for column in contract["columns"] if column["name"] == "channel")
    channel["nullable"] = True
    contract["columns"].append({"name": "items", "type": "INT"})
    contract["source"] |= {"topic": lake.topic, "max_records_per_batch": 1500}
    contract |= {"table": f"orders_{way}", "unknown_fields": way, "quarantine": {"max_share": 0.9}}
    (lake.project / "tables" / f"orders_{way}.yml").write_text(yaml.safe_dump(contract), encoding="utf-8")


def send(lake: Pipeline, events: Sequence[SampleEvent]) -> None:
    producer = KafkaProducer(bootstrap_servers=lake.bootstrap_servers, acks="all")
    for event in events:
        producer.send(lake.topic, event.value, event.key)
    producer.flush(60)
    producer.close()


@pytest.mark.parametrize("way", WAYS)
def test_the_oracle_finds_no_event_lost_or_changed(story: Story, way: str) -> None:
    story.verdicts[way].assert_clean()


@pytest.mark.parametrize("way", WAYS)
def test_each_event_is_ignored_kept_or_quarantined_as_the_contract_says(story: Story, way: str) -> None:
    columns = ["order_id", *(["_unknown"] if way == "keep" else [])]
    target, quarantine = (story.lake.delta(kind, f"orders_{way}") for kind in ("target", "quarantine"))
    rows = {order_id: dict(*kept) if any(kept) else {} for order_id, *kept in select(target, columns) if order_id in story.sent}
    reasons = {event_id: reason for event_id, reason in select(quarantine, ["event_id", "reason_code"]) if event_id in story.sent}
    assert not rows.keys() & reasons.keys()
    found = {event_id: (None, kept) for event_id, kept in rows.items()} | {event_id: (reason, {}) for event_id, reason in reasons.items()}
    assert found == {event_id: drift.becomes(way) for event_id, drift in story.sent.items()}
