"""The only statement that may run: one that reads. Checked before an engine gets it, because DataFusion's COPY can write any file."""

from __future__ import annotations

import itertools
import re

from ingest.runtime.errors import InvalidInput

READS = frozenset(("SELECT", "WITH", "VALUES", "EXPLAIN", "SHOW", "DESCRIBE", "DESC"))
# The words allowed between EXPLAIN and the statement. EXPLAIN ANALYZE runs the statement, so no unknown word is allowed.
OF_EXPLAIN = frozenset(
    ("ANALYZE", "VERBOSE", "EXTENDED", "FORMATTED", "CODEGEN", "COST", "LOGICAL", "FORMAT", "INDENT", "TREE", "GRAPHVIZ", "PGJSON")
)
# Spark's functions that can call any Java method.
REFLECTION = frozenset(("REFLECT", "TRY_REFLECT", "JAVA_METHOD"))

# The engines differ in the end of a string: a backslash escapes the next character in Spark (but not in R'raw'), and is an ordinary
# character in DataFusion. They also differ in comments: Spark's line comment continues on the next line after a backslash, and its /*+ is
# a hint. Read by the rules of the other engine, a statement could hide in a string. Spark's rules are in SqlBaseLexer.g4. Its names may be
# addresses: `--` in `s3://a--b` starts no comment.
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

    `spark` says which engine will get it: each reads strings and comments by its own rules.
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
            raise _refused("IDENTIFIER(...) is a name that cannot be checked")
        if before == "USING" and after == "'":
            raise _refused("TRANSFORM ... USING starts a program")


def is_explain(sql: str) -> bool:
    """Whether a statement asks for a plan."""
    return _tokens(sql, spark=False)[:1] == ["EXPLAIN"]


def _verb(tokens: list[str]) -> str:
    """The verb of the statement, after EXPLAIN, WITH and brackets."""
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
    """The tokens after the list `name [(columns)] AS (query), ...`: Spark also accepts WITH ... INSERT."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token, 0)
        if token == ")" and depth == 0 and tokens[at + 1 : at + 2] not in ([","], ["AS"]):
            return tokens[at + 1 :]
    return []


def _tokens(sql: str, *, spark: bool) -> list[str]:
    """Words and quoted names in upper case, signs as they are, `'` for a string; no comments."""
    kinds, marks = (_SPARK, _SPARK_MARKS) if spark else (_DATAFUSION, _DATAFUSION_MARKS)
    found: list[str] = []
    at = 0
    while at < len(sql):
        token = kinds.match(sql, at)
        assert token is not None  # the last alternative matches any character
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
    """The end of the comment that started before `at`. Comments nest in both engines."""
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
        remedy="`ingest sql` never changes a table; use Spark for that, while no `ingest run` is active.",
    )
