"""Why a row rule is not evaluated on Arrow batches: it needs Spark, or no writer can take it."""

from __future__ import annotations


class Untranslatable(Exception):
    """The rule may be valid, but only Spark can evaluate it exactly: its table needs the writer through Spark. The text is the reason."""


class RuleRaises(Exception):
    """The rule can raise instead of giving TRUE, FALSE or NULL, so it is invalid for every writer. The text is the reason."""
