"""A drawing as a PNG picture, made with numpy and zlib alone: no browser, no font, no other package."""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final, TypeAlias

import numpy as np

from ingest.kafka.semantics import glyphs
from ingest.kafka.semantics.drawing import Box, Drawing, Path, Words

# Twice as many dots each way as the drawing has units, so that it is sharp on a screen of today.
SCALE: Final = 2
_LETTER: Final = 2  # dots a side of a glyph's dot
_STEP: Final = (glyphs.WIDTH + 1) * _LETTER

_Picture: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"


def png(drawing: Drawing) -> bytes:
    """The file's bytes (RGB, 8 bits)."""
    picture: _Picture = np.full((drawing.height * SCALE, drawing.width * SCALE, 3), 255, dtype=np.uint8)
    for shape in drawing.shapes:
        if isinstance(shape, Box):
            _fill(picture, shape.x * SCALE, shape.y * SCALE, shape.width * SCALE, shape.height * SCALE, _rgb(shape.color))
        elif isinstance(shape, Path):
            _path(picture, shape)
        else:
            _words(picture, shape)
    return _encoded(picture)


def _rgb(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _fill(picture: _Picture, x: float, y: float, width: float, height: float, color: tuple[int, int, int]) -> None:
    left, top = round(x), round(y)
    picture[max(top, 0) : max(round(y + height), top + 1), max(left, 0) : max(round(x + width), left + 1)] = color


def _path(picture: _Picture, path: Path) -> None:
    color, thick = _rgb(path.color), max(round(path.width * SCALE), 1)
    for (x0, y0), (x1, y1) in zip(path.points, path.points[1:], strict=False):
        steps = max(int(max(abs(x1 - x0), abs(y1 - y0)) * SCALE), 1)
        for part in np.linspace(0.0, 1.0, steps + 1):
            x, y = (x0 + (x1 - x0) * part) * SCALE, (y0 + (y1 - y0) * part) * SCALE
            _fill(picture, x - thick / 2, y - thick / 2, thick, thick, color)


def _words(picture: _Picture, words: Words) -> None:
    long = len(words.text) * _STEP - _LETTER
    x = round(words.x * SCALE) - {"start": 0, "middle": long // 2, "end": long}[words.anchor]
    top, color = round(words.y * SCALE) - glyphs.ABOVE * _LETTER, _rgb(words.color)
    for number, letter in enumerate(words.text):
        for down, row in enumerate(glyphs.rows(letter)):
            for right, dot in enumerate(row):
                if dot:
                    wide = _LETTER + 1 if words.bold else _LETTER
                    _fill(picture, x + number * _STEP + right * _LETTER, top + down * _LETTER, wide, _LETTER, color)


def _encoded(picture: _Picture) -> bytes:
    height, width, _ = picture.shape
    # Each row begins with its filter: 0, none (PNG specification, 9).
    rows = np.concatenate([np.zeros((height, 1), dtype=np.uint8), picture.reshape(height, width * 3)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
