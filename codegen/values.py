"""What a thread holds of a term: one word, one for each of its rows or columns, or a whole tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from .frames import Frame
from .ptx import Register

Kind = Literal["scalar", "rows", "columns", "tile"]
Type = Literal["f32", "s32", "pred"]
Word = Any  # a Register, or a Python number: a constant not yet in a register


@dataclass(frozen=True)
class Value:
    """The words of a term in a frame.

    Words of `rows` go with the row side's register indices, those of `columns` with the column
    side's, those of a `tile` with both, row by row. `depth` is the loop depth that computed it.
    """

    kind: Kind
    type: Type
    words: tuple[Word, ...]
    depth: int

    def at(self, row: int, column: int, columns: int) -> Word:
        if self.kind == "scalar":
            return self.words[0]
        if self.kind == "rows":
            return self.words[row]
        return self.words[column] if self.kind == "columns" else self.words[row * columns + column]

    @property
    def is_constant(self) -> bool:
        return self.kind == "scalar" and not isinstance(self.words[0], Register)


def constant(number: float, type_: Type = "f32") -> Value:
    return Value("scalar", type_, (int(number) if type_ == "s32" else float(number),), 0)


def kind_of(uses_rows: bool, uses_columns: bool) -> Kind:
    if uses_rows:
        return "tile" if uses_columns else "rows"
    return "columns" if uses_columns else "scalar"


def joined(values: tuple[Value, ...]) -> Kind:
    """The kind of a pointwise combination."""
    kinds = {value.kind for value in values}
    return kind_of(bool(kinds & {"rows", "tile"}), bool(kinds & {"columns", "tile"}))


def places(kind: Kind, frame: Frame) -> list[tuple[int, int]]:
    """The (row index, column index) of each word of a kind, in order; 0 on a side not used."""
    rows = len(frame.row.offsets) if kind in ("rows", "tile") else 1
    columns = len(frame.column.offsets) if kind in ("columns", "tile") else 1
    return [(row, column) for row in range(rows) for column in range(columns)]


def each(
    values: tuple[Value, ...], frame: Frame, emit: Callable[..., Word], type_: Type, depth: int
) -> Value:
    """`emit` applied word by word to values, broadcast over the sides that they lack."""
    kind = joined(values)
    columns = len(frame.column.offsets)
    words = tuple(
        emit(*(value.at(row, column, columns) for value in values))
        for row, column in places(kind, frame)
    )
    return Value(kind, type_, words, depth)
