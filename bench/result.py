"""What a benchmark leaves: its figures as JSON, and the page beside them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any


def keep(path: Path | None, result: dict[str, Any], page: str) -> None:
    """Write `result` to `path` and `page` beside it with the suffix .md; nothing without a path."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(page, encoding="utf-8")


def head() -> str:
    """The commit that is measured, in short."""
    command = ("git", "rev-parse", "--short", "HEAD")
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
