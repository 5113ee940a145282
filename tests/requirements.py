"""What pyproject.toml requires: the core's packages with all that they require, and the packages of each extra."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])


def required() -> set[str]:
    """All packages that pip installs with the wheel, including transitive requirements."""
    seen: set[str] = set()
    waiting = [Requirement(text) for text in project()["dependencies"]]
    while waiting:
        one = waiting.pop()
        name = canonical(one.name)
        if name in seen or (one.marker is not None and not any(one.marker.evaluate({"extra": extra}) for extra in (one.extras or {""}))):
            continue
        seen.add(name)
        try:
            waiting += [Requirement(text) for text in requires(name) or []]
        except PackageNotFoundError:
            assert one.marker is not None, f"{name} is not installed, so its requirements are unknown"
    return seen


def canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def extra(name: str) -> set[str]:
    """The packages that an extra names itself."""
    return {canonical(Requirement(text).name) for text in project()["optional-dependencies"][name]}
