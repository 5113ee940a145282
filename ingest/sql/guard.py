"""What may run: one statement that reads. Looked at before an engine sees it: DataFusion's COPY writes files wherever it is told."""

from __future__ import annotations

import itertools
import re

from ingest.errors import InvalidInput

READS = frozenset(("SELECT", "WITH", "VALUES", "EXPLAIN", "SHOW", "DESCRIBE", "DESC"))
# What may stand between EXPLAIN and the statement: EXPLAIN ANALYZE runs it, so nothing unknown passes.
OF_EXPLAIN = frozenset(
    ("ANALYZE", "VERBOSE", "EXTENDED", "FORMATTED", "CODEGEN", "COST", "LOGICAL", "FORMAT", "INDENT", "TREE", "GRAPHVIZ", "PGJSON")
)
# Functions of Spark that call any Java method.
REFLECTION = frozenset(("REFLECT", "TRY_REFLECT", "JAVA_METHOD"))

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
      | (?P<comment>/\*)
      | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<name>`(?:[^`]|``)*`)
      | (?P<word>\w+)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)


def refuse_writes(sql: str) -> None:
    """Raises InvalidInput SQL_NOT_A_QUERY unless `sql` is one statement that reads: SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE."""
    tokens = _tokens(sql)
    while tokens[-1:] == [";"]:
        tokens.pop()
    if not tokens:
        raise _refused("there is no statement")
    if ";" in tokens:
        raise _refused("there is more than one statement")
    verb = _verb(tokens)
    if verb not in READS:
        raise _refused(f"{verb} is not a query")
    for before, after in itertools.pairwise(tokens):
        if before in REFLECTION and after == "(":
            raise _refused(f"{before.lower()}() calls Java")
        if before == "USING" and after == "'":
            raise _refused("TRANSFORM ... USING starts a program")


def is_explain(sql: str) -> bool:
    """Whether a statement asks for a plan."""
    return _tokens(sql)[:1] == ["EXPLAIN"]


def _verb(tokens: list[str]) -> str:
    """The word that says what the statement does, behind EXPLAIN, WITH and brackets."""
    rest = _unbracketed(tokens)
    if rest[:1] == ["EXPLAIN"]:
        rest = rest[1:]
        while rest and rest[0] in OF_EXPLAIN:
            rest = rest[1:]
        rest = _unbracketed(rest)
    if rest[:1] == ["WITH"]:
        rest = _unbracketed(_behind_with(rest))
    return rest[0] if rest else "nothing"


def _unbracketed(tokens: list[str]) -> list[str]:
    return tokens[next((at for at, token in enumerate(tokens) if token != "("), len(tokens)) :]


def _behind_with(tokens: list[str]) -> list[str]:
    """What follows the list `name [(columns)] AS (query), ...`: Spark takes WITH ... INSERT too."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token, 0)
        if token == ")" and depth == 0 and tokens[at + 1 : at + 2] not in ([","], ["AS"]):
            return tokens[at + 1 :]
    return []


def _tokens(sql: str) -> list[str]:
    """Words in capitals, signs as they are, `'` for a string, a backtick for a quoted name; no comments."""
    found: list[str] = []
    at = 0
    while at < len(sql):
        token = _TOKEN.match(sql, at)
        assert token is not None  # the last alternative takes anything
        at = token.end()
        match token.lastgroup:
            case "comment":
                at = _end_of_comment(sql, at)
            case "word":
                found.append(token.group().upper())
            case "text":
                found.append("'")
            case "name":
                found.append("`")
            case "sign":
                found.append(token.group())
    return found


def _end_of_comment(sql: str, at: int) -> int:
    """Where the comment ends that began before `at`; comments nest, in both engines."""
    depth = 1
    while depth and (mark := re.compile(r"/\*|\*/").search(sql, at)):
        depth += 1 if mark.group() == "/*" else -1
        at = mark.end()
    return len(sql) if depth else at


def _refused(found: str) -> InvalidInput:
    return InvalidInput(
        "SQL_NOT_A_QUERY",
        f"{found}.",
        expected="one statement that reads: SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE.",
        remedy="`ingest sql` never changes a table; use Spark for that, and not while `ingest run` is at work.",
    )
