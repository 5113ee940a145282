"""Row rules before Spark's own analyser: what it cannot evaluate, or what would answer otherwise another time, is refused before the
first batch, not inside it."""

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
    """Raises InvalidInput RULE_INVALID for a rule that Spark cannot evaluate on the contract's columns, that is no predicate, or that
    gives another answer another time (I9): the contract's own check sees a rule's text, this one what Spark has understood."""
    empty = session.createDataFrame([], T.StructType(target_fields(contract)))
    for rule in contract.rules:
        try:
            analysed = empty.select(holds(rule.check))
            analysed.schema  # noqa: B018 - analysed here
        except (AnalysisException, ParseException) as error:
            why = (str(error).strip().splitlines() or [""])[0][:300]
            expected = "a SQL predicate over the contract's columns, TRUE or FALSE for every row."
            raise _invalid(contract, rule, f"cannot be evaluated: {why}", expected) from error
        for why in _changing(session, analysed):
            raise _invalid(contract, rule, why, f"{SAME_ANSWER}.")


def _invalid(contract: Contract, rule: Rule, why: str, expected: str) -> InvalidInput:
    where = f"tables/{contract.path.name}" if contract.path else contract.name
    found = f"{where}: the row rule {rule.name} ({rule.check}) {why}"
    return InvalidInput("RULE_INVALID", found, expected=expected, remedy="correct the rule in the contract.")


def _changing(session: SparkSession, frame: DataFrame) -> Iterator[str]:
    """What in the frame's one expression answers otherwise another time.

    A text that is known before any row (`concat('no', 'w')`) and cast to a time is evaluated as the first step of Spark's optimizer does
    it (SpecialDatetimeValues): 'now', 'today', 'tomorrow' and 'yesterday' become the time at which the plan is made.
    """
    jvm: Any = session._jvm
    plan = frame._jdf.queryExecution().analyzed()
    try:
        plan = jvm.org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions.apply(plan)  # to_date(x) is a cast as well
        current = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    except (Py4JError, TypeError):
        current = None  # a platform's own Spark may have them elsewhere
    for at in range(plan.expressions().size()):
        expression = plan.expressions().apply(at)
        if not expression.deterministic():
            yield "is not deterministic"
        if current is not None and expression.containsPattern(current):
            yield "depends on the clock or the session"
        for text in _cast_to_times(expression):
            if is_special_time(text):
                yield f"casts {text!r} to a time, which Spark takes for the time at which it runs."


def _cast_to_times(expression: Any) -> Iterator[str]:
    """The texts that are known before any row and cast to a date or timestamp."""
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
