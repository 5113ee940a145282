"""The Databricks bundle, checked without Databricks: its structure by Databricks's own typed models, its content by assertions."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from ingest.cli import VERBS
from ingest.runtime import databricks, spark
from tests import bundle
from tests.requirements import canonical, extra, project, required

pytestmark = pytest.mark.unit

TARGETS = ("dev", "prod")
JOBS = ("check", "ingest", "maintain", "verify")
PINNED = f"{bundle.PLATFORM['workspace.file_path']}/resources/requirements.txt"
# They read the volume as files, so they need no JVM and run on serverless compute.
SERVERLESS = {"verify"}
# Packages that the platform provides and that pip must not replace.
PLATFORMS = {"pyspark", "delta-spark", "py4j"}
# What draws charts. `ingest report` and `ingest ui` name it where it is missing (EXTRA_MISSING); a cluster needs neither.
CHARTS = {"vl-convert-python"}
# What checks tables without Spark. Where it is missing, as on a cluster, Spark does.
CHECKS = {"duckdb", "sqlalchemy"}


def model(job: dict[str, Any]) -> Any:
    """The job as a typed model of the package databricks-bundles. Raises the model's own error for an unknown key."""
    return importlib.import_module("databricks.bundles.jobs").Job.from_dict(job)


def has_models() -> bool:
    try:
        return find_spec("databricks.bundles") is not None
    except ModuleNotFoundError:
        return False


typed = pytest.mark.skipif(not has_models(), reason="databricks-bundles is not installed: make setup")


@typed
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", JOBS)
def test_databricks_typed_models_accept_every_job(name: str, target: str) -> None:
    job = model(bundle.jobs(target)[name])
    (task,) = job.tasks
    if name in SERVERLESS:
        (environment,) = job.environments
        assert task.environment_key == environment.environment_key
        assert not job.job_clusters and task.job_cluster_key is None
    else:
        (cluster,) = job.job_clusters
        assert task.job_cluster_key == cluster.job_cluster_key
        assert cluster.new_cluster.data_security_mode.value == "SINGLE_USER"
    assert task.python_wheel_task.entry_point == "ingest"
    assert (job.continuous is None) != (job.schedule is None)


@typed
@pytest.mark.parametrize("name", JOBS)
def test_somebody_hears_of_every_jobs_failure_and_of_its_slow_runs_or_backlog(name: str) -> None:
    job = model(bundle.jobs("prod")[name])
    (rule,) = job.health.rules
    metric, late = rule.metric.value, "on_duration_warning_threshold_exceeded"
    if name == "ingest":  # it never ends, so its duration says nothing
        assert (metric, rule.value) == ("STREAMING_BACKLOG_RECORDS", 1_000_000)
        late = "on_streaming_backlog_exceeded"
    else:
        assert (metric, rule.value) == ("RUN_DURATION_SECONDS", 3600)
    for event in ("on_failure", late):
        assert getattr(job.email_notifications, event) == ["ops@example.org"]
        assert [webhook.id for webhook in getattr(job.webhook_notifications, event)] == [bundle.GIVEN["webhooks"][0]["id"]]


@typed
@pytest.mark.parametrize(
    "place", ["job", "task", "python_wheel_task", "new_cluster", "continuous", "health", "email_notifications", "webhook_notifications"]
)
def test_the_typed_models_refuse_a_misspelt_key_at_every_level(place: str) -> None:
    job = bundle.jobs("prod")["ingest"]
    (task,), (cluster,) = job["tasks"], job["job_clusters"]
    named = ("continuous", "health", "email_notifications", "webhook_notifications")
    places = {"job": job, "task": task, "python_wheel_task": task["python_wheel_task"], **{name: job[name] for name in named}}
    {**places, "new_cluster": cluster["new_cluster"]}[place]["parametres"] = "x"
    with pytest.raises(Exception, match="parametres"):
        model(job)


@pytest.mark.parametrize("target", TARGETS)
def test_all_jobs_are_there_and_no_reference_is_unresolved(target: str) -> None:
    jobs = bundle.jobs(target)
    assert sorted(jobs) == sorted(JOBS)
    assert "${" not in yaml.safe_dump(jobs)


def test_a_reference_to_an_unknown_variable_is_an_error() -> None:
    with pytest.raises(KeyError, match=r"var\.catalogue"):
        bundle.resolve("/Volumes/${var.catalogue}", {"var.catalog": "main"})


def test_every_variable_is_used_and_the_required_ones_exist() -> None:
    loaded = bundle.load()
    text = yaml.safe_dump({**loaded, "targets": [(target.get("workspace"), target.get("run_as")) for target in loaded["targets"].values()]})
    assert loaded["variables"].keys() >= {"catalog", "schema", "brokers", "secret_scope", "notify", "deployer"}
    assert all(f"${{var.{name}}}" in text for name in loaded["variables"])


def test_ingestion_runs_continuously_in_prod_only_and_one_run_at_a_time() -> None:
    for target, pause in (("dev", None), ("prod", "UNPAUSED")):
        job = bundle.jobs(target)["ingest"]
        # In development mode, the CLI pauses every job without its own pause_status.
        assert job["continuous"].get("pause_status") == pause
        assert job["max_concurrent_runs"] == 1


def test_prod_has_one_folder_where_only_its_deployer_may_write_and_dev_needs_no_deployer() -> None:
    """Every user of a workspace may write below /Workspace/Shared, and a `permissions` block does not take that away."""
    loaded = bundle.load()
    assert "permissions" not in loaded
    given = {**bundle.PLATFORM, "bundle.target": "prod", "var.deployer": bundle.GIVEN["deployer"]}
    root = bundle.resolve(loaded["targets"]["prod"]["workspace"]["root_path"], given)
    assert root == "/Workspace/Users/deployer@example.org/.bundle/oncelake/prod"
    assert "default" not in loaded["variables"]["deployer"]
    assert loaded["targets"]["prod"]["run_as"] == {"service_principal_name": "${var.run_as}"}
    assert bundle.resolve(loaded["targets"]["dev"]["variables"]["deployer"], bundle.PLATFORM) == "jane.doe@example.org"


def test_the_tables_are_compacted_several_times_a_day() -> None:
    """The stream runs a batch every ten seconds; 531 small files made a query five times as expensive (docs/benchmarks/latency.md)."""
    hours = bundle.jobs("prod")["maintain"]["schedule"]["quartz_cron_expression"].split()[2]
    assert hours == "2/6"


@pytest.mark.parametrize("name", ["check", "maintain", "verify"])
def test_the_other_jobs_have_a_schedule_in_utc(name: str) -> None:
    schedule = bundle.jobs("prod")[name]["schedule"]
    assert len(schedule["quartz_cron_expression"].split()) == 6
    assert schedule["timezone_id"] == "UTC"
    assert "pause_status" not in schedule


def test_all_jobs_use_the_same_lake_and_checkpoints_and_targets_share_neither() -> None:
    def places(target: str) -> set[tuple[str, ...]]:
        plain = [[value.removeprefix("file:") for value in call.values] for call in bundle.calls(target)]
        return {tuple(value for value in values if value.startswith("/Volumes/")) for values in plain}

    assert places("prod") == {("/Volumes/main/oncelake/oncelake/lake", "/Volumes/main/oncelake/oncelake/checkpoints")}
    assert len(places("dev")) == 1
    assert places("dev").isdisjoint(places("prod"))


@pytest.mark.parametrize("target", TARGETS)
def test_credentials_come_from_the_secret_scope_and_only_the_ingestion_has_them(target: str) -> None:
    jobs = bundle.jobs(target)
    assert [name for name, job in jobs.items() if "secrets/" in yaml.safe_dump(job)] == ["ingest"]
    assert "secrets" not in yaml.safe_dump(jobs["ingest"]["tasks"])
    (cluster,) = jobs["ingest"]["job_clusters"]
    variables = cluster["new_cluster"]["spark_env_vars"]
    for part in ("username", "password"):
        assert variables[f"INGEST_KAFKA_SASL_{part.upper()}"] == f"{{{{secrets/kafka/kafka-{part}}}}}"
    settings = " ".join(bundle.load()["variables"])
    assert not any(word in settings for word in ("password", "jaas", "token"))


def test_settings_that_a_running_session_cannot_change_are_set_on_the_cluster() -> None:
    platforms = {"spark.sql.extensions", "spark.sql.catalog.spark_catalog"}
    wanted = {key: spark.PINNED[key] for key in spark.FIXED_AT_START - platforms}
    jobs = bundle.jobs("prod")
    for name in jobs.keys() - SERVERLESS:
        assert jobs[name]["job_clusters"][0]["new_cluster"]["spark_conf"] == wanted


def test_the_jobs_install_the_wheel_that_the_bundle_builds() -> None:
    build = bundle.load()["artifacts"]["wheel"]["build"]
    assert "--no-deps --wheel-dir dist ." in build
    for name, job in bundle.jobs("prod").items():  # relative to resources/, which contains the file
        if name in SERVERLESS:
            assert job["environments"][0]["spec"]["dependencies"] == [f"-r {PINNED}", "../dist/*.whl"]
        else:
            assert job["tasks"][0]["libraries"] == [{"requirements": PINNED}, {"whl": "../dist/*.whl"}]


def test_everything_that_the_wheel_requires_is_pinned_with_its_sums_as_in_the_lock_file() -> None:
    """A package of an index must not run beside the login of Kafka because it is newer."""

    def pins(file: str) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for line in (bundle.ROOT / file).read_text(encoding="utf-8").splitlines():
            if (pin := re.match(r"([a-z0-9.-]+)==([^ ]+) ", line)) is not None:
                found.setdefault(pin[1], set()).add(pin[2])
        return found

    text = (bundle.ROOT / "resources/requirements.txt").read_text(encoding="utf-8")
    listed, locked = pins("resources/requirements.txt"), pins("requirements.lock")
    assert required() <= listed.keys() and not listed.keys() & PLATFORMS
    assert all(versions <= locked[name] for name, versions in listed.items())
    assert all("--hash=sha256:" in each for each in re.split(r"\n(?=[a-z])", text)[1:])
    assert "resources" in bundle.load()["sync"]["paths"]


def test_a_serverless_job_names_the_volume_as_files_and_no_option_that_needs_spark() -> None:
    for call in bundle.calls():
        local = [value for value in call.values if value.startswith("file:/Volumes/")]
        assert len(local) == (2 if call.job in SERVERLESS else 0)
        assert "--spark" not in call.options


def test_the_synced_folders_exist_and_the_jobs_use_them_as_their_project() -> None:
    paths = bundle.load()["sync"]["paths"]
    assert paths == ["tables", "expectations", "resources"]
    assert all((bundle.ROOT / path).is_dir() for path in paths)
    for call in bundle.calls():
        assert bundle.PLATFORM["workspace.file_path"] in call.values


def test_the_wheel_does_not_require_spark_even_transitively() -> None:
    assert {"kafka-python", "pandas"} <= required()  # proves that the search works
    assert not required() & PLATFORMS


def test_the_wheel_requires_every_imported_package_except_the_platforms() -> None:
    """The test environment has more packages, so a missing requirement would fail on a cluster first."""
    imported = imported_packages(*(bundle.ROOT / "ingest").rglob("*.py"))
    assert {"pyspark", "great-expectations"} <= imported
    assert imported - PLATFORMS - CHARTS - CHECKS - extra("delivery") - extra("lineage") <= required()


def test_the_pipeline_needs_no_package_of_the_extra_delivery() -> None:
    """A cluster installs the wheel without extras. Inside Kafka, delivery needs none of them either."""
    room = bundle.ROOT / "ingest"
    needs_it = {room / f"cli/{name}.py" for name in VERBS["Beyond Kafka"].values()}
    for folder in ("delivery/database", "delivery/outbox", "delivery/sink", "delivery/effects", "delivery/trace", "lab"):
        needs_it |= {*(room / folder).rglob("*.py")}
    needs_it.add(room / "quality/duckdb_dialect.py")  # Spark checks where sqlalchemy is missing
    only_there = extra("delivery") - required()
    assert "sqlalchemy" in only_there and only_there & imported_packages(*needs_it)
    assert not only_there & imported_packages(*(file for file in room.rglob("*.py") if file not in needs_it))


def imported_packages(*files: Path) -> set[str]:
    names: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {each.name.split(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    known = packages_distributions()
    return {canonical(known[name][0]) for name in names - sys.stdlib_module_names - {"ingest"}}


def test_the_extra_local_and_the_platform_probe_use_the_same_pyspark() -> None:
    from ingest.run import platform

    local = dict(text.split("==") for text in project()["optional-dependencies"]["local"])
    assert version("pyspark") in platform.TESTED.values() and local["pyspark"] in platform.TESTED.values()
    assert f"Spark {local['pyspark']}, Delta {local['delta-spark']}" in platform.known()


def test_the_lock_file_contains_the_extras_and_no_url() -> None:
    lock = (bundle.ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = [text for name in ("local", "lab") for text in project()["optional-dependencies"][name] if "==" in text]
    assert len(pinned) >= 5
    for text in pinned:
        assert f"\n{text} " in lock
    assert "://" not in lock
    assert "--extra lab --extra lineage --extra dev" in (bundle.ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_platform_is_recognized_by_its_variable() -> None:
    assert databricks.runtime({"DATABRICKS_RUNTIME_VERSION": "17.3"}) == "17.3"
    assert databricks.runtime({"DATABRICKS_RUNTIME_VERSION": ""}) is None
    assert databricks.runtime({}) is None


def test_only_the_command_that_sends_lineage_needs_the_extra_lineage() -> None:
    room = bundle.ROOT / "ingest"
    only_there = extra("lineage") - required()
    assert only_there == {"openlineage-python"}
    assert only_there <= imported_packages(*(room / "observe" / "lineage").rglob("*.py"))
    assert not only_there & imported_packages(*(file for file in room.rglob("*.py") if room / "observe" / "lineage" not in file.parents))
