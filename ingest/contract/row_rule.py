"""Row rules are deterministic predicates: this module checks the syntax tree of a rule before Spark sees the rule.

A replayed batch must send the same records to quarantine as its first attempt did (I9). So a rule may not depend on the clock,
on chance, on the session, on other rows or on code outside of SQL. Spark gets the text unchanged. Spark's own check at start
covers the names of functions that are not refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from ingest.contract.problem import one_of, shown
from ingest.contract.row_rule_words import BARE_WORDS, REASONS, is_special_time, reason_of
from ingest.contract.sql_type import Array, Map, SqlType, Struct

Finding = tuple[str, str]
SAME_ANSWER = "a predicate over one row that gives the same answer whenever and wherever it runs"
TIME_WORDS = ("date", "timestamp", "timestamp_ltz", "timestamp_ntz")
PREDICATE = "one deterministic SQL predicate, such as amount >= 0"


def rule_problems(check: str, columns: Mapping[str, SqlType | None] | None) -> list[Finding]:
    """All problems of the predicate `check`, as (found, expected) pairs; an empty list if it is valid.

    `columns` are the columns that a rule may use. A type of None means that the column exists but its type could not be read.
    If `columns` itself is None, the columns are not known at all.
    """
    if "${" in check:
        return [("${...} takes its value from the session", "a predicate without variables")]
    try:
        tokens = sqlglot.tokenize(check, read="spark")
        trees = sqlglot.parse(check, read="spark")
    except SqlglotError as error:
        return [(f"{shown(check)} is not SQL: {_syntax(error)}", PREDICATE)]
    except RecursionError:
        return [(f"{shown(check)} is nested too deeply", PREDICATE)]
    if any(token.comments for token in tokens):
        return [(f"{shown(check)} contains an SQL comment", "the predicate alone; in the file, write a comment after #")]
    if len(trees) != 1 or trees[0] is None:
        return [(f"{shown(check)} is {'several statements' if len(trees) > 1 else 'empty'}", PREDICATE)]
    tree = trees[0]
    if not isinstance(tree, exp.Condition) or isinstance(tree, exp.Query):
        return [(f"{shown(check)} is not a predicate", PREDICATE)]
    findings = [*_functions(tokens, columns or {}), *_shapes(tree), *_times(tree, columns or {}), *_escapes(tokens, check)]
    if columns is not None:
        findings += _columns(tree, columns)
    return list(dict.fromkeys(findings))


def _syntax(error: SqlglotError) -> str:
    details = getattr(error, "errors", None)
    if details:
        said = re.sub(r" for <class .*?>", "", str(details[0].get("description", ""))).rstrip(".")
        return f"{said[:1].lower()}{said[1:]} (at character {details[0].get('col')})"
    return re.sub(r"\x1b\[\d*m", "", str(error)).splitlines()[0]


def _functions(tokens: list[Token], columns: Mapping[str, SqlType | None]) -> Iterator[Finding]:
    """Refused functions. The tokens are checked, because the syntax tree renames some functions."""
    words = {name.lower() for name in columns}
    for at, token in enumerate(tokens):
        following = [t.token_type for t in tokens[at + 1 : at + 3]]
        name = token.text.lower()
        if token.token_type is TokenType.STRING or (
            at and tokens[at - 1].token_type is TokenType.DOT and following[:1] != [TokenType.L_PAREN]
        ):
            continue
        called = following[:1] == [TokenType.L_PAREN]
        if name in ("any", "some") and at and tokens[at - 1].text.lower() in ("like", "ilike"):
            continue  # x LIKE ANY ('a%', 'b%') is a predicate over one row
        bare = name in BARE_WORDS and name not in words
        reason = reason_of(name) if called or bare else None
        if reason is None and called and name == "unix_timestamp" and following[1:] == [TokenType.R_PAREN]:
            reason = REASONS["now"]
        if reason:
            yield f"{name}{'()' if called else ''} {reason}", SAME_ANSWER


def _shapes(tree: exp.Expr) -> Iterator[Finding]:
    for node in tree.walk():
        if isinstance(node, exp.Query):
            yield "a subquery reads other rows or tables", "a predicate over one row"
        elif isinstance(node, exp.Window):
            yield "a window function reads other rows", "a predicate over one row"
        elif isinstance(node, exp.AggFunc):
            yield (
                f"the aggregate function {node.sql_name().lower()}() reads other rows",
                "a predicate over one row (of an array: size, exists, forall, aggregate)",
            )
        elif isinstance(node, exp.Star):
            yield "* is not a column", "the columns by name"
        elif isinstance(node, exp.Placeholder | exp.Parameter | exp.SessionParameter):
            yield "a parameter, which never gets a value", "a literal"


def _times(tree: exp.Expr, columns: Mapping[str, SqlType | None]) -> Iterator[Finding]:
    """Texts such as 'now', which Spark casts to the current time. Spark's own check finds expressions that evaluate to such a text."""
    for literal in tree.find_all(exp.Literal):
        if literal.is_string and is_special_time(literal.name) and not _is_text(literal.parent, columns):
            expected = "a literal such as TIMESTAMP '2024-01-01 00:00:00Z', or a comparison with a STRING column"
            yield f"{shown(literal.name)} becomes the current time when it is cast", expected


def _escapes(tokens: list[Token], check: str) -> Iterator[Finding]:
    """Escapes in TIMESTAMP '…' and DATE '…'. Spark resolves them before any check can see the text: `\\156ow` is 'now'."""
    for before, token in pairwise(tokens):
        if before.text.lower() in TIME_WORDS and token.token_type is TokenType.STRING and "\\" in check[token.start : token.end + 1]:
            yield f"an escape in a {before.text.upper()} literal", "a literal such as TIMESTAMP '2024-01-01 00:00:00Z'"


def _is_text(parent: exp.Expr | None, columns: Mapping[str, SqlType | None]) -> bool:
    """Whether the parent compares a STRING column with literals only, so that nothing is cast."""
    if not isinstance(parent, exp.EQ | exp.NEQ | exp.NullSafeEQ | exp.In | exp.Like):
        return False
    sides = [child for child in parent.iter_expressions() if not (isinstance(child, exp.Literal) and child.is_string)]
    return (
        len(sides) == 1
        and isinstance(sides[0], exp.Column)
        and getattr(_resolve([p.name for p in sides[0].parts], columns), "kind", "") == "STRING"
    )


def _resolve(path: list[str], columns: Mapping[str, SqlType | None]) -> SqlType | None:
    found = columns.get(path[0])
    for name in path[1:]:
        found = next((f.type for f in found.fields if f.name == name), None) if isinstance(found, Struct) else None
    return found


def _columns(tree: exp.Expr, columns: Mapping[str, SqlType | None]) -> Iterator[Finding]:
    for column in tree.find_all(exp.Column):
        if isinstance(column.this, exp.Star):
            continue
        path = [part.name for part in column.parts]
        node: exp.Expr = column
        while isinstance(dot := node.parent, exp.Dot) and dot.this is node and isinstance(dot.expression, exp.Identifier):
            path.append(dot.expression.name)  # the parser puts at most four names into a Column; deeper ones follow as Dots
            node = dot
        if path[0] not in columns:
            if path[0].lower() not in BARE_WORDS:
                yield f"there is no column {shown(path[0])}", one_of(columns, path[0])
        elif finding := _missing_field(path, columns[path[0]]):
            yield finding


def _missing_field(path: list[str], at: SqlType | None) -> Finding | None:
    for depth, name in enumerate(path[1:], 1):
        if at is None or isinstance(at, Map):
            return None
        if isinstance(at, Array):
            at = at.element  # Spark reads array_of_structs.field as the array of that field
        if not isinstance(at, Struct):
            return f"{shown('.'.join(path[:depth]))} is not a struct and has no field {shown(name)}", "a field of a STRUCT column"
        by_name = {field.name: field.type for field in at.fields}
        if name not in by_name:
            return f"{shown('.'.join(path[:depth]))} has no field {shown(name)}", one_of(by_name, name)
        at = by_name[name]
    return None
