"""The pages: links resolve, commands and options exist, and docs/reference/errors.md lists every error code with its exit code."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from ingest.cli import register
from ingest.cli.app import USAGE_ERROR, app, print_error
from ingest.delta.batch_commit import BatchId
from ingest.kafka.topic_state import TopicId
from ingest.ledger.ledger_reader import Newest
from ingest.quality import gx
from ingest.quality.suite import PARAMETERS
from ingest.recovery import refusals
from ingest.runtime import errors

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).parents[3]
PAGES = sorted(
    [*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md"), *(PROJECT / name / "README.md" for name in ("checkpoints", "expectations"))]
)
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
ERRORS = PROJECT / "docs/reference/errors.md"

# What creates an error, with its exit codes. A KafkaFailure becomes InvalidEnvironment before a run and RunStopped during it.
FAMILIES = {
    each.__name__: {each.exit_code}
    for each in (errors.InvalidInput, errors.Refused, errors.InvalidEnvironment, errors.RunStopped, errors.Bug)
}
MAKERS = {**FAMILIES, "KafkaFailure": {4, 5}, "parse_time": {2}, "ContractInvalid": {2}, "Finding": {1}, "finding": {1}, "_foreign": {1}}
CODE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?!\w)")
# Strings in the source that look like an error code but are not: types, and names of other programs' settings and errors.
NO_CODES = {
    *("TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "BOOLEAN_ONLY", "SASL_SSL", "PATH_NOT_FOUND", "GX_ANALYTICS_ENABLED", "LC_ALL"),
    *("JAVA_HOME", "JDK_JAVA_OPTIONS", "PYSPARK_PYTHON", "SPARK_LOCAL_DIRS", "XDG_CACHE_HOME", "DATABRICKS_RUNTIME_VERSION"),
    *("PROVENANCE_IN_RULES", "RAW_COLUMNS"),  # names that contract.py exports
    *("SINGLE_USER", "JAVA_TOOL_OPTIONS"),
    "TRY_CAST",  # an SQL function
    "END_TXN",  # a request of the Kafka protocol
    *("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "SPARK_DAEMON_MEMORY", "SPARK_DAEMON_JAVA_OPTS"),
    *("LD_PRELOAD", "CLOCK_BOOTTIME", "PG_VERSION", "EVENT_ID", "DATABASE_DEFAULT"),
    *("DUPLICATE_DIFFERS", "GAP_DIFFERS"),  # findings of former versions, which CHANGELOG.md names
    "LINEAGE_KEY",  # the example of --api-key-env
}
ENVIRONMENT = "INGEST_"
# Options of pip, uv, databricks, Chromium and bench.
OTHER_OPTIONS = {"--no-deps", "--extra", "--var", "--persist", "--collector", "--remote-debugging-pipe", "--profile"}


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((PROJECT / "ingest").rglob("*.py"))}


def texts(tree: ast.AST) -> Iterator[str]:
    yield from (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def made(tree: ast.AST, inherited: str = "") -> Iterator[tuple[str, set[int]]]:
    """The codes of all errors and findings that the tree creates, with their exit codes. `inherited` is the class behind `super()`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from made(node, next((base.id for base in node.bases if isinstance(base, ast.Name) and base.id in FAMILIES), ""))
            continue
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            maker = inherited if name == "__init__" else name
            given = [*node.args, *(each.value for each in node.keywords if each.arg == "code")]
            codes = [text for each in given for text in texts(each) if re.fullmatch(r"[A-Z][A-Z0-9_]{4,}", text)]
            yield from ((code, MAKERS[maker]) for code in codes[:2] if maker in MAKERS)
        yield from made(node, inherited)


@cache
def codes() -> dict[str, set[int]]:
    """All error codes in the source, each with its possible exit codes."""
    found: dict[str, set[int]] = {"CONTRACT_INVALID": {2}}  # a default of ContractInvalid
    for tree in trees().values():
        for code, exits in made(tree):
            found[code] = found.get(code, set()) | exits
    return found


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub generates them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@EACH_PAGE
def test_every_link_between_pages_resolves(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


@EACH_PAGE
def test_every_file_of_the_project_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"(?<![\w/.-])(?:ingest|docs|tests|bench|scripts|resources)/[\w/.-]+\.(?:py|md|yml|json|sql)\b", prose(page))
    assert not [name for name in named if not (PROJECT / name).exists()]


@cache
def commands() -> Any:
    register()
    return typer.main.get_command(app)


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the first words name, and the rest; None if there is no such command."""
    command = commands()
    while words and (verbs := getattr(command, "commands", None)) is not None:
        command, words = verbs.get(words[0]), words[1:]
    return command, words


def options_of(command: Any) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts} | {"--help"}


@EACH_PAGE
def test_the_command_line_accepts_every_command_in_a_code_block(page: Path) -> None:
    for line in "\n".join(blocks(page)).splitlines():
        if not re.match(r"(\.venv/bin/)?ingest ", line):
            continue
        words = shlex.split(line.partition(" > ")[0], comments=True)[1:]
        command, rest = command_of(words)
        assert command is not None, line
        try:
            command.make_context("ingest", rest)
        except USAGE_ERROR as error:
            pytest.fail(f"{line}: {error.format_message()}")


@EACH_PAGE
def test_every_command_and_option_in_a_sentence_exists(page: Path) -> None:
    known = set().union(*(options_of(command) for command in every(commands())))
    for text in re.findall(r"`([^`]+)`", prose(page)):
        words = re.findall(r"(?:^|(?<=[\s\[]))[\w-]+", text)
        if words[:1] == ["ingest"] and len(words) > 1:
            command, _ = command_of([word for word in words[1:] if not word.startswith("-")][:2])
            assert command is not None, text
            missing = {word for word in words if word.startswith("--")} - options_of(command)
            missing |= set(too_many(text))
        else:
            missing = {word for word in words[:1] if re.match(r"--[a-z]", word)} - known - OTHER_OPTIONS
        assert not missing, f"{text}: {missing}"


def too_many(text: str) -> list[str]:
    """The words of a command in a sentence that are neither options nor arguments which it takes."""
    command, rest = command_of(shlex.split(re.split(r"\\?\|", text)[0])[1:])
    if command is None or hasattr(command, "commands"):  # a group is named, not one of its commands
        return []
    return list(command.make_context("ingest", rest, resilient_parsing=True).args)


def test_an_argument_that_a_command_does_not_take_is_noticed_in_a_sentence() -> None:
    assert too_many("ingest transactions orders") == ["orders"]
    assert too_many("ingest seek orders more --to table") == ["more"]
    assert too_many("ingest transactions --abort ID") == too_many("ingest status orders payments") == too_many("ingest quarantine") == []


def every(command: Any) -> Iterator[Any]:
    yield command
    for each in getattr(command, "commands", {}).values():
        yield from every(each)


@EACH_PAGE
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    verbs = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"`make ([a-z-]+)`", text)) | set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)) <= verbs


@cache
def source_texts() -> frozenset[str]:
    return frozenset(text for tree in trees().values() for text in texts(tree))


@EACH_PAGE
def test_every_code_and_variable_that_a_page_names_is_in_the_source(page: Path) -> None:
    source = source_texts()
    for word in set(CODE.findall(page.read_text(encoding="utf-8"))):
        if word.startswith("INGEST_KAFKA_"):
            continue  # any Kafka option
        if word.startswith(ENVIRONMENT):
            assert word in source, word
        else:
            assert word in codes().keys() | NO_CODES, word


def rows() -> list[tuple[str, set[int]]]:
    """The rows of docs/reference/errors.md: code and exit codes."""
    found = re.findall(r"^\| `(\w+)` \| ([\d, ]+) \| \S.*\|$", ERRORS.read_text(encoding="utf-8"), re.MULTILINE)
    return [(code, {int(each) for each in exits.split(",")}) for code, exits in found]


def test_the_error_reference_lists_every_code_once_with_its_exit_codes() -> None:
    assert len(rows()) == len(dict(rows()))
    assert dict(rows()) == codes()


def test_no_error_code_is_created_where_these_tests_do_not_look() -> None:
    """Every string in the source that looks like a code must be one, or be in NO_CODES. So a new way to create errors is noticed."""
    found = {text for tree in trees().values() for text in texts(tree) if CODE.fullmatch(text) and not text.startswith(ENVIRONMENT)}
    assert found - NO_CODES == {code for code in codes() if "_" in code}


def test_the_message_in_the_error_reference_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    newest = Newest(BatchId(3, 41), (TopicId("orders", "id"),), {(0, 0): 1200})
    print_error(refusals.table_rewound("shop.orders", "…/lake/shop/orders/target", "version 57 is a RESTORE", newest))
    assert capsys.readouterr().err in blocks(ERRORS)


def test_great_expectations_can_evaluate_every_parameter_on_the_pages() -> None:
    shown = [each for page in PAGES for each in re.findall(r'\{"\$PARAMETER": "([^"]+)"\}', page.read_text(encoding="utf-8"))]
    assert "ledger_rows" in shown
    assert not [each for each in shown if not gx.parameter_works(each, PARAMETERS)]


def test_great_expectations_accepts_every_expectation_on_the_pages() -> None:
    found = [
        text for page in PAGES for text in re.findall(r"^```json\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    ]
    shown = [config for config in map(json.loads, found) if "kwargs" in config]
    assert shown
    assert [problem for config in shown if (problem := gx.problem_of(config))] == []
