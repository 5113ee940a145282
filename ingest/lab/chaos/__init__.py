"""`ingest chaos`: seeded faults against real processes on an embedded broker and a scratch lake, judged by the oracle.

A round has a broker, a lake, a producer that never pauses and the real `ingest run`. A schedule injects faults until the time is up.
Then `ingest run` reads the topics to the end and the oracle (`ingest.lab.oracle`) judges the result.
"""
