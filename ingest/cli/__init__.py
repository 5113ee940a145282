"""The command `ingest`: one short function a verb (parse, call, print), one module a group of verbs."""

from __future__ import annotations


def register() -> None:
    """Import the modules that add their verbs to the application; they import what is heavy only inside a verb."""
    from ingest.cli import broker, demo, doctor, run, verify  # noqa: F401
