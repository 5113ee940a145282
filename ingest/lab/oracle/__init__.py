"""The oracle: judges a finished run from outside, using only manifests, Kafka and the Delta tables.

It imports nothing else of `ingest` than the definition of a row's hash, so it cannot share a mistake with the engine. It is part of the
package because `ingest chaos` ends with its verdict; the fault tests use it too.
"""

from ingest.lab.oracle.case import JudgedRun, OracleVerdict
from ingest.lab.oracle.judge import judge, judge_live

__all__ = ["JudgedRun", "OracleVerdict", "judge", "judge_live"]
