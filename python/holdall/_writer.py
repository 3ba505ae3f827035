"""Writing bags."""

from __future__ import annotations

import datetime as dt
import functools
import json
import os
import time as clock
import warnings
import weakref
from typing import Any, Union

from . import _native
from ._time import date_ns, span_ns

Path = Union[str, "os.PathLike[str]"]


def create(
    path: Path,
    *,
    storage: str = "mcap",
    preset: str | None = None,
    config: str | None = None,
    compression_mode: str = "none",
    max_bytes: int | None = None,
    max_duration: Any = None,
    warn: bool = True,
) -> Writer:
    """Creates a bag, which must not exist.

    ``storage`` is ``mcap``, ``sqlite3`` or ``leveldb``; ``preset`` one of its presets (MCAP: ``zstd_fast``, ``zstd_small``, ``fastwrite``, ``none``),
    ``config`` the text of its configuration. ``compression_mode`` (``none``, ``file``, ``message``) is rosbag2's own zstd around the storage.
    ``max_bytes`` and ``max_duration`` begin a new file when they are reached. Close it, or use it in ``with``: a bag that is dropped, or open
    when the interpreter ends, is closed with a ``ResourceWarning``, unless ``warn`` is false.
    """
    options = {
        "storage": storage,
        "preset": preset,
        "config": config,
        "compression_mode": compression_mode,
        "bytes_max": max_bytes,
        "duration_max": None if max_duration is None else span_ns(max_duration),
    }
    return Writer(path, options, warn=warn)


# Writers that a forked process has from its parent: they are neither closed nor dropped there, since the bag is the parent's.
_of_the_parent: list[_native.Writer] = []


def _drop(native: _native.Writer, path: str, process: int, warn: bool) -> None:
    """Closes a bag whose writer was dropped, or is still open when the interpreter ends."""
    if os.getpid() != process:
        _of_the_parent.append(native)
        return
    try:
        if warn:
            warnings.warn(f"the bag {path} was not closed: use `with`, or close()", ResourceWarning, stacklevel=2)
    finally:
        # Also where warnings are errors.
        native.close()


class Writer:
    """A bag that is being written. See :func:`create`."""

    def __init__(self, path: Path, options: dict[str, Any], *, warn: bool = True) -> None:
        self.path: str = os.fspath(path)
        self._native = _native.Writer(self.path, options)
        self._types: dict[str, _native.Types] = {}
        # Unlike __del__, it also runs for what is alive at the interpreter's end, and while all modules are there.
        self._drop = weakref.finalize(self, _drop, self._native, self.path, os.getpid(), warn)

    def define(self, type: str, definition: str) -> None:  # noqa: A002 - the field's name in bags
        """Defines a message type that is not one of ROS 2's own, by the text of its ``.msg`` file with those of nested types after it."""
        self._types[type] = _native.Types(type, definition)

    def add_topic(self, name: str, type: str, *, definition: str | None = None, qos: list[dict[str, Any]] | None = None) -> None:  # noqa: A002
        """Adds a topic; :meth:`write` does so by itself."""
        if definition:
            self.define(type, definition)
        if type not in self._types:
            self._types[type] = _native.Types(type)
        self._native.add_topic(name, self._types[type], json.dumps(qos) if qos else None)

    def write(self, topic: str, type: str, message: Any, time: Any = None, *, publish_time: Any = None) -> None:  # noqa: A002
        """Writes a message: a dict (fields that it leaves out have their defaults), a message of another bag, an object with the fields as
        attributes, or serialized bytes.

        ``time`` is the log time, now by default: a whole number of nanoseconds since 1970, a datetime (pandas's and numpy's, too), a text with an
        ISO date, or a float of seconds since 1970. ``publish_time`` is the log time by default.
        """
        if not self._native.has_topic(topic):
            self.add_topic(topic, type)
        log_time = clock.time_ns() if time is None else _stamp(time)
        self._native.write(topic, message, log_time, log_time if publish_time is None else _stamp(publish_time))

    def copy(self, message: _native.Message, bag: Any) -> None:
        """Writes a message of another bag unchanged, with its topic and definition."""
        if not self._native.has_topic(message.topic):
            source = bag[message.topic]
            self.add_topic(message.topic, message.type, definition=source.definition or None, qos=source.qos)
        self._native.write(message.topic, message.raw, message.time, message.publish_time)

    @property
    def count(self) -> int:
        """Messages so far."""
        return self._native.count

    def close(self) -> list[str]:
        """Writes the end of the bag and waits until all of it is durable; returns the storage files."""
        self._drop.detach()
        return [os.fspath(file) for file in self._native.close()]

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<bag {self.path} that is being written, {self.count} messages>"


def _stamp(moment: Any) -> int:
    """A point in time in nanoseconds since 1970. A bag that is being written has no beginning that spans could count from."""
    if isinstance(moment, int):
        return int(moment)
    if isinstance(moment, float):
        return round(moment * 10**9)
    if type(moment).__module__ == "numpy" and str(getattr(moment, "dtype", "")).startswith("int"):
        return int(moment)
    if isinstance(moment, (str, dt.datetime)) or str(getattr(moment, "dtype", "")).startswith("datetime64"):
        return date_ns(moment)
    raise ValueError(f"{moment!r} is not a point in time: expected nanoseconds, a datetime, a text with an ISO date, or seconds since 1970 as a float")


class MessageType:
    """A message type without a bag: encodes and decodes payloads."""

    def __init__(self, name: str, definition: str | None = None) -> None:
        self._native = _native.Types(name, definition)

    @property
    def name(self) -> str:
        """Its full name."""
        return self._native.name

    @property
    def definition(self) -> str:
        """The text of its definition, with those of all nested types."""
        return self._native.text

    @property
    def hash(self) -> str:
        """Its hash (RIHS01)."""
        return self._native.hash

    @property
    def constants(self) -> dict[str, Any]:
        """Its constants by name."""
        return self._native.constants

    def encode(self, message: Any) -> bytes:
        """A message as CDR."""
        return self._native.encode(message)

    def decode(self, payload: bytes) -> _native.Struct:
        """A message of its CDR."""
        return self._native.decode(bytes(payload))


@functools.lru_cache(maxsize=64)
def _types(name: str, text: str) -> _native.Types:
    return _native.Types(name, text)


def _unpickled(name: str, text: str, payload: bytes) -> _native.Struct:
    return _types(name, text).decode(payload)


def _reduced(message: _native.Struct, name: str, text: str) -> tuple[Any, ...]:
    """What pickle keeps of a decoded message."""
    return _unpickled, (name, text, _types(name, text).encode(message))


def _unpickled_message(topic: Any, defined: tuple[str, str] | None, facts: Any, raw: bytes, publisher: str | None) -> _native.Message:
    return _native.message(topic, _types(*defined) if defined else None, facts, raw, publisher)


def _reduced_message(*kept: Any) -> tuple[Any, ...]:
    """What pickle keeps of a message."""
    return _unpickled_message, kept
