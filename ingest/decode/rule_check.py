"""Check row rules with Spark's own analyser before the first batch.

This refuses rules that Spark cannot evaluate, and rules whose answer changes over time. Otherwise they would fail inside a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from ingest.contract.columns import target_fields
from ingest.contract.definition import Contract
from ingest.contract.parts import Rule
from ingest.contract.row_rule import SAME_ANSWER
from ingest.contract.row_rule_words import is_special_time
from ingest.decode.decoder import holds
from ingest.runtime.errors import InvalidInput

TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")


def check_rules(session: SparkSession, contract: Contract) -> None:
    """Check each rule on the contract's columns. The contract's own check reads a rule's text, this one the expression that Spark parsed.

    Raises InvalidInput RULE_INVALID for a rule that Spark cannot evaluate, that is no predicate, or whose answer changes over time (I9).
    """
    empty = session.createDataFrame([], T.StructType(target_fields(contract)))
    for rule in contract.rules:
        try:
            analysed = empty.select(holds(rule.check))
            analysed.schema  # noqa: B018 - Spark analyses the plan here
        except (AnalysisException, ParseException) as error:
            why = (str(error).strip().splitlines() or [""])[0][:300]
            expected = "a SQL predicate over the contract's columns, TRUE or FALSE for every row."
            raise _invalid(contract, rule, f"cannot be evaluated: {why}", expected) from error
        for why in _reasons_to_change(session, analysed):
            raise _invalid(contract, rule, why, f"{SAME_ANSWER}.")


def _invalid(contract: Contract, rule: Rule, why: str, expected: str) -> InvalidInput:
    where = f"tables/{contract.path.name}" if contract.path else contract.name
    found = f"{where}: the row rule {rule.name} ({rule.check}) {why}"
    return InvalidInput("RULE_INVALID", found, expected=expected, remedy="correct the rule in the contract.")


def _reasons_to_change(session: SparkSession, frame: DataFrame) -> Iterator[str]:
    """The reasons why the answer of the frame's one expression can change over time.

    A constant text (`concat('no', 'w')`) that is cast to a time is evaluated as by the first step of Spark's optimizer
    (SpecialDatetimeValues): 'now', 'today', 'tomorrow' and 'yesterday' become the time of planning.
    """
    jvm: Any = session._jvm
    plan = frame._jdf.queryExecution().analyzed()
    try:
        plan = jvm.org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions.apply(plan)  # turns to_date(x) into a cast
        current = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    except (Py4JError, TypeError):
        current = None  # a platform's own Spark may have these classes elsewhere
    for at in range(plan.expressions().size()):
        expression = plan.expressions().apply(at)
        if not expression.deterministic():
            yield "is not deterministic"
        if current is not None and expression.containsPattern(current):
            yield "depends on the clock or the session"
        for text in _cast_to_times(expression):
            if is_special_time(text):
                yield f"casts {text!r} to a time, which Spark replaces with the time at which it runs."


def _cast_to_times(expression: Any) -> Iterator[str]:
    """The constant texts that are cast to a date or timestamp."""
    children = expression.children()
    each = [children.apply(at) for at in range(children.size())]
    if expression.getClass().getSimpleName() == "Cast" and expression.dataType().sql() in TIMES:
        (child,) = each
        if child.foldable() and child.dataType().typeName() == "string":
            text = child.eval(None)
            if text is not None:
                yield str(text.toString())
    for child in each:
        yield from _cast_to_times(child)
