"""Checks what batches have left in the tables: Great Expectations suites, their pages and the table of results."""
