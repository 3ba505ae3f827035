"""The interface of rosbag2's ``rosbag2_py``, as of Jazzy, on holdall."""

from __future__ import annotations

import datetime as dt
import enum
import os
import re
import sys
from pathlib import Path
from typing import Any, Sequence

from .. import _program
from .._bag import Bag, Selection
from .._errors import DefinitionError
from .._writer import Writer, create
from . import rosidl

__all__ = [
    "BagMetadata", "CompressionMode", "CompressionOptions", "ConverterOptions", "Duration", "FileInformation", "Info", "MessageDefinition",
    "ReadOrder", "ReadOrderSortBy", "Reindexer", "SequentialCompressionReader", "SequentialCompressionWriter", "SequentialReader",
    "SequentialWriter", "StorageFilter", "StorageOptions", "Timestamp", "TopicInformation", "TopicMetadata", "compression_mode_from_string",
    "compression_mode_to_string", "get_registered_compressors", "get_registered_readers", "get_registered_serializers", "get_registered_writers",
]


class _Record:
    """An object with fields that keywords set."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class StorageOptions(_Record):
    """Where a bag is, and how it is stored."""

    def __init__(
        self,
        uri: str = "",
        storage_id: str = "",
        max_bagfile_size: int = 0,
        max_bagfile_duration: int = 0,
        max_cache_size: int = 0,
        storage_preset_profile: str = "",
        storage_config_uri: str = "",
        snapshot_mode: bool = False,
        start_time_ns: int = -1,
        end_time_ns: int = -1,
        custom_data: dict[str, str] | None = None,
        **others: Any,
    ) -> None:
        self.uri = os.fspath(uri)
        self.storage_id = storage_id
        self.max_bagfile_size = max_bagfile_size
        self.max_bagfile_duration = max_bagfile_duration
        self.max_cache_size = max_cache_size
        self.storage_preset_profile = storage_preset_profile
        self.storage_config_uri = storage_config_uri
        self.snapshot_mode = snapshot_mode
        self.start_time_ns = start_time_ns
        self.end_time_ns = end_time_ns
        self.custom_data = custom_data or {}
        vars(self).update(others)


class ConverterOptions(_Record):
    """Serialization formats; only ``cdr`` exists."""

    def __init__(self, input_serialization_format: str = "", output_serialization_format: str = "") -> None:
        self.input_serialization_format = input_serialization_format
        self.output_serialization_format = output_serialization_format


class StorageFilter(_Record):
    """Which topics are read."""

    def __init__(
        self,
        topics: Sequence[str] = (),
        services_events: Sequence[str] = (),
        regex: str = "",
        exclude_topics: Sequence[str] = (),
        exclude_service_events: Sequence[str] = (),
        regex_to_exclude: str = "",
        topics_regex: str = "",
        topics_regex_to_exclude: str = "",
    ) -> None:
        self.topics = list(topics)
        self.services_events = list(services_events)
        self.regex = regex or topics_regex
        self.exclude_topics = list(exclude_topics)
        self.exclude_service_events = list(exclude_service_events)
        self.regex_to_exclude = regex_to_exclude or topics_regex_to_exclude

    def takes(self, topic: str) -> bool:
        """Whether messages of a topic are read."""
        if topic in self.exclude_topics or topic in self.exclude_service_events:
            return False
        if self.regex_to_exclude and re.search(self.regex_to_exclude, topic):
            return False
        named = [*self.topics, *self.services_events]
        if not named and not self.regex:
            return True
        return topic in named or bool(self.regex and re.search(self.regex, topic))


class TopicMetadata(_Record):
    """A topic."""

    def __init__(
        self,
        id: int = 0,  # noqa: A002 - rosbag2's name
        name: str = "",
        type: str = "",  # noqa: A002 - rosbag2's name
        serialization_format: str = "cdr",
        offered_qos_profiles: Any = (),
        type_description_hash: str = "",
    ) -> None:
        self.id = id
        self.name = name
        self.type = type
        self.serialization_format = serialization_format
        self.offered_qos_profiles = offered_qos_profiles
        self.type_description_hash = type_description_hash

    def equals(self, other: TopicMetadata) -> bool:
        """Whether both are the same topic."""
        return self.name == other.name and self.type == other.type and self.serialization_format == other.serialization_format


class MessageDefinition(_Record):
    """The definition of a message type."""

    def __init__(self, topic_type: str = "", encoding: str = "", encoded_message_definition: str = "", type_hash: str = "") -> None:
        self.topic_type = topic_type
        self.encoding = encoding
        self.encoded_message_definition = encoded_message_definition
        self.type_hash = type_hash


class TopicInformation(_Record):
    """A topic and its number of messages."""

    def __init__(self, topic_metadata: TopicMetadata, message_count: int) -> None:
        self.topic_metadata = topic_metadata
        self.message_count = message_count


class Timestamp(_Record):
    """A point in time."""

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds = nanoseconds


class Duration(_Record):
    """A span."""

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds = nanoseconds


class FileInformation(_Record):
    """A storage file."""

    def __init__(self, path: str, starting_time: Any, duration: Any, message_count: int) -> None:
        self.path = path
        self.starting_time = starting_time
        self.duration = duration
        self.message_count = message_count


class BagMetadata(_Record):
    """What a bag has."""

    version: int
    bag_size: int
    storage_identifier: str
    relative_file_paths: list[str]
    files: list[FileInformation]
    duration: Any
    starting_time: Any
    message_count: int
    topics_with_message_count: list[TopicInformation]
    compression_format: str
    compression_mode: str
    custom_data: dict[str, str]
    ros_distro: str


class ReadOrderSortBy(enum.Enum):
    """What messages are sorted by."""

    ReceivedTimestamp = 0
    PublishedTimestamp = 1
    File = 2


class ReadOrder(_Record):
    """The order of messages."""

    def __init__(self, sort_by: ReadOrderSortBy = ReadOrderSortBy.ReceivedTimestamp, reverse: bool = False) -> None:
        self.sort_by = sort_by
        self.reverse = reverse


class CompressionMode(enum.Enum):
    """What rosbag2's own compression packs."""

    NONE = 0
    FILE = 1
    MESSAGE = 2


class CompressionOptions(_Record):
    """rosbag2's own compression."""

    def __init__(
        self,
        compression_format: str = "",
        compression_mode: CompressionMode = CompressionMode.NONE,
        compression_queue_size: int = 1,
        compression_threads: int = 0,
        compression_threads_priority: int = 0,
    ) -> None:
        self.compression_format = compression_format
        self.compression_mode = compression_mode
        self.compression_queue_size = compression_queue_size
        self.compression_threads = compression_threads
        self.compression_threads_priority = compression_threads_priority


def compression_mode_from_string(text: str) -> CompressionMode:
    """The mode of this name."""
    return CompressionMode[text.upper() or "NONE"]


def compression_mode_to_string(mode: CompressionMode) -> str:
    """The mode's name."""
    return mode.name


def _topic(number: int, info: dict[str, Any]) -> TopicMetadata:
    return TopicMetadata(
        number,
        info["name"],
        info["type"],
        info["serialization_format"] or "cdr",
        info["offered_qos_profiles"],
        info["type_description_hash"],
    )


def _metadata(bag: Bag) -> BagMetadata:
    about = bag.metadata
    found = BagMetadata()
    found.version = 9
    found.bag_size = about["size_bytes"]
    found.storage_identifier = about["storages"][0] if about["storages"] else ""
    folder = bag.paths[0] if os.path.isdir(bag.paths[0]) else os.path.dirname(bag.paths[0])
    found.relative_file_paths = [os.path.relpath(file, folder or ".") for file in bag.files]
    start = dt.datetime.fromtimestamp(bag.start / 1e9, dt.timezone.utc)
    duration = dt.timedelta(microseconds=(bag.end - bag.start) / 1000)
    found.files = [FileInformation(path, start, duration, len(bag)) for path in found.relative_file_paths[:1]]
    found.duration, found.starting_time = Duration(bag.end - bag.start), Timestamp(bag.start)
    found.message_count = len(bag)
    topics = enumerate(about["topics"], 1)
    found.topics_with_message_count = [TopicInformation(_topic(number, info), info["count"]) for number, info in topics]
    found.compression_format = next(iter(filter(None, about["compressions"])), "")
    found.compression_mode = ""
    found.custom_data = about["custom_data"]
    found.ros_distro = next(iter(about["ros_distros"]), "")
    return found


class SequentialReader:
    """Reads a bag in order of time."""

    def __init__(self) -> None:
        self._bag: Bag | None = None
        self._filter = StorageFilter()
        self._order = ReadOrder()
        self._start: int | None = None
        self._end: int | None = None
        self._messages: Any = None
        self._next: Any = None

    def open(self, storage_options: StorageOptions, converter_options: ConverterOptions | None = None) -> None:
        """Opens a bag."""
        self._bag = Bag([storage_options.uri])
        self._start = storage_options.start_time_ns if storage_options.start_time_ns >= 0 else None
        self._end = storage_options.end_time_ns + 1 if storage_options.end_time_ns >= 0 else None
        for topic in self._bag.topics.values():
            rosidl.define(topic.type, topic.definition)
        self._begin()

    def open_uri(self, uri: str) -> None:
        """Opens a bag by its path."""
        self.open(StorageOptions(uri))

    def close(self) -> None:
        """Closes the bag."""
        if self._messages is not None:
            self._messages.close()
        self._bag = self._messages = self._next = None

    def _opened(self) -> Bag:
        if self._bag is None:
            raise RuntimeError("Bag is not open. Call open() before reading.")
        return self._bag

    def _begin(self) -> None:
        bag = self._opened()
        if self._messages is not None:
            self._messages.close()
        topics = [name for name in bag.topics if self._filter.takes(name)]
        selection = Selection().within(self._start, self._end)
        selection = selection.but(by_publish_time=self._order.sort_by is ReadOrderSortBy.PublishedTimestamp)
        if topics:
            self._messages = bag._native.messages(topics, selection.native())
            if self._order.reverse:
                self._messages = _Reversed(self._messages)
        else:
            self._messages = _Reversed(())
        self._next = next(self._messages, None)

    def set_read_order(self, order: ReadOrder) -> bool:
        """Sets the order; the whole bag is read into memory to read it backwards."""
        self._order = order
        if self._bag is not None:
            self._begin()
        return True

    def has_next(self) -> bool:
        """Whether there is another message."""
        self._opened()
        return self._next is not None

    def read_next(self) -> tuple[str, bytes, int]:
        """The next message: its topic, its CDR, its log time in nanoseconds."""
        message = self._take()
        return message.topic, message.raw, message.time

    def _take(self) -> Any:
        self._opened()
        if self._next is None:
            raise RuntimeError("Bag is at end. No next message.")
        message, self._next = self._next, next(self._messages, None)
        return message

    def seek(self, timestamp: int) -> None:
        """Continues with the first message at this time or later."""
        self._start = timestamp
        self._begin()

    def set_filter(self, storage_filter: StorageFilter) -> None:
        """Reads only what the filter takes, from the present time on."""
        self._filter = storage_filter
        if self._bag is not None:
            if self._next is not None:
                self._start = self._next.time
            self._begin()

    def reset_filter(self) -> None:
        """Reads all topics again."""
        self.set_filter(StorageFilter())

    def get_metadata(self) -> BagMetadata:
        """What the bag has."""
        return _metadata(self._opened())

    def get_all_topics_and_types(self) -> list[TopicMetadata]:
        """The topics."""
        return [_topic(number, info) for number, info in enumerate(self._opened().metadata["topics"], 1)]

    def get_all_message_definitions(self) -> list[MessageDefinition]:
        """The definitions of all types."""
        bag = self._opened()
        types = {topic.type: topic for topic in bag.topics.values()}
        found = [(name, topic, bag._native.definition(name)) for name, topic in types.items()]
        return [MessageDefinition(name, text[1], text[0], topic.type_hash) for name, topic, text in found if text]

    def has_next_file(self) -> bool:
        """Whether the bag continues in another file; files are not seen one by one here."""
        return False


class _Reversed:
    """Messages from the last to the first."""

    def __init__(self, messages: Any) -> None:
        self._messages = list(messages)

    def __next__(self) -> Any:
        if not self._messages:
            raise StopIteration
        return self._messages.pop()

    def __iter__(self) -> _Reversed:
        return self

    def close(self) -> None:
        """Drops what was not read."""
        self._messages = []


SequentialCompressionReader = SequentialReader


class SequentialWriter:
    """Writes a bag."""

    def __init__(self, compression_options: CompressionOptions | None = None) -> None:
        self._compression = compression_options or CompressionOptions()
        self._writer: Writer | None = None
        self._topics: dict[str, TopicMetadata] = {}

    def open(self, storage_options: StorageOptions, converter_options: ConverterOptions | None = None) -> None:
        """Creates a bag."""
        config = None
        if storage_options.storage_config_uri:
            config = Path(storage_options.storage_config_uri).read_text(encoding="utf-8")
        self._writer = create(
            storage_options.uri,
            storage=storage_options.storage_id or "mcap",
            preset=storage_options.storage_preset_profile or None,
            config=config,
            compression_mode=self._compression.compression_mode.name.lower(),
            max_bytes=storage_options.max_bagfile_size or None,
            max_duration=storage_options.max_bagfile_duration or None,
        )

    def _opened(self) -> Writer:
        if self._writer is None:
            raise RuntimeError("Bag is not open. Call open() before writing.")
        return self._writer

    def create_topic(self, topic: TopicMetadata, message_definition: MessageDefinition | None = None) -> None:
        """Adds a topic."""
        text = message_definition.encoded_message_definition if message_definition else None
        profiles = topic.offered_qos_profiles
        qos = list(profiles) if isinstance(profiles, (list, tuple)) and all(isinstance(profile, dict) for profile in profiles) else None
        self._topics[topic.name] = topic
        try:
            self._opened().add_topic(topic.name, topic.type, definition=text, qos=qos)
        except DefinitionError:
            # rosbag2 finds it in the installed packages; here it is in a bag that was opened.
            text = rosidl.definition(topic.type)
            if not text:
                raise
            self._opened().add_topic(topic.name, topic.type, definition=text, qos=qos)

    def remove_topic(self, topic: TopicMetadata) -> None:
        """Forgets a topic; a bag keeps those that it has."""
        self._topics.pop(topic.name, None)

    def write(self, topic_name: str, message: bytes, timestamp: int, sequence_number: int = 0) -> None:
        """Writes a serialized message."""
        if topic_name not in self._topics:
            raise RuntimeError(f'Topic "{topic_name}" has not been created yet! Call "create_topic" first.')
        self._opened().write(topic_name, self._topics[topic_name].type, bytes(message), timestamp)

    def take_snapshot(self) -> bool:
        """There is no snapshot mode here: everything was written."""
        return False

    def close(self) -> None:
        """Ends the bag."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def __del__(self) -> None:
        # rosbag2's writer closes its bag where it is dropped.
        self.close()


class SequentialCompressionWriter(SequentialWriter):
    """Writes a bag with rosbag2's own compression."""


class Info:
    """Reads the metadata of bags."""

    def read_metadata(self, uri: str, storage_id: str = "") -> BagMetadata:
        """What a bag has."""
        return _metadata(Bag([os.fspath(uri)]))

    def print_output(self, *_: Any) -> None:
        """Prints the metadata."""
        raise NotImplementedError("print the bag: print(holdall.open(uri))")


class Reindexer:
    """Makes metadata anew."""

    def reindex(self, storage_options: StorageOptions) -> None:
        """Makes ``metadata.yaml`` of a bag anew from its files."""
        _program.run("reindex", storage_options.uri)


def get_registered_readers() -> set[str]:
    """The storages that can be read."""
    return {"mcap", "sqlite3", "leveldb"}


def get_registered_writers() -> set[str]:
    """The storages that can be written."""
    return {"mcap", "sqlite3", "leveldb"}


def get_registered_compressors() -> set[str]:
    """rosbag2's own compressions."""
    return {"zstd"}


def get_registered_serializers() -> set[str]:
    """Serialization formats."""
    return {"cdr"}


# The modules of the real package, by which scripts name its classes.
_storage = _reader = _writer = _info = _reindexer = _message_definitions = _compression_options = sys.modules[__name__]
