"""Ready questions, one file each; `ingest/sql/question.py` reads them."""
