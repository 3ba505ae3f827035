"""The messages of one topic: which of them are read, and their fields as columns."""

from __future__ import annotations

import datetime as dt
import operator
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

from . import _columns, _html, _native
from ._time import rate, span_ns

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from ._bag import Bag

    Array = npt.NDArray[Any]

Names = str | Sequence[str]
Clock = Literal["log_time", "publish_time", "header.stamp"]
_CLOCKS = ("log_time", "publish_time", "header.stamp")
# Larger numbers are no numbers of messages but times in nanoseconds.
_NUMBERS_MAX = 10**14
# Messages that are found by their number without the times of all.
_FEW = 16


def check_time(time: str) -> str:
    """The clock of this name."""
    if time not in _CLOCKS:
        raise ValueError(f"time is one of {', '.join(_CLOCKS)}, not {time!r}")
    return time


def check_errors(errors: str) -> str:
    """What happens to what is damaged."""
    if errors not in ("raise", "skip"):
        raise ValueError(f"errors is 'raise' or 'skip', not {errors!r}")
    return errors


class Selection:
    """Which messages are read: what times, conditions, rates and, of these, numbers have left."""

    __slots__ = ("start", "end", "conditions", "every", "numbers", "errors", "time")

    def __init__(self) -> None:
        self.start: int | None = None
        self.end: int | None = None
        self.conditions: tuple[tuple[str, str], ...] = ()
        self.every: int | None = None
        self.numbers: tuple[int, int | None, int] | None = None
        self.errors: str = "raise"
        self.time: str = "log_time"

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
            "numbers": self.numbers,
            "time": self.time,
            "skip": self.errors == "skip",
        }

    @property
    def is_all(self) -> bool:
        """Whether only numbers may leave something out."""
        return self.start is None and self.end is None and not self.conditions and self.every is None


def _is_time(moment: Any) -> bool:
    """Whether a bound of a slice can only be a time."""
    return isinstance(moment, (str, dt.datetime, dt.timedelta)) or str(getattr(moment, "dtype", "")).startswith(("datetime64", "timedelta64"))


def _named(fields: Iterable[Names]) -> list[str]:
    """The fields that were named one by one or in lists."""
    return [name for field in fields for name in ([field] if isinstance(field, str) else field)]


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
        """The names of its flat columns: the fields of the type, with dots between the levels."""
        nothing = Topic(self.bag, self._info, Selection().within(self.bag.start, self.bag.start))
        return list(nothing._source((), True).read().names)

    def _ipython_key_completions_(self) -> list[str]:
        try:
            paths = [name.split(".") for name in self.fields]
        except Exception:  # noqa: BLE001 - a completion never fails
            return []
        return list(dict.fromkeys(".".join(path[:level]) for path in paths for level in range(1, len(path) + 1)))

    # Which messages.

    @overload
    def __getitem__(self, place: slice) -> Topic: ...
    @overload
    def __getitem__(self, place: SupportsIndex) -> _native.Message: ...
    @overload
    def __getitem__(self, place: str) -> Array: ...
    def __getitem__(self, place: Any) -> Any:
        """A message by its number, messages by a slice of numbers (``topic[5:10]``, ``topic[-100:]``, ``topic[::10]``), or a column by its name.

        Slices of datetimes, timedeltas and texts (``topic["22:13:25":]``) are slices of time, as :meth:`between` has them.
        """
        if isinstance(place, slice):
            return self._cut(place)
        if isinstance(place, str):
            return self.to_numpy(place)
        if not hasattr(place, "__index__"):
            raise TypeError(f"{place!r} does not count messages; the messages from a time on are .between({place!r})")
        return self._at(operator.index(place))

    def between(self, start: Any = None, end: Any = None) -> Topic:
        """The messages from ``start`` on and before ``end``: seconds since the beginning of the bag, nanoseconds since 1970, datetimes, spans since
        the beginning (``"500ms"``, a timedelta), ISO texts, or times of the day on which the bag begins (``"22:13:25"``, UTC)."""
        return self._narrowed(self._selection.within(*self.bag._bounds(start, end)))

    def every(self, span: Any) -> Topic:
        """At most one message in each span: seconds, ``"100ms"``, a timedelta."""
        every = span_ns(span)
        if not 0 <= every < 2**63:
            raise ValueError(f"{span!r} is not a span between two messages: expected one of 0 to 292 years")
        return self._narrowed(self._selection.but(every=every))

    def where(self, condition: str) -> Topic:
        """Only messages for which an expression of their fields is true: ``"linear_acceleration.z > 12"``."""
        conditions = (*self._selection.conditions, (self.name, condition))
        return self._narrowed(self._selection.but(conditions=conditions))

    def skip_errors(self) -> Topic:
        """Passes over damaged parts, instead of raising; tables leave out messages that cannot be decoded, of which ``msg`` still raises."""
        return self._with(self._selection.but(errors="skip"))

    def head(self, count: int = 5) -> Topic:
        """The first messages."""
        return self[:count]

    def _with(self, selection: Selection) -> Topic:
        return Topic(self.bag, self._info, selection)

    def _narrowed(self, selection: Selection) -> Topic:
        if selection.numbers is not None:
            raise ValueError('numbers come last: first between(), where() and every(), then [5:10], as in topic.where("x > 1")[5:10]')
        return self._with(selection)

    def _cut(self, place: slice) -> Topic:
        bounds = [bound for bound in (place.start, place.stop) if bound is not None]
        if bounds and all(map(_is_time, bounds)):
            if place.step is not None:
                raise ValueError("a slice of time has no step; see every()")
            return self.between(place.start, place.stop)
        # "Up to the last one", as it is often written.
        place = slice(place.start, None if place.stop == sys.maxsize else place.stop, place.step)
        for bound in (bound for bound in (place.start, place.stop) if bound is not None):
            if not hasattr(bound, "__index__") or abs(operator.index(bound)) >= _NUMBERS_MAX:
                instead = ", ".join("None" if bound is None else repr(bound) for bound in (place.start, place.stop))
                raise TypeError(f"a slice counts messages, and {bound!r} does not count messages; a part of the time is .between({instead})")
        start, stop, step = (None if part is None else operator.index(part) for part in (place.start, place.stop, place.step))
        if step is not None and step < 1:
            raise ValueError("messages come in the order of time: the step of a slice is 1 or more")
        if (start or 0) < 0 or (stop or 0) < 0:
            # From the end.
            start, stop, step = place.indices(len(self))
        first, end, stride = self._selection.numbers or (0, None, 1)
        ends = [number for number in (end, None if stop is None else first + stop * stride) if number is not None]
        numbers = (first + (start or 0) * stride, min(ends, default=None), stride * (step or 1))
        return self._with(self._selection.but(numbers=None if numbers == (0, None, 1) else numbers))

    def __iter__(self) -> _native.Messages:
        return self.bag._native.messages([self.name], self._selection.native())

    def __len__(self) -> int:
        if self._times is not None or not self._selection.is_all:
            return len(self.times)
        return len(range(int(self._info["count"]))[slice(*(self._selection.numbers or (None,)))])

    @property
    def times(self) -> array[int]:
        """Log times in nanoseconds since 1970, read once."""
        if self._times is None:
            self._times = array("q", self.bag._native.times([self.name], self._selection.native()))
        return self._times

    @property
    def datetimes(self) -> npt.NDArray[np.datetime64]:
        """Log times (UTC) as an array of datetimes."""
        times: Any = _columns.numpy().frombuffer(self.times, dtype="datetime64[ns]")
        # They are those of the topic itself.
        times.flags.writeable = False
        return times  # type: ignore[no-any-return]

    @property
    def rate(self) -> float | None:
        """Messages per second: over the bag; of a selection from its first message to its last. None for less than two messages."""
        if self._selection.is_all and self._selection.numbers is None:
            return rate(len(self), self.bag.duration)
        return rate(len(self), (self.times[-1] - self.times[0]) / 1e9) if self.times else None

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

    def _at(self, index: int) -> _native.Message:
        if self._times is None and 0 <= index < _FEW:
            for message in self[index : index + 1]:
                return message
        times = self.times
        if not -len(times) <= index < len(times):
            raise IndexError(f"{self.name} has {len(times)} messages, none with the number {index}")
        index %= len(times)
        time = times[index]
        # Several messages may have the same time.
        before = sum(1 for other in range(index - 1, -1, -1) if times[other] == time) if index and times[index - 1] == time else 0
        # A selection by rate or by numbers depends on the messages before.
        depends = self._selection.every or self._selection.numbers
        selection = self._selection if depends else self._selection.but(start=time, end=time)
        skipped = index if depends else before
        messages = self.bag._native.messages([self.name], selection.but(time="log_time").native())
        for message in messages:
            if not skipped:
                messages.close()
                return message
            skipped -= 1
        raise IndexError(f"{self.name} has no message with the number {index} any more")

    # As columns.

    def _source(self, fields: Iterable[Names], flat: bool, time: str = "log_time", vectors: bool = False) -> _native.TableSource:
        selection = self._selection.but(time=time if check_time(time) != "log_time" else self._selection.time)
        return self.bag._native.table(self.name, _named(fields), not flat, vectors, selection.native(), self.bag.threads)

    @overload
    def to_numpy(self, field: str, /, *, flat: bool = True, time: Clock = "log_time") -> Array: ...
    @overload
    def to_numpy(self, fields: list[str] | tuple[str, ...] = (), /, *, flat: bool = True, time: Clock = "log_time") -> dict[str, Array]: ...
    @overload
    def to_numpy(self, first: Names, second: Names, /, *more: Names, flat: bool = True, time: Clock = "log_time") -> dict[str, Array]: ...
    def to_numpy(self, *fields: Names, flat: bool = True, time: str = "log_time") -> Any:
        """A field as an array with a row for each message; several fields, a list of them, or none for all: a dict with an array for each, and the
        times.

        Numbers and booleans are arrays of their type; arrays and structs of numbers of one kind (``x``, ``y``, ``z``) have a column for each.
        A single other struct is a structured array; in a dict each of its fields is an array with a dotted name, unless ``flat`` is false. Texts,
        sequences and lists of structs are objects. ``time`` orders the rows.
        """
        wanted = _named(fields)
        table = self._source(wanted, True, time, vectors=True).read()
        rows = len(table)
        columns = {name: _columns.to_numpy(table.column(place), rows) for place, name in enumerate(table.names)}
        if len(fields) == 1 and isinstance(fields[0], str):
            return _columns.whole(columns, fields[0], rows)
        for name in wanted or ():
            if not any(column == name or column.startswith(f"{name}.") for column in columns):
                raise ValueError(f"{name!r} is a part of another field that was named: leave one out, or ask for it in a call of its own")
        if not flat:
            names = wanted or dict.fromkeys(name.partition(".")[0] for name in columns)
            columns = {name: _columns.whole(columns, name, rows) for name in names}
        place = 1 if time == "publish_time" else 0
        return {table.stamp_names[place]: _columns.numpy().asarray(table.stamps(place)), **columns}

    def to_pandas(self, *fields: Names, flat: bool = True, time: Clock = "log_time") -> pd.DataFrame:
        """A pandas DataFrame with a column for each field (all, or those named), indexed by ``time``, by which the rows are ordered.

        pandas has no structs: with ``flat=False`` they are dicts.
        """
        with _columns.needs("pandas"):
            import pandas as pd

        table = self._source(fields, flat, time).read()
        place = 1 if time == "publish_time" else 0
        stamps = _columns.numpy().asarray(table.stamps(place))
        index = pd.DatetimeIndex(stamps.astype("datetime64[ns]"), name=table.stamp_names[place]).tz_localize("UTC")
        columns: dict[str, Any] = {}
        for place, name in enumerate(table.names):
            values = _columns.to_numpy(table.column(place), len(table))
            columns[name] = list(values) if values.ndim > 1 else values
        return pd.DataFrame(columns, index=index)

    def to_arrow(self, *fields: Names, flat: bool = False, time: Clock = "log_time") -> pa.Table:  # pyright: ignore[reportUnknownParameterType]
        """A pyarrow Table of the stamps and the fields (all, or those named), in the columns that ``holdall export -f parquet`` writes.

        Structs are nested; with ``flat`` each of their fields is a column with a dotted name (``--flat``). ``time`` orders the rows.
        """
        with _columns.needs("pyarrow"):
            import pyarrow as pa

        return pa.RecordBatchReader.from_stream(self._source(fields, flat, time)).read_all()

    def to_polars(self, *fields: Names, flat: bool = False, time: Clock = "log_time") -> pl.DataFrame:
        """A polars DataFrame with the columns of :meth:`to_arrow`."""
        with _columns.needs("polars"):
            import polars as pl

        return pl.DataFrame(self._source(fields, flat, time))

    def arrow_stream(self, *fields: Names, flat: bool = False, time: Clock = "log_time") -> _native.TableSource:
        """An object with ``__arrow_c_stream__`` and the columns of :meth:`to_arrow`, which reads the bag while it is read, in bounded memory; it can
        be used once."""
        return self._source(fields, flat, time)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """All columns for whatever reads Arrow: ``polars.DataFrame(topic)``, ``pyarrow.table(topic)``, ``duckdb.sql("from topic")``."""
        return self._source((), False).__arrow_c_stream__(requested_schema)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        """Also what pandas asks for; an array of messages would be of no use to either."""
        raise TypeError(f"{self.name} has many columns, and is no array: use topic.to_pandas() for a DataFrame, topic.to_numpy('FIELD') for an array")

    # Itself.

    def __reduce__(self) -> tuple[Any, ...]:
        selection = {name: getattr(self._selection, name) for name in Selection.__slots__}
        return (_reopened, (self.bag, self.name, selection))

    def __repr__(self) -> str:
        whole = self._selection.is_all and self._selection.numbers is None
        count = f"{len(self)} messages" if whole else "a selection of messages"
        return f"<topic {self.name} ({self.type}), {count}>"

    def _repr_html_(self) -> str:
        return _html.topic(self)


def _reopened(bag: Bag, name: str, selection: dict[str, Any]) -> Topic:
    topic = bag[name]
    return topic._with(topic._selection.but(**selection))
