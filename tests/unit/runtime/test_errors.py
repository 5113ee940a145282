"""Errors: each family has an exit code, a message has three parts, and the most severe of several codes wins."""

from __future__ import annotations

import itertools

import pytest

from ingest.runtime.errors import SEVERITY, Bug, IngestError, InvalidEnvironment, InvalidInput, Refused, RunStopped, most_severe


@pytest.mark.parametrize("family, code", [(InvalidInput, 2), (Refused, 3), (InvalidEnvironment, 4), (RunStopped, 5), (IngestError, 70)])
def test_each_family_has_its_exit_code_and_a_message_with_found_expected_and_remedy(family: type[IngestError], code: int) -> None:
    error = family("A_CODE", "this was found.", expected="that.", remedy="do so.")
    assert error.exit_code == code
    assert error.as_dict() == {"code": "A_CODE", "found": "this was found.", "expected": "that.", "remedy": "do so."}
    assert str(error) == "A_CODE: this was found. Expected: that. Remedy: do so."


def test_a_bug_asks_the_user_for_a_report() -> None:
    bug = Bug("A_CODE", "this.", expected="that.")
    assert bug.exit_code == 70 and "report" in bug.remedy


def test_the_most_severe_code_wins_in_any_order() -> None:
    assert SEVERITY == (70, 5, 3, 4, 2, 1, 0)
    for first, second in itertools.combinations(SEVERITY, 2):
        assert most_severe([first, second]) == most_severe([second, first]) == most_severe([0, second, first]) == first


def test_without_codes_the_exit_code_is_0() -> None:
    assert most_severe([]) == 0
