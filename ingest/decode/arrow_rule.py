"""Translate a row rule, a predicate in Spark's SQL, into one that Spark's Python workers evaluate on Arrow batches (rule_expression.py).

The result is exactly Spark's. All that has no exact counterpart raises Untranslatable.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pyarrow as pa
import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from ingest.contract.columns import target_columns
from ingest.contract.definition import Contract
from ingest.contract.sql_type import SqlType, to_arrow
from ingest.decode.rule_compiler import Compiler, refuse_raising_patterns
from ingest.decode.rule_expression import ArrowRule, holds
from ingest.decode.rule_functions import refuse_others, refuse_raising
from ingest.decode.rule_refusal import Untranslatable


def compile_rule(check: str, columns: Mapping[str, SqlType]) -> ArrowRule:
    """The rule `check` over these columns. The contract's own check (row_rule.py) and Spark's (rule_check.py) refuse what is no valid rule.

    Raises RuleRaises if evaluating the rule can raise, Untranslatable if it needs Spark.
    """
    kinds = {name: to_arrow(kind) for name, kind in columns.items()}
    compiler = Compiler(kinds)
    try:
        predicate = compiler.truth(_parsed(check))
    except RecursionError as error:
        raise Untranslatable("an expression that is nested too deeply") from error
    rule = ArrowRule(tuple(pa.field(name, kinds[name]) for name in kinds if name in compiler.used), predicate)
    try:
        holds(rule, pa.RecordBatch.from_pylist([{}], pa.schema([("", pa.null()), *rule.columns])))
    except pa.ArrowException as error:
        raise Untranslatable(f"an operation that Arrow does not have: {error}") from error
    return rule


def arrow_rules(contract: Contract) -> tuple[tuple[str, ArrowRule], ...]:
    """The row rules of a contract by name. Raises Untranslatable for one that needs Spark, RuleRaises for one that can raise."""
    columns = tuple((field.name, field.type) for field in target_columns(contract))
    return tuple((rule.name, _compiled(rule.check, columns)) for rule in contract.rules)


@cache
def _compiled(check: str, columns: tuple[tuple[str, SqlType], ...]) -> ArrowRule:
    """Once a run, not once a batch: sqlglot parses the rule for milliseconds."""
    return compile_rule(check, dict(columns))


def _parsed(check: str) -> exp.Expr:
    """The syntax tree. What can raise is refused first, then what sqlglot does not keep in the tree."""
    try:
        tokens = sqlglot.tokenize(check, read="spark")
        refuse_raising(tokens)
        tree = sqlglot.parse_one(check, read="spark")
    except SqlglotError as error:
        raise Untranslatable("text that sqlglot cannot parse") from error
    refuse_raising_patterns(tree)
    refuse_others(tokens)
    if "\\" in check:
        raise Untranslatable("a backslash, which Spark and sqlglot may read differently; write [.] or [0-9]")
    if sum(token.token_type is TokenType.PLUS for token in tokens) != len(list(tree.find_all(exp.Add))):
        raise Untranslatable("a sign +, which sqlglot drops")
    return tree
