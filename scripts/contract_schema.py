"""The JSON Schema of a contract, for editors.

`PYTHONPATH=. python scripts/contract_schema.py` writes `ingest/contract/contract.schema.json`.

A schema cannot say all that `load_contracts` checks (types, rules, how parts fit); it knows keys, kinds and words.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.contract.definition import Contract

PATH = Path(__file__).parents[1] / "ingest" / "contract" / "contract.schema.json"


def contract_schema() -> dict[str, Any]:
    """JSON Schema, draft 2020-12, made from the models."""
    schema = Contract.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Oncelake contract"}


def schema_text() -> str:
    """The text of the file, newline at its end."""
    return json.dumps(contract_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
