"""Row rules before Spark's own analyser: what it cannot evaluate is refused before the first batch, not inside it."""

from __future__ import annotations

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from ingest.contract import Contract
from ingest.errors import InvalidInput
from ingest.stream.decode import holds, target_fields


def check_rules(session: SparkSession, contract: Contract) -> None:
    """Raises InvalidInput RULE_INVALID for a rule that Spark cannot evaluate on the contract's columns, or that is no predicate."""
    empty = session.createDataFrame([], T.StructType(target_fields(contract)))
    for rule in contract.rules:
        try:
            empty.select(holds(rule.check)).schema  # noqa: B018 - analysed here
        except (AnalysisException, ParseException) as error:
            where = f"tables/{contract.path.name}" if contract.path else contract.name
            why = (str(error).strip().splitlines() or [""])[0][:300]
            raise InvalidInput(
                "RULE_INVALID",
                f"{where}: the row rule {rule.name} ({rule.check}) cannot be evaluated: {why}",
                expected="a SQL predicate over the contract's columns, TRUE or FALSE for every row.",
                remedy="correct the rule in the contract.",
            ) from error
