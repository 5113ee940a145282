"""Write ingest/runtime/jars.lock anew: `lock_jars.py` keeps the coordinates, downloads each jar afresh and records its size and sum.

To move to another version, edit it in the lock first (size and sum may stay wrong). The broker's part is the transitive closure of
org.apache.kafka:kafka_2.13 and log4j-slf4j-impl, Spark's part what delta-spark and spark-sql-kafka need beyond pyspark's own jars.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from ingest.runtime import jars

HEADER = """# Pinned jars: set, organisation, name, version, size in bytes, SHA-256. Written by scripts/lock_jars.py.
"""


def main() -> None:
    lines = []
    sets = [(jars.JarSet.SPARK, line) for line in jars.SPARK_LINES] + [(jars.JarSet.BROKER, "")]
    for jar_set, line in sets:
        pinned = jars.locked(jar_set, line)
        named = f"{jar_set.value}-{line}" if line else jar_set.value
        with tempfile.TemporaryDirectory() as scratch:
            target = Path(scratch) / "jars"
            target.mkdir()
            jars.run_ivy(pinned, Path(scratch) / "ivy", target)
            for jar in pinned:
                content = (target / jar.organisation / jar.file_name).read_bytes()
                sha256 = hashlib.sha256(content).hexdigest()
                lines.append(f"{named} {jar.organisation} {jar.name} {jar.version} {len(content)} {sha256}\n")
    jars.LOCK_FILE.write_text(HEADER + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
