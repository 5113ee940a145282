"""The extras that errors name are those of pyproject.toml, and the command that adds one fits the way of the installation."""

from __future__ import annotations

import sys
from importlib.metadata import packages_distributions

import pytest

from ingest import __version__
from ingest.runtime import extras
from tests.requirements import canonical, extra, project

pytestmark = pytest.mark.unit


def test_each_package_of_an_extra_has_its_module_in_the_list() -> None:
    assert set(extras.EXTRAS) | {"dev"} == set(project()["optional-dependencies"])
    distributions = packages_distributions()
    for name, (_, modules) in extras.EXTRAS.items():
        listed = {canonical(distributions[module][0]) for module in modules}
        assert extra(name) - {"oncelake"} <= listed, name


def test_the_command_installs_into_this_environment_without_another_source_of_the_package() -> None:
    assert extras.install_command("lab") == f"{sys.executable} -m pip install 'oncelake[lab]=={__version__}'"


def test_a_module_of_no_extra_is_a_bug_and_no_missing_extra() -> None:
    assert extras.missing("numpy") is None
