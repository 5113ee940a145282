"""The command line: help imports no Spark; a failure exits with its code and one message without a traceback, or one JSON document."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import types as T

from ingest.cli import VERBS
from ingest.cli.app import print_error
from ingest.cli.run import seconds
from ingest.delta.table_definitions import LEDGER_FIELDS
from ingest.runtime.errors import InvalidInput
from tests.command import exit_code

PROJECT = Path(__file__).parents[3]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("INGEST_") or name == "INGEST_CACHE"}
MAIN = [sys.executable, "-c", "from ingest.cli.app import main; main()"]


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


Ingest = Callable[..., Done]


@pytest.fixture
def ingest(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ingest:
    """Runs a command in this process, in the project's folder."""

    def run(*words: str) -> Done:
        monkeypatch.chdir(PROJECT)
        code = exit_code(*words)
        out = capsys.readouterr()
        return Done(code, out.out, out.err)

    for name in os.environ:
        if name not in ENVIRONMENT:
            monkeypatch.delenv(name)
    return run


def process(program: str, *words: str) -> Done:
    """Runs a command in its own process."""
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=PROJECT, env=ENVIRONMENT)
    return Done(done.returncode, done.stdout, done.stderr)


def document(done: Done) -> dict[str, Any]:
    """The one JSON document on stdout."""
    value: dict[str, Any] = json.loads(done.stdout)
    assert {"schema", "ok", "tables", "error"} <= value.keys()
    return value


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port on which nothing listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


def with_imports(*modules: str) -> str:
    """A program that runs the command and prints which of these modules it has imported."""
    program = "import sys; sys.argv = ['ingest', *sys.argv[1:]]\ntry:\n    from ingest.cli.app import main; main()\n"
    return program + f"finally:\n    print([m for m in {modules} if m in sys.modules])"


def test_help_imports_no_heavy_library() -> None:
    program = with_imports("pyspark", "delta", "kafka", "deltalake", "sqlglot", "yaml")
    for words in (["--help"], ["run", "--help"], ["broker", "start", "--help"]):
        done = process(program, *words)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "[]"
        assert "Usage: " in done.stdout


def test_status_imports_no_spark(tmp_path: Path, silent_port: int) -> None:
    """Nor numpy: each would take a large part of the command's half second. The lake has a ledger."""
    log = tmp_path / "shop" / "orders" / "ledger" / "_delta_log"
    log.mkdir(parents=True)
    table = {"id": "0", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "configuration": {}}
    table["schemaString"] = T.StructType(list(LEDGER_FIELDS)).json()
    actions = ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": table})
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
    places = ("--lake", str(tmp_path), "--checkpoints", str(tmp_path), "--bootstrap-servers", f"127.0.0.1:{silent_port}")
    done = process(with_imports("pyspark", "numpy", "deltalake"), "status", *places)
    assert "shop.orders" in done.stdout and done.stdout.splitlines()[-1] == "['deltalake']", done


@pytest.mark.parametrize(
    "words, says",
    [
        (("run", "--nope"), "--nope"),
        (("run", "--max-records-per-batch", "0"), "--max-records-per-batch"),
        (("run", "--max-records-per-batch", "50000001"), "--max-records-per-batch"),
        (("nope",), "nope"),
        (("broker", "nope"), "nope"),
        (("broker", "start", "--port", "x"), "--port"),
    ],
)
def test_a_usage_error_exits_2_as_text_and_as_json(ingest: Ingest, words: tuple[str, ...], says: str) -> None:
    done = ingest(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr and "Traceback" not in done.stderr
    done = ingest(*words, "--json")
    assert done.returncode == 2
    error = document(done)["error"]
    assert error["code"] == "USAGE" and says in error["found"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    "words, code",
    [
        (("run", "nosuch"), "CONTRACT_NOT_FOUND"),
        (("run", "--every", "5 fortnights"), "DURATION_INVALID"),
        (("run", "--once", "--every", "5s"), "OPTIONS_CONTRADICT"),
        (("run", "--project", "nowhere"), "CONTRACT_NOT_FOUND"),
    ],
)
def test_wrong_input_exits_2_with_found_expected_and_remedy(ingest: Ingest, words: tuple[str, ...], code: str) -> None:
    done = ingest(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.split(":")[0].strip() for line in done.stderr.splitlines()] == ["ingest", "expected", "to mend"]
    assert code in done.stderr
    done = ingest(*words, "--json")
    assert (done.returncode, document(done)["error"]["code"], done.stderr) == (2, code, "")
    assert document(done)["schema"] == "oncelake/run/1"


def test_an_option_that_the_engine_owns_exits_2_without_its_value(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_KAFKA_ISOLATION_LEVEL", "s3cret")
    done = ingest("run")
    assert done.returncode == 2
    assert "KAFKA_OPTION_OWNED" in done.stderr and "s3cret" not in done.stderr + done.stdout


@pytest.mark.parametrize("as_json", [True, False])
def test_an_unreachable_broker_exits_4_before_spark_starts_with_one_message_per_table(
    silent_port: int, tmp_path: Path, as_json: bool
) -> None:
    program = "from ingest.cli.app import main; main()"
    words = ["run", "orders", "--once", "--bootstrap-servers", f"127.0.0.1:{silent_port}", "--lake", str(tmp_path / "lake")]
    words += ["--checkpoints", str(tmp_path / "checkpoints"), *(["--json"] if as_json else [])]
    done = process(program, *words)
    assert done.returncode == 4, done.stderr
    assert list(tmp_path.iterdir()) == [], "nothing was created"
    if not as_json:
        assert [line.split(":")[0].strip() for line in done.stderr.splitlines()] == ["ingest", "expected", "to mend"]
        assert "BROKER_UNREACHABLE" in done.stderr and f"127.0.0.1:{silent_port}" in done.stderr
        return
    found = document(done)
    assert (found["ok"], found["error"]["code"], done.stderr) == (False, "BROKER_UNREACHABLE", "")
    assert [(table["table"], table["error"]["code"]) for table in found["tables"]] == [("shop.orders", "BROKER_UNREACHABLE")]


def test_ctrl_c_exits_130_without_a_traceback(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        words = ["run", "orders", "--bootstrap-servers", f"127.0.0.1:{mute.getsockname()[1]}", "--lake", str(tmp_path)]
        running = subprocess.Popen([*MAIN, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=PROJECT, env=ENVIRONMENT)
        mute.settimeout(60)
        with mute.accept()[0]:  # the command now waits up to 15 s for an answer
            running.send_signal(signal.SIGINT)
            out, error = running.communicate(timeout=30)
    assert running.returncode == 130, error
    assert "Traceback" not in out + error


def test_an_unexpected_exception_is_reported_as_a_bug_and_exits_70(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr("ingest.contract.definition.load_contracts", broken)
    done = ingest("run", "--json")
    assert done.returncode == 70
    assert document(done)["error"]["code"] == "UNEXPECTED"
    assert "Traceback" in done.stderr, "a bug report needs the traceback"


@pytest.mark.parametrize("text, expected", [("5s", 5), ("500ms", 0.5), ("2m", 120), ("1h", 3600), ("0s", 0), ("1.5s", 1.5), ("7", 7)])
def test_a_duration_is_a_number_and_a_unit(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "s", "5x", "-5s", "5 s", "1e3s", "5sm", "5ss", "1.2.3s", "²s", "inf", "nan", ".s"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="DURATION_INVALID"):
        seconds(text)


@pytest.mark.parametrize("words", [("verify", "--spark", "--lake"), ("demo", "--folder")])
def test_a_folder_that_cannot_be_written_is_an_environment_error(ingest: Ingest, tmp_path: Path, words: tuple[str, ...]) -> None:
    file = tmp_path / "file"
    file.touch()
    done = ingest(*words, str(file))
    assert (done.returncode, done.stderr.count("Traceback")) == (4, 0)
    assert f"ingest: NOT_WRITABLE: {file}" in done.stderr


@pytest.mark.parametrize("option", ["--html", "--png"])
def test_semantics_refuses_a_folder_as_its_output_file_before_it_starts_to_measure(ingest: Ingest, tmp_path: Path, option: str) -> None:
    done = ingest("semantics", option, str(tmp_path))
    assert done.returncode == 2 and "directory" in done.stderr and "Traceback" not in done.stderr


def test_help_lists_every_command_in_a_group_with_a_sentence_of_one_line() -> None:
    out = subprocess.run([*MAIN, "--help"], env={**ENVIRONMENT, "COLUMNS": "100"}, capture_output=True, text=True, check=True).stdout
    lines = [line for line in out.partition("Pipeline:")[2].splitlines() if line.startswith("  ")]
    assert [line.split()[0] for line in lines] == [verb for group in VERBS.values() for verb in group]
    assert all(line.endswith(".") and "..." not in line and "…" not in line and len(line) <= 100 for line in lines)


def test_the_shell_completes_commands() -> None:
    words = {"_INGEST_COMPLETE": "complete_bash", "COMP_WORDS": "ingest ver", "COMP_CWORD": "1"}
    command = [str(Path(sys.executable).with_name("ingest"))]
    assert subprocess.run(command, env={**ENVIRONMENT, **words}, capture_output=True, text=True, check=True).stdout.split() == ["verify"]


def test_an_error_is_wrapped_for_a_terminal_without_breaking_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "`ingest seek shop.orders --to table --accept-gap --bootstrap-servers broker1:9092,broker2:9092`"
    error = InvalidInput("A_CODE", "found " * 30, expected="this.", remedy=f"put the table back, or run {command} now.")
    print_error(error)
    assert len(capsys.readouterr().err.splitlines()) == 3, "a log gets one line per part"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    print_error(error)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 3 and max(map(len, lines)) <= 108 and any(command in line for line in lines)


def test_each_problem_in_a_list_keeps_its_own_line_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    print_error(InvalidInput("A_CODE", ("2 problems:", "   1. one", "   2. " + "two " * 30), expected="this.", remedy="mend it."))
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["ingest: A_CODE: 2 problems:", "   1. one"] and lines[2].startswith("   2. two")
    assert len(lines) == 6 and max(map(len, lines)) <= 80
