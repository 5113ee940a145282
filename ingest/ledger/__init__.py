"""The ledger: one row per batch and partition, projected from the target's commits. It may lag behind the target but never leads it."""
