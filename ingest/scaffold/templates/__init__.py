"""Templates of the files that `ingest init` writes. Placeholders are written [[ name ]], because bundles and workflows use braces."""
