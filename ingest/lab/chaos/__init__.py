"""`ingest chaos`: seeded faults against real processes on an embedded broker and a scratch lake, judged by the oracle.

A round is a broker, a lake, a producer that never pauses and the real `ingest run`; a schedule strikes them until the time is
up; then all is read to the end and the oracle (`ingest.lab.oracle`) says what it finds.
"""
