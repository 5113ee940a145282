"""Errors in contract files: each names the file, the line, the key and the allowed values."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.cli.app import print_error
from ingest.contract.definition import ContractInvalid, load_contracts
from ingest.runtime.errors import InvalidInput

GOOD = """\
pipeline: shop
table: orders
source:
  topic: orders
  format: json
columns:
  - {name: order_id, type: STRING, nullable: false}
  - {name: amount, type: "DECIMAL(18,2)"}
  - {name: ordered_at, type: TIMESTAMP}
  - {name: ratio, type: DOUBLE, nullable: false}
  - {name: maybe, type: STRING}
  - {name: lines, type: "ARRAY<STRUCT<sku: STRING>>", nullable: false}
event_id: [order_id]
"""
RAW = """\
pipeline: shop
table: events
source: {topic: events, format: raw}
event_id: position
"""


def write(project: Path, **files: str | bytes) -> Path:
    folder = project / "tables"
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.yml").write_bytes(text.encode() if isinstance(text, str) else text)
    return project


def refused(project: Path, text: str | bytes) -> ContractInvalid:
    with pytest.raises(ContractInvalid) as caught:
        load_contracts(write(project, orders=text))
    assert caught.value.code == "CONTRACT_INVALID" and caught.value.exit_code == 2
    assert "docs/reference/contracts.md" in caught.value.remedy
    return caught.value


def only(error: ContractInvalid) -> tuple[str, str]:
    assert len(error.problems) == 1, str(error)
    return error.found, error.expected


def changed(old: str, new: str, text: str = GOOD) -> str:
    assert old in text
    return text.replace(old, new)


def total(text: str, contract: str = GOOD) -> str:
    """A contract with a control total `t`."""
    return contract + f"control_totals: [{{name: t, {text}}}]\n"


def test_the_contracts_that_these_tests_modify_are_valid(tmp_path: Path) -> None:
    assert [c.table for c in load_contracts(write(tmp_path, orders=GOOD, events=RAW))] == ["events", "orders"]


@pytest.mark.parametrize(
    "text, place, found, expected",
    [
        # keys
        (GOOD + "evnt_time: ordered_at\n", "14 evnt_time", "unknown key 'evnt_time'", "did you mean event_time?"),
        (changed("topic: orders", "tpic: x\n  topic: orders"), "4 source.tpic", "unknown key", "topic, topics, topic_pattern, format, "),
        (changed("type: TIMESTAMP", "typ: X, type: TIMESTAMP"), "9 columns[2].typ", "unknown key", "name, type, nullable, comment"),
        (changed("type: TIMESTAMP", "type: TIMESTAMP, comment: a, b"), "9 columns[2].b", "unknown key 'b'", "comma needs quotes"),
        (changed("pipeline: shop\n", ""), "1 pipeline", "'pipeline' is missing", "starts with a letter"),
        (changed("  topic: orders\n", ""), "3 source", "no topic is named", "one of topic (a name), topics (a list of names)"),
        (GOOD + "rules:\n  - {name: a}\n", "15 rules[0].check", "'check' is missing", "predicate"),
        # wrong types
        (changed("source:\n  topic: orders\n  format: json", "source: orders"), "3 source", "'orders'", "a mapping with topic"),
        (changed("table: orders", "table: 5"), "2 table", "5 (a number)", "a name of a-z"),
        (changed("table: orders", "table: true"), "2 table", "true (a boolean)", "a name of a-z"),
        (changed("table: orders", "table:"), "2 table", "nothing", "a name of a-z"),
        (changed("nullable: false}", "nullable: 'false'}", changed("ratio, type: DOUBLE, nullable: false", "ratio, type: DOUBLE").replace(
            'STRING>>", nullable: false', 'STRING>>"')), "7 columns[0].nullable", "'false'", "true (the default) or false"),
        (GOOD + "rules: amount >= 0\n", "14 rules", "'amount >= 0'", "a list of row rules"),
        (GOOD + "quarantine: {max_share: 5}\n", "14 quarantine.max_share", "5 (a number)", "from 0 to 1"),
        (GOOD + "quarantine: {min_records: 0}\n", "14 quarantine.min_records", "0 (a number)", "at least 1"),
        (changed("format: json", "format: json\n  max_records_per_batch: 0"), "6 source.max_records_per_batch", "0", "from 1 to 50000000"),
        (changed("format: json", "format: json\n  max_records_per_batch: 50000001"), "6 source.max_records_per_batch", "50000001", ""),
        (GOOD + "properties: {team: [a]}\n", "14 properties", "'team' is a list", "text, a number, true or false"),
        # enumerations
        (GOOD + "mode: upsert\n", "14 mode", "'upsert'", "insert"),
        (GOOD + "unknown_fields: drop\n", "14 unknown_fields", "'drop'", "ignore (the default), keep"),
        (changed("format: json", "format: avro"), "5 source.format", "'avro'", "json"),
        (changed("format: json", "format: json\n  isolation_level: dirty"), "6 source.isolation_level", "'dirty'", "read_committed"),
        (changed("format: json", "format: json\n  starting_offsets: middle"), "6 source.starting_offsets", "'middle'", "earliest"),
        # names
        (changed("pipeline: shop", "pipeline: Shop"), "1 pipeline", "'Shop'", "[a-z][a-z0-9_]*"),
        (changed("pipeline: shop", "pipeline: docs"), "1 pipeline", "'docs' is a folder of the lake", "other than docs and logs"),
        (changed("table: orders", "table: my-orders"), "2 table", "'my-orders'", "[a-z][a-z0-9_]*"),
        (changed("topic: orders", "topic: my orders"), "4 source.topic", "'my orders'", "1 to 249 of a-z A-Z 0-9 . _ -"),
        (changed("topic: orders", f"topic: {'x' * 250}"), "4 source.topic", "xxx...'", "1 to 249"),
        (changed("topic: orders", "topic: .."), "4 source.topic", "'..'", "not . or .."),
        # several topics
        (changed("topic: orders", "topic: orders\n  topics: [a, b]"), "3 source", "topic and topics were given together", "one of topic"),
        (changed("topic: orders", "topic: a\n  topics: [a, b]\n  topic_pattern: a"), "3 source", "topics and topic_pattern were", ""),
        (changed("topic: orders", "topics:\n    - a\n    - my orders"), "6 source.topics[1]", "'my orders' is not a topic", "1 to 249"),
        (changed("topic: orders", "topics: [a, b, a]"), "4 source.topics", "the topic 'a' appears twice", "each topic once"),
        (changed("topic: orders", "topics: orders"), "4 source.topics", "'orders'", "a list of Kafka topics"),
        (changed("topic: orders", "topics: []"), "4 source.topics", "a list", "a list of Kafka topics"),
        (changed("topic: orders", "topic: 'orders, returns'"), "4 source.topic", "'orders, returns'", "several names are `topics`"),
        (changed("topic: orders", "topic_pattern: '*'"), "4 source.topic_pattern", "'*' is not a pattern: nothing to repeat", "whole name"),
        (changed("topic: orders", "topic_pattern: ''"), "4 source.topic_pattern", "''", "a regular expression of Python"),
        (changed("topic: orders", "topic_pattern: 5"), "4 source.topic_pattern", "5 (a number)", "a regular expression of Python"),
        (changed("name: maybe", "name: may-be"), "11 columns[4].name", "'may-be'", "starts with a letter"),
        (changed("name: maybe", "name: _offset"), "11 columns[4].name", "reserved for provenance", "starts with a letter"),
        (changed("name: maybe", "name: Amount"), "11 columns[4].name", "differs from 'amount' only by its case", "Delta ignores case"),
        (changed("name: maybe", "name: amount"), "11 columns[4].name", "appears twice", "differ by more than their case"),
        # column types
        (changed("STRUCT<sku: STRING>", "STRUCT<sku: STRING, SKU: INT>"), "12 columns[5].type", "'sku' and 'SKU'", "more than their case"),
        (changed("maybe, type: STRING", "maybe, type: VARCHAR(9)"), "11 columns[4].type", "VARCHAR is not supported", "pad"),
        (changed("maybe, type: STRING", "maybe, type: 'STRUCT<a: INT NOT NULL>'"), "11 columns[4]", "maybe.a is NOT NULL", "not null too"),
        # event id
        (changed("event_id: [order_id]", "event_id: [ordr_id]"), "13 event_id[0]", "no column 'ordr_id'", "order_id"),
        (changed("event_id: [order_id]", "event_id: [maybe]"), "13 event_id[0]", "'maybe' may be null", "nullable: false at column maybe"),
        (changed("event_id: [order_id]", "event_id: [ratio]"), "13 event_id[0]", "'ratio' is DOUBLE", "STRING, TINYINT"),
        (changed("event_id: [order_id]", "event_id: [lines]"), "13 event_id[0]", "not a nested one", "STRING, TINYINT"),
        (changed("event_id: [order_id]", "event_id: order_id"), "13 event_id", "'order_id' is not an event id", "is written [order_id]"),
        (changed("event_id: [order_id]", "event_id: []"), "13 event_id", "a list", "a list of columns"),
        (changed("event_id: [order_id]", "event_id: 'header:'"), "13 event_id", "'header:'", "header:<name>"),
        (changed("event_id: [order_id]", "event_id: [order_id, order_id]"), "13 event_id", "same column twice", "once"),
        (changed("event_id: [order_id]", "event_id: position"), "13 event_id", "position as event id with format json", "raw only"),
        (changed("event_id: position", "event_id: [value]", RAW), "4 event_id", "columns as event id", "key, header:<name> or position"),
        # raw has fixed columns, json needs at least one
        (RAW + "columns: [{name: a, type: INT}]\n", "5 columns", "1 columns with format raw", "key, value and headers"),
        (RAW + "unknown_fields: keep\n", "5 unknown_fields", "keep with format raw", "no unknown_fields"),
        (RAW + "event_time: key\n", "5 event_time", "with format raw", "no event_time"),
        (RAW.replace("raw", "json").replace("position", "key"), "1 columns", "no columns", "at least one column"),
        # event time
        (GOOD + "event_time: nope\n", "14 event_time", "no column 'nope'", "ordered_at"),
        (GOOD + "event_time: amount\n", "14 event_time", "type DECIMAL", "TIMESTAMP, TIMESTAMP_NTZ, DATE"),
        # layout
        (GOOD + "layout: {partition_by: [order_id], cluster_by: [amount]}\n", "14 layout", "together", "one of them"),
        (GOOD + "layout:\n  partition_by:\n    - nope\n", "16 layout.partition_by[0]", "no column 'nope'", "_ingested_at"),
        (GOOD + "layout: {partition_by: [lines]}\n", "14 layout.partition_by[0]", "type ARRAY", "STRING, BOOLEAN"),
        (GOOD + "layout: {cluster_by: [lines]}\n", "14 layout.cluster_by[0]", "type ARRAY", "STRING, TINYINT"),
        (GOOD + "layout: {cluster_by: [amount, amount]}\n", "14 layout.cluster_by[1]", "twice", "once"),
        (GOOD + "layout: {cluster_by: [order_id, amount, ratio, maybe, ordered_at]}\n", "14 layout.cluster_by", "5 columns", "at most 4"),
        # rules
        (GOOD + "rules: [{name: A, check: amount > 0}]\n", "14 rules[0].name", "'A'", "[a-z][a-z0-9_]*"),
        (GOOD + "rules:\n  - {name: a, check: amount > 0}\n  - {name: a, check: amount > 1}\n", "16 rules[1].name", "twice", "once"),
        (GOOD + "rules:\n  - name: a\n    check: rand() < amount\n", "16 rules[0].check", "rule a: rand() depends on", "same answer"),
        (GOOD + "rules: [{name: a, check: _ingested_at > ordered_at}]\n", "14 rules[0].check", "'_ingested_at'", "_kafka_timestamp"),
        # suite
        (GOOD + "suite: /etc/orders.json\n", "14 suite", "below the project", "relative path"),
        (GOOD + "suite: ../orders.json\n", "14 suite", "below the project", "relative path"),
        (GOOD + "suite: orders.yml\n", "14 suite", "not a path of a suite", "ends in .json"),
        # control totals
        (total("sum: [amnt], day: ordered_at"), "14 control_totals[0].sum[0]", "no column 'amnt'", "amount."),
        (total("sum: [ratio], day: ordered_at"), "14 control_totals[0].sum[0]", "type DOUBLE", "BIGINT, DECIMAL"),
        (total("sum: [], day: ordered_at"), "14 control_totals[0].sum", "a list", "whole numbers or of DECIMAL"),
        (total("sum: [amount]"), "14 control_totals[0].day", "'day' is missing", "TIMESTAMP"),
        (total("sum: [amount], day: order_id"), "14 control_totals[0].day", "type STRING", "TIMESTAMP, TIMESTAMP_NTZ, DATE"),
        (total("sum: [amount], by: [lines], day: ordered_at"), "14 control_totals[0].by[0]", "type ARRAY", "STRING, BOOLEAN"),
        (total("sum: [amount, amount], day: ordered_at"), "14 control_totals[0].sum[1]", "appears twice", "once"),
        (total("sum: [amount], day: ordered_at, tolerance: 0.01"), "14 control_totals[0].tolerance", "0.01 (a number)", "in quotes"),
        (total("sum: [amount], day: ordered_at, tolerance: '-1'"), "14 control_totals[0].tolerance", "not a tolerance", "'0.00'"),
        (total("sum: [amount], day: ordered_at}, {name: t, sum: [amount], day: ordered_at"), "14 control_totals[1].name", "twice", "once"),
        (total("sum: [amount], by: [maybe], day: ordered_at", changed("maybe, type: STRING", "maybe, type: STRING, sensitive: true")),
         "14 control_totals[0].by[0]", "sensitive", "a column that is not"),
        (total("sum: [amount], day: ordered_at", changed("type: TIMESTAMP", "type: TIMESTAMP, sensitive: true")),
         "14 control_totals[0].day", "column 'ordered_at' is sensitive", "a column that is not"),
        (total("sum: [amount], day: ordered_at", changed("DECIMAL(18,2)", "DECIMAL(29,2)")),
         "14 control_totals[0].sum[0]", "29", "28 digits"),
        (total("sum: [value], day: key", RAW), "5 control_totals", "with format raw", "no columns"),
    ],
)  # fmt: skip
def test_an_invalid_contract_is_refused_with_its_line_and_the_allowed_values(
    tmp_path: Path, text: str, place: str, found: str, expected: str
) -> None:
    found_text, expected_text = only(refused(tmp_path, text))
    assert found_text.startswith(f"tables/orders.yml:{place}: "), found_text
    assert found in found_text
    assert expected in expected_text


@pytest.mark.parametrize(
    "key",
    [
        "delta.setTransactionRetentionDuration",
        "delta.isolationLevel",
        "delta.columnMapping.mode",
        "delta.appendOnly",
        "DELTA.APPENDONLY",
        "delta.enableDeletionVectors",
        "delta.feature.variantType",
        "delta.minReaderVersion",
        "delta.constraints.positive",
        "delta.dataSkippingNumIndexedCols",
        "delta.somethingNew",
        "oncelake.version",
        "location",
    ],
)
def test_a_table_property_that_breaks_a_promise_is_refused(tmp_path: Path, key: str) -> None:
    found, expected = only(refused(tmp_path, GOOD + f"properties:\n  team: finance\n  {key}: 1\n"))
    assert found.startswith(f"tables/orders.yml:16 properties.{key}: property '{key}' ")
    assert "delta.logRetentionDuration" in expected


@pytest.mark.parametrize(
    "text, line, found, expected",
    [
        ("", 1, "the file is empty", "pipeline, table, source"),
        ("# a comment alone\n", 1, "the file is empty", "pipeline, table, source"),
        ("- a\n- b\n", 1, "not a mapping", "pipeline: ..."),
        ("pipeline: shop\ntable: [a\nsource: b\n", 3, "this is not YAML", "needs quotes"),
        ("pipeline: shop\ntable: @a\n", 2, "this is not YAML", "needs quotes"),
        ("pipeline: shop\nsource:\n\ttopic: a\n", 3, "a tab", "spaces"),
        ("pipeline: a\n---\npipeline: b\n", 2, "a second document", "one contract in a file"),
        ("pipeline: &a shop\ntable: *a\n", 2, "the alias *a", "the value itself"),
        ("pipeline: !!python/name:os.system x\n", 1, "the tag", "without a tag"),
        ("pipeline: a\ntable: \x07\n", 2, "a control character", "printable"),
        (b"pipeline: a\ntable: \xff\n", 2, "not UTF-8", "UTF-8"),
        ("a: " + "[" * 600 + "]" * 600, 1, "nested too deeply", "docs/reference/contracts.md"),
    ],
)
def test_a_file_that_is_not_a_yaml_mapping_is_refused_with_its_line(
    tmp_path: Path, text: str | bytes, line: int, found: str, expected: str
) -> None:
    found_text, expected_text = only(refused(tmp_path, text))
    assert found_text.startswith(f"tables/orders.yml:{line}: ") and found in found_text
    assert expected in expected_text


@pytest.mark.parametrize(
    "text, place, first",
    [
        (GOOD + "table: again\n", "14 table", 2),
        (changed("topic: orders", "topic: orders\n  topic: others"), "5 source.topic", 4),
        (changed("name: maybe, type: STRING", "name: maybe, type: STRING, type: INT"), "11 columns[4].type", 11),
    ],
)
def test_a_key_given_twice_is_refused_and_both_lines_are_named(tmp_path: Path, text: str, place: str, first: int) -> None:
    found, expected = only(refused(tmp_path, text))
    assert found.startswith(f"tables/orders.yml:{place}: ") and f"first in line {first}" in found
    assert expected == "each key once."


@pytest.mark.parametrize(
    "word", ["yes", "no", "on", "OFF", "1e3", "1.5e3", "012", "0x1F", "0o17", "1_000", "12:30", ".5", ".inf", "+5", "2024-01-01"]
)
def test_text_that_yaml_parsers_read_differently_must_be_quoted(tmp_path: Path, word: str) -> None:
    found, expected = only(refused(tmp_path, GOOD + f"description: {word}\n"))
    assert found.startswith(f"tables/orders.yml:14 description: {word} without quotes is ")
    assert f"'{word}' in quotes" in expected
    assert load_contracts(write(tmp_path, orders=GOOD + f"description: '{word}'\n"))[0].description == word


def test_all_problems_of_all_files_are_reported_together_in_order(tmp_path: Path) -> None:
    orders = changed("type: TIMESTAMP", "type: DATETIME") + "mode: merge\nrules:\n  - {name: a, check: amont > 0}\n"
    with pytest.raises(ContractInvalid) as caught:
        load_contracts(write(tmp_path, orders=orders, events=changed("position", "nothing", RAW)))
    assert [problem.place for problem in caught.value.problems] == [
        "tables/events.yml:4 event_id",
        "tables/orders.yml:9 columns[2].type",
        "tables/orders.yml:14 mode",
        "tables/orders.yml:16 rules[0].check",
    ]
    assert caught.value.found.startswith("4 problems:\n   1. tables/events.yml:4 event_id: ")
    assert not (caught.value.found + caught.value.expected).endswith("\n") and not caught.value.found.endswith("\n")
    assert "\n   4. one of order_id, amount" in caught.value.expected
    assert caught.value.remedy.startswith("edit tables/events.yml, tables/orders.yml")


def test_an_invalid_column_causes_no_follow_up_errors_where_it_is_used(tmp_path: Path) -> None:
    text = changed("order_id, type: STRING", "order_id, type: UUID") + "rules: [{name: a, check: order_id <> ''}]\n"
    assert only(refused(tmp_path, text))[0].startswith("tables/orders.yml:7 columns[0].type: ")


def test_two_contracts_for_one_table_are_refused_and_both_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ContractInvalid) as caught:
        load_contracts(write(tmp_path, orders=GOOD, orders_again=GOOD))
    assert caught.value.code == "CONTRACT_DUPLICATE"
    assert caught.value.found == "tables/orders_again.yml:1: shop.orders is already described in tables/orders.yml."


def test_a_table_name_in_two_pipelines_must_be_given_with_its_pipeline(tmp_path: Path) -> None:
    project = write(tmp_path, orders=GOOD, b2b_orders=changed("pipeline: shop", "pipeline: b2b"))
    with pytest.raises(InvalidInput) as caught:
        load_contracts(project, ["orders"])
    assert caught.value.code == "CONTRACT_AMBIGUOUS" and "b2b.orders, shop.orders" in caught.value.expected
    assert [c.name for c in load_contracts(project, ["shop.orders"])] == ["shop.orders"]


def test_a_project_without_tables_is_refused(tmp_path: Path) -> None:
    for found in ("no folder tables/", "tables/ contains no contract"):
        with pytest.raises(InvalidInput) as caught:
            load_contracts(tmp_path)
        assert caught.value.code == "CONTRACT_NOT_FOUND" and found in caught.value.found
        (tmp_path / "tables").mkdir(exist_ok=True)


def test_an_unknown_contract_name_is_refused_with_the_closest_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_contracts(write(tmp_path, orders=GOOD, events=RAW), ["ordrs"])
    assert (caught.value.code, caught.value.expected) == ("CONTRACT_NOT_FOUND", "one of events, orders (did you mean orders?).")
    assert "tables/ordrs.yml" in caught.value.remedy


def test_a_broken_contract_file_matters_only_if_its_table_is_requested(tmp_path: Path) -> None:
    project = write(tmp_path, orders=GOOD, events=RAW + "x: 1\n", torn="a: [")
    assert [c.table for c in load_contracts(project, ["orders"])] == ["orders"]
    for name in ("events", "shop.events", "torn"):
        with pytest.raises(ContractInvalid):
            load_contracts(project, [name])


def test_a_contract_file_that_ends_in_yaml_is_refused_and_not_ignored(tmp_path: Path) -> None:
    write(tmp_path, orders=GOOD)
    (tmp_path / "tables/events.yaml").write_text(RAW)
    with pytest.raises(ContractInvalid) as caught:
        load_contracts(tmp_path)
    assert only(caught.value) == ("tables/events.yaml:1: the file's name ends in .yaml.", "tables/events.yml.")


def test_the_reference_page_shows_a_valid_contract_and_the_error_of_an_invalid_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs/reference/contracts.md").read_text()
    example = page.split("```yaml\n")[1].split("```")[0]
    assert load_contracts(write(tmp_path, orders=example))[0].name == "shop.orders"
    wrong = example.replace("amount, type: ", "amount, typ: ").replace("[order_id]", "[ordr_id]")
    print_error(refused(tmp_path, wrong))
    shown = "ingest: CONTRACT_INVALID" + page.split("```\ningest: CONTRACT_INVALID")[1].split("```")[0]
    assert capsys.readouterr().err == shown
