"""A full rebuild: fill a shadow of a table from Kafka, compare it, and swap it in.

The shadow is an ordinary table of the engine in a lake of its own, so runs, verify and SQL work on it. Nothing here changes the table
itself but the swap.
"""
