"""`python -m ingest` is the command `ingest`, whatever is on PATH."""

from ingest.cli.app import main

if __name__ == "__main__":
    main()
