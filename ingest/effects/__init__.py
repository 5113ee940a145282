"""Effects: calls to external APIs, each with a recorded state, so that a crash or a timeout leaves none of them unsettled."""
