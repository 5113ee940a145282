"""What may run: one statement that reads. Looked at before an engine sees it: DataFusion's COPY writes files wherever it is told."""

from __future__ import annotations

import itertools
import re

from ingest.runtime.errors import InvalidInput

READS = frozenset(("SELECT", "WITH", "VALUES", "EXPLAIN", "SHOW", "DESCRIBE", "DESC"))
# What may stand between EXPLAIN and the statement: EXPLAIN ANALYZE runs it, so nothing unknown passes.
OF_EXPLAIN = frozenset(
    ("ANALYZE", "VERBOSE", "EXTENDED", "FORMATTED", "CODEGEN", "COST", "LOGICAL", "FORMAT", "INDENT", "TREE", "GRAPHVIZ", "PGJSON")
)
# Functions of Spark that call any Java method.
REFLECTION = frozenset(("REFLECT", "TRY_REFLECT", "JAVA_METHOD"))

# The engines differ in where a text ends (Spark: a backslash takes the next sign with it, but not in R'raw'; DataFusion: it is a sign like
# any other) and a comment (Spark's line comment goes on behind a backslash, and /*+ is a hint). Read by the rules of the other, a
# statement may hide in a text. Spark's are in SqlBaseLexer.g4; its names may be addresses: `--` in `s3://a--b` begins no comment.
_SHARED = r"""
      | (?P<name>`(?:[^`]|``)*`)
      | (?P<word>\w+)
      | (?P<sign>.)"""
_DATAFUSION = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
      | (?P<comment>/\*)
      | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")"""
    + _SHARED,
    re.VERBOSE | re.DOTALL,
)
_SPARK = re.compile(
    r"""(?P<space>\s+|--(?:\\\n|[^\r\n])*)
      | (?P<comment>/\*(?!\+))
      | (?P<text>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<address>[^\W\d_]+://[\w/\-.?=&#%]+)"""
    + _SHARED,
    re.VERBOSE | re.DOTALL,
)
_DATAFUSION_MARKS, _SPARK_MARKS = re.compile(r"/\*|\*/"), re.compile(r"/\*(?!\+)|\*/")


def refuse_writes(sql: str, *, spark: bool = False) -> None:
    """Raises InvalidInput SQL_NOT_A_QUERY unless `sql` is one statement that reads: SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE.

    `spark` says which engine will get it: each reads texts and comments by rules of its own.
    """
    tokens = _tokens(sql, spark=spark)
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
        if after == "(" and before.strip("`") in REFLECTION:
            raise _refused(f"{before.strip('`').lower()}() calls Java")
        if after == "(" and before == "IDENTIFIER":
            raise _refused("IDENTIFIER(...) is a name that cannot be looked at")
        if before == "USING" and after == "'":
            raise _refused("TRANSFORM ... USING starts a program")


def is_explain(sql: str) -> bool:
    """Whether a statement asks for a plan."""
    return _tokens(sql, spark=False)[:1] == ["EXPLAIN"]


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


def _tokens(sql: str, *, spark: bool) -> list[str]:
    """Words in capitals, quoted names too, signs as they are, `'` for a string; no comments."""
    kinds, marks = (_SPARK, _SPARK_MARKS) if spark else (_DATAFUSION, _DATAFUSION_MARKS)
    found: list[str] = []
    at = 0
    while at < len(sql):
        token = kinds.match(sql, at)
        assert token is not None  # the last alternative takes anything
        at = token.end()
        match token.lastgroup:
            case "comment":
                at = _end_of_comment(sql, at, marks)
            case "word" | "name" | "address":
                found.append(token.group().upper())
            case "text":
                found.append("'")
            case "sign":
                found.append(token.group())
    return found


def _end_of_comment(sql: str, at: int, marks: re.Pattern[str]) -> int:
    """Where the comment ends that began before `at`; comments nest, in both engines."""
    depth = 1
    while depth and (mark := marks.search(sql, at)):
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
