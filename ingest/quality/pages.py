"""Data Docs: one page per validation run, one for the suite, and an index. They need no network (docs/decisions/data-docs.md)."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ingest.quality import gx

SITE = "oncelake"
# Older runs lose their pages but stay in the table `quality`: GX builds the index page from one file per run.
PAGES_KEPT = 30
VIEW = {"module_name": "ingest.quality.view", "class_name": "PageView"}
TABLE = {"module_name": "ingest.quality.view", "class_name": "ResultTable"}
RENDERER = {
    "class_name": "ValidationResultsPageRenderer",
    "column_section_renderer": {"class_name": "ValidationResultsColumnSectionRenderer", "table_renderer": TABLE},
}


def write_pages(
    folder: Path,
    name: str,
    suite: Sequence[Mapping[str, Any]],
    results: Sequence[Mapping[str, Any]],
    run_id: str,
    run_at: datetime,
    meta: Mapping[str, Any],
) -> Path | None:
    """Add a page for one validation run, and one for the suite (its expectations), to the Data Docs in `folder`; returns the run's page.

    `results` must be scrubbed already. Earlier results are kept as GX's JSON in `folder`/results, because GX builds its index page from
    the results themselves. Returns None if GX could not render the page: GX only logs that, and no result must be lost for it.
    """
    import great_expectations
    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.data_context.store.validation_results_store import ValidationResultsStore
    from great_expectations.data_context.types.resource_identifiers import ExpectationSuiteIdentifier, ValidationResultIdentifier
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    context = gx.context()
    results_folder = folder / "results"
    results_folder.parent.mkdir(mode=0o770, parents=True, exist_ok=True)  # the pages show values
    results_folder.mkdir(exist_ok=True)
    backend = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(results_folder), "filepath_suffix": ".json"}
    store: Any = ValidationResultsStore(store_backend=backend, store_name=context.validation_results_store_name)
    context.stores[context.validation_results_store_name] = store
    context.suites.add(great_expectations.ExpectationSuite(name=name, expectations=[dict(config) for config in suite]))
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
        meta={**meta, "great_expectations_version": great_expectations.__version__, "run_id": identifier, "validation_time": run_at},
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
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "view": VIEW},
        "site_section_builders": {"expectations": {"view": VIEW}, "validations": {"view": VIEW, "renderer": RENDERER}},
    }
    context.add_data_docs_site(SITE, site)
    context.build_data_docs(site_names=[SITE], resource_identifiers=[key, ExpectationSuiteIdentifier(name)])
    shutil.rmtree(folder / "static", ignore_errors=True)  # GX's pictures and fonts: 4 MB that our pages do not use
    urls = context.get_docs_sites_urls(resource_identifier=key, site_name=SITE, only_if_exists=False)
    page = Path(urls[0]["site_url"].removeprefix("file://"))
    return page if page.is_file() and (folder / "index.html").is_file() else None
