"""Bags and their topics."""

from __future__ import annotations

import glob
import json
import operator
import os
import warnings
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Union, overload

from . import _columns, _html, _media, _native, _sync, _verbs
from ._errors import BagError, BagWarning, Error, TopicError
from ._progress import Progress
from ._time import span_ns, time_ns

# More threads than this wait for memory and for each other.
_THREADS_MAX = 8
# Files without an index are read for a picture of them if they are not larger than this.
_READ_FOR_A_LOOK_BYTES = 64 << 20

Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]


def _paths(paths: Paths) -> list[str]:
    """Each named path; one that does not exist and has wildcards is expanded, in order of names."""
    named = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found: list[str] = []
    for path in [os.fspath(path) for path in named]:
        if "://" not in path and not os.path.exists(path) and glob.has_magic(path):
            matches = sorted(glob.glob(path))
            if not matches:
                raise BagError(f"nothing matches {path}", path=path)
            found += matches
        else:
            found.append(path)
    if not found:
        raise BagError("no bag was named")
    return found


def open(paths: Paths, *, threads: int | None = None, definitions: Paths = ()) -> Bag:  # noqa: A001 - the name that people know
    """Opens a bag: a directory, a single storage file, a pattern (``"runs/*"``) or a list of these, which are read as one.

    Only the metadata is read. A torn or damaged bag opens with a :class:`BagWarning`. Columns are decoded in up to ``threads`` threads, by
    default one for each processor that this process may use, and no more than eight. ``definitions`` are folders with the ``.msg`` files of types
    that the bag does not define: packages, a workspace, an installation, or the files alone; after them those of ``AMENT_PREFIX_PATH`` are searched.
    """
    folders = [definitions] if isinstance(definitions, (str, os.PathLike)) else list(definitions)
    return Bag(_paths(paths), threads, [os.fspath(folder) for folder in folders])


def _prefixes() -> list[str]:
    """The installations of the ROS environment."""
    return [prefix for prefix in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if prefix]


_CLOCKS = ("log_time", "publish_time", "header.stamp")


def _check_time(time: str) -> str:
    if time not in _CLOCKS:
        raise ValueError(f"time is one of {', '.join(_CLOCKS)}, not {time!r}")
    return time


def _threads() -> int:
    try:
        found = len(os.sched_getaffinity(0))
    except AttributeError:
        found = os.cpu_count() or 1
    return min(found, _THREADS_MAX)


class Selection:
    """Which messages are read: what slices, conditions and rates have left."""

    __slots__ = ("start", "end", "conditions", "every", "errors", "time")

    def __init__(self) -> None:
        self.start: int | None = None
        self.end: int | None = None
        self.conditions: tuple[tuple[str, str], ...] = ()
        self.every: int | None = None
        self.errors = "raise"
        self.time = "log_time"

    def but(self, **changes: Any) -> Selection:
        """The same with some changes."""
        other = Selection()
        for name in self.__slots__:
            setattr(other, name, changes.get(name, getattr(self, name)))
        return other

    def within(self, start: int | None, end: int | None) -> Selection:
        """The same, between two times; ``end`` is not included."""
        last = None if end is None else end - 1
        starts = [time for time in (self.start, start) if time is not None]
        ends = [time for time in (self.end, last) if time is not None]
        return self.but(start=max(starts, default=None), end=min(ends, default=None))

    def native(self) -> dict[str, Any]:
        return {
            "start": self.start,
            "end": self.end,
            "conditions": list(self.conditions),
            "every": self.every,
            "time": self.time,
            "skip": self.errors == "skip",
        }

    @property
    def is_all(self) -> bool:
        return self.start is None and self.end is None and not self.conditions and self.every is None


def _check_errors(errors: str) -> str:
    if errors not in ("raise", "skip"):
        raise ValueError(f"errors is 'raise' or 'skip', not {errors!r}")
    return errors


class Bag:
    """A bag that is open for reading, or several that are read as one. See :func:`open`."""

    def __init__(self, paths: list[str], threads: int | None = None, definitions: Sequence[str] = ()) -> None:
        self.paths = paths
        self.definitions = list(definitions)
        self.threads = _threads() if threads is None else max(1, int(threads))
        self._lanes: dict[int, dict[str, list[int]] | None] = {}
        self._native = _native.Bags(paths, self.definitions, _prefixes())
        self._about: dict[str, Any] = json.loads(self._native.describe())
        for notice in self.notices:
            warnings.warn(notice, BagWarning, stacklevel=3)

    # What is in it.

    @property
    def topics(self) -> dict[str, Topic]:
        """The topics by name."""
        return {info["name"]: Topic(self, info) for info in self._about["topics"]}

    def __getitem__(self, name: str) -> Topic:
        for wanted in (name, f"/{name}"):
            for info in self._about["topics"]:
                if info["name"] == wanted:
                    return Topic(self, info)
        known = ", ".join(sorted(info["name"] for info in self._about["topics"])) or "no topics"
        raise TopicError(f"there is no topic {name} in the bag; it has {known}", topic=name)

    def __contains__(self, name: object) -> bool:
        return any(info["name"] == name for info in self._about["topics"])

    def __iter__(self) -> Iterator[_native.Message]:
        return iter(self.messages())

    def __len__(self) -> int:
        """Number of messages."""
        return int(self._about["messages"])

    @property
    def start(self) -> int:
        """Log time of the first message in nanoseconds since 1970; 0 for an empty bag."""
        return int(self._about["start"] or 0)

    @property
    def end(self) -> int:
        """Log time of the last message in nanoseconds since 1970; 0 for an empty bag."""
        return int(self._about["end"] or 0)

    @property
    def duration(self) -> float:
        """Seconds from the first message to the last."""
        return (self.end - self.start) / 1e9

    @property
    def size_bytes(self) -> int:
        """Length of all storage files in bytes."""
        return int(self._about["size_bytes"])

    @property
    def files(self) -> list[str]:
        """The storage files."""
        return list(self._about["files"])

    @property
    def notices(self) -> list[str]:
        """What its reader should know about the state of the bag, one sentence each."""
        return list(self._about["notices"])

    @property
    def metadata(self) -> dict[str, Any]:
        """All that the metadata of the bag states."""
        return dict(self._about)

    @property
    def lost(self) -> _html.Losses | None:
        """Lost messages by topic and stage (``transport``, ``cache``, ...), as the recording's ledger counts them: a dict, and a table in a
        notebook.

        Topics without a loss are absent; None for a bag without a ledger. :attr:`states` has whether these are all.
        """
        text = self._native.lost()
        return None if text is None else _html.Losses(json.loads(text))

    @property
    def states(self) -> list[dict[str, Any]]:
        """The state of each bag: ``state`` (``complete``, ``ended``, ``end unknown``, ``cut off``, ``files missing``, ``damaged``,
        ``recording``), ``lost``, ``all_losses_known`` (False where more may be lost), ``missing_files``, ``ends_unknown``, ``account_from``."""
        return list(json.loads(self._native.states()))

    @property
    def ledgers(self) -> list[dict[str, Any]]:
        """The whole loss ledger of each bag that has one."""
        return list(json.loads(self._native.ledgers()))

    @property
    def publishers(self) -> list[dict[str, Any]]:
        """Who published: ``topic``, ``messages``, and where the bag stores them ``gid``, ``node``, ``host``, ``transport``."""
        return list(json.loads(self._native.publishers()))

    def over_time(self, cells: int = 100) -> dict[str, list[int]]:
        """How many messages each topic has over time, in ``cells`` cells of equal length from the first message to the last.

        An MCAP file's index has it, so that a long bag is as fast as a short one; files without an index are read. What is damaged is left out,
        with a :class:`BagWarning`.
        """
        if cells < 1:
            raise ValueError(f"cells is 1 or more, not {cells}")
        lanes, found = self._over_time(cells, 2**63)
        if found["damage"] is not None and found["damage"] not in self.notices:
            warnings.warn(found["damage"], BagWarning, stacklevel=2)
        return lanes

    def _over_time(self, cells: int, read_bytes_max: int) -> tuple[dict[str, list[int]], dict[str, Any]]:
        found = json.loads(self._native.over_time(cells, read_bytes_max))
        lanes = {info["name"]: [0] * cells for info in self._about["topics"]}
        return {**lanes, **found["by_topic"]}, found

    def _look(self, cells: int) -> dict[str, list[int]] | None:
        """As :meth:`over_time`, for a picture: None where that would take long, or where something is damaged."""
        if cells not in self._lanes:
            lanes, found = self._over_time(cells, _READ_FOR_A_LOOK_BYTES)
            self._lanes[cells] = lanes if found["is_whole"] and found["damage"] is None else None
        return self._lanes[cells]

    # Messages.

    def messages(
        self,
        *topics: str,
        start: Any = None,
        end: Any = None,
        where: dict[str, str] | None = None,
        every: Any = None,
        errors: str = "raise",
        order: str = "received",
        time: str | None = None,
    ) -> _native.Messages:
        """Iterates over the messages of some topics, or of all, in order of time.

        ``start`` and ``end`` (not included) are as in slices of a topic, ``where`` has a condition for each of some topics, ``every`` is the
        least span between two messages of a topic. ``errors="skip"`` passes over damaged parts. ``time`` is the clock that orders and bounds the
        messages and that their ``stamp`` is of: ``"log_time"``, ``"publish_time"`` (also ``order="sent"``) or ``"header.stamp"``, which leaves out
        topics without a header unless they are named.
        """
        if order not in ("received", "sent"):
            raise ValueError(f"order is 'received' or 'sent', not {order!r}")
        clock = _check_time(time) if time is not None else "publish_time" if order == "sent" else "log_time"
        for name in topics:
            self[name]
        selection = Selection().within(*self._bounds(start, end)).but(
            conditions=tuple((self[name].name, condition) for name, condition in (where or {}).items()),
            every=None if every is None else span_ns(every),
            errors=_check_errors(errors),
            time=clock,
        )
        return self._native.messages([self[name].name for name in topics], selection.native())

    def _bounds(self, start: Any, end: Any) -> tuple[int | None, int | None]:
        times = [None if moment is None else time_ns(moment, self.start) for moment in (start, end)]
        return times[0], times[1]

    def sync(
        self, *topics: str, tolerance: Any = "20ms", start: Any = None, end: Any = None, time: str = "log_time"
    ) -> Iterator[tuple[_native.Message, ...]]:
        """For each message of the first topic, the nearest one in time of each other topic; none where one is farther than ``tolerance``.

        ``time="header.stamp"`` compares when the data was measured, whatever time the messages took until they were recorded.
        """
        if len(topics) < 2:
            raise ValueError("sync needs two topics or more")
        streams = [self.messages(name, start=start, end=end, time=_check_time(time)) for name in topics]
        return _sync.nearest(streams, span_ns(tolerance))

    def images(self, topic: str) -> _media.Frames:
        """The images of a topic as arrays (height, width, channels): plain ones on the memory of the bag, compressed ones decoded. See
        :func:`holdall.image`."""
        return _media.Frames(self[topic], _media.image)

    def points(self, topic: str) -> _media.Frames:
        """The point clouds of a topic as structured arrays on the memory of the bag."""
        return _media.Frames(self[topic], _media.points)

    # What the program does with bags.

    def check(self, *, progress: Progress = None) -> list[dict[str, Any]]:
        """Checks the whole bag: records, checksums, indexes, counts. See :func:`holdall.check`."""
        return _verbs.check(self.paths, progress=progress)

    def audit(self, *, progress: Progress = None) -> dict[str, Any]:
        """Compares what is in the bag with the recording's account of every message. See :func:`holdall.audit`."""
        if len(self.paths) != 1:
            raise Error("audit needs a single bag")
        return _verbs.audit(self.paths[0], progress=progress)

    # Itself.

    def __enter__(self) -> Bag:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing stays open between calls; this is for code that expects it."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Workers open the bag anew.
        return (_reopened, (self.paths, self.threads, self.definitions))

    def __repr__(self) -> str:
        return _html.text(self)

    def _repr_html_(self) -> str:
        return _html.html(self)

    def plot(self, *topics: str, cells: int = 200) -> Any:
        """Draws the rate of each topic (or of these) over time, its gaps in red, and its losses (needs matplotlib); returns the figure."""
        return _html.plot(self, [self[name].name for name in topics], cells)


def _reopened(paths: list[str], threads: int | None = None, definitions: Sequence[str] = ()) -> Bag:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BagWarning)
        return Bag(paths, threads, definitions)


class Topic:
    """The messages of one topic, or a selection of them; nothing is read before it is needed."""

    def __init__(self, bag: Bag, info: dict[str, Any], selection: Selection | None = None) -> None:
        self.bag = bag
        self._info = info
        self._selection = selection or Selection()
        self._times: array[int] | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._info["name"])

    @property
    def type(self) -> str:
        """The message type, for example ``sensor_msgs/msg/Imu``."""
        return str(self._info["type"])

    @property
    def type_hash(self) -> str:
        """The hash of the type (RIHS01); empty where the bag does not store it."""
        return str(self._info["type_description_hash"])

    @property
    def qos(self) -> list[dict[str, Any]]:
        """The QoS profiles that its publishers offered."""
        return list(self._info["offered_qos_profiles"])

    @property
    def serialization_format(self) -> str:
        """How its messages are encoded, ``cdr`` as a rule."""
        return str(self._info["serialization_format"])

    @property
    def definition(self) -> str:
        """The text of the type's definition in the bag, with those of all nested types; empty without one."""
        found = self.bag._native.definition(self.type)
        return found[0] if found else ""

    @property
    def publishers(self) -> list[dict[str, Any]]:
        """Who published it; see :attr:`Bag.publishers`."""
        return [publisher for publisher in self.bag.publishers if publisher["topic"] == self.name]

    @property
    def lost(self) -> dict[str, int] | None:
        """Lost messages by stage; None for a bag without a ledger."""
        lost = self.bag.lost
        return None if lost is None else lost.get(self.name, {})

    @property
    def fields(self) -> list[str]:
        """The names of its columns: the fields of the type, with dots between the levels."""
        nothing = self._with(Selection().within(self.bag.start, self.bag.start))
        return list(nothing._source().read().names)

    # Which messages.

    @overload
    def __getitem__(self, place: slice) -> Topic: ...
    @overload
    def __getitem__(self, place: int) -> _native.Message: ...
    @overload
    def __getitem__(self, place: str) -> Any: ...
    def __getitem__(self, place: Any) -> Any:
        """A slice of time (``topic[10.0:20.0]``, in seconds since the beginning of the bag; see ``docs/python.md`` for other forms), a
        message by its number, or a column by its name."""
        if isinstance(place, slice):
            if place.step is not None:
                raise ValueError("a slice of time has no step; see every()")
            return self._with(self._selection.within(*self.bag._bounds(place.start, place.stop)))
        if isinstance(place, str):
            return self.to_numpy(place)
        return self._at(place)

    def every(self, span: Any) -> Topic:
        """At most one message in each span: seconds, ``"100ms"``, a timedelta."""
        return self._with(self._selection.but(every=span_ns(span)))

    def where(self, condition: str) -> Topic:
        """Only messages for which an expression of their fields is true: ``"linear_acceleration.z > 12"``."""
        conditions = (*self._selection.conditions, (self.name, condition))
        return self._with(self._selection.but(conditions=conditions))

    def skip_errors(self) -> Topic:
        """Passes over damaged parts and messages that cannot be decoded, instead of raising."""
        return self._with(self._selection.but(errors="skip"))

    def _with(self, selection: Selection) -> Topic:
        return Topic(self.bag, self._info, selection)

    def __iter__(self) -> _native.Messages:
        return self.bag._native.messages([self.name], self._selection.native())

    def __len__(self) -> int:
        return int(self._info["count"]) if self._selection.is_all else len(self.times)

    @property
    def times(self) -> array[int]:
        """Log times in nanoseconds since 1970, read once."""
        if self._times is None:
            self._times = array("q", self.bag._native.times([self.name], self._selection.native()))
        return self._times

    def gaps(self, longer_than: Any = None) -> list[tuple[int, int]]:
        """Where no message came: times (nanoseconds since 1970) of the messages before and after each gap that is longer than this span.

        Without a span: longer than five times the median between two messages.
        """
        times = self.times
        between = [after - before for before, after in zip(times, times[1:])]
        if not between:
            return []
        least = 5 * sorted(between)[len(between) // 2] if longer_than is None else span_ns(longer_than)
        return [(times[place], times[place + 1]) for place, span in enumerate(between) if span > least]

    def _at(self, place: Any) -> _native.Message:
        index = operator.index(place)
        times = self.times
        if not -len(times) <= index < len(times):
            raise IndexError(f"{self.name} has {len(times)} messages, none with the number {index}")
        index %= len(times)
        time = times[index]
        # Several messages may have the same time.
        before = sum(1 for other in range(index - 1, -1, -1) if times[other] == time) if index and times[index - 1] == time else 0
        # A selection by rate depends on the messages before.
        selection = self._selection if self._selection.every else self._selection.but(start=time, end=time)
        skipped = index if self._selection.every else before
        selection = selection.but(time="log_time")
        messages = self.bag._native.messages([self.name], selection.native())
        for message in messages:
            if not skipped:
                messages.close()
                return message
            skipped -= 1
        raise IndexError(f"{self.name} has no message with the number {index} any more")

    # As columns.

    def _source(self, fields: Iterable[str] = (), nested: bool = False, vectors: bool = False) -> _native.TableSource:
        return self.bag._native.table(self.name, list(fields), nested, vectors, self._selection.native(), self.bag.threads)

    def to_numpy(self, field: str | Sequence[str] | None = None) -> Any:
        """A field as an array with a row for each message.

        Numbers and booleans are arrays of their type; arrays and structs of numbers of one kind (``x``, ``y``, ``z``) have a column for each.
        Other structs are structured arrays. Texts, sequences and lists of structs are objects. A list of fields, or none for all of
        them, gives a dict with an array for each, and ``log_time``.
        """
        if isinstance(field, str):
            table = self._source([field], vectors=True).read()
            columns = [(name, _columns.to_numpy(table.column(place), len(table))) for place, name in enumerate(table.names)]
            if len(columns) == 1 and columns[0][0] == field:
                return columns[0][1]
            return _structured([(name[len(field) + 1 :], values) for name, values in columns], len(table))
        table = self._source(field or (), vectors=True).read()
        np = _columns.numpy()
        arrays = {table.stamp_names[0]: np.asarray(table.stamps(0))}
        for place, name in enumerate(table.names):
            arrays[name] = _columns.to_numpy(table.column(place), len(table))
        return arrays

    def to_pandas(self, *fields: str, time: str = "log_time") -> Any:
        """A pandas DataFrame with a column for each field (all of them, or those named), indexed by ``time``: the log time, ``"publish_time"`` or
        ``"header.stamp"``, by which the rows are ordered."""
        import pandas as pd

        np = _columns.numpy()
        chosen = self if _check_time(time) == "log_time" else self._with(self._selection.but(time=time))
        table = chosen._source(fields).read()
        if time == "header.stamp":
            stamps = np.frombuffer(self.bag._native.stamps([self.name], chosen._selection.native()), dtype="i8")
            name = "header_stamp"
        else:
            place = _CLOCKS.index(time)
            stamps, name = np.asarray(table.stamps(place)), table.stamp_names[place]
        index = pd.DatetimeIndex(stamps.astype("datetime64[ns]"), name=name).tz_localize("UTC")
        columns = {}
        for place, name in enumerate(table.names):
            values = _columns.to_numpy(table.column(place), len(table))
            columns[name] = list(values) if values.ndim > 1 else values
        return pd.DataFrame(columns, index=index)

    def to_arrow(self, *fields: str, nested: bool = False) -> Any:
        """A pyarrow Table of the stamps and the fields (all, or those named); ``nested`` keeps structs as structs."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_stream(self._source(fields, nested)).read_all()

    def to_polars(self, *fields: str, nested: bool = False) -> Any:
        """A polars DataFrame; see :meth:`to_arrow`."""
        import polars as pl

        return pl.DataFrame(self._source(fields, nested))

    def arrow_stream(self, *fields: str, nested: bool = False) -> _native.TableSource:
        """An object with ``__arrow_c_stream__`` that reads the bag while it is read, in bounded memory; it can be used once."""
        return self._source(fields, nested)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """All columns for whatever reads Arrow: ``polars.DataFrame(topic)``, ``pyarrow.table(topic)``, ``duckdb.sql("from topic")``."""
        return self._source().__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[Any, ...]:
        selection = {name: getattr(self._selection, name) for name in Selection.__slots__}
        return (_reopened_topic, (self.bag.paths, self.bag.threads, self.name, selection, self.bag.definitions))

    def __repr__(self) -> str:
        count = f"{len(self)} messages" if self._selection.is_all else "a selection of messages"
        return f"<topic {self.name} ({self.type}), {count}>"


def _reopened_topic(paths: list[str], threads: int, name: str, selection: dict[str, Any], definitions: Sequence[str] = ()) -> Topic:
    topic = _reopened(paths, threads, definitions)[name]
    return topic._with(topic._selection.but(**selection))


def _structured(columns: list[tuple[str, Any]], rows: int) -> Any:
    """Columns as one structured array; nested names stay dotted."""
    np = _columns.numpy()
    dtype = [(name, values.dtype, values.shape[1:]) for name, values in columns]
    whole = np.empty(rows, dtype=dtype)
    for name, values in columns:
        whole[name] = values
    return whole
