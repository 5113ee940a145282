"""Proof: what ledger, commits and rows say of each other, and of Kafka. Writes nothing, and shares nothing with a batch but the decoder."""
