"""The audited version: it follows checks that pass, stays back after a failed one, and goes on when a person releases it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.delta.batch_commit import Snapshot
from ingest.delta.delta_log import DeltaLog
from ingest.quality import audited_version
from ingest.quality.audited_version import AuditState, audit_state
from ingest.runtime.errors import IngestError, InvalidInput
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places

pytestmark = pytest.mark.unit

FILES = LocalFiles()


class Table(NamedTuple):
    """A target, whose versions tests make and judge."""

    places: Places

    def version(self) -> Snapshot:
        """The next version, with one more row."""
        write_deltalake(self.places.target, pa.table({"id": [1]}), mode="append")
        return self.judged()

    def judged(self) -> Snapshot:
        state = DeltaLog(FILES, self.places.target).state()
        assert state is not None
        return state.snapshot

    def passed(self, at: Snapshot) -> None:
        audited_version.passed(FILES, self.places, at, f"run-{at.version}")

    def failed(self, at: Snapshot) -> None:
        audited_version.failed(FILES, self.places, at, f"run-{at.version}", "ids are not unique")

    def release(self, version: int) -> AuditState:
        return audited_version.release(FILES, self.places, version, "Ada L.", "two test rows")

    def state(self) -> tuple[int | None, int | None]:
        """The audited version, and the newest failed version that holds it back."""
        state = audit_state(FILES, self.places)
        return state.audited.version if state.audited else None, state.held.version if state.held else None


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    yield Table(Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders"))


def refused(table: Table, version: int) -> str:
    with pytest.raises(InvalidInput) as error:
        table.release(version)
    return error.value.code


def test_the_audited_version_is_the_newest_one_that_passed(table: Table) -> None:
    assert table.state() == (None, None)
    old, new = table.version(), table.version()
    table.passed(new)
    assert table.state() == (1, None)
    table.passed(old)
    assert table.state() == (1, None), "a check of an older version that ends later changes nothing"
    table.passed(new)
    assert len(audited_version.history(FILES, table.places)) == 1, "nothing has changed, so nothing is written"


def test_a_failed_check_holds_it_back_until_a_person_releases_it(table: Table) -> None:
    table.passed(table.version())
    table.failed(table.version())
    assert table.state() == (0, 1)
    table.passed(table.version())
    assert table.state() == (0, 1), "a check of new rows that passes says nothing of the rows that failed"
    assert table.release(1).held is None
    assert table.state() == (1, None)
    table.passed(table.version())
    assert table.state() == (3, None)
    changes = audited_version.history(FILES, table.places)
    assert [(each["kind"], each["version"], each["by"], each["why"]) for each in changes] == [
        ("passed", 0, None, None),
        ("failed", 1, None, "ids are not unique"),
        ("released", 1, "Ada L.", "two test rows"),
        ("passed", 3, None, None),
    ]


def test_a_release_does_not_cover_a_failure_at_a_later_version(table: Table) -> None:
    for _ in range(2):
        table.failed(table.version())
    table.release(0)
    assert table.state() == (0, 1)
    table.release(1)
    assert table.state() == (1, None)


def test_a_hold_of_a_recreated_table_is_ended_by_a_release_of_the_new_one(table: Table) -> None:
    for _ in range(3):
        table.version()
    table.failed(table.judged())
    shutil.rmtree(table.places.target)
    new = table.version()
    table.passed(new)
    assert table.state() == (None, 2), "the hold stays until a person releases it"
    table.failed(new)
    assert table.state() == (None, 0), "a failure of the new table is the newest, although its version is lower"
    table.failed(table.version())
    table.release(0)
    assert table.state() == (0, 1)
    table.release(1)
    assert table.state() == (1, None)


def test_a_hold_of_the_former_table_alone_does_not_outlive_a_release(table: Table) -> None:
    table.version()
    table.failed(table.version())
    shutil.rmtree(table.places.target)
    table.version()
    table.release(0)
    assert table.state() == (0, None)


def test_only_an_existing_version_can_be_released_and_only_from_a_hold(table: Table) -> None:
    table.version()
    assert refused(table, 0) == "AUDITED_NOT_HELD"
    table.failed(table.judged())
    assert refused(table, 1) == "AUDITED_UNREADABLE"
    assert table.state() == (None, 0)


def test_a_version_is_unreadable_after_vacuum_a_rewind_or_a_new_table(table: Table) -> None:
    table.passed(table.version())
    audited = audit_state(FILES, table.places).audited
    assert audited is not None and audited_version.unreadable(FILES, table.places, audited) is None
    DeltaTable(table.places.target).optimize.compact()
    table.version()
    write_deltalake(table.places.target, pa.table({"id": [2]}), mode="overwrite")
    DeltaTable(table.places.target).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert audited_version.unreadable(FILES, table.places, audited) == "VACUUM has removed 1 of its 1 files"
    first = Path(table.places.target) / f"_delta_log/{0:020}.json"
    text = first.read_text()
    first.write_text(text.replace('"timestamp":1', '"timestamp":2'))
    assert "replaced" in str(audited_version.unreadable(FILES, table.places, audited))
    again = Table(Places(f"{table.places.lake}2", table.places.checkpoints, "shop", "orders"))
    again.version()
    assert audited_version.unreadable(FILES, again.places, audited) == "the target was recreated since"


def test_after_a_rewind_of_the_table_an_older_version_becomes_the_audited_one(table: Table) -> None:
    first = table.version()
    table.passed(table.version())
    (Path(table.places.target) / f"_delta_log/{1:020}.json").unlink()
    table.passed(first)
    assert table.state() == (0, None)


STATE = '{"number": 1, "at": "x", "kind": "passed", "version": 1, "held": null, "audited": '


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "5",
        "{}",
        STATE + "5}",
        STATE + '{"version": "1", "target_id": "x", "stamp": "x", "at": "x"}}',
        STATE + '{"version": 1, "target_id": "x"}}',
        STATE + 'null, "by": 5}',
    ],
)
def test_a_file_with_values_of_other_types_is_damaged(table: Table, text: str) -> None:
    folder = Path(table.places.audited)
    folder.mkdir(parents=True)
    (folder / "000001.json").write_text(text)
    for read in (audited_version.audit_state, audited_version.history):
        with pytest.raises(IngestError, match="AUDITED_DAMAGED"):
            read(FILES, table.places)


def test_a_damaged_file_is_an_error_and_no_guess(table: Table) -> None:
    table.passed(table.version())
    path = Path(table.places.audited) / "000001.json"
    path.write_text(path.read_text()[:-9])
    assert not audited_version.unrecorded(FILES, table.places)
    with pytest.raises(IngestError, match=r"AUDITED_DAMAGED.*only this one, and run `ingest check shop.orders --all`"):
        audit_state(FILES, table.places)


def test_the_view_reads_the_target_at_that_version(table: Table) -> None:
    table.passed(table.version())
    audited = audit_state(FILES, table.places).audited
    assert audited is not None
    expected = f"CREATE OR REPLACE VIEW `shop`.`orders__audited` AS SELECT * FROM delta.`{table.places.target}` VERSION AS OF 0"
    assert audited_version.view_statement(table.places, audited) == expected
