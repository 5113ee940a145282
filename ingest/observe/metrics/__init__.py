"""Prometheus metrics, of a run in progress and of a lake. Only reads and reports: nothing here decides, writes a table or stops a run."""
