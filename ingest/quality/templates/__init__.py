"""Templates of the Data Docs that need no network (docs/decisions/data-docs.md); where one is missing, Great Expectations' own serves."""
