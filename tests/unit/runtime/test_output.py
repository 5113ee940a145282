"""What commands print: text of others neither controls the terminal nor begins a line of its own."""

from __future__ import annotations

import io
import logging
import os
import pty
import subprocess
import sys

import pytest
from rich.live import Live

from ingest.cli.app import print_error
from ingest.runtime.errors import InvalidInput
from ingest.runtime.output import LogLine, console, data_stream, err_line, guarded, out_line
from ingest.runtime.printable import aligned, printable

pytestmark = pytest.mark.unit

# Clears the screen and begins a line; C1's CSI; a text direction that reorders what follows; half a surrogate pair.
HOSTILE = "id\x1b[2J\x1b[1;1H\nshop.orders: BALANCED\r\x9b31m\u202eok\ud800"
SHOWN = "id·[2J·[1;1H\\nshop.orders: BALANCED\\r·31m·ok·"


def test_each_line_stays_one_line_without_control_codes(capsys: pytest.CaptureFixture[str]) -> None:
    out_line("first", HOSTILE)
    err_line(HOSTILE)
    assert capsys.readouterr() == (f"first\n{SHOWN}\n", f"{SHOWN}\n")


def test_an_error_breaks_its_lines_only_in_its_own_list(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(InvalidInput("A_CODE", (f"{HOSTILE}:", "   1. one", f"   2. {HOSTILE}"), expected=HOSTILE, remedy=HOSTILE))
    expected = [f"ingest: A_CODE: {SHOWN}:", "   1. one", f"   2. {SHOWN}", f"  expected: {SHOWN}", f"  to mend:  {SHOWN}"]
    assert capsys.readouterr().err.splitlines() == expected


def test_a_wrapped_error_breaks_no_line_where_others_want_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    print_error(InvalidInput("A_CODE", HOSTILE, expected="this.", remedy="mend it."))
    assert capsys.readouterr().err.splitlines()[0] == f"ingest: A_CODE: {SHOWN}"


def test_data_for_programs_is_unchanged_in_a_pipe_and_guarded_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data_stream().write("a\x1b[2J,b\r\nc\n")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    data_stream().write("a\x1b[2J,b\r\nc\rd\n")
    assert capsys.readouterr().out == "a\x1b[2J,b\r\nc\na·[2J,b\nc·d\n"


def test_what_libraries_write_on_stderr_is_guarded() -> None:
    stream = io.StringIO()
    guarded(stream).writelines(["\tat Main.java\n", "\x1b]0;title\x07\n"])
    assert stream.getvalue() == "\tat Main.java\n·]0;title·\n"
    assert (
        LogLine("%(levelname)s %(message)s").format(logging.makeLogRecord({"levelname": "WARNING", "msg": HOSTILE})) == f"WARNING {SHOWN}"
    )


def test_a_console_keeps_its_own_colours_and_cursor_moves() -> None:
    stream = io.StringIO()
    coloured = type(console())(file=stream, force_terminal=True, color_system="standard", highlight=False)
    coloured.print("good", style="bold green")
    with Live(console=coloured, auto_refresh=False) as live:
        live.update("\x1b[31mhostile", refresh=True)
    text = stream.getvalue()
    assert "\x1b[1;32mgood\x1b[0m" in text and "·[31mhostile" in text and "\x1b[31m" not in text
    assert "\x1b[?25l" in text, "the live view hides the cursor"


def test_no_cell_of_a_table_widens_its_column_by_what_is_not_shown() -> None:
    assert aligned([("id", "n"), ("a\nb", "1")]) == ["id    n", "a\\nb  1"]


def test_text_is_cut_at_the_characters_that_are_shown() -> None:
    assert printable("a\nb\nc", 7) == "a\\nb\\nc" and printable("a\nb\nc", 5) == "a\\nb…"
    assert printable("a" * 6, 5) == "aaaa…"


@pytest.mark.parametrize(
    "program",
    ["raise RuntimeError(HOSTILE)", "logging.getLogger('kafka').warning(HOSTILE)", "sys.stderr.write(HOSTILE.replace(chr(10), ''))"],
)
def test_on_a_real_terminal_nothing_of_others_gets_through(program: str) -> None:
    code = f"""
import logging, sys
from ingest.cli import app, register
register()
HOSTILE = {HOSTILE[:-1]!r}
def broken(*_, **__):
    {program}
app.app = broken
app.main()
"""
    ours, theirs = pty.openpty()
    done = subprocess.Popen([sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    read = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        try:
            while part := terminal.read(65536):
                read += part
        except OSError:  # Linux's end of a terminal whose last writer is gone
            pass
    done.wait(30)
    text = read.decode()
    assert "BALANCED" in text and "\x1b" not in text and "\x9b" not in text
    assert not [line for line in text.splitlines() if line.startswith("shop.orders: BALANCED")]
