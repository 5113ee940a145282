"""The difference of two Delta tables, row by row. It only reads."""
