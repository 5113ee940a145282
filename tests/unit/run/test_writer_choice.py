"""Who writes a table: `auto` takes the workers unless a table needs Delta in Spark, and `plan` and `doctor` say which and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable
from typer.testing import CliRunner

from ingest.cli import plan as _verbs  # noqa: F401 - registers the verb
from ingest.cli.app import app
from ingest.contract.definition import Contract
from ingest.delta.direct_writer import DirectWriter
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import Topic
from ingest.run.environment import examine
from ingest.run.table_query import TableQuery
from ingest.run.writer_choice import spark_because
from ingest.run.writer_setting import Writer
from ingest.runtime.errors import InvalidInput
from ingest.runtime.places import Places

pytestmark = pytest.mark.unit

PLAIN = {
    "pipeline": "club",
    "table": "signups",
    "source": {"topic": "signups", "format": "json"},
    "columns": [{"name": "id", "type": "STRING", "nullable": False}, {"name": "at", "type": "TIMESTAMP"}],
    "event_id": ["id"],
}
RULES = {"fit": "id <> ''", "needs Spark": "hour(at) < 12", "raises": "element_at(split(id, ','), 0) = 'a'"}


def document(rule: str) -> dict[str, Any]:
    return {**PLAIN, "rules": [{"name": "one", "check": RULES[rule]}]}


def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "club", "signups")


def query(rule: str, tmp_path: Path, writer: Writer = Writer.AUTO) -> TableQuery:
    contract = Contract.model_validate(document(rule))
    return TableQuery(
        contract, places(tmp_path), KafkaOptions("127.0.0.1:1"), [Topic("signups", "id", (0,))], lambda _: None, writer=writer
    )


def test_auto_lets_spark_write_only_what_the_workers_cannot_and_says_why(tmp_path: Path) -> None:
    assert query("fit", tmp_path).notes == []
    (note,) = query("needs Spark", tmp_path).notes
    assert note.startswith("Delta in Spark writes: ") and "hour()" in note
    with pytest.raises(InvalidInput, match=r"DIRECT_UNFIT.*hour\(\)"):
        query("needs Spark", tmp_path, Writer.DIRECT)
    assert query("needs Spark", tmp_path, Writer.SPARK).notes == []


@pytest.mark.parametrize("writer", list(Writer))
def test_a_rule_that_can_raise_is_refused_whoever_writes(writer: Writer, tmp_path: Path) -> None:
    """I5: `element_at(items, 0)` stopped a table for good."""
    with pytest.raises(InvalidInput, match=r"RULE_INVALID.*element_at\(\) raises on index 0"):
        query("raises", tmp_path, writer)


def test_a_table_that_uses_an_unknown_feature_is_written_by_spark(tmp_path: Path) -> None:
    contract = Contract.model_validate(document("fit"))
    DirectWriter().create_tables(contract, places(tmp_path))
    assert spark_because(contract, places(tmp_path)) is None
    DeltaTable(places(tmp_path).quarantine).alter.set_table_properties({"delta.appendOnly": "true"})
    because = spark_because(contract, places(tmp_path))
    assert because is not None and "delta.appendOnly" in because


def test_on_databricks_the_platforms_own_delta_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.run.writer_choice.databricks.runtime", lambda: "17.3")
    because = spark_because(Contract.model_validate(document("fit")), places(tmp_path))
    assert because is not None and "Databricks" in because


@pytest.mark.parametrize(("rule", "code"), [("fit", 0), ("needs Spark", 0), ("raises", 2)])
def test_plan_and_doctor_name_the_writer_and_a_rule_that_can_raise(rule: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/signups.yml").write_text(yaml.safe_dump(document(rule)))
    there = {"--project": tmp_path, "--lake": tmp_path / "lake", "--checkpoints": tmp_path / "checkpoints"}
    words = ["plan", *(str(word) for pair in there.items() for word in pair)]
    answer = CliRunner().invoke(app, words)
    (found,) = (each for each in examine(tmp_path, str(tmp_path / "lake"), str(tmp_path / "c"), "127.0.0.1:1") if each.check == "contracts")
    if code:
        assert getattr(answer.exception, "exit_code", None) == code and found.error is not None
        assert found.error.code == "RULE_INVALID"
        return
    assert answer.exit_code == 0
    assert ("Delta in Spark writes" in answer.stdout) == (rule != "fit") == ("Delta in Spark writes club.signups" in found.detail)
    (row,) = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["tables"]
    assert (row["writer"], bool(row["writer_because"])) == (("direct", False) if rule == "fit" else ("spark", True))
