"""One module per change of our tables, in order. A released one is never changed."""
