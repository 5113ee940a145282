"""Checks of the rows in the tables: Great Expectations suites, control totals, their results, and the audited version that follows."""

import sys
from importlib.machinery import ModuleSpec

_main = sys.modules["__main__"]
if _main.__spec__ is None and not hasattr(_main, "__file__"):
    # `python -c`. Great Expectations imports PySpark's Connect client, which mistakes such a process for its own doctests and ends it.
    _main.__spec__ = ModuleSpec("__main__", None)
