"""Which commits are in force: the chain against a simulation of the table's files, for random histories (I2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.files import LocalFiles
from ingest.prove.taken import deletes
from ingest.stream.delta_log import DeltaLog
from ingest.stream.in_force import InForce


def write(table: Path, version: int, operation: str, parameters: dict[str, Any] | None = None, *actions: dict[str, Any]) -> None:
    info = {"timestamp": 1_735_787_100_123 + version, "operation": operation, "operationParameters": parameters or {}}
    folder = table / "_delta_log"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{version:020}.json").write_text("\n".join(json.dumps(each) for each in ({"commitInfo": info}, *actions)))


def add(path: str) -> dict[str, Any]:
    return {"add": {"path": path, "dataChange": True}}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True}}


def chain(table: Path) -> tuple[list[int], int]:
    found = InForce(DeltaLog(LocalFiles(), str(table)))
    return [commit.version for commit in found.commits()], found.before_the_log()


def test_ordinary_commits_are_all_in_force(tmp_path: Path) -> None:
    for version, operation in enumerate(("CREATE TABLE", "MERGE", "DELETE", "OPTIMIZE", "VACUUM END", "UPDATE", "WRITE")):
        write(tmp_path, version, operation, {"mode": "Append"})
    assert chain(tmp_path) == ([6, 5, 4, 3, 2, 1, 0], -1)


def test_a_restore_leaves_out_what_came_after_the_version_it_went_back_to_transitively(tmp_path: Path) -> None:
    """Restored to 2 at 4, on to 6, restored at 7 to 5, which itself stands on the first restore."""
    for version in range(4):
        write(tmp_path, version, "MERGE")
    write(tmp_path, 4, "RESTORE", {"version": "2", "timestamp": None})
    write(tmp_path, 5, "MERGE")
    write(tmp_path, 6, "MERGE")
    write(tmp_path, 7, "RESTORE", {"version": 5})
    assert chain(tmp_path) == ([7, 5, 4, 2, 1, 0], -1)
    write(tmp_path, 8, "RESTORE", {"version": 3})  # and back to what the first one had left out
    assert chain(tmp_path) == ([8, 3, 2, 1, 0], -1)


DYNAMIC = {"mode": "Overwrite", "partitionBy": "[]", "isDynamicPartitionOverwrite": True}


@pytest.mark.parametrize("actions", [(add("b"), remove("a")), (remove("a"),), (add("b"),)])
def test_an_overwrite_of_a_table_without_partitions_is_whole_though_its_mode_be_dynamic(
    tmp_path: Path, actions: tuple[dict[str, Any], ...]
) -> None:
    """Delta tells of the mode, which many set for all their sessions, and not of what it did."""
    write(tmp_path, 0, "CREATE TABLE")
    write(tmp_path, 1, "MERGE", None, add("a"))
    write(tmp_path, 2, "WRITE", DYNAMIC, *actions)
    assert chain(tmp_path) == ([2], -1)


@pytest.mark.parametrize("actions", [({"add": {"path": "k=1/b", "partitionValues": {"k": "1"}}}, remove("k=1/a")), ()])
def test_an_overwrite_of_some_partitions_leaves_what_was_committed(tmp_path: Path, actions: tuple[dict[str, Any], ...]) -> None:
    write(tmp_path, 0, "CREATE TABLE")
    write(tmp_path, 1, "MERGE", None, add("k=1/a"), add("k=0/a"))
    write(tmp_path, 2, "WRITE", DYNAMIC, *actions)
    assert chain(tmp_path) == ([2, 1, 0], -1)


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("CREATE OR REPLACE TABLE", {}),
        ("CREATE OR REPLACE TABLE AS SELECT", {}),
        ("REPLACE TABLE", {}),
        ("CLONE", {}),
        ("WRITE", {"mode": "Overwrite", "partitionBy": "[]"}),
        ("WRITE", {"mode": "Overwrite", "partitionBy": "[]", "predicate": "true", "isDynamicPartitionOverwrite": True}),
        ("CREATE OR REPLACE TABLE AS SELECT", {"partitionBy": '["k"]', "isDynamicPartitionOverwrite": True}),
        ("STREAMING UPDATE", {"outputMode": "Complete", "queryId": "q", "epochId": "3"}),
    ],
)
def test_a_replacement_leaves_out_everything_before_it(tmp_path: Path, operation: str, parameters: dict[str, Any]) -> None:
    for version in range(3):
        write(tmp_path, version, "MERGE")
    write(tmp_path, 3, operation, parameters)
    write(tmp_path, 4, "MERGE")
    assert chain(tmp_path) == ([4, 3], -1)


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("WRITE", {"mode": "Overwrite", "predicate": '["day = 1"]'}),
        ("WRITE", {"mode": "Overwrite", "replaceUsingCols": "id"}),
        ("WRITE", {"mode": "Overwrite", "replaceOnCond": "t.id = s.id"}),
        ("WRITE", {"mode": "Append"}),
        ("STREAMING UPDATE", {"outputMode": "Append"}),
    ],
)
def test_an_overwrite_of_a_part_is_like_a_delete_and_an_append(tmp_path: Path, operation: str, parameters: dict[str, Any]) -> None:
    write(tmp_path, 0, "MERGE")
    write(tmp_path, 1, operation, parameters)
    assert chain(tmp_path) == ([1, 0], -1)


def test_what_the_log_has_cleaned_up_is_in_force_as_far_as_the_chain_reaches_down(tmp_path: Path) -> None:
    for version in range(5, 8):
        write(tmp_path, version, "MERGE")
    assert chain(tmp_path) == ([7, 6, 5], 4)
    write(tmp_path, 8, "RESTORE", {"version": "3"})
    assert chain(tmp_path) == ([8], 3)
    write(tmp_path, 9, "CREATE OR REPLACE TABLE")
    assert chain(tmp_path) == ([9], -1)


def test_before_a_gap_in_the_log_nothing_is_concluded(tmp_path: Path) -> None:
    for version in (0, 1, 3, 4):
        write(tmp_path, version, "MERGE")
    assert chain(tmp_path) == ([4, 3], 2)


STEPS = st.lists(st.sampled_from(["merge", "empty", "delete", "optimize", "restore", "replace"]), min_size=1, max_size=12)


@settings(max_examples=300)
@given(steps=STEPS, back=st.lists(st.integers(0, 30), min_size=12, max_size=12), by_time=st.booleans())
def test_a_batch_is_in_force_exactly_when_its_rows_can_still_be_there(
    steps: list[str], back: list[int], by_time: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each merge adds a row of its own to a simulated table; DELETE and OPTIMIZE rewrite files. A restore to a time names no
    version: it is found by the files, and versions with equal files hold the same rows."""
    table = tmp_path_factory.mktemp("t")
    states: list[tuple[dict[str, frozenset[int]], set[int]]] = []  # (rows by file, versions in force), by version
    write(table, 0, "CREATE TABLE")
    states.append(({}, {0}))
    for step, choice in zip(steps, back, strict=False):
        version = len(states)
        files, force = dict(states[-1][0]), states[-1][1] | {version}
        before = dict(files)
        operation, parameters = "MERGE", {}
        if step == "merge":
            files[f"f{version}"] = frozenset({version})
        elif step in ("delete", "optimize") and files:
            operation = step.upper()
            rows = frozenset().union(*files.values())
            files = {f"f{version}": rows - {max(rows, default=0)} if step == "delete" else rows}
        elif step == "restore":
            target = choice % version
            operation, parameters = "RESTORE", {"timestamp": "some time"} if by_time else {"version": str(target)}
            if by_time:
                # The newest version with the same files is as good as the one that was meant.
                target = max(v for v in range(version) if states[v][0] == states[target][0])
            files, force = dict(states[target][0]), states[target][1] | {version}
        elif step == "replace":
            operation, files, force = "CREATE OR REPLACE TABLE", {}, {version}
        actions = [add(f) for f in sorted(files.keys() - before.keys())] + [remove(f) for f in sorted(before.keys() - files.keys())]
        write(table, version, operation, parameters, *actions)
        states.append((files, force))
    assert set(chain(table)[0]) == states[-1][1]


def test_what_was_in_force_at_a_version_knows_nothing_of_later_commits(tmp_path: Path) -> None:
    for version in range(4):
        write(tmp_path, version, "MERGE")
    write(tmp_path, 4, "RESTORE", {"version": "1"})
    at = InForce(DeltaLog(LocalFiles(), str(tmp_path)), 3)
    assert [commit.version for commit in at.commits()] == [3, 2, 1, 0]


def test_a_delete_counts_unless_a_restore_undid_it_also_behind_an_overwrite(tmp_path: Path) -> None:
    for version, operation in enumerate(("CREATE TABLE", "DELETE", "MERGE", "DELETE")):
        write(tmp_path, version, operation)
    write(tmp_path, 4, "RESTORE", {"version": 2})
    write(tmp_path, 5, "WRITE", {"mode": "Overwrite"})
    write(tmp_path, 6, "DELETE")
    write(tmp_path, 7, "DELETE")
    log = DeltaLog(LocalFiles(), str(tmp_path))
    assert [commit.version for commit in deletes(log, 6)] == [6, 1]
    assert [commit.version for commit in deletes(log)] == [7, 6, 1]
    write(tmp_path, 8, "RESTORE", {"version": 0})
    assert list(deletes(log)) == []
