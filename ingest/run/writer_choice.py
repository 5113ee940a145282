"""Who writes a table: the workers (`direct`), or Delta in Spark (`spark`). docs/decisions/direct-commits.md"""

from __future__ import annotations

from ingest.contract.definition import Contract
from ingest.decode.arrow_rule import arrow_rules
from ingest.decode.rule_refusal import RuleRaises, Untranslatable
from ingest.delta.delta_log import DeltaLog
from ingest.delta.direct_fit import refuse_remote, refuse_unfit, unfit
from ingest.runtime import databricks
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places


def refuse_direct(contract: Contract, places: Places) -> None:
    """Raises InvalidInput DIRECT_UNFIT if the direct writer cannot write the contract's tables as they are now. Needs no Spark.

    Raises as `DeltaLog.state`, and RuleRaises for a contract that `refuse_raising` refuses.
    """
    refuse_unfit_tables(places)
    try:
        arrow_rules(contract)
    except Untranslatable as why:
        raise unfit(contract.name, f"has a row rule with {why}") from why


def refuse_unfit_tables(places: Places) -> None:
    """As `refuse_direct`, for a command that adds no rows: the contract does not matter."""
    if databricks.runtime() is not None:
        raise unfit(places.name, "is written on Databricks, where the platform's own Delta writes")
    refuse_remote(places)
    for path in (places.target, places.quarantine, places.ledger):
        if (state := DeltaLog(LocalFiles(), path).state()) is not None:
            refuse_unfit(state, path)


def refuse_raising(contract: Contract) -> None:
    """Raises InvalidInput RULE_INVALID for a row rule that can raise for some values: one record would stop the table."""
    try:
        arrow_rules(contract)
    except Untranslatable:
        return
    except RuleRaises as why:
        where = f"tables/{contract.path.name}" if contract.path else contract.name
        raise InvalidInput(
            "RULE_INVALID",
            f"{where}: a row rule can raise an error: {why}.",
            expected="rules that are TRUE, FALSE or NULL for all values (docs/reference/contracts.md, row rules).",
            remedy="write the rule with a function that gives NULL, such as try_to_number, or with a literal pattern, format or index.",
        ) from why


def spark_because(contract: Contract, places: Places) -> str | None:
    """Why `auto` lets Delta in Spark write this table, as a sentence; None if the workers write it."""
    try:
        refuse_direct(contract, places)
    except InvalidInput as error:
        if error.code != "DIRECT_UNFIT":
            raise
        return error.found
    return None
