"""Recovery: read the start state, decide where a start continues or why it is refused, and open an epoch."""
