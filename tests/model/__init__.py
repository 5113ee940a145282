"""A model of the commit protocol: Kafka, Delta, checkpoints and drivers as plain values, with the engine's own decision code.

docs/explanation/model.md says what is modelled, what is real, and how to run it.
"""
