"""A FLOAT is the one nearest to the decimal number, ties to even. Rounding to a double first would round twice (I5)."""

from __future__ import annotations

import struct
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.decode.arrow_json import BatchDecoder, Plan

DECODER = BatchDecoder(Plan(pa.schema([("x", pa.float32())]), (), "ignore"))
EXACT = Context(prec=1_000)
GREATEST = 0x7F7FFFFF  # the bits of the greatest FLOAT


def decoded(number: str) -> float:
    record = pa.RecordBatch.from_arrays([pa.array([f'{{"x":{number}}}'.encode()])], names=["__value"])
    (row,) = (row for batch in DECODER.decode([record]) for row in batch.to_pylist())
    assert row["__reason"] is None
    return float(row["x"])


def single(bits: int) -> float:
    (found,) = struct.unpack("<f", struct.pack("<i", bits))
    return float(found)


@given(st.integers(0, GREATEST - 1), st.sampled_from(["", "-"]))
@example(0, "")  # halfway between 0 and the smallest FLOAT
@example(0x007FFFFF, "")  # halfway between the greatest subnormal and the smallest normal FLOAT
@example(GREATEST - 1, "-")
def test_a_number_near_the_middle_of_two_floats_becomes_the_nearer_one(bits: int, sign: str) -> None:
    middle = EXACT.divide(EXACT.add(Decimal(single(bits)), Decimal(single(bits + 1))), Decimal(2))
    for side, nearest in ((-1, bits), (0, bits + bits % 2), (1, bits + 1)):
        number = EXACT.add(middle, Decimal(side).scaleb(-400))
        assert decoded(f"{sign}{number}") == float(f"{sign}{single(nearest)}"), (number, side)


@pytest.mark.parametrize(("digit", "nearest"), [("0", 1.0), ("1", 1.00000011920928955078125)])
def test_a_number_with_more_digits_than_pythons_int_limit_does_not_stop_the_table(digit: str, nearest: float) -> None:
    """It once raised ValueError, which does not quarantine the record, so every start failed on it."""
    number = f"1.000000059604644775390625{'0' * 4_400}{digit}"
    assert decoded(number) == nearest
