"""How a bag looks in a notebook and in a terminal."""

from __future__ import annotations

import base64
import datetime as dt
import html as escaping
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from . import _native
from ._columns import needs
from ._time import rate


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _when(nanos: int) -> str:
    return dt.datetime.fromtimestamp(nanos / 1e9, dt.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC") if nanos else "-"


def _rows(bag: Any) -> list[tuple[str, str, int, str, str]]:
    """Topic, type, messages, rate, losses."""
    try:
        lost = bag.lost
        more = "" if all(state["all_losses_known"] for state in bag.states) else " or more"
    except Exception:  # noqa: BLE001 - a look at a bag never fails
        lost, more = None, ""
    rows = []
    for info in sorted(bag.metadata["topics"], key=lambda info: info["name"]):
        count = info["count"]
        hertz = rate(count, bag.duration)
        stages = (lost or {}).get(info["name"], {})
        missing = sum(stages.values())
        text = "?" if lost is None else f"{missing} ({', '.join(sorted(stages))})" if missing else f"0{more}"
        rows.append((info["name"], info["type"], count, "" if hertz is None else f"{hertz:.1f} Hz", text))
    return rows


def _head(bag: Any) -> str:
    paths = bag.paths[0] if len(bag.paths) == 1 else f"{len(bag.paths)} bags from {bag.paths[0]} on"
    return f"{paths}: {len(bag)} messages in {bag.duration:.3f} s from {_when(bag.start)}, {_size(bag.size_bytes)}"


# Cells of a strip in a terminal and in a notebook, and the heights of the first.
_TEXT_CELLS = 24
_HTML_CELLS = 100
_HEIGHTS = " ▁▂▃▄▅▆▇█"
_CELL_WIDTH, _STRIP_HEIGHT = 2, 14
_BLUE, _RED, _PALE = "#4c78a8", "#c0392b", "#f6d5d1"


def _strip(lane: Sequence[int]) -> str:
    """A strip for terminals; a gap is a dot."""
    heights, _, gaps = _native.strip(lane)
    # A height of 3 of 8 may have been computed as slightly more.
    cells = [_HEIGHTS[math.ceil(height * 8 - 1e-6)] for height in heights]
    for begin, end in gaps:
        cells[begin:end] = "·" * (end - begin)
    return "".join(cells)


def _svg(lane: Sequence[int]) -> str:
    """A strip for notebooks; gaps are red."""
    heights, _, gaps = _native.strip(lane)
    width = _CELL_WIDTH * len(lane)
    bars = [(begin, end, float(_STRIP_HEIGHT), _PALE) for begin, end in gaps]
    place = 0
    for height, run in itertools.groupby(round(height, 2) for height in heights):
        end = place + len(list(run))
        if height:
            bars.append((place, end, max(2.0, _STRIP_HEIGHT * height), _BLUE))
        place = end
    shapes = "".join(
        f'<rect x="{begin * _CELL_WIDTH}" y="{_STRIP_HEIGHT - height:.1f}" width="{(end - begin) * _CELL_WIDTH}" height="{height:.1f}" fill="{colour}"/>'
        for begin, end, height, colour in bars
    )
    return f'<svg width="{width}" height="{_STRIP_HEIGHT}" style="vertical-align:middle;background:rgba(128,128,128,0.12)">{shapes}</svg>'


def text(bag: Any) -> str:
    """A table for terminals."""
    rows = [(name, kind, str(count), rate, lost) for name, kind, count, rate, lost in _rows(bag)]
    table = [("topic", "type", "messages", "rate", "lost"), *rows]
    widths = [max(len(row[place]) for row in table) for place in range(5)]
    lanes = bag._look(_TEXT_CELLS) or {}

    def line(row: tuple[str, ...]) -> str:
        cells = [cell.rjust(width) if place in (2, 3) else cell.ljust(width) for place, (cell, width) in enumerate(zip(row, widths))]
        strip = f"|{_strip(lanes[row[0]])}|" if row[0] in lanes else ""
        return "  " + "  ".join([*cells, strip]).rstrip()

    return "\n".join([_head(bag), *map(line, table), *(f"  note: {notice}" for notice in bag.notices)])


def html(bag: Any) -> str:
    """A table for notebooks, with a strip of each topic over time. Names are escaped."""
    lanes = bag._look(_HTML_CELLS)
    lines = []
    for name, kind, count, rate, lost in _rows(bag):
        colour = f' style="color:{_RED};font-weight:bold"' if lost not in ("0", "?") else ""
        cells = [escaping.escape(name), f"<code>{escaping.escape(kind)}</code>", f"{count:,}", rate]
        body = "".join(f"<td>{cell}</td>" for cell in cells)
        strip = _svg(lanes[name]) if lanes and name in lanes else ""
        lines.append(f'<tr>{body}<td{colour}>{escaping.escape(lost)}</td><td style="text-align:left">{strip}</td></tr>')
    notes = "".join(f'<p style="color:{_RED}">{escaping.escape(notice)}</p>' for notice in bag.notices)
    over_time = f"over {bag.duration:.3f} s" if lanes else ""
    head = "".join(f"<th>{title}</th>" for title in ("topic", "type", "messages", "rate", "lost", over_time))
    return f"<p><b>{escaping.escape(_head(bag))}</b></p>{notes}<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


# Rows of a message, structs and values of a list (also where there is less room) and characters of a value that are shown, and messages and columns of a topic.
_ROWS_MAX, _ITEMS_MAX, _VALUES_MAX, _BRIEF_MAX, _TEXT_MAX = 60, 4, 9, 3, 120
_HEAD, _COLUMNS_MAX = 5, 8
# Pictures of a topic, pixels of their longer side, and bytes of one that is shown: files within messages keep their size.
_PICTURES, _PICTURE_SIDE, _LARGE_SIDE, _PICTURE_BYTES_MAX = 4, 220, 480, 2 << 20
_PICTURE_STYLE = "display:inline-block;margin:4px;image-rendering:pixelated"


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX] + "…"


def _values(value: Any, path: str, brief: bool) -> Iterator[tuple[str, str]]:
    """The fields of a message as texts, by their paths."""
    if hasattr(value, "_fields") and hasattr(value, "_type"):
        if value._type == "builtin_interfaces/msg/Time":
            nanos = value.sec * 10**9 + value.nanosec
            yield path, f"{value.sec}.{value.nanosec:09}" + (f" ({_when(nanos)})" if nanos > 0 and not brief else "")
            return
        for name in value._fields:
            yield from _values(getattr(value, name), f"{path}.{name}" if path else name, brief)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _values(inner, f"{path}.{name}" if path else str(name), brief)
    elif isinstance(value, list) and value and hasattr(value[0], "_fields"):
        for place, item in enumerate(value[:_ITEMS_MAX]):
            yield from _values(item, f"{path}[{place}]", brief)
        if len(value) > _ITEMS_MAX:
            yield path, f"{len(value) - _ITEMS_MAX} more"
    elif isinstance(value, (list, bytes)) or hasattr(value, "dtype"):
        first = [str(item) for item in value[: _BRIEF_MAX if brief else _VALUES_MAX]]
        more = f", … ({len(value)})" if len(value) > len(first) else ""
        yield path, f"[{', '.join(map(_short, first))}{more}]"
    else:
        yield path, _short(str(value))


def _rows_of(msg: Any, count: int, brief: bool = False) -> list[tuple[str, str]]:
    """The first fields of a message; the reason in place of those that cannot be read."""
    rows: list[tuple[str, str]] = []
    try:
        rows.extend(itertools.islice(_values(msg, "", brief), count))
    except Exception as error:  # noqa: BLE001 - a look at a message never fails
        rows.append(("", _short(str(error))))
    return rows


def _cells(texts: Sequence[str], tag: str = "td") -> str:
    cells = "".join(f'<{tag} style="text-align:left;white-space:nowrap">{escaping.escape(text)}</{tag}>' for text in texts)
    return f"<tr>{cells}</tr>"


def _picture(msg: Any, side: int, title: str = "") -> str:
    """An image or a cloud as a picture; nothing for other messages and for those that cannot be shown."""
    try:
        kind, data = _native.picture(msg, side) or ("", b"")
    except Exception:  # noqa: BLE001 - its fields are shown
        return ""
    if not 0 < len(data) <= _PICTURE_BYTES_MAX:
        return ""
    source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    return f'<img src="{source}" style="{_PICTURE_STYLE};max-width:{side}px;max-height:{side}px" title="{escaping.escape(title)}">'


def struct(msg: Any) -> str:
    """A decoded message for notebooks: its picture, if it has one, and its fields."""
    rows = _rows_of(msg, _ROWS_MAX)
    more = "<p>…</p>" if len(rows) == _ROWS_MAX else ""
    table = "".join(_cells(row) for row in rows)
    return f"<p><code>{escaping.escape(msg._type)}</code></p>{_picture(msg, _LARGE_SIDE)}<table>{table}</table>{more}"


def message(found: Any) -> str:
    """A message of a bag for notebooks."""
    head = f"<p><b>{escaping.escape(found.topic)}</b> at {escaping.escape(_instant(found.time))}, {len(found.raw):,} bytes</p>"
    try:
        msg = found.msg
    except Exception as error:  # noqa: BLE001 - a look at a message never fails
        return f'{head}<p style="color:{_RED}">{escaping.escape(_short(str(error)))}</p>'
    if hasattr(msg, "_type"):
        return head + struct(msg)
    return f"{head}<table>{''.join(_cells(row) for row in _rows_of(msg, _ROWS_MAX))}</table>"


def _instant(nanos: int) -> str:
    when = dt.datetime.fromtimestamp(nanos // 10**9, dt.timezone.utc)
    return f"{when:%Y-%m-%d %H:%M:%S}.{nanos % 10**9 // 10**6:03} UTC"


def topic(of: Any) -> str:
    """A topic or a selection for notebooks: over time, the first messages, pictures."""
    is_whole = of._selection.is_all and of._selection.numbers is None
    hertz = of.rate if is_whole else None
    facts = [f"{len(of):,} messages" if is_whole else "a selection of messages", *([f"{hertz:.1f} Hz"] if hertz else [])]
    head = f"<p><b>{escaping.escape(of.name)}</b> <code>{escaping.escape(of.type)}</code>, {', '.join(facts)}</p>"
    lanes = of.bag._look(_HTML_CELLS) if is_whole else None
    strip = f"<p>{_svg(lanes[of.name])}</p>" if lanes and of.name in lanes else ""
    try:
        first = list(of.head(_HEAD))
        found = (_picture(_decoded(one), _PICTURE_SIDE, _instant(one.time)) for one in (_spread(of) if is_whole else first))
        # A topic whose first message is not a picture has none.
        pictures = "".join(itertools.takewhile(bool, found))
    except Exception as error:  # noqa: BLE001 - a look at a topic never fails
        return f'{head}{strip}<p style="color:{_RED}">{escaping.escape(_short(str(error)))}</p>'
    rows = [dict([("time", _instant(found.time)), *_rows_of(_decoded(found), _COLUMNS_MAX, True)]) for found in first]
    names = list(dict.fromkeys(name for row in rows for name in row))[: _COLUMNS_MAX + 1]
    table = "".join(_cells([row.get(name, "") for name in names]) for row in rows)
    return f"{head}{strip}{pictures}<table>{_cells(names, 'th')}{table}</table>"


def _decoded(found: Any) -> Any:
    try:
        return found.msg
    except Exception as error:  # noqa: BLE001 - a look at a message never fails
        return {"": str(error)}


def _spread(of: Any) -> Iterator[Any]:
    """Some messages from the beginning to the end of a bag, for pictures."""
    bag = of.bag
    for place in range(_PICTURES):
        yield from of._with(of._selection.within(bag.start + place * (bag.end - bag.start) // _PICTURES, None)).head(1)


class Losses(dict[str, dict[str, int]]):
    """Lost messages by topic and stage; a table in a notebook, and ``pandas.DataFrame(losses).T`` for more."""

    @property
    def stages(self) -> list[str]:
        """The stages at which something was lost."""
        return sorted({stage for stages in self.values() for stage in stages})

    @property
    def total(self) -> int:
        """Number of lost messages."""
        return sum(sum(stages.values()) for stages in self.values())

    def _repr_html_(self) -> str:
        if not self:
            return "<p>no message was lost</p>"
        head = "".join(f"<th>{escaping.escape(title)}</th>" for title in ("topic", *self.stages, "all"))
        lines = []
        for topic, stages in sorted(self.items()):
            counts = [*(stages.get(stage, 0) for stage in self.stages), sum(stages.values())]
            lines.append(f"<tr><td>{escaping.escape(topic)}</td>{''.join(f'<td>{count:,}</td>' for count in counts)}</tr>")
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def plot(bag: Any, names: Sequence[str], cells: int) -> Any:
    """The rate of each topic over time, with its gaps and losses."""
    with needs("matplotlib"):
        import matplotlib.pyplot as plt

    lanes = bag.over_time(cells)
    names = sorted(names or filter(lambda name: any(lanes[name]), lanes))
    lost = bag.lost or {}
    cell = max(bag.duration, 1e-9) / cells
    edges = [place * cell for place in range(cells + 1)]
    figure, axes = plt.subplots(len(names) or 1, 1, sharex=True, squeeze=False, figsize=(10, 0.8 * len(names) + 1), layout="constrained")
    for axis, name in zip(axes[:, 0], names):
        _, means, gaps = _native.strip(lanes[name])
        rates = [mean / cell for mean in means]
        axis.stairs(rates, edges, fill=True, color=_BLUE)
        for begin, end in gaps:
            axis.axvspan(edges[begin], edges[end], color=_PALE)
        axis.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
        axis.set_yticks([max(rates)] if any(rates) else [], [f"{max(rates):.3g} Hz"] if any(rates) else [], fontsize=7)
        missing = sum(lost.get(name, {}).values())
        if missing:
            axis.text(1.01, 0.5, f"{missing} lost", transform=axis.transAxes, color=_RED, fontsize=8, va="center")
    axes[-1, 0].set_xlabel("seconds since the beginning of the bag")
    return figure
