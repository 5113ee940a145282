"""The job: one Spark application, one streaming query per table, one function per batch. `ingest.recovery` decides where to start."""
