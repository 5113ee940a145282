"""The ledger: one row per batch and partition, a projection of the target's commits. It may lag behind the target and never leads."""
