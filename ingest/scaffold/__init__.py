"""New project folders for `ingest init`: a first contract from a topic or an ODCS file, and the files around it. Never reads a lake."""
