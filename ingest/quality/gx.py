"""Access to Great Expectations: contexts that send nothing, checks of expectations, validation runs. (Its pages: pages.py.)

GX is imported inside the functions: the import takes seconds, and most commands do not need it.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# GX 1.24 no longer contains a telemetry client. The switches are set anyway, for versions that do.
SILENT = {"GX_ANALYTICS_ENABLED": "false"}
# PySpark writes every query error to stderr when it is raised, even if GX catches it.
QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
SUMMARY = "SUMMARY"
BOOLEAN = "BOOLEAN_ONLY"


def _imported() -> Any:
    """Great Expectations. It imports scipy.stats for two types of expectations, which is a quarter of its import: only they load that."""
    os.environ.update(SILENT)
    if "scipy.stats" not in sys.modules and (spec := importlib.util.find_spec("scipy.stats")) is not None and spec.loader is not None:
        spec.loader = importlib.util.LazyLoader(spec.loader)
        sys.modules["scipy.stats"] = sys.modules["scipy"].stats = module = importlib.util.module_from_spec(spec)  # type: ignore[attr-defined]
        spec.loader.exec_module(module)
    import great_expectations

    return great_expectations


def context() -> Any:
    """A GX context in memory. It shows no progress bars, writes no project and sends nothing."""
    gx = _imported()
    from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults, ProgressBarsConfig
    from pyspark.logger import PySparkLogger

    # Logged errors quote values. The results contain the errors too, and are scrubbed.
    for logger in (logging.getLogger("great_expectations"), *map(PySparkLogger.getLogger, QUERY_LOGGERS)):
        logger.setLevel(logging.CRITICAL + 1)
    config = DataContextConfig(
        # The default would leave a folder in /tmp, for pages that nobody asked for.
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
    )
    return gx.get_context(project_config=config, mode="ephemeral")


def problem_of(config: Mapping[str, Any]) -> str | None:
    """GX's objection to an expectation, given as in a suite's JSON; None if GX accepts it."""
    _imported()
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    try:
        ExpectationConfiguration(**config).to_domain_obj()
    except GreatExpectationsError as error:
        return str(error)
    except (TypeError, ValueError) as error:  # pydantic's errors are ValueErrors
        lines = [line.strip() for line in str(error).splitlines()[:7]]
        return " ".join(lines)
    return None


def parameter_works(expression: object, names: Iterable[str]) -> bool:
    """Whether GX can evaluate the expression of a $PARAMETER once these names have values."""
    from great_expectations.core.suite_parameters import parse_suite_parameter

    try:
        parse_suite_parameter(str(expression), dict.fromkeys(names, 1))
    except Exception:  # its parser, dateutil and Python's arithmetic raise errors of many types
        return False
    return True


def judges_rows(kind: str) -> bool:
    """Whether this type of expectation judges each row separately."""
    from great_expectations.expectations import expectation as e
    from great_expectations.expectations.registry import get_expectation_impl

    return issubclass(get_expectation_impl(kind), (e.ColumnMapExpectation, e.ColumnPairMapExpectation, e.MulticolumnMapExpectation))


def saved(document: Mapping[str, Any]) -> dict[str, Any]:
    """A suite's JSON as GX writes it after reading it."""
    import great_expectations as gx
    from great_expectations.core.expectation_suite import expectationSuiteSchema

    found: dict[str, Any] = expectationSuiteSchema.dump(gx.ExpectationSuite(**document))
    return found


class Runner:
    """Runs expectations on data frames of Spark, or on views of DuckDB.

    GX's own `persist` is off. It caches the whole frame and never releases it, is not allowed on serverless, and gains nothing here:
    the frames have only the columns that are checked, and reading these again from Parquet costs less than caching them
    (measured: docs/how-to/quality.md).
    """

    def __init__(self, name: str, database: str | None = None) -> None:
        """`database` is the name of DuckDB's database in memory (duckdb_dialect.py); None: for Spark."""
        self._name, self._database = name, database
        sources = context().data_sources
        if database is None:
            self._source = sources.add_spark(name="delta", persist=False)
        else:
            from ingest.quality import duckdb_dialect

            self._source = sources.add_sql(name="delta", connection_string=f"{duckdb_dialect.NAME}:///{database}")
        self._runs = 0

    def close(self) -> None:
        """Close the connections to DuckDB, whose database in memory lasts as long as any of them. GX has two pools of them."""
        if self._database is not None:
            self._source.get_engine().dispose()
            self._source.get_execution_engine().engine.dispose()

    def run(
        self,
        configs: Sequence[Mapping[str, Any]],
        rows: DataFrame | str,
        parameters: Mapping[str, Any],
        *,
        form: str,
        index: Sequence[str],
        samples: int,
        values: bool = True,
    ) -> list[dict[str, Any]]:
        """The results of these expectations on `rows`, a frame or a view, in their order, as GX's JSON. `form` is SUMMARY or BOOLEAN.

        `index` names the columns whose values identify an unexpected row; `samples` is the maximum number of such rows. Without `values`
        the results contain no unexpected value. Whatever an expectation raises is in its own result.
        """
        if not configs:
            return []
        result_format: dict[str, Any] = {"result_format": form, "partial_unexpected_count": samples, "return_unexpected_index_query": False}
        if form == SUMMARY:
            result_format |= {"unexpected_index_column_names": list(index), "exclude_unexpected_values": not values}
        found = self._validated(self._batch(rows), configs, dict(parameters), result_format)
        if not values:
            for each in found:
                _by_row(each.get("result") or {})
        return found

    def _batch(self, rows: DataFrame | str) -> Any:
        self._runs += 1
        name = f"{self._name} {self._runs}"
        if isinstance(rows, str):
            return self._source.add_table_asset(name, table_name=rows).add_batch_definition_whole_table("rows").get_batch()
        definition = self._source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("rows")
        return definition.get_batch(batch_parameters={"dataframe": rows})

    def _validated(
        self, batch: Any, configs: Sequence[Mapping[str, Any]], parameters: dict[str, Any], result_format: dict[str, Any]
    ) -> list[dict[str, Any]]:
        import great_expectations as gx

        # GX returns the results in an order of its own, and numbers nothing.
        numbered = [{**config, "id": str(uuid.uuid4())} for config in configs]
        try:
            suite = gx.ExpectationSuite(name=self._name, expectations=numbered)
            results = batch.validate(suite, result_format=result_format, expectation_parameters=parameters).results
            found = {each.expectation_config.id: _as_json(each) for each in results}
            return [found[config["id"]] for config in numbered]
        except Exception as error:  # one expectation's, which must not cost the others their results
            if len(configs) > 1:
                return [each for config in configs for each in self._validated(batch, [config], parameters, result_format)]
            information = {"raised_exception": True, "exception_message": f"{type(error).__name__}: {error}"}
            return [{"success": False, "expectation_config": {**configs[0]}, "result": {}, "exception_info": information}]


def _as_json(result: Any) -> dict[str, Any]:
    result.success = bool(result.success)  # numpy's, which GX's JSON refuses
    for key, value in result.result.get("details", {}).items():
        if key == "success_details":
            result.result["details"][key] = [bool(each) for each in value]
    found: dict[str, Any] = result.to_json_dict()
    return found


def _by_row(result: dict[str, Any]) -> None:
    """Without values GX returns the index by column (`[{"id": ["a", "b"]}]`). Change it to the usual form: one entry per row."""
    by_column = result.get("partial_unexpected_index_list")
    if by_column:
        result["partial_unexpected_index_list"] = [
            dict(zip(columns, row, strict=True)) for columns in by_column for row in zip(*columns.values(), strict=True)
        ]
