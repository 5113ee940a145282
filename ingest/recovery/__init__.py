"""Recovery: what a start knows, what it decides, how an epoch is opened, and the text of every refusal."""
