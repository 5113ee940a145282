"""JSON in one form only, so that a hash over its bytes identifies the value; and JSON that others wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def read_json(text: str | bytes, parse_float: Callable[[str], Any] | None = None) -> Any:
    """The value of JSON that anybody may have written. Raises ValueError for all that is none, or is nested deeper than Python reads."""
    try:
        return json.loads(text, parse_float=parse_float)
    except RecursionError:
        raise ValueError("values nested too deeply") from None


def canonical_json(value: Any) -> str:
    """Sorted keys, no spaces, no escapes that UTF-8 does not need. Equal values give equal text. Raises ValueError for NaN and infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
