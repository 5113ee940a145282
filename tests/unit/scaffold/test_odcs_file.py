"""Contracts from an ODCS v3 file: what is carried over, and what is listed because it cannot be."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from ingest.contract.definition import load_contracts
from ingest.quality.suite import load_suites
from ingest.runtime.errors import InvalidInput
from ingest.scaffold import new_project
from ingest.scaffold.odcs_file import drafts_of

pytestmark = pytest.mark.unit

ODCS = """
apiVersion: v3.1.0
kind: DataContract
id: 53581432-6c55-4ba2-a65f-72344a91553a
name: seller payments
version: 1.1.0
status: active
slaProperties: [{property: latency, value: 4, unit: d}]
schema:
  - name: SellerPayments
    physicalName: seller.payments.v1
    logicalType: object
    description: One row a payment to a seller.
    quality:
      - {metric: rowCount, mustBeGreaterThan: 0}
      - {type: sql, name: settled, query: "SELECT 1", mustBe: 0}
    properties:
      - {name: region, logicalType: string, primaryKey: true, primaryKeyPosition: 2, required: true}
      - {name: payment_no, logicalType: integer, primaryKey: true, primaryKeyPosition: 1}
      - {name: amount, logicalType: number, physicalType: "decimal(12,2)", required: true, logicalTypeOptions: {minimum: 0}}
      - {name: rate, logicalType: number, logicalTypeOptions: {multipleOf: 0.001, maximum: 1}}
      - {name: weight, logicalType: number}
      - {name: paid_at, logicalType: date, logicalTypeOptions: {format: "yyyy-MM-ddTHH:mm:ssZ"}, required: true}
      - {name: due, logicalType: date}
      - name: iban
        logicalType: string
        physicalType: varchar(34)
        classification: restricted
        unique: true
        logicalTypeOptions: {pattern: "^[A-Z]{2}", maxLength: 34}
      - name: status
        logicalType: string
        encryptedName: status_x
        quality: [{metric: invalidValues, mustBe: 0, arguments: {validValues: [open, paid]}}, {rule: nullCheck, mustBe: 0}]
      - name: address
        logicalType: object
        properties: [{name: city, logicalType: string}, {name: tags, logicalType: array, items: {logicalType: string}}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "odcs.yaml"
    path.write_text(ODCS, encoding="utf-8")
    return path


def test_a_schema_becomes_a_contract_and_a_suite_that_the_checks_accept(file: Path, tmp_path: Path) -> None:
    new_project.write(tmp_path / "new", "sellers", drafts_of(file), "broker1:9092")
    (contract,) = load_contracts(tmp_path / "new")
    assert (contract.name, contract.source.topic, contract.event_id.document()) == (
        "sellers.seller_payments",
        "seller.payments.v1",
        ["payment_no", "region"],
    )
    assert {column.name: (column.type, column.nullable) for column in contract.columns} == {
        "region": ("STRING", False),
        "payment_no": ("BIGINT", False),
        "amount": ("DECIMAL(12,2)", False),
        "rate": ("DECIMAL(18,3)", True),
        "weight": ("DOUBLE", True),
        "paid_at": ("TIMESTAMP", False),
        "due": ("DATE", True),
        "iban": ("STRING", True),
        "status": ("STRING", True),
        "address": ("STRUCT<city: STRING, tags: ARRAY<STRING>>", True),
    }
    assert [column.name for column in contract.columns if column.sensitive] == ["iban"]
    assert [(rule.name, rule.check) for rule in contract.rules] == [
        ("amount_minimum", "amount >= 0"),
        ("rate_maximum", "rate IS NULL OR rate <= 1"),
    ]
    (suite,) = load_suites(tmp_path / "new", [contract])
    found = {(each.type.removeprefix("expect_"), each.columns) for each in suite.expectations}
    assert {
        ("compound_columns_to_be_unique", ("payment_no", "region")),
        ("column_values_to_be_unique", ("iban",)),
        ("column_values_to_match_regex", ("iban",)),
        ("column_value_lengths_to_be_between", ("iban",)),
        ("column_values_to_be_in_set", ("status",)),
        ("column_values_to_not_be_null", ("status",)),
        ("table_row_count_to_be_between", ()),
    } <= found


def test_what_cannot_be_carried_over_is_listed_in_the_contract(file: Path, tmp_path: Path) -> None:
    new_project.write(tmp_path / "new", "sellers", drafts_of(file), "broker1:9092")
    text = (tmp_path / "new/tables/seller_payments.yml").read_text(encoding="utf-8")
    for words in ("slaProperties", "quality rule settled of the table", "encryptedName of status", "weight is DOUBLE"):
        assert any(words in line for line in text.splitlines() if line.startswith("# ")), words


@pytest.mark.parametrize(
    ("old", "new"), [("v3.1.0", "v2.2.2"), ("schema:", "schemas:"), ("apiVersion: v3.1.0", "- a list"), ("- {name: due,", "- {nom: due,")]
)
def test_a_file_in_another_form_is_refused(file: Path, old: str, new: str) -> None:
    file.write_text(ODCS.replace(old, new), encoding="utf-8")
    with pytest.raises(InvalidInput) as refused:
        drafts_of(file)
    assert refused.value.code == "ODCS_INVALID"


ALIASED = "".join(f"{two}: &{two} [{', '.join([f'*{one}'] * 9)}]\n" for one, two in pairwise("abcdefghijkl"))


@pytest.mark.parametrize(
    "properties",
    [
        "  - 5\n",
        "  - {name: a, quality: [5]}\n",
        "  - {name: a, quality: [{metric: rowCount, mustBeBetween: [.inf, 2]}]}\n",
        "  - &a {name: a, logicalType: object, properties: [*a]}\n",
        f"  - {{name: a}}\na: &a [x]\n{ALIASED}beside: *l\n",  # 9 to the power of 11 values
        "  - {name: a, quality: " + "[" * 1000 + "}\n",
    ],
)
def test_a_file_with_wrong_types_or_without_end_is_refused(file: Path, properties: str) -> None:
    file.write_text(f"apiVersion: v3.1.0\nschema:\n- name: orders\n  properties:\n{properties}", encoding="utf-8")
    with pytest.raises(InvalidInput) as refused:
        drafts_of(file)
    assert refused.value.code == "ODCS_INVALID"


@pytest.mark.parametrize("names", ["OrderItems, order_items", "order_items, OTHER, order-items"])
def test_two_objects_that_would_become_one_table_are_refused(file: Path, names: str) -> None:
    objects = "".join(
        f"  - {{name: {name}, properties: [{{name: id, logicalType: string, unique: true}}]}}\n" for name in names.split(", ")
    )
    file.write_text(f"apiVersion: v3.1.0\nschema:\n{objects}", encoding="utf-8")
    with pytest.raises(InvalidInput) as refused:
        drafts_of(file)
    same = ", ".join(name for name in names.split(", ") if name != "OTHER")
    assert refused.value.code == "CONTRACT_DUPLICATE" and f"{same} would all become the table order_items" in refused.value.found


def test_a_name_that_yaml_reads_as_something_else_than_text_is_refused(file: Path) -> None:
    file.write_text(ODCS.replace("- {name: due,", "- {name: no,"), encoding="utf-8")
    with pytest.raises(InvalidInput, match="the name False is not text"):
        drafts_of(file)


def test_names_that_are_words_of_yaml_and_notes_of_several_lines_stay_what_they_are(file: Path, tmp_path: Path) -> None:
    text = (
        ODCS.replace("- {name: due,", '- {name: "on",').replace("name: iban", 'name: "yes"').replace("name: SellerPayments", 'name: "null"')
    )
    text = text.replace("name: payment_no, logicalType", 'name: "no", logicalType').replace(
        "name: settled", 'name: "settled\\nmode: upsert"'
    )
    file.write_text(text, encoding="utf-8")
    new_project.write(tmp_path / "new", "true", drafts_of(file), "broker1:9092")
    (contract,) = load_contracts(tmp_path / "new")
    assert (contract.name, contract.event_id.document()) == ("true.null", ["no", "region"])
    assert {"on", "yes", "no"} < {column.name for column in contract.columns}
    assert "# Not carried over: the quality rule settled mode: upsert of the table." in (tmp_path / "new/tables/null.yml").read_text(
        "utf-8"
    )
    (bundle,) = (tmp_path / "new").glob("databricks.yml")
    read = yaml.safe_load(bundle.read_text(encoding="utf-8"))
    assert (read["bundle"]["name"], read["targets"]["prod"]["variables"]["schema"]) == ("true", "true")


def test_without_a_key_in_the_schema_the_records_key_is_the_event_id(file: Path) -> None:
    file.write_text(ODCS.replace("primaryKey: true, ", "").replace("unique: true", "unique: false"), encoding="utf-8")
    (draft,) = drafts_of(file)
    assert draft.event_id == "key"
    assert any("No property is the primaryKey" in note for note in draft.notes)
