"""Many bags: catalogs, and how engines divide the reading of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import _native, _program
from ._bag import Paths, _paths
from ._errors import BagError, TopicError
from ._time import time_ns

_TASK_BYTES = 64 << 20


@dataclass(frozen=True)
class Part:
    """A range of time of one storage file."""

    bag: str
    file: int
    topics: tuple[str, ...]
    start: int | None
    """First log time in nanoseconds; None for no bound."""
    end: int | None
    """Last log time in nanoseconds; None for no bound."""
    chunks: int
    bytes: int


@dataclass(frozen=True)
class Task:
    """A piece of work: small, can be pickled, and read by :func:`read` on any computer that sees the bags under the same paths."""

    parts: tuple[Part, ...]
    fields: tuple[str, ...]
    bytes: int
    """Bytes of its chunks in the files."""
    flat: bool = False
    """Whether the fields of structs are columns with dotted names."""

    @property
    def paths(self) -> list[str]:
        """The bags of which it has parts."""
        return list(dict.fromkeys(part.bag for part in self.parts))


def _bounds(time: Any) -> tuple[int | None, int | None]:
    if time is None:
        return None, None
    if isinstance(time, slice):
        time = (time.start, time.stop)
    start, end = time
    moments = [None if moment is None else time_ns(moment, 0) for moment in (start, end)]
    return moments[0], None if moments[1] is None else moments[1] - 1


def plan(
    paths: Paths,
    topics: str | Sequence[str] = (),
    fields: Sequence[str] = (),
    time: Any = None,
    *,
    task_bytes: int = _TASK_BYTES,
    tasks: int | None = None,
    flat: bool = False,
) -> list[Task]:
    """Divides the reading of topics into tasks of about ``task_bytes`` bytes of chunks, or into about ``tasks`` of them.

    ``paths`` are bags, folders of bags, patterns, or the folder of a catalog (``holdall catalog``), from which planning opens no bag. ``time``
    is a start and an end (not included) since 1970: datetimes, ISO texts, seconds or nanoseconds; either may be None. Each message is in
    exactly one task. The columns are those of :meth:`Topic.to_arrow`, with ``flat`` as there.
    """
    wanted = [topics] if isinstance(topics, str) else list(topics)
    start, end = _bounds(time)
    planned = json.loads(_native.plan(_paths(paths), wanted, start, end, task_bytes, tasks))
    return [
        Task(
            parts=tuple(Part(topics=tuple(part.pop("topics")), **part) for part in task["parts"]),
            fields=tuple(fields),
            bytes=task["bytes"],
            flat=flat,
        )
        for task in planned
    ]


def batches(task: Task) -> Iterator[Any]:
    """The rows of a task as ``pyarrow.RecordBatch``, part by part; see :func:`read`."""
    import pyarrow as pa

    for part in task.parts:
        for topic in part.topics:
            source = _native.part(part.bag, part.file, topic, list(task.fields), part.start, part.end, not task.flat)
            for batch in pa.RecordBatchReader.from_stream(source):
                rows = pa.nulls(batch.num_rows, pa.string())
                names = [rows.fill_null(name) for name in (part.bag, topic)]
                yield pa.RecordBatch.from_arrays([*names, *batch.columns], ["bag", "topic", *batch.schema.names])


def read(task: Task) -> Any:
    """Reads a task: a ``pyarrow.Table`` with the columns ``bag``, ``topic``, ``log_time``, ``publish_time``, ``sequence`` and the fields.

    Topics of one task must have the same columns: those of one type, or fields that all of them have.
    """
    import pyarrow as pa

    found = list(batches(task))
    if not found:
        return schema(task).empty_table()
    for batch in found[1:]:
        if not batch.schema.equals(found[0].schema):
            first, other = (batch.column("topic")[0].as_py() for batch in (found[0], batch))
            raise TopicError(f"{other} has other columns than {first}: name fields that both have, or read each topic on its own", topic=other)
    return pa.Table.from_batches(found)


def schema(task: Task) -> Any:
    """The schema of the table that :func:`read` returns, without reading messages."""
    import pyarrow as pa

    for part in task.parts:
        for topic in part.topics:
            source = _native.part(part.bag, part.file, topic, list(task.fields), part.start, part.end, not task.flat)
            fields = pa.RecordBatchReader.from_stream(source).schema
            return pa.schema([("bag", pa.string()), ("topic", pa.string()), *fields])
    raise TopicError("there is no such topic in the bags")


def planned(paths: Paths, topics: str | Sequence[str], fields: Sequence[str], time: Any, **options: Any) -> list[Task]:
    """As :func:`plan`; no task at all is an error, because an engine cannot know the columns of nothing."""
    found = plan(paths, topics, fields, time, **options)
    if not found:
        wanted = topics if isinstance(topics, str) else ", ".join(topics)
        raise TopicError(f"no bag has messages of {wanted or 'any topic'} in that time")
    return found


@dataclass(frozen=True)
class Migration:
    """A bag that gets other definitions: small, can be pickled, and carried out on any computer that sees bags and rules under the same paths."""

    bag: str
    output: str
    options: tuple[tuple[str, Any], ...]

    def run(self) -> dict[str, Any]:
        """Migrates the bag; its report. The output of a worker that died after it was written counts: outputs appear whole or not at all."""
        if os.path.exists(self.output):
            return {"path": self.output, "already_migrated": True}
        os.makedirs(os.path.dirname(self.output) or ".", exist_ok=True)
        return _program.run("migrate", self.bag, output=self.output, **dict(self.options))[0]


def _cataloged(path: str) -> list[str]:
    """The bags of a catalog; any other path is its own."""
    return [row["bag"] for row in find("state != ''", path)] if os.path.exists(os.path.join(path, "bags.parquet")) else [path]


def plan_migration(bags: Paths, output: str | os.PathLike[str], **options: Any) -> list[Migration]:
    """The bags that need it of ``bags`` (bags, folders of them, or the catalog in one), for process pools and engines; ``options`` are those of
    :func:`migrate`.

    All bags are looked at. When one cannot be migrated, or its output exists, that is an error, and nothing is to be done.
    """
    listed = [bag for path in _paths(bags) for bag in _cataloged(path)]
    found = _program.run("migrate", listed, output=output, dry_run=True, **options)
    return [Migration(each["bag"], each["output"], tuple(options.items())) for each in found]


def catalog(roots: Paths, output: str | os.PathLike[str] = "catalog") -> dict[str, Any]:
    """Brings the catalog in the folder ``output`` up to date with the bags below ``roots``; see ``holdall catalog --help``."""
    reports = _program.run("catalog", _paths(roots), allowed=(0, 1), output=output)
    if not reports:
        raise BagError("holdall catalog reported nothing")
    return reports[0]


def find(expression: str, catalog: str | os.PathLike[str] = "catalog") -> list[dict[str, Any]]:
    """The bags of a catalog for which an expression is true, with what it names; see ``holdall find --help``."""
    return _program.run("find", [expression, os.fspath(catalog)])


__all__ = ["Migration", "Part", "Task", "batches", "catalog", "find", "plan", "plan_migration", "read", "schema"]
