"""Proof: what the ledger, the commits and the rows say of each other."""
