"""Judge Delta tables that others wrote by their topic. It only reads. What our own ledger proves is in `balance` and `verdict`."""
