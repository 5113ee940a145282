"""The only module that talks to Great Expectations: contexts that send nothing, validation runs, pages.

GX is imported inside the functions: it takes seconds, and most verbs have no use for it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# GX 1.24 holds no client of its former telemetry any more; the switches are set all the same, for versions that do.
SILENT = {"GX_ANALYTICS_ENABLED": "false"}
SITE = "oncelake"
# Older runs leave the pages (the table `quality` keeps them): each is a file that the index page is made from.
PAGES_KEPT = 30
SUMMARY = "SUMMARY"
BOOLEAN = "BOOLEAN_ONLY"


def context() -> Any:
    """A GX context in memory that shows no progress bars, writes no project of its own and sends nothing."""
    os.environ.update(SILENT)
    import great_expectations as gx
    from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults, ProgressBarsConfig

    # Its errors quote values; what went wrong is in the results, which are scrubbed.
    logging.getLogger("great_expectations").setLevel(logging.CRITICAL + 1)
    config = DataContextConfig(
        # Its default would leave a folder in /tmp, for pages that nobody asked for.
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
    )
    return gx.get_context(project_config=config, mode="ephemeral")


def problem_of(config: Mapping[str, Any]) -> str | None:
    """What GX has against an expectation as its JSON has it; None if it takes it."""
    os.environ.update(SILENT)
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
    """Whether GX can evaluate a $PARAMETER once these names have values."""
    from great_expectations.core.suite_parameters import parse_suite_parameter

    try:
        parse_suite_parameter(str(expression), dict.fromkeys(names, 1))
    except Exception:  # whatever its parser, dateutil or Python's arithmetic raise
        return False
    return True


def judges_rows(kind: str) -> bool:
    """Whether this type of expectation judges each row by itself."""
    from great_expectations.expectations import expectation as e
    from great_expectations.expectations.registry import get_expectation_impl

    return issubclass(get_expectation_impl(kind), (e.ColumnMapExpectation, e.ColumnPairMapExpectation, e.MulticolumnMapExpectation))


def saved(document: Mapping[str, Any]) -> dict[str, Any]:
    """A suite's JSON as GX writes it after it has read it."""
    import great_expectations as gx
    from great_expectations.core.expectation_suite import expectationSuiteSchema

    found: dict[str, Any] = expectationSuiteSchema.dump(gx.ExpectationSuite(**document))
    return found


class Runner:
    """Runs expectations on data frames through GX's validation definitions and checkpoints.

    GX's own `persist` is off. It caches the whole frame and never lets it go, is not allowed on serverless, and gains nothing here:
    frames come with just the columns that are checked, and reading these again from Parquet costs less than caching them
    (measured: docs/quality.md).
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._context = context()
        source = self._context.data_sources.add_spark(name="delta", persist=False)
        self._data = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("rows")
        self._runs = 0

    def run(
        self,
        configs: Sequence[Mapping[str, Any]],
        frame: DataFrame,
        parameters: Mapping[str, Any],
        *,
        form: str,
        index: Sequence[str],
        samples: int,
    ) -> list[dict[str, Any]]:
        """The results of these expectations on `frame`, in their order, as GX's JSON. `form` is SUMMARY or BOOLEAN.

        `index` names the columns whose values identify an unexpected row, `samples` how many rows are named.
        """
        import great_expectations as gx

        if not configs:
            return []
        self._runs += 1
        name = f"{self._name} {self._runs}"
        suite = self._context.suites.add(gx.ExpectationSuite(name=name, expectations=[dict(config) for config in configs]))
        definition = gx.ValidationDefinition(name=name, data=self._data, suite=suite)
        self._context.validation_definitions.add(definition)
        result_format: dict[str, Any] = {"result_format": form, "partial_unexpected_count": samples, "return_unexpected_index_query": False}
        if form == SUMMARY:
            result_format["unexpected_index_column_names"] = list(index)
        checkpoint = gx.Checkpoint(name=name, validation_definitions=[definition], result_format=result_format)
        self._context.checkpoints.add(checkpoint)
        outcome = checkpoint.run(batch_parameters={"dataframe": frame}, expectation_parameters=dict(parameters))
        (results,) = outcome.run_results.values()
        found: list[dict[str, Any]] = [each.to_json_dict() for each in results.results]
        by_id = {each["expectation_config"]["id"]: each for each in found}
        return [by_id[each.id] for each in suite.expectations]  # GX gives them in an order of its own


def write_pages(
    folder: Path,
    name: str,
    suite: Sequence[Mapping[str, Any]],
    results: Sequence[Mapping[str, Any]],
    run_id: str,
    run_at: datetime,
    meta: Mapping[str, Any],
) -> Path:
    """Add a page for one validation run, and one for the suite (its expectations), to the Data Docs in `folder`; returns the run's.

    `results` must be scrubbed already. What was checked before is kept as GX's JSON in `folder`/results, since GX makes its index
    page from the results themselves.
    """
    import great_expectations as gx
    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.data_context.store.validation_results_store import ValidationResultsStore
    from great_expectations.data_context.types.resource_identifiers import ExpectationSuiteIdentifier, ValidationResultIdentifier
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    made = context()
    results_folder = folder / "results"
    results_folder.mkdir(parents=True, exist_ok=True)
    backend = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(results_folder), "filepath_suffix": ".json"}
    store: Any = ValidationResultsStore(store_backend=backend, store_name=made.validation_results_store_name)
    made.stores[made.validation_results_store_name] = store
    made.suites.add(gx.ExpectationSuite(name=name, expectations=[dict(config) for config in suite]))
    parts = []
    for each in results:
        part = {key: value for key, value in each.items() if key != "expectation_config"}
        parts.append(ExpectationValidationResult(**part, expectation_config=ExpectationConfiguration(**each["expectation_config"])))
    passed = sum(bool(each["success"]) for each in results)
    statistics = {
        "evaluated_expectations": len(results),
        "successful_expectations": passed,
        "unsuccessful_expectations": len(results) - passed,
        "success_percent": 100 * passed / len(results) if results else None,
    }
    identifier = RunIdentifier(run_name=run_id, run_time=run_at)
    whole = ExpectationSuiteValidationResult(
        success=passed == len(results),
        results=parts,
        suite_name=name,
        statistics=statistics,
        meta={**meta, "great_expectations_version": gx.__version__, "run_id": identifier, "validation_time": run_at},
        batch_id=name,
    )
    key = ValidationResultIdentifier(ExpectationSuiteIdentifier(name), identifier, name)
    store.set(key, whole)
    for old in sorted(store.list_keys(), key=lambda each: each.run_id.run_time, reverse=True)[PAGES_KEPT:]:
        store.remove_key(old)
    site = {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
    }
    made.add_data_docs_site(SITE, site)
    made.build_data_docs(site_names=[SITE], resource_identifiers=[key, ExpectationSuiteIdentifier(name)])
    urls = made.get_docs_sites_urls(resource_identifier=key, site_name=SITE, only_if_exists=False)
    return Path(urls[0]["site_url"].removeprefix("file://"))
