"""Type a command in this process."""

from __future__ import annotations

import sys

import pytest

from ingest.cli.app import main


def exit_code(*words: str) -> int:
    """Run `ingest` with these arguments in this process. Returns its exit code; `capsys` has its output."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["ingest", *words])
        try:
            main()
        except SystemExit as ended:
            assert isinstance(ended.code, int)
            return ended.code
    return 0
