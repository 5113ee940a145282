"""Templates of the Data Docs that need no network (docs/decisions/data-docs.md). For all others, GX's own are used."""
