"""Questions in SQL over the tables of a project, with and without Spark; it reads and never writes."""
