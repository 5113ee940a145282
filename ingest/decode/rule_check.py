"""Check row rules with Spark's own analyser before the first batch.

This refuses rules that Spark cannot evaluate, and rules whose answer changes over time. Otherwise they would fail inside a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from ingest.contract.columns import target_fields
from ingest.contract.definition import Contract
from ingest.contract.parts import Rule
from ingest.contract.row_rule import SAME_ANSWER
from ingest.contract.row_rule_words import is_special_time
from ingest.decode.decoder import holds
from ingest.runtime.errors import InvalidInput

# The expressions that take a Java pattern, after ReplaceExpressions, and which child it is.
PATTERNS = {"RLike": 1, "RegExpReplace": 1, "RegExpExtract": 1, "RegExpExtractAll": 1, "RegExpInStr": 1, "StringSplit": 1}
TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")


def check_rules(session: SparkSession, contract: Contract) -> None:
    """Check each rule on the contract's columns. The contract's own check reads a rule's text, this one the expression that Spark parsed.

    Raises InvalidInput RULE_INVALID for a rule that Spark cannot evaluate, that is no predicate, whose answer changes over time (I9), or
    that casts a DECIMAL to TIMESTAMP.
    """
    empty = session.createDataFrame([], T.StructType(target_fields(contract)))
    for rule in contract.rules:
        try:
            analysed = empty.select(holds(rule.check))
            analysed.schema  # noqa: B018 - Spark analyses the plan here
            _prepare(session, analysed)
        except (PySparkException, Py4JJavaError) as error:
            expected = "a SQL predicate over the contract's columns, TRUE or FALSE for every row."
            raise _invalid(contract, rule, f"cannot be evaluated: {_said(error)}", expected) from error
        for why in _reasons_to_change(session, analysed):
            raise _invalid(contract, rule, why, f"{SAME_ANSWER}.")
        if _wraps(_plan(session._jvm, analysed)):
            why = "casts a DECIMAL to TIMESTAMP, which makes some other time of a number that is too large."
            raise _invalid(contract, rule, why, "a column of type TIMESTAMP, or a comparison of numbers.")


def _said(error: PySparkException | Py4JJavaError) -> str:
    """The first line of Spark's message. Raises an error again that is not about the rule.

    PySpark does not know Spark's UnresolvedException, as for a lambda in the place of a value.
    """
    text = str(error)
    if isinstance(error, Py4JJavaError):
        if not error.java_exception.getClass().getName().endswith(".UnresolvedException"):
            raise error
        text = str(error.java_exception.getMessage())
    return next(iter(text.strip().splitlines()), "")[:300]


def _prepare(session: SparkSession, frame: DataFrame) -> None:
    """Do what a batch would do before the first row: generate code, and compile constant patterns. Spark raises then, not when it analyses.

    Raises PySparkException for a pattern of RLIKE or LIKE, or for a format of a time, that is none.
    """
    jvm: Any = session._jvm
    plan = _plan(jvm, frame)
    try:
        generator = jvm.org.apache.spark.sql.catalyst.expressions.codegen.GenerateUnsafeProjection
        generator.generate(plan.expressions(), plan.children().apply(0).output())
    except (Py4JError, TypeError):
        pass  # a platform's own Spark may have it elsewhere; and code that is too large is interpreted
    # Lambdas are interpreted, and some functions compile their pattern with the first row.
    for at in range(plan.expressions().size()):
        for node in _nodes(plan.expressions().apply(at)):
            if (child := PATTERNS.get(node.getClass().getSimpleName())) is not None:
                pattern = _constant_text(node.children().apply(child))
                if pattern is not None:
                    jvm.java.util.regex.Pattern.compile(pattern)


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
    plan = _plan(jvm, frame)
    try:
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


def _wraps(plan: Any) -> bool:
    """Whether a DECIMAL is cast to TIMESTAMP: Spark takes the lowest 64 bits of the microseconds, and no other cast to a time does."""
    nodes = (node for at in range(plan.expressions().size()) for node in _nodes(plan.expressions().apply(at)))
    casts = (node for node in nodes if node.getClass().getSimpleName() == "Cast" and node.dataType().sql() == "TIMESTAMP")
    return any(node.children().apply(0).dataType().sql().startswith("DECIMAL") for node in casts)


def _plan(jvm: Any, frame: DataFrame) -> Any:
    """The analysed plan, with the expressions that Spark evaluates in place of their short names: a cast for to_date(x)."""
    plan = frame._jdf.queryExecution().analyzed()
    try:
        return jvm.org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions.apply(plan)
    except (Py4JError, TypeError):
        return plan  # a platform's own Spark may have it elsewhere


def _cast_to_times(expression: Any) -> Iterator[str]:
    """The constant texts that are cast to a date or timestamp."""
    for node in _nodes(expression):
        if node.getClass().getSimpleName() == "Cast" and node.dataType().sql() in TIMES:
            text = _constant_text(node.children().apply(0))
            if text is not None:
                yield text


def _nodes(expression: Any) -> Iterator[Any]:
    """The expression and all below it."""
    yield expression
    children = expression.children()
    for at in range(children.size()):
        yield from _nodes(children.apply(at))


def _constant_text(expression: Any) -> str | None:
    """The value of a constant text; None for any other expression, and for NULL."""
    if not expression.foldable() or expression.dataType().typeName() != "string":
        return None
    text = expression.eval(None)
    return None if text is None else str(text.toString())
