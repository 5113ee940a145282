"""The oracle: judges a finished run from outside, by manifests, Kafka and the Delta tables alone.

It imports no other module of `ingest`, so that a wrong idea in the engine cannot also be the judge's. It is part of the
package because `ingest chaos` ends with its verdict; the fault tests use the same one.
"""

from ingest.lab.oracle.case import JudgedRun, OracleVerdict
from ingest.lab.oracle.judge import judge, judge_live

__all__ = ["JudgedRun", "OracleVerdict", "judge", "judge_live"]
