"""A model of the commit protocol: Kafka, Delta, checkpoints and drivers as plain values, the engine's own decisions on top.

docs/explanation/model.md says what is modelled, what is real, and how to run it.
"""
