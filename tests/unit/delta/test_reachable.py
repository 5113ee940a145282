"""Commits that revert earlier ones, and DELETEs that a RESTORE undid; also for random histories of a simulated table (I4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.delta.delta_log import DeltaLog
from ingest.delta.reachable import deletes, reverts
from ingest.runtime.files import LocalFiles


def write(table: Path, version: int, operation: str, parameters: dict[str, Any] | None = None, *actions: dict[str, Any]) -> None:
    info = {"timestamp": 1_735_787_100_123 + version, "operation": operation, "operationParameters": parameters or {}}
    folder = table / "_delta_log"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{version:020}.json").write_text("\n".join(json.dumps(each) for each in ({"commitInfo": info}, *actions)))


def add(path: str) -> dict[str, Any]:
    return {"add": {"path": path, "dataChange": True}}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True}}


def deleted(table: Path, version: int) -> list[int]:
    return [commit.version for commit in deletes(DeltaLog(LocalFiles(), str(table)), version)]


def is_revert(table: Path, version: int) -> bool:
    return reverts(DeltaLog(LocalFiles(), str(table)).commit(version))


def test_ordinary_commits_revert_nothing(tmp_path: Path) -> None:
    for version, operation in enumerate(("CREATE TABLE", "MERGE", "DELETE", "OPTIMIZE", "VACUUM END", "UPDATE", "WRITE", "REPLACE TABLE")):
        write(tmp_path, version, operation, {"mode": "Append"})
    assert [is_revert(tmp_path, version) for version in range(8)] == [False] * 7 + [True]
    write(tmp_path, 0, "CREATE OR REPLACE TABLE")
    assert not is_revert(tmp_path, 0), "the first commit reverts nothing"


DYNAMIC = {"mode": "Overwrite", "partitionBy": "[]", "isDynamicPartitionOverwrite": True}


@pytest.mark.parametrize("actions", [(add("b"), remove("a")), (remove("a"),), (add("b"),)])
def test_a_dynamic_overwrite_of_an_unpartitioned_table_reverts_everything(tmp_path: Path, actions: tuple[dict[str, Any], ...]) -> None:
    """Delta records the mode, which many users set for all sessions, and not its effect."""
    write(tmp_path, 0, "CREATE TABLE")
    write(tmp_path, 1, "MERGE", None, add("a"))
    write(tmp_path, 2, "WRITE", DYNAMIC, *actions)
    assert is_revert(tmp_path, 2)


@pytest.mark.parametrize("actions", [({"add": {"path": "k=1/b", "partitionValues": {"k": "1"}}}, remove("k=1/a")), ()])
def test_a_dynamic_overwrite_of_some_partitions_reverts_nothing(tmp_path: Path, actions: tuple[dict[str, Any], ...]) -> None:
    write(tmp_path, 0, "CREATE TABLE")
    write(tmp_path, 1, "MERGE", None, add("k=1/a"), add("k=0/a"))
    write(tmp_path, 2, "WRITE", DYNAMIC, *actions)
    assert not is_revert(tmp_path, 2)


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
        ("RESTORE", {"version": 1}),
    ],
)
def test_a_replacement_reverts_everything_before_it(tmp_path: Path, operation: str, parameters: dict[str, Any]) -> None:
    write(tmp_path, 3, operation, parameters)
    assert is_revert(tmp_path, 3)


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
def test_a_partial_overwrite_or_an_append_reverts_nothing(tmp_path: Path, operation: str, parameters: dict[str, Any]) -> None:
    write(tmp_path, 1, operation, parameters)
    assert not is_revert(tmp_path, 1)


def test_a_restore_undoes_deletes_transitively(tmp_path: Path) -> None:
    """Version 4 restores 2, version 7 restores 5, which follows the first RESTORE, and version 8 restores 3, from before it."""
    for version in range(1, 4):
        write(tmp_path, version, "DELETE")
    write(tmp_path, 4, "RESTORE", {"version": "2", "timestamp": None})
    write(tmp_path, 5, "DELETE")
    write(tmp_path, 6, "DELETE")
    write(tmp_path, 7, "RESTORE", {"version": 5})
    assert deleted(tmp_path, 7) == [5, 2, 1]
    assert deleted(tmp_path, 6) == [6, 5, 2, 1], "later commits do not count"
    write(tmp_path, 8, "RESTORE", {"version": 3})
    assert deleted(tmp_path, 8) == [3, 2, 1]


def test_a_delete_before_an_overwrite_counts(tmp_path: Path) -> None:
    write(tmp_path, 0, "DELETE")
    write(tmp_path, 1, "WRITE", {"mode": "Overwrite"})
    write(tmp_path, 2, "DELETE")
    assert deleted(tmp_path, 2) == [2, 0]


def test_deletes_before_a_gap_in_the_log_are_not_counted(tmp_path: Path) -> None:
    for version in (0, 2, 3):
        write(tmp_path, version, "DELETE")
    assert deleted(tmp_path, 3) == [3, 2]
    write(tmp_path, 4, "RESTORE", {"version": 1})
    assert deleted(tmp_path, 4) == []
    write(tmp_path, 4, "RESTORE", {"timestamp": "of before the log"}, add("x"))
    assert deleted(tmp_path, 4) == []


STEPS = st.lists(st.sampled_from(["merge", "empty", "delete", "optimize", "restore", "replace"]), min_size=1, max_size=12)


@settings(max_examples=300)
@given(steps=STEPS, back=st.lists(st.integers(0, 30), min_size=12, max_size=12), by_time=st.booleans())
def test_a_delete_counts_only_while_the_rows_that_it_removed_are_still_gone(
    steps: list[str], back: list[int], by_time: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """DELETE and OPTIMIZE rewrite the files of a simulated table. A RESTORE to a time names no version, so it is found by its files.
    Versions with equal files contain the same rows."""
    table = tmp_path_factory.mktemp("t")
    states: list[tuple[frozenset[str], set[int]]] = []  # (files, DELETE commits that count), by version
    write(table, 0, "CREATE TABLE")
    states.append((frozenset(), set()))
    for step, choice in zip(steps, back, strict=False):
        version = len(states)
        before, counted = states[-1]
        files, operation, parameters = before, "MERGE", {}
        if step == "merge":
            files |= {f"f{version}"}
        elif step in ("delete", "optimize") and files:
            operation, files = step.upper(), frozenset({f"f{version}"})
            counted = counted | {version} if step == "delete" else counted
        elif step == "restore":
            to = choice % version
            operation, parameters = "RESTORE", {"timestamp": "some time"} if by_time else {"version": str(to)}
            if by_time:
                # The newest version with the same files is equivalent to the chosen one.
                to = max(v for v in range(version) if states[v][0] == states[to][0])
            files, counted = states[to]
        elif step == "replace":
            operation, files = "CREATE OR REPLACE TABLE", frozenset()
        write(table, version, operation, parameters, *map(add, sorted(files - before)), *map(remove, sorted(before - files)))
        states.append((files, counted))
    assert set(deleted(table, len(states) - 1)) == states[-1][1]
