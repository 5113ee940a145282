"""The functions that a row rule may not call, grouped by reason. Some of them no statement of `ingest sql` may call either."""

from __future__ import annotations

import re

_CLOCK = "depends on the clock"
_CHANCE = "depends on chance"
_SESSION = "depends on the session"
_PLACE = "depends on where and in which order rows are read"
_RAISES = "raises instead of returning a value; a broken rule already sends the record to quarantine"
_CODE = "runs code outside of SQL or waits"
_WORLD = "calls another system"
_FILES = "may read a file that its arguments name"
_ROWS = "produces rows or reads other rows"

_WORDS = {
    _CLOCK: "now current_date current_timestamp current_time curdate curtime getdate localtime localtimestamp sysdate",
    _CHANCE: "rand randn random randstr uniform uuid shuffle aes_encrypt",
    _SESSION: "current_user session_user user current_catalog current_database current_schema current_metastore current_timezone "
    "current_recipient current_version version is_member is_account_group_member",
    _PLACE: "monotonically_increasing_id spark_partition_id input_file_name input_file_block_start input_file_block_length",
    _RAISES: "raise_error assert_true",
    _CODE: "reflect java_method try_reflect sleep",
    _WORLD: "http_request secret try_secret remote_query read_files read_kafka event_log",
    _FILES: "from_protobuf to_protobuf from_avro to_avro schema_of_avro",
    # Aggregates and generators that the parser does not recognise. The others are refused by the kind of their node (row_rule.py).
    _ROWS: """
        any some every mean std bool_and bool_or any_value try_avg try_sum count_if regr_avgx regr_avgy regr_count regr_intercept
        regr_r2 regr_slope regr_sxx regr_sxy regr_syy histogram_numeric count_min_sketch hll_sketch_agg hll_union_agg
        bitmap_construct_agg bitmap_or_agg bitmap_and_agg listagg string_agg percentile percentile_approx
        approx_percentile max_by min_by first_value last_value grouping grouping_id row_number rank dense_rank
        percent_rank ntile lag lead cume_dist nth_value window session_window window_time explode explode_outer
        posexplode posexplode_outer inline inline_outer stack json_tuple variant_explode collect_list collect_set
    """,
}
REASONS = {word: reason for reason, words in _WORDS.items() for word in words.split()}

# Spark also reads these as functions without parentheses, unless a column has the name.
BARE_WORDS = frozenset(
    [
        "current_date",
        "current_timestamp",
        "current_time",
        "localtime",
        "localtimestamp",
        "current_user",
        "session_user",
        "user",
        "current_catalog",
        "current_database",
        "current_schema",
    ]
)

# Spark finds these words after Java's trim(), which treats all control characters as blanks.
_SPECIAL_TIMES = re.compile(r"[\s\x00-\x20]*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)


def is_special_time(text: str) -> bool:
    """Whether Spark casts this text, as a date or timestamp, to the current time; a zone may follow."""
    return _SPECIAL_TIMES.match(text) is not None


def reason_of(name: str) -> str | None:
    """The reason why a rule may not call this function, or None."""
    return REASONS.get(name) or (_WORLD if name.startswith("ai_") else None)


def reason_outside_sql(name: str) -> str | None:
    """The reason why this function does more than compute a value of its arguments (it runs code, reads a file …), or None."""
    reason = reason_of(name)
    return reason if reason in (_CODE, _WORLD, _FILES) else None
