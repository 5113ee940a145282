"""The job: one Spark application, one streaming query per table, one function per batch. Nothing here decides where to start."""
