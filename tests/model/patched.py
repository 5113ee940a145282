"""Names of the engine's modules that stand for something else for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

# Module (or class), name, what stands there meanwhile.
Patch = tuple[Any, str, Any]


@contextmanager
def patched(patches: Sequence[Patch]) -> Iterator[None]:
    """The patches are in place as long as this lasts."""
    former = [(module, name, getattr(module, name)) for module, name, _ in patches]
    try:
        for module, name, value in patches:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in reversed(former):
            setattr(module, name, value)
