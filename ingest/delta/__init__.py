"""Delta Lake: the transaction log, the BatchCommit of each commit, and table definitions. Only `writer` writes Delta tables."""
