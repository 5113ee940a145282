"""Verify: compare ledger, commits, rows and Kafka with each other. It writes no table, and shares only the decoder with the batches.

`audit/` judges tables that others wrote, `compare/` shows the difference of two tables, `proof/` keeps verdicts in a chain of files.
"""
