"""A run: one Spark application, one streaming query per table, and what guards them: lock, environment, platform."""
