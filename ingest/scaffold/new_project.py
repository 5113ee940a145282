"""The files of a new project folder, rendered from the package's templates."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from ingest.contract.definition import load_contracts
from ingest.runtime.errors import InvalidInput
from ingest.scaffold.draft import Draft, scalar

# The template of each file, by its path in the project.
FILES = {
    "Makefile": "Makefile",
    "README.md": "README.md",
    "databricks.yml": "databricks.yml",
    ".gitignore": "gitignore",
    "checkpoints/README.md": "checkpoints.md",
    ".github/workflows/contracts.yml": "contracts_workflow.yml",
    "resources/requirements.txt": "requirements.txt",
    **{f"resources/{job}.yml": f"{job}.yml" for job in ("check", "ingest", "maintain", "verify")},
}
BUILD = "make wheel"


def refuse_filled(folder: Path) -> None:
    """Raises InvalidInput FOLDER_NOT_EMPTY if the folder contains anything but `.git`, or is no folder."""
    if folder.exists() and not (folder.is_dir() and {each.name for each in folder.iterdir()} <= {".git"}):
        raise InvalidInput(
            "FOLDER_NOT_EMPTY",
            f"{folder} {'is not empty' if folder.is_dir() else 'is a file'}.",
            expected="a new or an empty folder: no file is overwritten.",
            remedy="name another folder, or move its files away.",
        )


def write(folder: Path, pipeline: str, drafts: Sequence[Draft], brokers: str) -> list[Path]:
    """Write the project and return its files. Raises as `refuse_filled`, and ContractInvalid; then it has written nothing."""
    refuse_filled(folder)
    values = {"name": pipeline, "pipeline": pipeline, "drafts": drafts, "brokers": brokers, "build": BUILD}
    texts = {path: render(template, **values) for path, template in FILES.items()}
    for draft in drafts:
        texts[f"tables/{draft.table}.yml"] = render("contract.yml", pipeline=pipeline, draft=draft)
        texts[f"expectations/{draft.table}.json"] = suite_of(pipeline, draft)
    with tempfile.TemporaryDirectory() as scratch:  # a second `init` would refuse a folder that was left behind with a broken contract
        _put(Path(scratch), texts)
        load_contracts(Path(scratch))
    _put(folder, texts)
    return [folder / path for path in sorted(texts)]


def _put(folder: Path, texts: Mapping[str, str]) -> None:
    for path, text in texts.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def render(template: str, **values: Any) -> str:
    """The text of a template. Raises jinja2.UndefinedError for a value that is not given."""
    return _templates().get_template(f"{template}.j2").render(scalar=scalar, quoted=json.dumps, **values)


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ingest.scaffold"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # none of the files is HTML
        keep_trailing_newline=True,
        trim_blocks=True,
        # Bundles and workflows use {{ }} and ${ } themselves.
        block_start_string="[%",
        block_end_string="%]",
        variable_start_string="[[",
        variable_end_string="]]",
    )
    environment.filters["scalar"] = scalar
    return environment


def suite_of(pipeline: str, draft: Draft) -> str:
    """A first suite in GX's own JSON: one row per event id, as many rows as the ledger counts, and what the source states."""
    ids = [draft.event_id] if isinstance(draft.event_id, str) else draft.event_id
    names = {"key": ["_event_id"], "position": ["_topic_id", "_partition", "_offset"]}.get(ids[0], ids)
    configs: list[tuple[str, dict[str, Any]]] = [("expect_column_values_to_be_unique", {"column": names[0]})]
    if len(names) > 1:
        configs = [("expect_compound_columns_to_be_unique", {"column_list": names})]
    configs += [("expect_table_row_count_to_equal", {"value": {"$PARAMETER": "ledger_rows"}})]
    configs += [("expect_column_values_to_not_be_null", {"column": each.name}) for each in draft.columns if not each.nullable]
    configs += [stated for each in draft.expectations if (stated := (each["type"], each["kwargs"])) not in configs]
    expectations = [{"type": kind, "kwargs": kwargs, "meta": {}, "severity": "critical"} for kind, kwargs in configs]
    return json.dumps({"name": f"{pipeline}.{draft.table}", "id": None, "expectations": expectations}, indent=2, ensure_ascii=False) + "\n"
