"""The command `ingest`: one short function a verb (parse, call, print), one module a group of verbs."""

from __future__ import annotations

from importlib import import_module


def register() -> None:
    """Import the modules that add their verbs to the application; they import what is heavy only inside a verb."""
    for group in (
        "run",
        "verify",
        "check",
        "status",
        "sql",
        "seek",
        "plan",
        "log",
        "transactions",
        "semantics",
        "demo",
        "chaos",
        "broker",
        "doctor",
    ):
        import_module(f"ingest.cli.{group}")
