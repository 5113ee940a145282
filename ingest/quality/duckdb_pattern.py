"""Regular expressions of a suite for DuckDB, which has RE2, if they mean there what they mean in Spark, which has Java's."""

from __future__ import annotations

import re
from typing import Any

from ingest.decode.rule_pattern import re2_patterns
from ingest.decode.rule_refusal import Untranslatable

# Between the two patterns; the second is for texts that end in CR LF (duckdb_rows.RLIKE).
AFTER_CRLF = "\0"
_ESCAPE = re.compile(r"\\(.?)|\[|\]", re.DOTALL)
_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_"}


def duckdb_pattern(pattern: Any) -> str:
    """A regular expression for DuckDB's macro `rlike`. Raises Untranslatable if the two may differ, RuleRaises for none at all."""
    if not isinstance(pattern, str) or AFTER_CRLF in pattern:
        raise Untranslatable("a pattern that is no text, or has the character NUL")
    usual, after_crlf = re2_patterns(_without_escapes(pattern))
    return usual + AFTER_CRLF + (after_crlf or usual)


def _without_escapes(pattern: str) -> str:
    """The pattern with classes in place of \\d, \\w and escaped signs: `re2_patterns` takes a sign as it stands."""
    inside = False

    def replaced(found: re.Match[str]) -> str:
        nonlocal inside
        if found[0] in ("[", "]"):
            inside = found[0] == "["
            return found[0]
        letter = found[1]
        known = _CLASSES.get(letter.lower())
        if known is not None and (letter.islower() or not inside):
            return known if inside else f"[{'' if letter.islower() else '^'}{known}]"
        if (letter and letter in "./$+*?(){}|@#%&,:;=!<>~'\"") or (letter == "-" and not inside):
            return letter if inside else f"[{letter}]"
        raise Untranslatable(f"the pattern {pattern!r}: \\{letter}; Java and RE2 may differ")

    return _ESCAPE.sub(replaced, pattern)
