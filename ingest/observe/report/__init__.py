"""A page to look at: one summary per table, as a file, as a local web server and as JSON.

What lives here reads tables and files and shows what it found. Nothing here writes a table, decides a start, or judges a balance.
"""

HOURS_DEFAULT = 24.0
