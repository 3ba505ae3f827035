"""Columns as numpy arrays, without a copy where the memory allows it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from . import _native


@contextlib.contextmanager
def needs(name: str) -> Generator[None, None, None]:
    """Around the import of a package that only some calls need."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"this needs {name}: pip install {name}") from error


def numpy() -> Any:
    """numpy, which is needed only where arrays are asked for."""
    with needs("numpy"):
        import numpy as np
    return np


def to_numpy(column: _native.Column, rows: int) -> Any:
    """A column as an array of ``rows`` values: numbers share the column's memory, all else are objects."""
    np = numpy()
    if column.kind == "plain":
        return np.asarray(column)
    values = np.empty(rows, dtype=object)
    for place, value in enumerate(_values(column, rows)):
        values[place] = value
    return values


def _values(column: _native.Column, rows: int) -> list[Any]:
    np = numpy()
    kind = column.kind
    if kind == "plain":
        return list(np.asarray(column))
    if kind == "text":
        return column.texts()
    if kind == "octets":
        whole, offsets = np.asarray(column), column.offsets
        return [whole[begin:end] for begin, end in zip(offsets, offsets[1:])]
    if kind == "list":
        offsets = column.offsets
        items = _items(column.items, offsets[-1])
        return [items[begin:end] for begin, end in zip(offsets, offsets[1:])]
    if kind == "fixed":
        items, count = _items(column.items, rows * column.count), column.count
        return [items[row * count : (row + 1) * count] for row in range(rows)]
    fields = [(name, _values(field, rows)) for name, field in column.fields]
    return [{name: values[row] for name, values in fields} for row in range(rows)]


def _items(column: _native.Column, count: int) -> Any:
    return numpy().asarray(column) if column.kind == "plain" else _values(column, count)


def whole(columns: dict[str, Any], name: str, rows: int) -> Any:
    """A field out of flat columns: a struct is a structured array of those below it, whose names stay dotted."""
    if name in columns:
        return columns[name]
    parts = [(path[len(name) + 1 :], values) for path, values in columns.items() if path.startswith(f"{name}.")]
    found = numpy().empty(rows, dtype=[(path, values.dtype, values.shape[1:]) for path, values in parts])
    for path, values in parts:
        found[path] = values
    return found
