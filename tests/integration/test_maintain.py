"""Maintenance: nothing that a start, a seek or verify relies on is lost, wherever it is cut off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.delta.delta_sql import DataFusion
from ingest.delta.table_upkeep import SparkUpkeep
from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.repair import file_sizes
from ingest.repair.maintenance import Maintenance, Settings, Tended
from ingest.runtime import crash_points
from ingest.verify.verdict import Verified, verify
from tests.integration.desk import Desk
from tests.integration.lane import order

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
        if point == "maintain_counted":
            raise crash_points.InjectedFault(point)

    with monkeypatch.context() as patched:
        patched.setattr(crash_points, "at", dies)
        with pytest.raises(crash_points.InjectedFault):
            tend(one)
    assert verified(one).quarantine.found == 2, "counted, but not deleted"
    done = tend(one)
    assert (done["target"].files_before, done["target"].files_after, done["quarantine"].retired) == (2, 1, 1)
    assert done["target"].vacuumed >= 2 and done["target"].freed_bytes > 0
    assert len(list(Path(one.places.target).glob("*.parquet"))) == 1
    found = verified(one)
    assert (found.quarantine.put, found.quarantine.retired, found.quarantine.found, found.deletes) == (2, 1, 1, ())
    assert not any(each.retired or each.compacted for name, each in tend(one).items() if name != "ledger"), "once"

    one.batch(order("c"), order("a"))
    assert one.rows("id") == [("a",), ("b",), ("c",)]
    verified(one)
    one.table = one.open(Seeking(Aim("table"), accept_gap=False, reason="--to table"))
    assert one.table.epoch.starts == {0: 6}, "nothing looks missing"
    verified(one)
