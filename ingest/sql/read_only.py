"""The only statement that DataFusion gets: one that reads. Checked on its text before, because DataFusion's COPY can write any file.

Spark gets what `spark_plan` accepts.
"""

from __future__ import annotations

import re

from ingest.runtime.errors import InvalidInput

READS = frozenset(("SELECT", "WITH", "VALUES", "EXPLAIN", "SHOW", "DESCRIBE", "DESC"))
# The words allowed between EXPLAIN and the statement. EXPLAIN ANALYZE runs the statement, so no unknown word is allowed.
OF_EXPLAIN = frozenset(
    ("ANALYZE", "VERBOSE", "EXTENDED", "FORMATTED", "CODEGEN", "COST", "LOGICAL", "FORMAT", "INDENT", "TREE", "GRAPHVIZ", "PGJSON")
)

# DataFusion's rules: a backslash is an ordinary character but in E'…', and `$$` or `$word$` begins a string that ends with the same sign.
_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
      | (?P<comment>/\*)
      | (?P<text>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
      | (?P<name>`(?:[^`]|``)*`)
      | (?P<word>\w+)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")


def refuse_writes(sql: str) -> None:
    """Raises InvalidInput SQL_NOT_A_QUERY unless `sql` is one statement that reads: SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE."""
    tokens = _tokens(sql)
    while tokens[-1:] == [";"]:
        tokens.pop()
    if not tokens:
        raise not_a_query("there is no statement")
    if ";" in tokens:
        raise not_a_query("there is more than one statement")
    verb = _verb(tokens)
    if verb not in READS:
        raise not_a_query(f"{verb} is not a query")


def is_explain(sql: str) -> bool:
    """Whether a statement asks for a plan."""
    return _tokens(sql)[:1] == ["EXPLAIN"]


def _verb(tokens: list[str]) -> str:
    """The verb of the statement, after EXPLAIN, WITH and brackets."""
    rest = _unbracketed(tokens)
    if rest[:1] == ["EXPLAIN"]:
        rest = rest[1:]
        while rest and rest[0] in OF_EXPLAIN:
            rest = rest[1:]
        rest = _unbracketed(rest)
        if rest[:1] == ["EXPLAIN"]:  # DataFusion would run the COPY in EXPLAIN ANALYZE EXPLAIN ANALYZE COPY
            return "EXPLAIN of EXPLAIN"
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


def _tokens(sql: str) -> list[str]:
    """Words and quoted names in upper case, signs as they are, `'` for a string; no comments."""
    found: list[str] = []
    at = 0
    while at < len(sql):
        token = _TOKEN.match(sql, at)
        assert token is not None  # the last alternative matches any character
        at = token.end()
        match token.lastgroup:
            case "comment":
                at = _end_of_comment(sql, at)
            case "word" | "name":
                found.append(token.group().upper())
            case "text":
                found.append("'")
            case "sign":
                found.append(token.group())
    return found


def _end_of_comment(sql: str, at: int) -> int:
    """The end of the comment that started before `at`. Comments nest."""
    depth = 1
    while depth and (mark := _COMMENT_MARK.search(sql, at)):
        depth += 1 if mark.group() == "/*" else -1
        at = mark.end()
    return len(sql) if depth else at


def not_a_query(found: str) -> InvalidInput:
    """The error for a statement that does more than read."""
    return InvalidInput(
        "SQL_NOT_A_QUERY",
        f"{found}.",
        expected="one statement that reads: SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE.",
        remedy="`ingest sql` never changes a table; use Spark for that, while no `ingest run` is active.",
    )
