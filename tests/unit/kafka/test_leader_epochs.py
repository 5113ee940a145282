"""Leader epochs: which offsets an unclean election took back, found from one offset and one epoch (I6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.log import leader_epochs
from ingest.kafka.log.fetch import Reach
from ingest.kafka.log.leader_epochs import LeaderEpochs, taken_back, with_epochs
from ingest.kafka.offsets import OffsetRange, Position
from ingest.runtime.errors import InvalidEnvironment, RunStopped

pytestmark = pytest.mark.unit


@dataclass
class Leader:
    """The log of one partition: the epoch of each offset (None: compacted away), and where each epoch starts. It answers as Kafka's
    LeaderEpochFileCache does, in a replica that has only these records."""

    records: Sequence[int | None]
    newest: int  # the leader's own epoch, which it knows before its first record
    asked: int = field(default=0)

    def reaches(self, epochs: Mapping[int, int]) -> dict[int, Reach]:
        self.asked += 1
        starts = {self.newest: len(self.records)} | {e: self.records.index(e) for e in reversed(self.records) if e is not None}
        return {partition: self._reach(epoch, starts) for partition, epoch in epochs.items()}

    def epoch_at(self, partition: int, offset: int) -> int | None:
        return self.records[offset]

    @classmethod
    def of(cls, *epochs: int, newest: int | None = None) -> Leader:
        return cls([*epochs], epochs[-1] if newest is None else newest)

    def _reach(self, epoch: int, starts: Mapping[int, int]) -> Reach:
        if epoch > self.newest:
            return Reach(-1, -1)
        later = min((start for e, start in starts.items() if e > epoch), default=len(self.records))
        return Reach(max((e for e in starts if e <= epoch), default=epoch), later)


def read(leader: Leader, *ends: int) -> Position:
    """Read up to each of the ends in turn; returns the last position."""
    at: dict[int, Position] = {}
    for end in ends:
        start = at[0].offset if at else 0
        (found,), taken = with_epochs(leader, [OffsetRange(0, start, end)], at)
        assert not taken and found.leader_epoch is not None
        at = {0: Position(end, found.leader_epoch)}
    return at[0]


@pytest.mark.parametrize(
    ("now", "taken"),
    [
        (Leader.of(0, 0, 0, 0), None),
        (Leader.of(0, 0, 0, 0, 0, 0), None),
        (Leader.of(0, 0, 0, 0, 3, 3), None),  # a clean election
        (Leader.of(0, 0, 0, 0, newest=3), None),
        (Leader.of(0, 0, newest=3), (2, 4)),  # not grown yet
        (Leader.of(0, 0, 3, 3, 3, 3), (2, 4)),
        (Leader.of(3, 3, 3, 3, 3, 3), (0, 4)),
    ],
)
def test_records_that_an_election_took_back_are_found_once_the_log_has_grown_again(now: Leader, taken: tuple[int, int] | None) -> None:
    at = read(Leader.of(0, 0, 0, 0, 0), 2, 4)
    assert at == Position(4, 0)
    assert taken_back(now, {0: at}) == ({0: taken} if taken else {})


def test_a_longer_log_of_an_older_epoch_is_another_log_too() -> None:
    """The former leader comes back with records that the elected one never had, and the elected one's are gone."""
    at = read(Leader.of(1, 1, 2, 2), 4)
    assert taken_back(Leader.of(1, 1, 1, 1, 1, 3, 3), {0: at}) == {0: (3, 4)}


def test_a_replica_that_was_made_after_a_compaction_has_the_same_log() -> None:
    """It has no record of the epoch, so it knows nothing of it, and gives the epoch before."""
    at = read(Leader.of(1, 1, 2, 2, 3), 4)
    now = Leader([1, 1, None, None, 3, 5], 5)
    assert now.reaches({0: at.leader_epoch}) == {0: Reach(1, 4)}
    assert taken_back(now, {0: at}) == {}
    (found,), taken = with_epochs(now, [OffsetRange(0, 4, 6)], {0: at})
    assert (found.leader_epoch, taken) == (5, {})


def test_an_epoch_that_the_leader_has_never_heard_of_is_another_log() -> None:
    assert taken_back(Leader.of(1, 1, 1), {0: Position(2, 7)}) == {0: (1, 2)}


def test_brokers_without_epochs_are_not_judged_and_give_none() -> None:
    class Old(Leader):
        def reaches(self, epochs: Mapping[int, int]) -> dict[int, Reach]:
            return {}

    (found,), taken = with_epochs(Old.of(0), [OffsetRange(0, 0, 4)], {})
    assert (found.leader_epoch, taken, taken_back(Old.of(0), {0: Position(4, 1)})) == (None, {}, {})
    (found,), taken = with_epochs(Leader.of(newest=-1), [OffsetRange(0, 0, 4)], {})
    assert (found.leader_epoch, taken) == (None, {})


def test_a_range_without_an_offset_keeps_the_epoch_and_its_log_is_checked_all_the_same() -> None:
    at = {0: Position(2, 0)}
    (kept,), taken = with_epochs(Leader.of(0, 0, newest=5), [OffsetRange(0, 2, 2)], at)
    assert (kept.leader_epoch, taken) == (0, {})
    assert with_epochs(Leader.of(0, 5, 5), [OffsetRange(0, 2, 2)], at)[1] == {0: (1, 2)}
    nothing = Leader.of(0, 0)
    (unknown,), taken = with_epochs(nothing, [OffsetRange(0, 2, 2)], {})
    assert (unknown.leader_epoch, taken, nothing.asked) == (None, {}, 0)


def test_offsets_that_were_planned_and_are_gone_stop_the_batch() -> None:
    assert with_epochs(Leader.of(0, 0, 4), [OffsetRange(0, 2, 5)], {0: Position(2, 0)})[1] == {0: (3, 5)}


def test_a_batch_under_the_same_leader_costs_one_request() -> None:
    leader = Leader.of(7, 7, 7, 7, 7, 7)
    with_epochs(leader, [OffsetRange(0, 2, 4)], {0: Position(2, 7)})
    assert leader.asked == 1


LOGS = st.lists(st.integers(0, 40), min_size=1, max_size=30).map(sorted)


@given(LOGS, st.data())
def test_each_position_has_the_epoch_of_its_record_and_exactly_what_was_lost_is_found(records: list[int], data: st.DataObject) -> None:
    """Whatever the batches, and wherever the log was cut and grew again."""
    ends = sorted({*data.draw(st.lists(st.integers(1, len(records)), min_size=1))})
    at = read(Leader(records, records[-1]), *ends)
    assert at == Position(ends[-1], records[ends[-1] - 1])
    cut, elected = data.draw(st.integers(0, len(records))), records[-1] + data.draw(st.integers(1, 3))
    now = Leader(records[:cut] + [elected] * data.draw(st.integers(0, 30)), elected)
    assert taken_back(now, {0: at}) == ({0: (cut, at.offset)} if cut < at.offset else {})


class Clients:
    """Stands for a client of Kafka; `open` are those that nobody has closed."""

    open = 0

    def __call__(self, *_: object) -> Clients:
        self.open += 1
        return self

    def close(self) -> None:
        self.open -= 1


def asking(monkeypatch: pytest.MonkeyPatch, *answers: Leader | InvalidEnvironment, topics: Sequence[str] = ("t",)) -> LeaderEpochs:
    """With these answers over each connection in turn."""
    left = [*answers]

    class Connection:
        def __init__(self, *_: object, client: Clients) -> None:
            assert client.open == 1, "all topics share the connections: with hundreds, the files of the process would run out"
            self._log = left.pop(0)

        def reaches(self, epochs: Mapping[int, int]) -> dict[int, Reach]:
            if isinstance(self._log, InvalidEnvironment):
                raise self._log
            return self._log.reaches(epochs)

        def epoch_at(self, partition: int, offset: int) -> int | None:
            assert isinstance(self._log, Leader)
            return self._log.epoch_at(partition, offset)

    monkeypatch.setattr(leader_epochs, "client_of", Clients())
    monkeypatch.setattr(leader_epochs, "TopicReader", Connection)
    monkeypatch.setattr(leader_epochs, "ASKED_AGAIN_AFTER_S", 0.0)
    return LeaderEpochs(KafkaOptions("127.0.0.1:1"), dict(enumerate(topics)), "shop.orders", lambda: None)


NEXT, READ = [OffsetRange(0, 3, 5)], {(0, 0): Position(3, 1)}


def test_a_leader_that_was_replaced_and_does_not_know_it_yet_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log ends where the new leader's goes on."""
    deposed = Leader.of(0, 0, 1, 1)
    (found,) = asking(monkeypatch, deposed, Leader.of(0, 0, 1, 1, 2)).with_epochs(NEXT, READ)
    assert found.leader_epoch == 2
    with pytest.raises(RunStopped, match=r"LOG_TRUNCATED.*partition 0 \[4, 5\)"):
        asking(monkeypatch, deposed, deposed).with_epochs(NEXT, READ)


def test_a_leader_that_is_away_for_several_answers_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    away = InvalidEnvironment("BROKER_UNREACHABLE", "no leader.", expected="one.", remedy="wait.")
    (found,) = asking(monkeypatch, *[away] * 4, Leader.of(0, 0, 1, 1, 2)).with_epochs(NEXT, READ)
    assert found.leader_epoch == 2
    monkeypatch.setattr(leader_epochs, "BACK_WITHIN_S", -1.0)
    with pytest.raises(RunStopped, match="BROKER_UNREACHABLE"):
        asking(monkeypatch, away).with_epochs(NEXT, READ)


def test_each_topic_is_asked_for_its_own_log_and_a_refusal_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    orders, returns = Leader.of(0, 0, 1, 1, 2), Leader.of(0, 4, 4)
    ranges, topics = [*NEXT, OffsetRange(0, 1, 3, source=1)], ("orders", "returns")
    found = asking(monkeypatch, orders, returns, topics=topics).with_epochs(ranges, {**READ, (1, 0): Position(1, 0)})
    assert [(each.of, each.leader_epoch) for each in found] == [((0, 0), 2), ((1, 0), 4)]
    with pytest.raises(RunStopped, match=r"LOG_TRUNCATED: topic returns has lost partition 0 \[0, 1\)"):
        asking(monkeypatch, orders, returns, returns, topics=topics).with_epochs(ranges, {**READ, (1, 0): Position(1, 3)})
    alone = asking(monkeypatch, returns, topics=topics).with_epochs(ranges[1:], {})
    assert [each.of for each in alone] == [(1, 0)], "a topic without a range is not asked"
