"""Judge Delta tables that others wrote: by their topic, or by another table. It only reads. What our own ledger proves is in verify."""
