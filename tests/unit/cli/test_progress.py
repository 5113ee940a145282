"""The progress display of a run: one line per batch, a panel or nothing. It keeps working if the reader closes the pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live

from ingest.batch.batch import BatchReport
from ingest.cli import progress
from ingest.cli.progress import Lines, Panel, Silent, rate

PROJECT = Path(__file__).parents[3]


def report(**fields: Any) -> BatchReport:
    known: dict[str, Any] = {"epoch": 2, "records_read": 1000, "inserted": 900, "duplicate": 70, "quarantined": 30}
    known |= {"target_version": 4, "seconds": 0.5, "ends": {0: 700, 1: 300}}
    return BatchReport(table="shop.orders", **{"number": 3, **known, **fields})


def test_the_rate_is_records_per_second() -> None:
    assert rate(report()) == 2000
    assert rate(report(seconds=0.0)) == 0


def test_a_line_shows_the_result_of_a_batch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "clock", lambda: "10:00:00Z")
    lines = Lines()
    lines.ready(["shop.orders"], Path("lake/logs/spark.log"))
    lines.batch(report(), 5)
    lines.batch(report(number=4), None)
    lines.stopping()
    lines.tick()
    counts = "read 1000 · inserted 900 · duplicate 70 · quarantined 30 · 2,000 rows/s"
    assert capsys.readouterr().out.splitlines() == [
        "running: shop.orders · Spark's output: lake/logs/spark.log",
        f"10:00:00Z shop.orders batch 3: {counts} · lag 5 · version 4",
        f"10:00:00Z shop.orders batch 4: {counts} · lag unknown · version 4",
        "stopping: finishing the current batch first",
    ]


def test_the_panel_sums_the_counts_of_all_batches() -> None:
    console = Console(width=140, force_terminal=True, record=True)
    with Live(console=console, auto_refresh=False) as live:
        panel = Panel(live)
        panel.ready(["shop.orders", "shop.payments"], Path("spark.log"))
        panel.batch(report(), 5)
        panel.batch(report(), None)
    text = console.export_text()
    assert "2,000" in text and "1,800" in text and "140" in text
    assert "shop.payments" in text and "unknown" in text and "spark.log" in text


def test_the_silent_display_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    silent = Silent()
    silent.ready(["shop.orders"], Path("spark.log"))
    silent.batch(report(), None)
    silent.stopping()
    with progress.display(quiet=True) as shown:
        assert isinstance(shown, Silent)
    assert capsys.readouterr().out == ""


def test_without_a_terminal_the_display_prints_lines() -> None:
    with progress.display(quiet=False) as shown:
        assert isinstance(shown, Lines)


HEAD = """\
import signal, sys
from tests.unit.cli.test_progress import report
from ingest.cli.progress import Lines, unread
lines = Lines()
lines.ready(["shop.orders"], __import__("pathlib").Path("spark.log"))
sys.stdin.readline()  # until the reader has closed the pipe
assert not lines.gone
lines.batch(report(), 5)
lines.batch(report(), 4)
assert lines.gone
with unread(sys.stdout, sys.stderr):
    print("the end")
"""


def test_a_closed_pipe_is_noticed_and_no_error_is_raised() -> None:
    """`ingest run | head -1` once ended as an internal bug. Python must not report the broken pipe at exit either."""
    command = [sys.executable, "-c", HEAD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None and process.stderr is not None
        assert process.stdout.readline().startswith("running: shop.orders")
        process.stdout.close()
        process.stdin.write("\n")
        process.stdin.close()
        err = process.stderr.read()
        assert process.wait(60) == 0, err
    assert err == ""


PRINTING = """\
import sys
from ingest.cli import app, register

register()
app.app = lambda **_: print("a line")  # a command that prints and has no verdict
sys.argv = ["ingest", "log"]
app.main()
"""


@pytest.mark.parametrize(
    ("command", "errors_too", "code"),
    [
        pytest.param(["-m", "ingest", "status"], False, 0, id="verdict"),
        pytest.param(["-c", PRINTING], False, 141, id="none"),
        pytest.param(["-m", "ingest", "plan", "--json", "--project", "nowhere"], False, 2, id="--json"),
        pytest.param(["-m", "ingest", "plan", "--project", "nowhere"], True, 2, id="2>&1"),
    ],
)
def test_a_command_keeps_its_exit_code_if_nobody_reads_its_output(command: list[str], errors_too: bool, code: int, tmp_path: Path) -> None:
    """Exit code 1 of `ingest check | head -1` comes from the check. A broken pipe must not change the exit code of a verdict or error."""
    reader, writer = os.pipe()
    os.close(reader)
    places = {"INGEST_LAKE": f"{tmp_path}/lake", "INGEST_CHECKPOINTS": f"{tmp_path}/checkpoints", "INGEST_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    words, environment = [sys.executable, *command], {**os.environ, **places}
    errors = writer if errors_too else subprocess.PIPE
    ended = subprocess.run(words, cwd=PROJECT, env=environment, stdout=writer, stderr=errors, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr or "") == (code, "")


@pytest.mark.parametrize(("words", "code"), [(["status", "--help"], 0), (["plan", "--json"], 2), (["plan"], 2)])
def test_closed_output_streams_are_not_an_error(words: list[str], code: int, tmp_path: Path) -> None:
    """`ingest run >&-` once did its work and then ended as an internal bug."""
    command = [sys.executable, "-m", "ingest", *words, *(["--project", str(tmp_path)] if words[0] == "plan" else [])]
    for closing in (">&-", ">&- 2>&-"):
        shell = ["sh", "-c", f'exec "$@" {closing}', "sh", *command]
        ended = subprocess.run(shell, cwd=PROJECT, stderr=subprocess.PIPE, text=True, check=False)
        assert (ended.returncode, "Traceback" in ended.stderr) == (code, False), ended.stderr
