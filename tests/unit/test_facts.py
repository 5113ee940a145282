"""What preflight reads of a table, from logs as another engine writes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from arro3.core import Array, DataType, Table
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import CommitProperties, Transaction

from ingest.files import LocalFiles
from ingest.places import Places
from ingest.stream.binding import Binding, Rebase, write_binding
from ingest.stream.decide import LastWritten
from ingest.stream.facts import RETENTION, checkpoint_facts, table_facts
from ingest.stream.ledger_summary import LedgerSummary
from ingest.stream.mark import Mark
from ingest.stream.offsets import BatchId, OffsetRange
from ingest.stream.preflight import Refuse, Start, decide
from ingest.stream.situation import CheckpointFacts, TableFacts
from tests.polling import until

pytestmark = pytest.mark.unit

MARK = Mark("shop", "orders", BatchId("q0", 0), 0, "hash", "orders", "T", (OffsetRange(0, 0, 10),), ())


def written(places: Places, mark: Mark) -> DeltaTable:
    """A target with one batch more."""
    pair = Transaction(mark.app_id("target"), mark.id.number, last_updated=1)  # one without a time never expires
    properties = CommitProperties(custom_metadata={"userMetadata": mark.to_json()}, app_transactions=[pair])
    rows = Table.from_pydict({"n": Array([1], type=DataType.int32())})
    write_deltalake(places.target, rows, mode="append", commit_properties=properties)
    return DeltaTable(places.target)


def seen(places: Places) -> TableFacts:
    return table_facts(LocalFiles(), places, CheckpointFacts(places.checkpoint, "q0"), LedgerSummary(), None)


def test_a_table_whose_pairs_have_expired_is_still_known_by_the_batches_in_its_log(tmp_path: Path) -> None:
    """I6: what mends it is to unset the property, and not to move the table away as a foreign one."""
    places = Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")
    table = written(places, MARK)
    assert (seen(places).ours, seen(places).pair) == (True, 0)
    table.alter.set_table_properties({RETENTION: "interval 1 seconds"})
    until(lambda: DeltaTable(places.target).transaction_version(MARK.app_id("target")) is None, "a pair that has expired", 60)
    DeltaTable(places.target).create_checkpoint()
    found = seen(places)
    assert (found.ours, found.pair, found.retention) == (True, None, (places.target,))


def test_a_batch_of_a_checkpoint_that_this_ones_rebase_did_not_know_and_that_was_left_out_since_is_told(tmp_path: Path) -> None:
    """I6: the rebase began at version 0."""
    places = Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")
    empty = Table.from_pydict({"n": Array([], type=DataType.int32())})
    write_deltalake(places.target, empty)
    bound = Binding("orders", "T", "id", 1, (), Rebase((), ((0, 7),), (), 0))

    def beside(**changed: object) -> LastWritten | None:
        checkpoint = replace(CheckpointFacts(places.checkpoint, "q1", binding=bound), **changed)  # type: ignore[arg-type]
        return table_facts(LocalFiles(), places, checkpoint, LedgerSummary(), None).beside

    written(places, MARK)
    assert beside() is None, "in force"
    DeltaTable(places.target).restore(0)
    assert beside() == beside(query_id=None) == LastWritten(MARK, 1)
    assert beside(query_id="q0") is None and beside(binding=replace(bound, predecessors=("q0",))) is None, "its own, or a former one's"
    assert beside(binding=replace(bound, rebase=Rebase((), ((0, 7),), (), 2))) is None, "the rebase has found it left out"
    assert beside(binding=replace(bound, rebase=None)) is None, "no rebase"
    assert beside(binding=replace(bound, rebase=Rebase((), ((0, 0),), (), 0))) is None, "its own first batch begins no later"
    assert beside(binding=replace(bound, topic_id="U")) is None and beside(binding=replace(bound, topic_id="")) is not None
    later = replace(MARK, id=BatchId("q0", 1), ranges=(OffsetRange(0, 10, 20),))
    for mark in (MARK, later):
        written(places, mark)
    DeltaTable(places.target).restore(2)
    assert beside(binding=replace(bound, rebase=Rebase((), ((0, 7),), (), 2))) == LastWritten(MARK, 3), "and not the newest of them"
    written(places, replace(MARK, id=BatchId("q1", 1), epoch=1, ranges=(OffsetRange(0, 7, 20),)))
    assert beside() is None, "it has read on since: what was left out before that it has passed over long ago"


@pytest.mark.parametrize(
    ("ranges", "pipeline", "told"),
    [
        ((OffsetRange(0, 10, 20), OffsetRange(1, 0, 5)), "shop", True),
        (
            (OffsetRange(0, 10, 20), OffsetRange(2, 0, 5)),
            "shop",
            False,
        ),  # a partition that was added since: both read it from its beginning
        ((OffsetRange(0, 0, 20),), "another", False),
    ],
)
def test_such_a_batch_is_of_this_table_and_one_partition_of_it_is_enough(
    tmp_path: Path, ranges: tuple[OffsetRange, ...], pipeline: str, told: bool
) -> None:
    places = Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")
    write_deltalake(places.target, Table.from_pydict({"n": Array([], type=DataType.int32())}))
    written(places, replace(MARK, pipeline=pipeline, ranges=ranges))
    DeltaTable(places.target).restore(0)
    bound = Binding("orders", "T", "id", 1, (), Rebase((), ((0, 7), (1, 3)), (), 0))
    checkpoint = CheckpointFacts(places.checkpoint, "q1", binding=bound)
    assert (table_facts(LocalFiles(), places, checkpoint, LedgerSummary(), None).beside is not None) is told


def test_the_log_of_another_table_makes_none_of_ours(tmp_path: Path) -> None:
    places = Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")
    written(places, Mark("shop", "payments", *(getattr(MARK, name) for name in list(MARK.__dataclass_fields__)[2:])))
    assert not seen(places).ours


def test_what_the_ledger_knows_is_told_also_where_the_target_is_gone(tmp_path: Path) -> None:
    """I6: a ledger that outlives the target says that there were batches, and which of this checkpoint's was the last."""
    places = Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")
    known = LedgerSummary(last={"q0": LastWritten(MARK, 1)}, epochs={"q0": 0})
    for query_id, last in (("q0", 0), (None, -1)):
        found = table_facts(LocalFiles(), places, CheckpointFacts(places.checkpoint, query_id), known, None)
        assert (found.id, found.recorded, found.ledgered) == (None, True, last)
    written(places, MARK)
    found = table_facts(LocalFiles(), places, CheckpointFacts(places.checkpoint, "q0"), known, None)
    assert (found.recorded, found.ledgered, seen(places).recorded) == (True, 0, False)


def test_a_rebase_that_was_cut_off_is_told_where_no_checkpoint_is_in_place(tmp_path: Path) -> None:
    """I6: table and ledger may be gone; between the two renames nothing else tells that there was anything, and a start began anew."""
    places = Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")
    files = LocalFiles()
    for text, prepared in (("{", False), (Binding("orders", "T", "t", 1, ("q0",), Rebase((), ((0, 10),), (), 5)).to_json(), True)):
        files.write(f"{places.checkpoint}.rebase-prepared/oncelake/binding.json", text.encode())
        found = checkpoint_facts(files, places)
        decision = decide("shop.orders", found, TableFacts(places.target, "t", blank=True), None)
        assert isinstance(decision, Refuse if prepared else Start)
        if isinstance(decision, Refuse):
            assert decision.error.code == "CHECKPOINT_LOST" and "finishes that one" in decision.error.remedy
            assert f"{places.checkpoint}.rebase-prepared" in decision.error.found
    files.write(f"{places.checkpoint}/offsets/0", b"")
    assert not checkpoint_facts(files, places).prepared, "an old one, or one that was put back"


def test_a_rebased_checkpoint_whose_own_files_alone_are_left_is_torn_and_no_empty_one(tmp_path: Path) -> None:
    """I6: a start would begin anew under the binding of an epoch that jumped over offsets, and be refused from its second one on."""
    places = Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")
    files = LocalFiles()
    bound = Binding("orders", "T", "t", 1, ("q0",), Rebase((), ((0, 10),), (), 5))
    write_binding(files, places.state, replace(bound, epoch=0, predecessors=(), rebase=None))
    assert checkpoint_facts(files, places).empty, "killed in its first start, before Spark wrote anything"
    write_binding(files, places.state, bound)
    found = checkpoint_facts(files, places)
    assert (found.torn, found.empty) == ("offsets/0", False)


def test_a_checkpoint_with_first_offsets_and_without_its_binding_is_torn_before_anything_was_planned(tmp_path: Path) -> None:
    """I6: of a topic made again since, a start would pass over what lies before the first offsets of the one that was there."""
    places = Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")
    files = LocalFiles()
    files.write(f"{places.checkpoint}/metadata", b'{"id":"q0"}')
    assert checkpoint_facts(files, places).empty
    files.write(f"{places.checkpoint}/sources/0/0", b'\0v1\n{"orders":{"0":500}}')
    found = checkpoint_facts(files, places)
    assert (found.torn, found.empty) == ("oncelake/binding.json", False)
    write_binding(files, places.state, Binding("orders", "T", "t"))
    found = checkpoint_facts(files, places)
    assert (found.torn, found.empty, found.initial) == (None, True, {0: 500})


ODD = [f'v1\n{{"orders":{{{each}}}}}' for each in ('"0":-1', '"-1":0', '"0":1.5', '"0":true', '"0":"1"')]


@pytest.mark.parametrize("text", ["v1\n{}", 'v1\n{"orders":{"0":"x"}}', 'v1\n{"orders":5}', 'v1\n["orders"]', "v1\n", "", *ODD])
def test_first_offsets_that_are_damaged_are_torn_only_while_batch_0_is_to_be_planned_from_them(tmp_path: Path, text: str) -> None:
    places = Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")
    files = LocalFiles()
    files.write(f"{places.checkpoint}/metadata", b'{"id":"q0"}')
    write_binding(files, places.state, Binding("orders", "T", "t"))
    files.write(f"{places.checkpoint}/sources/0/0", text.encode())
    assert checkpoint_facts(files, places).torn == "sources/0/0"
    for number in (0, 1):
        files.write(f"{places.checkpoint}/offsets/{number}", b'v1\n{"batchTimestampMs":0}\n{"orders":{"0":5}}')
    found = checkpoint_facts(files, places)
    assert found.torn is None and found.initial is None and found.planned is not None
