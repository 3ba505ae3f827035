"""``AnyReader`` as pip rosbags has it, on holdall.

Where pip rosbags is installed, definitions, QoS profiles and the ``typestore`` are its own objects, so that its writer takes them.
"""

from __future__ import annotations

import enum
import functools
import importlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .._bag import Bag
from .._errors import DefinitionError, Error
from .._topic import Selection
from .rosidl import _class, _message_type, _wrapped, define


class AnyReaderError(Error):
    """A bag that cannot be read."""


class MessageDefinitionFormat(enum.Enum):
    """How the text of a definition is written."""

    NONE = 0
    MSG = 1
    IDL = 2


class MessageDefinition(NamedTuple):
    """The definition of a type."""

    format: Any
    data: str


class ConnectionExtRosbag1(NamedTuple):
    """What only bags of ROS 1 have."""

    callerid: str | None
    latching: int | None


class ConnectionExtRosbag2(NamedTuple):
    """What only bags of ROS 2 have."""

    serialization_format: str
    offered_qos_profiles: list[Any]


class Qos(NamedTuple):
    """A QoS profile; policies are their names, spans dicts with ``sec`` and ``nsec``."""

    history: Any
    depth: int
    reliability: Any
    durability: Any
    deadline: Any
    lifespan: Any
    liveliness: Any
    liveliness_lease_duration: Any
    avoid_ros_namespace_conventions: bool


class Connection(NamedTuple):
    """A topic of the bags."""

    id: int
    topic: str
    msgtype: str
    msgdef: Any
    digest: str
    msgcount: int
    ext: Any
    owner: Any


class TopicInfo(NamedTuple):
    """A topic and its connections."""

    msgtype: str | None
    msgdef: Any
    msgcount: int
    connections: list[Connection]


@functools.cache
def _theirs(module: str) -> Any:
    """A module of pip rosbags, or None."""
    try:
        return importlib.import_module(f"rosbags.{module}")
    except ImportError:
        return None


def _definition(text: str, encoding: str) -> Any:
    found = _theirs("interfaces") or globals()
    kinds = found["MessageDefinitionFormat"] if isinstance(found, dict) else found.MessageDefinitionFormat
    make = found["MessageDefinition"] if isinstance(found, dict) else found.MessageDefinition
    kind = kinds.NONE if not text else kinds.IDL if encoding == "ros2idl" else kinds.MSG
    return make(kind, text)


def _qos(profile: dict[str, Any]) -> Any:
    """A QoS profile as its writer takes it."""
    theirs = _theirs("interfaces")
    if theirs is None:
        return Qos(**profile)

    def span(found: dict[str, int]) -> Any:
        return theirs.QosTime(found["sec"], found["nsec"])

    return theirs.Qos(
        theirs.QosHistory[profile["history"].upper()],
        profile["depth"],
        theirs.QosReliability[profile["reliability"].upper()],
        theirs.QosDurability[profile["durability"].upper()],
        span(profile["deadline"]),
        span(profile["lifespan"]),
        theirs.QosLiveliness[profile["liveliness"].upper()],
        span(profile["liveliness_lease_duration"]),
        profile["avoid_ros_namespace_conventions"],
    )


class _Types(dict[str, Any]):
    """The classes of messages by type; one that the bags do not define is that of ROS 2 Jazzy."""

    def __missing__(self, name: str) -> Any:
        try:
            self[name] = _class(name)
        except DefinitionError as error:
            raise KeyError(name) from error
        return self[name]


class Typestore:
    """What scripts use of a typestore where pip rosbags is not installed."""

    def __init__(self) -> None:
        self.types = _Types()

    def deserialize_cdr(self, rawdata: bytes, typename: str) -> Any:
        """A message of its CDR."""
        return _wrapped(_message_type(typename).decode(bytes(rawdata)))

    def serialize_cdr(self, message: Any, typename: str, *, little_endian: bool = True) -> bytes:
        """A message as CDR."""
        if not little_endian:
            raise NotImplementedError("messages are written little endian")
        return _message_type(typename).encode(message)

    def generate_msgdef(self, typename: str, *, ros_version: int = 2) -> tuple[str, str]:
        """The text of a definition, and its hash."""
        found = _message_type(typename)
        return found.definition, found.hash

    def hash_rihs01(self, typename: str) -> str:
        """The hash of a type."""
        return _message_type(typename).hash


class AnyReader:
    """Reads bags of ROS 1 and ROS 2 as one, in order of time."""

    def __init__(self, paths: Sequence[Path | str], *, default_typestore: Any = None) -> None:
        self.paths = [Path(path) for path in paths]
        if not self.paths:
            raise AnyReaderError("Must call with at least one path.")
        missing = [path for path in self.paths if "://" not in os.fspath(path) and not path.exists()]
        if missing:
            raise FileNotFoundError(f"The following paths are missing: {missing!r}")
        self.default_typestore = default_typestore
        self.is2 = not any(path.suffix == ".bag" for path in self.paths)
        self.isopen = False
        self.connections: list[Connection] = []
        self._bag: Bag | None = None

    def open(self) -> None:
        """Opens the bags."""
        self._bag = Bag([os.fspath(path) for path in self.paths])
        for number, topic in enumerate(self._bag.topics.values(), 1):
            text, encoding = self._bag._native.definition(topic.type) or ("", "")
            define(topic.type, text)
            count = topic._info["count"]
            ext: Any = ConnectionExtRosbag1(None, None)
            if self.is2:
                ext = ConnectionExtRosbag2(topic.serialization_format, [_qos(profile) for profile in topic.qos])
            found = Connection(number, topic.name, topic.type, _definition(text, encoding), topic.type_hash, count, ext, self)
            self.connections.append(found)
        self.isopen = True

    def close(self) -> None:
        """Closes the bags."""
        self._bag = None
        self.connections = []
        self.isopen = False

    def __enter__(self) -> AnyReader:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self) -> Bag:
        if self._bag is None:
            raise AnyReaderError("Rosbag is not open.")
        return self._bag

    @property
    def start_time(self) -> int:
        """Log time of the first message in nanoseconds."""
        return self._opened().start

    @property
    def end_time(self) -> int:
        """The time after the last message in nanoseconds."""
        return self._opened().end + 1

    @property
    def duration(self) -> int:
        """Nanoseconds from the first message to after the last."""
        return self.end_time - self.start_time

    @property
    def message_count(self) -> int:
        """Number of messages."""
        return len(self._opened())

    @property
    def topics(self) -> dict[str, TopicInfo]:
        """The topics by name."""
        self._opened()
        return {found.topic: TopicInfo(found.msgtype, found.msgdef, found.msgcount, [found]) for found in self.connections}

    def messages(
        self, connections: Iterable[Connection] = (), start: int | None = None, stop: int | None = None
    ) -> Iterator[tuple[Connection, int, bytes]]:
        """Messages with their connection and log time, from ``start`` until before ``stop``."""
        bag = self._opened()
        wanted = list(connections)
        by_topic = {found.topic: found for found in self.connections}
        selection = Selection().within(start, stop).native()
        for message in bag._native.messages([found.topic for found in wanted], selection):
            yield by_topic[message.topic], message.time, message.raw

    def deserialize(self, rawdata: bytes, typ: str) -> Any:
        """A message of its CDR, whose fields can be set."""
        return _wrapped(_message_type(typ).decode(bytes(rawdata)))

    @functools.cached_property
    def typestore(self) -> Any:
        """The types of the bags: pip rosbags's own object where it is installed."""
        theirs = _theirs("typesys")
        if theirs is None:
            return Typestore()
        store = theirs.get_typestore(theirs.Stores.EMPTY)
        known: dict[str, Any] = {}
        for found in self.connections:
            text = found.msgdef.data or _message_type(found.msgtype).definition
            read = theirs.get_types_from_idl if found.msgdef.format.name == "IDL" else None
            known.update(read(text) if read else theirs.get_types_from_msg(text, found.msgtype))
        store.register(known)
        return store
