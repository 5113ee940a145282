"""The functions that row rules on Arrow batches may call, and those that can raise. All others need Spark.

The names are read from the tokens of a rule: sqlglot's tree gives different functions the same node (`size` and `array_size`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from sqlglot import Token, TokenType

from ingest.decode.rule_refusal import RuleRaises, Untranslatable


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Total: a value or NULL for all operands.
TRANSLATED = _words(
    "abs length char_length character_length len lower lcase upper ucase trim ltrim rtrim startswith endswith contains coalesce nvl ifnull "
    "nullif if year month day dayofmonth size forall exists isnull isnotnull regexp_like"
)

# Words before a parenthesis that call nothing. LIKE and RLIKE are not among them: as functions, sqlglot swaps their arguments.
_WORDS = _words("and or not in between is case when then else div from")

_FORMAT = "a bad format"
_BY_REASON = {
    "a bad pattern": "regexp_count regexp_extract regexp_extract_all regexp_instr regexp_replace regexp_substr split",
    _FORMAT: "to_number to_char to_varchar to_binary format_string printf",
    "lengths for which there is no memory": "repeat lpad rpad space array_repeat",
    "index 0 (write array[0] or map['key'])": "element_at try_element_at array_insert",
    "steps in the wrong direction": "sequence",
    "text that is not encoded so": "url_decode unbase64 parse_json",
    "text that is not XML": "xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string",
    "a repeated key": "map map_from_arrays map_from_entries map_concat str_to_map transform_keys",
    "a start of 0 or a negative length": "slice",
    "a position beyond the last bit": "bit_get getbit",
    "an unknown zone": "from_utc_timestamp to_utc_timestamp convert_timezone",
    "an unknown character set": "encode decode",
    "overflow": "timestamp_seconds timestamp_millis timestampadd add_months make_dt_interval",
    "the values that it is for": "raise_error assert_true validate_utf8 aes_decrypt",
}
RAISING = {word: reason for reason, words in _BY_REASON.items() for word in words.split()}
# They are total if these arguments (from 1) are literals: the start lets Spark compile a rule, which finds a bad literal. A replacement may
# name a group ($1) that is not there.
_SECOND = _words("regexp_count regexp_instr regexp_substr split element_at try_element_at repeat lpad rpad array_repeat")
_TOTAL_WITH_LITERAL: dict[str, tuple[int, ...]] = {**dict.fromkeys(_SECOND, (2,)), "regexp_replace": (2, 3), "space": (1,)}
# With one argument these are casts, which give NULL; with a format that is no literal they can raise.
_RAISING_WITH_FORMAT = _words("to_date to_timestamp to_timestamp_ltz to_timestamp_ntz try_to_timestamp to_unix_timestamp unix_timestamp")


def refuse_raising(tokens: Sequence[Token]) -> None:
    """Raises RuleRaises for the first call that can raise."""
    for name, at in _calls(tokens):
        arguments = _arguments(tokens, at)
        literal = _TOTAL_WITH_LITERAL.get(name, (2,) if name in _RAISING_WITH_FORMAT else ())
        if literal and all(number > len(arguments) or _is_harmless(arguments[number - 1]) for number in literal):
            continue
        if name in RAISING:
            raise RuleRaises(f"{name}() raises on {RAISING[name]}")
        if name in _RAISING_WITH_FORMAT:
            raise RuleRaises(f"{name}() with a format raises on {_FORMAT}")


def refuse_others(tokens: Sequence[Token]) -> None:
    """Raises Untranslatable for the first call that is not translated."""
    for name, _ in _calls(tokens):
        if name not in TRANSLATED:
            raise Untranslatable(f"the function {name}()")


def _calls(tokens: Sequence[Token]) -> Iterator[tuple[str, int]]:
    """The names before an opening parenthesis, in lower case, with the place of the parenthesis."""
    for at, (token, after) in enumerate(pairwise(tokens), 1):
        name = token.text.lower()
        called = after.token_type is TokenType.L_PAREN and token.token_type is not TokenType.STRING
        if called and name.isidentifier() and name not in _WORDS:
            yield name, at


def _arguments(tokens: Sequence[Token], opening: int) -> list[list[Token]]:
    """The arguments of the call whose parenthesis opens there."""
    depth, found = 0, [list[Token]()]
    for token in tokens[opening:]:
        depth -= token.token_type is TokenType.R_PAREN
        if depth == 0 and token.token_type is not TokenType.L_PAREN:
            break
        if depth == 1 and token.token_type is TokenType.COMMA:
            found.append([])
        elif depth:
            found[-1].append(token)
        depth += token.token_type is TokenType.L_PAREN
    return found


def _is_harmless(argument: Sequence[Token]) -> bool:
    """Whether it is a literal other than 0, and names no group."""
    if len(argument) == 2 and argument[0].token_type is TokenType.DASH:
        argument = argument[1:]
    if len(argument) != 1 or argument[0].token_type not in (TokenType.STRING, TokenType.NUMBER):
        return False
    text = argument[0].text
    return text.strip("0") != "" if argument[0].token_type is TokenType.NUMBER else re.search(r"\$[0-9{]|\\", text) is None
