"""Preflight (I6): the table of docs/contract.md for every N, T ≤ 3, each refusal by itself, and the order of several."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from ingest.stream.binding import Binding, Rebase
from ingest.stream.decide import LastWritten
from ingest.stream.mark import Mark
from ingest.stream.offsets import BatchId, OffsetRange, PlannedBatch
from ingest.stream.preflight import Refuse, Resume, Run, Skip, Start, decide, refusals_of
from ingest.stream.quarantine_loss import Lost
from ingest.stream.rebase import NOT_MENDED
from ingest.stream.situation import BrokerFacts, CheckpointFacts, Stranger, TableFacts

QUERY, TOPIC_ID, TABLE_ID = "q-1", "topic-id", "table-id"
NAME = "shop.orders"
BINDING = Binding("orders", TOPIC_ID, TABLE_ID)


def ranges(number: int, end: int | None = None) -> tuple[OffsetRange, ...]:
    """Batch n covers [10n, 10n + 10)."""
    return (OffsetRange(0, 10 * number, end or 10 * number + 10),)


def planned(number: int) -> PlannedBatch:
    return PlannedBatch(BatchId(QUERY, number), "orders", ranges(number), datetime(2025, 1, 2, tzinfo=UTC))


def written(number: int, end: int | None = None) -> LastWritten:
    mark = Mark("shop", "orders", BatchId(QUERY, number), 0, "hash", "orders", TOPIC_ID, ranges(number, end), ())
    return LastWritten(mark, number + 1)


def checkpoint(n: int = 1, committed: int | None = None, **more: Any) -> CheckpointFacts:
    """One that has planned `n` and done `committed` (default: all but the last)."""
    done = n - 1 if committed is None else committed
    known: dict[str, Any] = {"query_id": QUERY, "planned": planned(n) if n >= 0 else None, "binding": BINDING}
    return CheckpointFacts("checkpoints/shop/orders", committed=done, **{**known, **more})


def table(t: int = 0, **more: Any) -> TableFacts:
    """One whose last batch in force is `t`."""
    known: dict[str, Any] = {"id": TABLE_ID, "last": written(t) if t >= 0 else None, "ours": t >= 0, "blank": t < 0}
    known |= {"pair": t if t >= 0 else None, "quarantine": "lake/quarantine", "baseline": True}
    return TableFacts("lake/target", **{**known, **more})


def broker(earliest: int = 0, end: int = 1000, **more: Any) -> BrokerFacts:
    return BrokerFacts(**{"topic": "orders", "topic_id": TOPIC_ID, "bounds": {0: (earliest, end)}, **more})


def code(decision: object) -> str:
    return decision.error.code if isinstance(decision, Refuse) else type(decision).__name__


def by_the_table(n: int, done: bool, t: int, same: bool) -> str:
    """The rows of the design's table for a checkpoint of its own table, written down once more."""
    committed = n if done else n - 1
    if t > n or (t == n and not same) or (0 <= t == n - 1 and not done and not same):
        return "CHECKPOINT_OLD"
    if t < committed:
        return "TABLE_REWOUND"
    if done:
        return "Resume"
    return "Skip" if t == n else "Run"


@pytest.mark.parametrize(("n", "done", "t", "same"), list(product(range(4), (True, False), range(-1, 4), (True, False))))
def test_every_state_of_checkpoint_and_table(n: int, done: bool, t: int, same: bool) -> None:
    """I2, I6"""
    last = None if t < 0 else written(t, None if same else 10 * t + 7)
    facts = table(t, last=last, blank=t < 0)
    decision = decide(NAME, checkpoint(n, n if done else n - 1), facts, broker())
    assert code(decision) == by_the_table(n, done, t, same)
    if isinstance(decision, Resume):
        assert decision.number == n + 1
    elif isinstance(decision, Skip):
        assert (decision.number, decision.version) == (n, t + 1)
    elif isinstance(decision, Run):
        assert decision.number == n


@pytest.mark.parametrize(("n", "done", "t"), list(product(range(4), (True, False), range(1, 4))))
def test_after_a_rebase_the_baseline_counts_as_batch_0(n: int, done: bool, t: int) -> None:
    """I6: T of a rebased checkpoint is 0 while the table has none of its batches."""
    binding = replace(BINDING, epoch=1, predecessors=("q-0",), rebase=Rebase((), ((0, 10),), (), 5))
    facts = table(-1 if t == 1 else t - 1, ours=True, blank=False, stranger=Stranger(3, NAME, "q-0") if t == 1 else None)
    decision = decide(NAME, checkpoint(n, n if done else n - 1, binding=binding), facts, broker())
    # The baseline is made with its commit: one without it was damaged.
    expected = "CHECKPOINT_TORN" if (n, done, t) == (0, False, 1) else by_the_table(n, done, t - 1, True)
    assert code(decision) == expected


EMPTY = CheckpointFacts("checkpoints/shop/orders")


def test_nothing_anywhere_is_a_start() -> None:
    assert decide(NAME, EMPTY, TableFacts("lake/target"), broker()) == Start()
    assert decide(NAME, EMPTY, table(-1), broker()) == Start(), "only our own marked creation"
    assert decide(NAME, checkpoint(-1, -1, binding=None), table(-1), broker()) == Start(), "a checkpoint that planned nothing"
    assert decide(NAME, checkpoint(0), TableFacts("lake/target"), broker()) == Run(0)


REFUSED: dict[str, tuple[CheckpointFacts, TableFacts, BrokerFacts]] = {
    "CHECKPOINT_LOST": (EMPTY, table(3), broker()),
    "TABLE_FOREIGN": (EMPTY, table(-1, blank=False), broker()),
    "TABLE_OWNED": (checkpoint(1, 1), table(1, stranger=Stranger(9, NAME, "q-2")), broker()),
    "TABLE_REPLACED": (checkpoint(1, 1), table(-1, id="another"), broker()),
    "CHECKPOINT_OLD": (checkpoint(1, 1), table(2), broker()),
    "TABLE_REWOUND": (checkpoint(2, 2), table(1, left_out=written(2)), broker()),
    "CHECKPOINT_TORN": (checkpoint(1, 1, torn="metadata"), table(1), broker()),
    "QUARANTINE_REWOUND": (checkpoint(1, 1), table(1, quarantine_lost=Lost("version 3 (RESTORE) left out 1 commits")), broker()),
    "HISTORY_GONE": (checkpoint(1, 1), table(-1, pair=1, pair_known=False, ours=True, blank=False), broker()),
    "TXN_RETENTION": (checkpoint(1, 1), table(1, retention=("lake/target",)), broker()),
    "TOPIC_CHANGED": (checkpoint(1, 1), table(1), broker(topic="other")),
    "TOPIC_RECREATED": (checkpoint(1, 1), table(1), broker(topic_id="another")),
    "PARTITIONS_LOST": (checkpoint(1, 1), table(1), broker(bounds={1: (0, 10)})),
    "RECORDS_EXPIRED": (checkpoint(1, 1), table(1), broker(earliest=21)),
    "BROKER_BEHIND": (checkpoint(1, 1), table(1), broker(end=19)),
    "OFFSETS_UNDECIDED": (checkpoint(1, 1), table(1), broker(decided={0: 19})),
}


@pytest.mark.parametrize("expected", REFUSED)
def test_each_refusal_names_what_was_found_and_the_command_that_mends_it(expected: str) -> None:
    decision = decide(NAME, *REFUSED[expected])
    assert isinstance(decision, Refuse)
    error = decision.error
    assert (error.code, error.exit_code) == (expected, 3)
    assert NAME in error.found and error.expected and error.remedy


def test_no_remedy_names_a_rebase_that_would_be_refused_for_the_same_reason() -> None:
    """And what a rebase mends names it."""
    for expected, facts in REFUSED.items():
        (error,) = (each for each in refusals_of(NAME, *facts) if each.code == expected)
        time_mends = expected == "OFFSETS_UNDECIDED"
        assert ("`ingest rebase" in error.remedy) == (expected not in NOT_MENDED and not time_mends), error.remedy
    for pipeline in ("shop.others", "store.orders"):
        decision = decide(NAME, checkpoint(1, 1), table(1, stranger=Stranger(9, pipeline, "q-2")), broker())
        assert isinstance(decision, Refuse) and decision.error.code == "TABLE_OWNED"
        assert "ingest rebase" not in decision.error.remedy and pipeline in decision.error.remedy


def test_who_reads_another_cluster_or_one_that_lost_records_is_not_told_to_throw_records_away() -> None:
    """A rebase would read another cluster's records into the table, and a topic that is deleted takes what nobody has read yet."""
    recreated, behind = (decide(NAME, *REFUSED[code]) for code in ("TOPIC_RECREATED", "BROKER_BEHIND"))
    assert isinstance(recreated, Refuse) and recreated.error.remedy.startswith("check --bootstrap-servers")
    assert isinstance(behind, Refuse) and behind.error.remedy.startswith("check --bootstrap-servers")
    assert "copy all that the topic still holds" in behind.error.remedy


@pytest.mark.parametrize(
    ("missing", "committed", "named"), [("offsets", 2, "offsets/2"), ("commits", -1, "commits/0")], ids=["ahead", "behind"]
)
def test_a_commit_log_that_does_not_fit_the_offset_log_is_torn(missing: str, committed: int, named: str) -> None:
    facts = table(2) if missing == "offsets" else table(0)
    decision = decide(NAME, replace(checkpoint(1), committed=committed, planned=planned(2 if missing == "offsets" else 1)), facts, broker())
    if missing == "offsets":
        decision = decide(NAME, replace(checkpoint(1), committed=committed), replace(facts, last=written(1)), broker())
        assert code(decision) == "TABLE_REWOUND", "the table has not what the commit log says"
        decision = decide(NAME, replace(checkpoint(1), committed=committed, planned=None, torn=named), facts, broker())
    assert isinstance(decision, Refuse)
    assert decision.error.code == "CHECKPOINT_TORN" and named in decision.error.found


def test_a_topic_id_that_no_broker_has_told_is_no_refusal() -> None:
    bound = replace(BINDING, topic_id="")
    assert decide(NAME, checkpoint(1, 1, binding=bound), table(1), broker(topic_id="")) == Resume(2)


@pytest.mark.parametrize(
    ("bound", "told", "refused"),
    [
        ((TOPIC_ID, "c"), ("", "c"), False),  # a proxy
        ((TOPIC_ID, "c"), ("", "d"), True),
        ((TOPIC_ID, ""), ("", "c"), True),  # brokers that tell ids do not unlearn it
        (("", "c"), (TOPIC_ID, "c"), False),  # upgraded
        (("", "c"), (TOPIC_ID, "d"), True),
        (("", "c"), ("", "d"), True),
        (("", ""), (TOPIC_ID, "d"), False),  # of a version that did not ask for the cluster's
        ((TOPIC_ID, "c"), (TOPIC_ID, "d"), False),
    ],
)
def test_where_topic_ids_cannot_be_compared_those_of_the_clusters_are(bound: tuple[str, str], told: tuple[str, str], refused: bool) -> None:
    """The topic of another cluster may be longer than ours was: a start would read on in the midst of it, and pass over all before."""
    at = replace(BINDING, topic_id=bound[0], cluster=bound[1])
    decision = decide(NAME, checkpoint(1, 1, binding=at), table(1), broker(topic_id=told[0], cluster=told[1]))
    assert code(decision) == ("TOPIC_RECREATED" if refused else "Resume")
    if isinstance(decision, Refuse):
        assert f"of a cluster with id {told[1]}" in decision.error.found and f"`ingest rebase {NAME} --to table`" in decision.error.remedy
        assert decision.error.remedy.startswith("check --bootstrap-servers")


@pytest.mark.parametrize(
    ("n", "done", "earliest", "refused"),
    [(1, True, 20, False), (1, True, 21, True), (1, False, 10, False), (1, False, 11, True)],
)
def test_expired_is_what_is_to_be_read_next_and_is_gone(n: int, done: bool, earliest: int, refused: bool) -> None:
    decision = decide(NAME, checkpoint(n, n if done else n - 1), table(n if done else n - 1), broker(earliest=earliest))
    assert code(decision) == ("RECORDS_EXPIRED" if refused else "Resume" if done else "Run")
    if refused:
        start = 20 if done else 10
        assert isinstance(decision, Refuse) and f"partition 0 [{start}, {earliest}): {earliest - start} offsets" in decision.error.found


def test_a_partition_added_later_whose_first_records_are_gone_is_expired_too() -> None:
    decision = decide(NAME, checkpoint(1, 1), table(1), broker(bounds={0: (0, 50), 1: (5, 9)}))
    assert isinstance(decision, Refuse) and "partition 1 [0, 5): 5 offsets" in decision.error.found


@pytest.mark.parametrize(
    ("bounds", "expected", "said"),
    [
        ({0: (0, 50)}, "Start", ""),
        ({0: (5, 50), 1: (0, 9)}, "Start", ""),
        ({0: (5, 50), 1: (3, 9)}, "RECORDS_EXPIRED", "partition 1 [0, 3): 3 offsets"),
        ({0: (6, 50)}, "RECORDS_EXPIRED", "partition 0 [5, 6): 1 offsets"),
        ({0: (0, 4)}, "BROKER_BEHIND", "partition 0 ends at 4, shop.orders stands at 5"),
        ({1: (0, 9)}, "PARTITIONS_LOST", "no partition 0"),
    ],
)
def test_a_run_killed_before_batch_0_was_planned_has_fixed_where_that_begins(
    bounds: dict[int, tuple[int, int]], expected: str, said: str
) -> None:
    """I6: Spark's own error ended every start, "added partition 1 starts from 3 instead of 0", and named no way on."""
    facts = checkpoint(-1, -1, initial={0: 5})
    decision = decide(NAME, facts, table(-1), broker(bounds=bounds))
    assert code(decision) == expected
    assert not isinstance(decision, Refuse) or said in decision.error.found
    open_ = broker(bounds={0: (0, 50)}, decided={0: 4})
    assert code(decide(NAME, facts, table(-1), open_)) == "OFFSETS_UNDECIDED", "it begins behind a transaction that is open"
    damaged = [each.code for each in refusals_of(NAME, replace(facts, torn="offsets/7"), table(-1), broker(bounds=bounds))]
    assert damaged == ["CHECKPOINT_TORN"], "batches were planned, from where is not known"


def test_of_several_refusals_the_upper_row_is_reported() -> None:
    """Every pair of faults of the checkpoint and the table that can meet, and the broker's come last."""
    owned, both = Stranger(9, "other.pipeline", "q-2"), table(2, retention=("lake/target",), quarantine_lost=Lost("it does"))
    assert code(decide(NAME, EMPTY, replace(both, stranger=owned), broker())) == "CHECKPOINT_LOST"
    assert code(decide(NAME, checkpoint(1, 1), replace(both, stranger=owned), broker())) == "TABLE_OWNED"
    assert code(decide(NAME, checkpoint(1, 1), replace(both, id="another"), broker())) == "TABLE_REPLACED"
    assert code(decide(NAME, checkpoint(1, 1), both, broker(topic_id="another"))) == "CHECKPOINT_OLD"
    assert code(decide(NAME, checkpoint(3, 3), both, broker())) == "TABLE_REWOUND"
    assert code(decide(NAME, checkpoint(2, 2, torn="metadata"), both, broker())) == "CHECKPOINT_TORN"
    assert code(decide(NAME, checkpoint(2, 2), both, broker())) == "QUARANTINE_REWOUND"
    assert code(decide(NAME, checkpoint(2, 2), replace(both, quarantine_lost=None), broker(topic_id="x"))) == "TXN_RETENTION"


def test_a_predecessor_is_no_stranger_and_another_pipeline_always_is() -> None:
    bound = replace(BINDING, predecessors=("q-0",))
    assert decide(NAME, checkpoint(1, 1, binding=bound), table(1, stranger=Stranger(9, NAME, "q-0")), broker()) == Resume(2)
    assert code(decide(NAME, checkpoint(1, 1, binding=bound), table(1, stranger=Stranger(9, "a.b", "q-0")), broker())) == "TABLE_OWNED"


def test_a_batch_whose_pair_delta_keeps_though_it_was_left_out_is_not_run_again_in_vain() -> None:
    """I2: Delta would skip the MERGE of batch 2, and its rows are gone."""
    facts = table(1, pair=2, left_out=written(2))
    assert code(decide(NAME, checkpoint(2), facts, broker())) == "TABLE_REWOUND"
    assert code(decide(NAME, checkpoint(1, 1), facts, broker())) == "TABLE_REWOUND"


def test_a_first_batch_is_not_run_where_one_that_began_before_it_was_left_out_since_the_rebase() -> None:
    """I6: two checkpoints of one table, which know nothing of each other."""
    binding = replace(BINDING, epoch=1, rebase=Rebase((), ((0, 7),), (), 0))
    beside = LastWritten(Mark("shop", "orders", BatchId("q-0", 0), 0, "hash", "orders", TOPIC_ID, ranges(0), ()), 1)
    for told in (beside, None):
        decision = decide(NAME, checkpoint(0, 0, binding=binding), table(-1, ours=True, blank=False, beside=told), broker())
        assert code(decision) == ("TABLE_REWOUND" if told else "Resume")
        if isinstance(decision, Refuse):
            assert "batch 0 (" in decision.error.found and "query q-0" in decision.error.found
            assert "`ingest rebase shop.orders --to table`" in decision.error.remedy


def test_a_baseline_that_is_no_longer_in_force_is_no_batch_0() -> None:
    binding = replace(BINDING, epoch=1, predecessors=("q-0",), rebase=Rebase((), ((0, 10),), (), 5))
    facts = table(-1, ours=True, blank=False, baseline=False)
    assert code(decide(NAME, checkpoint(0, 0, binding=binding), facts, broker())) == "TABLE_REWOUND"
    gone = TableFacts("lake/target")
    assert code(decide(NAME, checkpoint(0, 0, binding=binding), gone, broker())) == "TABLE_REWOUND"


def test_all_refusals_that_hold_are_told_for_a_rebase_mends_only_some() -> None:
    both = table(2, retention=("lake/target",), quarantine_lost=Lost("it does"))
    found = [each.code for each in refusals_of(NAME, checkpoint(1, 1), both, broker(topic="other"))]
    assert found == ["CHECKPOINT_OLD", "QUARANTINE_REWOUND", "TXN_RETENTION", "TOPIC_CHANGED"]


def test_a_topic_made_anew_with_fewer_partitions_has_lost_none_of_ours() -> None:
    """A rebase mends the one and not the other."""
    found = [each.code for each in refusals_of(NAME, checkpoint(1, 1), table(1), broker(topic_id="another", bounds={1: (0, 5)}))]
    assert found == ["TOPIC_RECREATED"]


def test_a_ledger_that_knows_batches_is_no_start_though_checkpoint_and_target_are_gone() -> None:
    """I6: `starting_offsets: latest` would leave out what came since, and new batches would not add up with those that it has."""
    for facts in (TableFacts("lake/target", recorded=True), table(-1, recorded=True)):
        decision = decide(NAME, EMPTY, facts, broker())
        assert isinstance(decision, Refuse) and decision.error.code == "CHECKPOINT_LOST"
        assert "ledger" in decision.error.found and "move the ledger and the quarantine away" in decision.error.remedy
        assert "CHECKPOINT_LOST" not in NOT_MENDED


@pytest.mark.parametrize(("n", "done"), [(2, False), (1, True)])
def test_copies_of_table_and_checkpoint_that_a_ledger_of_later_knows_more_than_are_refused(n: int, done: bool) -> None:
    """I2, I7: other ranges would get the numbers of batches that the ledger has, and it would vouch for the wrong ones."""
    state = checkpoint(n, n if done else n - 1)
    assert isinstance(decide(NAME, state, table(1, ledgered=1), broker()), Resume | Run)
    decision = decide(NAME, state, table(1, ledgered=3), broker())
    assert isinstance(decision, Refuse) and decision.error.code == "TABLE_REWOUND"
    assert f"the ledger of {NAME} has batch 3" in decision.error.found, decision.error.found
    gone = decide(NAME, checkpoint(0), TableFacts("lake/target", ledgered=0), broker())
    assert isinstance(gone, Refuse) and gone.error.code == "TABLE_REWOUND"


@pytest.mark.parametrize(("n", "done"), [(2, False), (1, False), (1, True)], ids=["to be run", "to be skipped", "done"])
def test_the_tables_last_batch_is_of_the_topic_that_the_checkpoint_is_bound_to(n: int, done: bool) -> None:
    """I2: also where the next one is to be run and begins at the right offset. An id that a broker did not tell once is no other one."""
    last = written(1)
    for topic_id, bound, expected in (
        (TOPIC_ID, TOPIC_ID, "Resume" if done else "Run" if n == 2 else "Skip"),
        ("", TOPIC_ID, "Resume" if done else "Run" if n == 2 else "Skip"),
        (TOPIC_ID, "", "Resume" if done else "Run" if n == 2 else "Skip"),
        ("another", TOPIC_ID, "CHECKPOINT_OLD"),
    ):
        facts = table(1, last=replace(last, mark=replace(last.mark, topic_id=topic_id)))
        state = checkpoint(n, n if done else n - 1, binding=replace(BINDING, topic_id=bound))
        decision = decide(NAME, state, facts, broker())
        assert code(decision) == expected
        if isinstance(decision, Refuse):  # else nothing in it says what is wrong: the ranges fit
            assert f"of topic id {bound}" in decision.error.found and f"of topic id {topic_id}" in decision.error.found
