"""Patterns of RLIKE: a Java pattern as a pattern of RE2, which Arrow has, if both mean the same.

Translated are literals, classes, groups, alternatives, quantifiers, `^`, `.`, and `$` at the end of the pattern or of an alternative
outside of groups. Java's `.` stops at five line ends and its `$` also matches before a last one. RE2 knows the line feed only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.rule_refusal import RuleRaises, Untranslatable

_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_ANY = f"[^{_LINE_ENDS}]"
_END = rf"(?:\r\n|[{_LINE_ENDS}])?\z"
# Between CR and LF is no end of a line, so a text that ends in both ends at most there.
_END_AFTER_CRLF = r"(?:\r\n)?\z"
_COUNTED = re.compile(r"\{([0-9]+)(?:,([0-9]*))?\}")
_REPEATED_MAX = 1_000  # RE2's limit


def re2_patterns(pattern: str) -> tuple[str, str | None]:
    """The pattern for RE2, and another one for texts that end in CR LF if they need one.

    Raises RuleRaises if the pattern is none in Java, Untranslatable if the two may differ.
    """
    made = _Translation(pattern)
    patterns = made.text(_END), made.text(_END_AFTER_CRLF) if made.has_end and made.may_take_cr else None
    try:
        pc.match_substring_regex(pa.array([""]), patterns[0])
    except pa.ArrowInvalid as error:
        raise Untranslatable(f"the pattern {pattern!r}, which RE2 does not take") from error
    return patterns


@dataclass
class _Translation:
    """One pass over the pattern. `parts` has None for each `$`."""

    pattern: str
    parts: list[str | None] = field(default_factory=list)
    may_take_cr: bool = False
    at: int = 0
    depth: int = 0

    def __post_init__(self) -> None:
        repeatable = False  # whether there is something that a quantifier can repeat
        while self.at < len(self.pattern):
            sign = self.pattern[self.at]
            if sign in "*+?{":
                self._quantifier(repeatable)
                repeatable = False
                continue
            repeatable = sign not in "^(|"
            if sign == "[":
                self._class()
                continue
            if sign == "$":
                self._end()
                repeatable = False
            elif sign in "()":
                self._parenthesis(sign)
            elif sign == ".":
                self.parts.append(_ANY)
            else:
                self.may_take_cr |= sign == "\r"
                self.parts.append(sign)
            self.at += 1
        if self.depth:
            raise self._none("a group without )")

    @property
    def has_end(self) -> bool:
        return None in self.parts

    def text(self, end: str) -> str:
        return "".join(end if part is None else part for part in self.parts)

    def _parenthesis(self, sign: str) -> None:
        if self.pattern.startswith("(?", self.at):
            raise self._other("(?")
        self.depth += 1 if sign == "(" else -1
        if self.depth < 0:
            raise self._none(") without (")
        self.parts.append(sign)

    def _end(self) -> None:
        if self.depth or self.pattern[self.at + 1 : self.at + 2] not in ("", "|"):
            raise self._other("$ elsewhere than at the end")
        self.parts.append(None)

    def _class(self) -> None:
        close = self.pattern.find("]", self.at)
        inside = self.pattern[self.at + 1 : close]
        if close < 0:
            raise self._none("a class without ]")
        if inside in ("", "^") or "[" in inside or "&&" in inside:
            raise self._other("[], [^], && or [ in a class")
        self.may_take_cr |= inside.startswith("^") or "\r" in inside or min(inside) < "\r" < max(inside)
        self.parts.append(f"[{inside}]")
        self.at = close + 1

    def _quantifier(self, repeatable: bool) -> None:
        sign, length = self.pattern[self.at], 1
        if sign == "{":
            counted = _COUNTED.match(self.pattern, self.at)
            if counted is None:
                raise self._none("{ without a number")
            least, most = int(counted[1]), int(counted[2] or counted[1])
            if most < least:
                raise self._none(f"{counted[0]}, which ends below its start")
            if most > _REPEATED_MAX:
                raise self._other(f"more than {_REPEATED_MAX} repetitions")
            length = len(counted[0])
        if not repeatable:
            before = self.pattern[self.at - 1 : self.at]
            raise (self._none if sign != "{" and before in ("", "|", "(") else self._other)(f"{sign} after nothing to repeat")
        after = self.pattern[self.at + length : self.at + length + 1]
        if after and after in "+*{":
            raise self._other("a possessive or repeated quantifier")
        length += after == "?"  # lazy or greedy, the text matches or not
        self.parts.append(self.pattern[self.at : self.at + length])
        self.at += length

    def _other(self, what: str) -> Untranslatable:
        return Untranslatable(f"the pattern {self.pattern!r}: {what}; Java and RE2 may differ")

    def _none(self, what: str) -> RuleRaises:
        return RuleRaises(f"the pattern {self.pattern!r} is invalid: {what}")
