"""The Databricks bundle as values: databricks.yml with resources/*.yml, merged for a target, with its variables resolved here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
# GIVEN: the variables of the command line. PLATFORM: the values that Databricks supplies.
GIVEN: dict[str, Any] = {
    **{"catalog": "main", "brokers": "broker1:9092,broker2:9092", "secret_scope": "kafka", "node_type": "m5d.large"},
    **{"deployer": "deployer@example.org", "notify": "ops@example.org", "webhooks": [{"id": "0481e838-0a59-4eff-9541-a4ca6f149574"}]},
}
PLATFORM = {
    "bundle.name": "oncelake",
    "workspace.file_path": "/Workspace/Users/deployer@example.org/.bundle/oncelake/files",
    "workspace.current_user.short_name": "jane_doe",
    "workspace.current_user.userName": "jane.doe@example.org",
}
_REFERENCE = re.compile(r"\$\{([^}]+)\}")


@dataclass(frozen=True)
class Call:
    """The call of a python_wheel_task: the package's entry point, with these arguments."""

    job: str
    package: str
    entry_point: str
    verb: str
    options: tuple[str, ...]
    values: tuple[str, ...]


def load() -> dict[str, Any]:
    """databricks.yml with the jobs of all included files under resources.jobs. Raises ValueError if two jobs have the same name."""
    bundle: dict[str, Any] = yaml.safe_load((ROOT / "databricks.yml").read_text(encoding="utf-8"))
    jobs: dict[str, Any] = {}
    for pattern in bundle["include"]:
        for file in sorted(ROOT.glob(pattern)):
            included = yaml.safe_load(file.read_text(encoding="utf-8"))
            if set(included) != {"resources"} or set(included["resources"]) != {"jobs"}:
                raise ValueError(f"{file.name} contains more than jobs: {included.keys()}")
            if twice := jobs.keys() & included["resources"]["jobs"].keys():
                raise ValueError(f"{twice} in {file.name} and in another file")
            jobs |= included["resources"]["jobs"]
    return {**bundle, "resources": {"jobs": jobs}}


def jobs(target: str) -> dict[str, dict[str, Any]]:
    """The jobs as `bundle deploy --target` would send them. Raises KeyError for an unknown reference."""
    bundle = load()
    chosen = bundle["targets"][target]
    overrides = chosen.get("resources", {}).get("jobs", {})
    if missing := overrides.keys() - bundle["resources"]["jobs"].keys():
        raise KeyError(f"target {target} overrides unknown jobs: {missing}")
    values = dict(PLATFORM, **{"bundle.target": target})
    for name, variable in bundle["variables"].items():
        default = {"default": variable["default"]} if "default" in variable else {}
        chosen_default = {**default, **({"default": GIVEN[name]} if name in GIVEN else {})}
        if name in chosen.get("variables", {}):
            chosen_default = {"default": chosen["variables"][name]}
        if chosen_default:
            values[f"var.{name}"] = chosen_default["default"]
    return {name: resolve(_merged(job, overrides.get(name, {})), values) for name, job in bundle["resources"]["jobs"].items()}


def resolve(value: Any, values: dict[str, Any]) -> Any:
    """Replace each `${…}` by its value. A text that is a single reference becomes the value itself, of any type. Raises KeyError."""
    if isinstance(value, dict):
        return {key: resolve(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [resolve(each, values) for each in value]
    if not isinstance(value, str):
        return value
    if whole := _REFERENCE.fullmatch(value):
        return resolve(values[whole.group(1)], values)
    return _REFERENCE.sub(lambda match: str(resolve(values[match.group(1)], values)), value)


def calls(target: str = "prod") -> list[Call]:
    """Every python_wheel_task of the bundle, with its parameters split into verb, options and their values."""
    found = []
    for job, settings in jobs(target).items():
        for task in settings["tasks"]:
            wheel = task["python_wheel_task"]
            verb, *rest = wheel["parameters"]
            options = tuple(word for word in rest if word.startswith("--"))
            values = tuple(word for word in rest if not word.startswith("--"))
            found.append(Call(job, wheel["package_name"], wheel["entry_point"], verb, options, values))
    return found


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {key: _merged(base[key], over[key]) if isinstance(base.get(key), dict) else over[key] for key in over}
    return {**base, **both}
