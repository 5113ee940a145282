"""Start and recovery: what is known, what is decided, how an epoch is opened, and every refusal in words."""
