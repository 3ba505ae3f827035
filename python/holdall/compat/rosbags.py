"""``AnyReader`` as pip rosbags has it, on holdall."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .._bag import Bag, Selection
from .._errors import Error
from .rosidl import _message_type, define


class AnyReaderError(Error):
    """A bag that cannot be read."""


class Connection(NamedTuple):
    """A topic of the bags."""

    id: int
    topic: str
    msgtype: str
    msgdef: str
    digest: str
    msgcount: int
    ext: Any
    owner: Any


class TopicInfo(NamedTuple):
    """A topic and its connections."""

    msgtype: str | None
    msgdef: str
    msgcount: int
    connections: list[Connection]


class AnyReader:
    """Reads bags of ROS 1 and ROS 2 as one, in order of time."""

    def __init__(self, paths: Sequence[Path | str], *, default_typestore: Any = None) -> None:
        self.paths = [Path(path) for path in paths]
        if not self.paths:
            raise AnyReaderError("Must call with at least one path.")
        self.is2 = not any(path.suffix == ".bag" for path in self.paths)
        self.isopen = False
        self.connections: list[Connection] = []
        self._bag: Bag | None = None

    def open(self) -> None:
        """Opens the bags."""
        self._bag = Bag([os.fspath(path) for path in self.paths])
        for number, topic in enumerate(self._bag.topics.values(), 1):
            definition = topic.definition
            define(topic.type, definition)
            count = topic._info["count"]
            self.connections.append(Connection(number, topic.name, topic.type, definition, topic.type_hash, count, None, self))
        self.isopen = True

    def close(self) -> None:
        """Closes the bags."""
        self._bag = None
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
        """A message of its CDR."""
        return _message_type(typ).decode(rawdata)
