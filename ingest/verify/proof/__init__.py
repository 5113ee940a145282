"""Proof files: the findings of a verification as a dated chain of hashed files, checked later without the lake. It judges no row."""
