"""Table properties of a contract: the Delta properties that a contract may set, and why it may not set the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from ingest.contract.problem import refusal, shown


class Properties(Mapping[str, str]):
    """Table properties: an immutable, hashable mapping of text to text."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Mapping[str, str] | None = None) -> None:
        self._pairs = dict(sorted((pairs or {}).items()))

    def __getitem__(self, key: str) -> str:
        return self._pairs[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __hash__(self) -> int:
        return hash(tuple(self._pairs.items()))

    def __repr__(self) -> str:
        return f"Properties({self._pairs!r})"


def _read(value: Any) -> Properties:
    if isinstance(value, Properties):
        return value
    if not isinstance(value, dict):
        raise refusal(shown(value), "a mapping of property to value, such as {delta.enableChangeDataFeed: true}")
    for key, given in value.items():
        if not isinstance(key, str) or not isinstance(given, str | int | float):
            raise refusal(f"property {shown(key)} is {shown(given)}", "text, a number, true or false")
    return Properties({key: str(given).lower() if isinstance(given, bool) else str(given) for key, given in value.items()})


_SCHEMA = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
PropertiesText = Annotated[Properties, PlainValidator(_read), PlainSerializer(dict), WithJsonSchema(_SCHEMA)]

# An allow-list, because Delta's other properties change the meaning of a commit or enable protocol features. The readers that
# requirements.lock pins may not support these features.
ALLOWED = (
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.checkpointInterval",
    "delta.deletedFileRetentionDuration",
    "delta.enableChangeDataFeed",
    "delta.logRetentionDuration",
    "delta.parquet.compression.codec",
    "delta.randomizeFilePrefixes",
    "delta.randomPrefixLength",
    "delta.targetFileSize",
    "delta.tuneFileSizesForRewrites",
)

_REASONS = {
    "delta.settransactionretentionduration": "it would expire the transaction ids that fence an earlier writer",
    "delta.isolationlevel": "the engine sets it to Serializable, which I3 and I8 require",
    "delta.appendonly": "the engine owns it",
    "delta.enabledeletionvectors": "not every reader of these tables supports that feature",
    "delta.dataskippingnumindexedcols": "deduplication and the counts need statistics of the event id and the provenance columns",
    "delta.dataskippingstatscolumns": "deduplication and the counts need statistics of the event id and the provenance columns",
}
_REASONS_BY_PREFIX = {
    "delta.columnmapping": "a renamed column would no longer match the contract",
    "delta.feature.": "only features that every reader of these tables supports are enabled",
    "delta.minreaderversion": "only features that every reader of these tables supports are enabled",
    "delta.minwriterversion": "only features that every reader of these tables supports are enabled",
    "delta.constraints.": "a broken constraint stops the run; write a rule, which sends the record to quarantine",
    "oncelake.": "the prefix is reserved for the engine",
}
# Spark reserves these words and refuses them as properties.
_RESERVED = {"comment", "external", "is_managed_location", "location", "owner", "provider"}


def property_problem(key: str) -> tuple[str, str] | None:
    """The texts (found, expected) of a refusal if a contract may not set this property; else None.

    Delta reads `delta.` keys in any case, so a refused key is recognised in any case.
    """
    low = key.lower()
    allowed = f"one of {', '.join(ALLOWED)}, or a property of your own with another prefix"
    reason = _REASONS.get(low) or next((why for prefix, why in _REASONS_BY_PREFIX.items() if low.startswith(prefix)), None)
    if reason:
        return f"property {shown(key)} is refused: {reason}", allowed
    if low in _RESERVED or low.startswith("option."):
        return f"property {shown(key)} is refused: Spark reserves the word", allowed
    if low.startswith("delta.") and key not in ALLOWED:
        match = get_close_matches(low, [name.lower() for name in ALLOWED], n=1, cutoff=0.8)
        hint = next((f" (did you mean {name}?)" for name in ALLOWED if match and name.lower() == match[0]), "")
        return f"property {shown(key)} may not be set in a contract", allowed + hint
    return None
