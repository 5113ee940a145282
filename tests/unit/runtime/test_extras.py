"""The extras that errors name are those of pyproject.toml, and the command that adds one fits the way of the installation."""

from __future__ import annotations

import json
from importlib.metadata import packages_distributions

import pytest

from ingest.runtime import extras
from tests.requirements import canonical, extra, project

pytestmark = pytest.mark.unit


def test_each_package_of_an_extra_has_its_module_in_the_list() -> None:
    assert set(extras.EXTRAS) | {"dev"} == set(project()["optional-dependencies"])
    distributions = packages_distributions()
    for name, (_, modules) in extras.EXTRAS.items():
        listed = {canonical(distributions[module][0]) for module in modules}
        assert extra(name) - {extras.DISTRIBUTION} <= listed, name


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": "file:///opt/my%20code", "dir_info": {"editable": True}}, "run `make setup` in /opt/my code."),
        (
            {"url": "file:///opt/oncelake-1.0-py3-none-any.whl", "archive_info": {}},
            "`python -m pip install 'oncelake[lab] @ file:///opt/oncelake-1.0-py3-none-any.whl'`.",
        ),
        (None, "`python -m pip install 'oncelake[lab]==1.0'`."),
    ],
)
def test_the_command_names_the_place_that_the_package_was_installed_from(
    origin: object, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        version = "1.0"

        def read_text(self, name: str) -> str | None:
            return json.dumps(origin) if origin and name == "direct_url.json" else None

    monkeypatch.setattr(extras, "distribution", lambda name: Installed())
    assert extras.install_command("lab") == command


def test_a_module_of_no_extra_is_a_bug_and_no_missing_extra() -> None:
    assert extras.missing("numpy", "run") is None
