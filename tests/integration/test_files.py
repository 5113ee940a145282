"""HadoopFiles behaves like LocalFiles; here both read the same folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.runtime.files import HadoopFiles, LocalFiles

pytestmark = pytest.mark.integration


def test_both_list_the_same_names_in_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    """Including names that contain list separators and brackets."""
    names = ["00000000000000000000.json", "a, b", f", {tmp_path.name}", "ä]", "_last_checkpoint"]
    for name in names:
        (tmp_path / name).write_text("x")
    (tmp_path / "folder").mkdir()
    hadoop, local = HadoopFiles(spark), LocalFiles()
    assert hadoop.names(str(tmp_path)) == local.names(str(tmp_path)) == sorted([*names, "folder"])
    for gone in ("none", "none/below"):
        assert hadoop.names(f"{tmp_path}/{gone}") == local.names(f"{tmp_path}/{gone}") == []
    assert hadoop.names(f"{tmp_path}/folder") == []


def test_a_stamp_distinguishes_a_file_from_its_replacement(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "0.json"
    for files in (HadoopFiles(spark), LocalFiles()):
        path.unlink(missing_ok=True)
        assert files.stamp(str(path)) is None
        path.write_text("one")
        first = files.stamp(str(path))
        assert first is not None and files.stamp(str(path)) == first
        path.unlink()
        path.write_text("two")
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime + 60))
        assert files.stamp(str(path)) not in (first, None)


def test_many_names_are_fetched_in_one_call(spark: SparkSession, tmp_path: Path) -> None:
    """Fetching 3,000 names one by one took 0.7 s."""
    for number in range(500):
        (tmp_path / str(number)).touch()
    client = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    commands = []
    send = client.send_command

    def counted(command: str, *more: object, **named: object) -> object:
        if not command.startswith("m\n"):  # not the commands of Python's garbage collector, which frees objects of earlier tests
            commands.append(command)
        return send(command, *more, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "send_command", counted)
        assert len(HadoopFiles(spark).names(str(tmp_path))) == 500
    assert len(commands) < 150
