"""What a benchmark leaves: its figures as JSON, and the page beside them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any


def keep(path: Path | None, result: dict[str, Any], page: Callable[[dict[str, Any]], str]) -> None:
    """Print the result's page; with a path write the result there, and the page beside it with the suffix .md."""
    text = page(result) + age(result)
    print(text)
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(text, encoding="utf-8")


def age(result: dict[str, Any]) -> str:
    """What a page says at its end if the code has changed a good deal since it was measured."""
    since = f"commit {result['commit']}" if result.get("commit") else "an earlier commit"
    return (
        f"\nThese figures are older than the code: they are of {since}, and were not measured again since.\n" if result.get("older") else ""
    )


def about(schema: str) -> dict[str, Any]:
    """What a result says first: its schema, the commit that is measured, and the machine's cores."""
    command = ("git", "rev-parse", "--short", "HEAD")
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return {"schema": f"oncelake/bench-{schema}", "commit": commit, "cores": os.cpu_count()}
