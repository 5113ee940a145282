"""Delta: the transaction log, the identity of each commit, table definitions, and `writer`, the only module that writes a Delta table."""
