"""Maintenance: nothing that a start, a seek or verify relies on is lost, wherever it is cut off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.delta.compaction import compact
from ingest.delta.delta_sql import DataFusion
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.merge_groups import whole
from ingest.delta.table_upkeep import SparkUpkeep
from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.repair import file_sizes
from ingest.repair.caretaker import Caretaker
from ingest.repair.maintenance import Maintenance, Settings, Tended
from ingest.repair.retention import about
from ingest.run import table_lock
from ingest.runtime import crash_points
from ingest.verify.verdict import Verified, verify
from tests.integration.desk import Desk
from tests.integration.lane import Lane, order

pytestmark = pytest.mark.integration

# Everything that is settled, and every file that the newest version does not need.
ALL = Settings(vacuum_s=0, keep_quarantine_s=0, force="a test: nobody reads")


def tend(one: Desk, *, dry_run: bool = False) -> dict[str, Tended]:
    maintenance = Maintenance(None if dry_run else SparkUpkeep(one.session.newSession()), one.places, ALL)
    return {each.table: each for each in maintenance.do().tables}


def verified(one: Desk) -> Verified:
    one.table.epoch.ledger.append()
    found = verify(DataFusion(), one.contract, one.places)
    assert not found.findings, found.findings
    return found


@pytest.mark.slow
def test_a_maintained_table_balances_at_each_step_and_a_batch_a_start_and_a_seek_go_on_from_it(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """I2, I4: compaction and VACUUM change no row. The ledger explains the records that retention removes, also without old files."""
    monkeypatch.setattr(file_sizes, "SAVED_FILES_MIN", 1)
    one = desk()
    one.batch(order("a"), "{")
    one.batch(order("b"), "[")
    verified(one)
    table = f"delta.`{one.places.quarantine}`"
    one.session.sql(f"UPDATE {table} SET state = 'dropped', state_changed_at = TIMESTAMP '2020-01-01' WHERE offset = 1").collect()
    versions = [one.log(name).newest() for name in ("target", "quarantine", "ledger")]
    planned = tend(one, dry_run=True)
    assert (planned["target"].compacted, planned["quarantine"].retired) == (True, 1)
    assert [one.log(name).newest() for name in ("target", "quarantine", "ledger")] == versions, "a dry run changes nothing"

    def dies(point: str, *_: object) -> None:
        if point == "maintain_deleted":
            raise crash_points.InjectedFault(point)

    with monkeypatch.context() as patched:
        patched.setattr(crash_points, "at", dies)
        with pytest.raises(crash_points.InjectedFault):
            tend(one)
    found = verified(one)
    assert (found.quarantine.put, found.quarantine.retired, found.quarantine.found, found.deletes) == (2, 1, 1, ())
    done = tend(one)
    assert (done["target"].files_before, done["target"].files_after, done["quarantine"].retired) == (2, 1, 0)
    assert done["target"].vacuumed >= 2 and done["target"].freed_bytes > 0
    assert len(list(Path(one.places.target).glob("*.parquet"))) == 1
    found = verified(one)
    assert (found.quarantine.put, found.quarantine.retired, found.quarantine.found, found.deletes) == (2, 1, 1, ())
    assert not any(each.retired or each.compacted for name, each in tend(one).items() if name != "ledger"), "once"

    one.table = one.open()  # no run is beside such a maintenance
    one.batch(order("c"), order("a"))
    assert one.rows("id") == [("a",), ("b",), ("c",)]
    verified(one)
    one.table = one.open(Seeking(Aim("table"), accept_gap=False, reason="--to table"))
    assert one.table.epoch.starts == {(0, 0): 6}, "nothing looks missing"
    verified(one)


def test_a_direct_run_lets_spark_cluster_between_two_batches_and_then_goes_on(
    lane: Callable[..., Lane], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM is alone with the table meanwhile: its commits may replace those of another process (I8)."""
    monkeypatch.setattr(file_sizes, "SAVED_FILES_MIN", 1)
    one = lane({"n": "INT"}, layout={"cluster_by": ["n"]})
    one.direct = True
    one.send(*(order(str(number), n=number) for number in range(4)))
    one.run(max_records=1)
    assert compact(DirectWriter(), one.places.target, about(one.places), whole) == 3, "small files are merged all the same"
    one.send(order("4", n=4))
    one.run()
    one.send(order("5", n=5))
    one.run(max_records=1, upkeep=Caretaker(every_s=3600))
    found = [commit for commit in one.log().since(-1) if commit.operation == "OPTIMIZE"]
    assert [commit.parameters["clusterBy"] for commit in found] == ["[]", '["n"]']
    assert one.ids() == [str(number) for number in range(6)]
    with table_lock.beside_a_run(one.places):
        pass
    one.send(order("5", n=9), order("6", n=6))
    one.run()
    assert one.ids() == [str(number) for number in range(7)]
    one.balanced()
