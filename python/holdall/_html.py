"""How a bag looks in a notebook and in a terminal."""

from __future__ import annotations

import datetime as dt
import html as escaping
from typing import Any


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
    except Exception:  # noqa: BLE001 - a look at a bag never fails
        lost = None
    rows = []
    for info in sorted(bag.metadata["topics"], key=lambda info: info["name"]):
        count = info["count"]
        rate = f"{(count - 1) / bag.duration:.1f} Hz" if count > 1 and bag.duration > 0 else ""
        stages = (lost or {}).get(info["name"], {})
        missing = sum(stages.values())
        text = "?" if lost is None else f"{missing} ({', '.join(sorted(stages))})" if missing else "0"
        rows.append((info["name"], info["type"], count, rate, text))
    return rows


def _head(bag: Any) -> str:
    paths = bag.paths[0] if len(bag.paths) == 1 else f"{len(bag.paths)} bags from {bag.paths[0]} on"
    return f"{paths}: {len(bag)} messages in {bag.duration:.3f} s from {_when(bag.start)}, {_size(bag.size_bytes)}"


def text(bag: Any) -> str:
    """A table for terminals."""
    rows = [(name, kind, str(count), rate, lost) for name, kind, count, rate, lost in _rows(bag)]
    table = [("topic", "type", "messages", "rate", "lost"), *rows]
    widths = [max(len(row[place]) for row in table) for place in range(5)]

    def line(row: tuple[str, ...]) -> str:
        cells = [cell.rjust(width) if place in (2, 3) else cell.ljust(width) for place, (cell, width) in enumerate(zip(row, widths))]
        return "  " + "  ".join(cells).rstrip()

    return "\n".join([_head(bag), *map(line, table), *(f"  note: {notice}" for notice in bag.notices)])


def html(bag: Any) -> str:
    """A table for notebooks; the bar is each topic's share of the messages. Names are escaped."""
    most = max((row[2] for row in _rows(bag)), default=0) or 1
    lines = []
    for name, kind, count, rate, lost in _rows(bag):
        bar = f'<div style="background:#4c78a8;height:0.6em;width:{max(100 * count / most, 0.5 if count else 0):.1f}%"></div>'
        colour = ' style="color:#c0392b;font-weight:bold"' if lost not in ("0", "?") else ""
        cells = [escaping.escape(name), f"<code>{escaping.escape(kind)}</code>", f"{count:,}", rate]
        body = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f'<tr>{body}<td{colour}>{escaping.escape(lost)}</td><td style="width:8em">{bar}</td></tr>')
    notes = "".join(f'<p style="color:#c0392b">{escaping.escape(notice)}</p>' for notice in bag.notices)
    head = "".join(f"<th>{title}</th>" for title in ("topic", "type", "messages", "rate", "lost", ""))
    return f"<p><b>{escaping.escape(_head(bag))}</b></p>{notes}<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def plot(bag: Any, bins: int = 200) -> Any:
    """The rate of each topic over time."""
    import matplotlib.pyplot as plt

    topics = sorted(bag.topics.values(), key=lambda topic: topic.name)
    figure, axes = plt.subplots(len(topics) or 1, 1, sharex=True, squeeze=False, figsize=(10, 0.8 * len(topics) + 1), layout="constrained")
    for axis, topic in zip(axes[:, 0], topics):
        seconds = [(time - bag.start) / 1e9 for time in topic.times]
        axis.hist(seconds, bins=bins, range=(0, max(bag.duration, 1e-9)), histtype="stepfilled")
        axis.set_ylabel(topic.name, rotation=0, ha="right", va="center", fontsize=8)
        axis.set_yticks([])
    axes[-1, 0].set_xlabel("seconds since the beginning of the bag")
    return figure
