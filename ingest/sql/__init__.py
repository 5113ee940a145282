"""SQL questions over the tables of a project, with and without Spark. It only reads."""
