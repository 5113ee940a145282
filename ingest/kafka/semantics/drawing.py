"""A drawing as values: boxes, lines and words on a plane whose origin is the upper left corner; written as SVG, or as PNG by `png`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final, Literal, TypeAlias

Anchor: TypeAlias = Literal["start", "middle", "end"]

INK: Final = "#222222"
FAINT: Final = "#d9d9d9"
_LETTERS_PX: Final = 13


@dataclass(frozen=True)
class Box:
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    color: str


@dataclass(frozen=True)
class Path:
    """A line through points."""

    points: tuple[tuple[float, float], ...]
    color: str
    width: float = 1.0


@dataclass(frozen=True)
class Words:
    """A line of text; (x, y) is on its base line."""

    x: float
    y: float
    text: str
    anchor: Anchor = "start"
    color: str = INK
    bold: bool = False


Shape: TypeAlias = Box | Path | Words


@dataclass
class Drawing:
    """Shapes, the later ones above the earlier; `title` is what a screen reader says."""

    width: int
    height: int
    title: str
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        self.shapes += shapes

    def svg(self) -> str:
        """For a page; its texts are escaped."""
        inner = "".join(map(_svg, self.shapes))
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}" role="img" '
            f'aria-label="{escape(self.title)}" font-family="sans-serif" font-size="{_LETTERS_PX}">'
            f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>{inner}</svg>'
        )


def stacked(drawings: Sequence[Drawing], title: str) -> Drawing:
    """One below the other."""
    whole = Drawing(max(each.width for each in drawings), sum(each.height for each in drawings), title)
    down = 0
    for each in drawings:
        whole.add(*(_moved(shape, down) for shape in each.shapes))
        down += each.height
    return whole


def _moved(shape: Shape, down: float) -> Shape:
    if isinstance(shape, Box):
        return Box(shape.x, shape.y + down, shape.width, shape.height, shape.color)
    if isinstance(shape, Path):
        return Path(tuple((x, y + down) for x, y in shape.points), shape.color, shape.width)
    return Words(shape.x, shape.y + down, shape.text, shape.anchor, shape.color, shape.bold)


def _svg(shape: Shape) -> str:
    if isinstance(shape, Box):
        return f'<rect x="{shape.x:.1f}" y="{shape.y:.1f}" width="{shape.width:.1f}" height="{shape.height:.1f}" fill="{shape.color}"/>'
    if isinstance(shape, Path):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
        return f'<polyline points="{points}" fill="none" stroke="{shape.color}" stroke-width="{shape.width:g}"/>'
    weight = ' font-weight="bold"' if shape.bold else ""
    return (
        f'<text x="{shape.x:.1f}" y="{shape.y:.1f}" text-anchor="{shape.anchor}" fill="{shape.color}"{weight}>{escape(shape.text)}</text>'
    )
