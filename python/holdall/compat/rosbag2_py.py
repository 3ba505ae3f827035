"""The interface of rosbag2's ``rosbag2_py``, as of Jazzy, on holdall."""

from __future__ import annotations

import copy
import datetime as dt
import enum
import importlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Sequence

from .. import _native, _program, _verbs
from .._bag import Bag
from .._errors import DefinitionError
from .._topic import Selection
from .._writer import Writer, create
from . import rclpy, rosidl

__all__ = [
    "BagMetadata", "CompressionMode", "CompressionOptions", "ConverterOptions", "Duration", "FileInformation", "Info",
    "LocalMessageDefinitionSource", "MessageDefinition", "MessageOrder", "MetadataIo", "PlayOptions", "Player", "ReadOrder", "ReadOrderSortBy",
    "RecordOptions", "Recorder", "Reindexer", "SequentialCompressionReader", "SequentialCompressionWriter", "SequentialReader", "SequentialWriter",
    "ServiceRequestsSource", "StorageFilter", "StorageOptions", "Timestamp", "TopicInformation", "TopicMetadata", "bag_rewrite",
    "compression_mode_from_string", "compression_mode_to_string", "get_default_storage_id", "get_registered_compressors",
    "get_registered_readers", "get_registered_serializers", "get_registered_writers",
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
        if others:
            raise TypeError(f"StorageOptions has no setting {', '.join(others)} in holdall")


def _expect_cdr(options: Any, *names: str) -> None:
    """Refuses another serialization format than the only one."""
    for name in names:
        if getattr(options, name, "") not in ("", "cdr"):
            raise NotImplementedError(f"{type(options).__name__}.{name} is {getattr(options, name)!r}: holdall has cdr only")


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


def Timestamp(nanoseconds: int = 0) -> Any:  # noqa: N802 - a class in rosbag2
    """A point in time: rclpy's, where ROS is installed."""
    return _rclpy("time").Time(nanoseconds=max(0, nanoseconds))


def Duration(nanoseconds: int = 0) -> Any:  # noqa: N802 - a class in rosbag2
    """A span: rclpy's, where ROS is installed."""
    return _rclpy("duration").Duration(nanoseconds=nanoseconds)


def _rclpy(module: str) -> Any:
    """A module of the real rclpy, or of the one that stands in for it."""
    found = sys.modules.get(f"rclpy.{module}")
    if found is not None:
        return found
    try:
        return importlib.import_module(f"rclpy.{module}")
    except ImportError:
        return rclpy


class FileInformation(_Record):
    """A storage file."""

    def __init__(self, path: str = "", starting_time: Any = None, duration: Any = None, message_count: int = 0) -> None:
        self.path = path
        self.starting_time = Timestamp() if starting_time is None else starting_time
        self.duration = Duration() if duration is None else duration
        self.message_count = message_count


class BagMetadata(_Record):
    """What a bag has."""

    def __init__(
        self,
        version: int = 9,
        bag_size: int = 0,
        storage_identifier: str = "",
        relative_file_paths: Sequence[str] = (),
        files: Sequence[FileInformation] = (),
        duration: Any = None,
        starting_time: Any = None,
        message_count: int = 0,
        topics_with_message_count: Sequence[TopicInformation] = (),
        compression_format: str = "",
        compression_mode: str = "",
        custom_data: dict[str, str] | None = None,
        ros_distro: str = "",
    ) -> None:
        self.version = version
        self.bag_size = bag_size
        self.storage_identifier = storage_identifier
        self.relative_file_paths = list(relative_file_paths)
        self.files = list(files)
        self.duration = Duration() if duration is None else duration
        self.starting_time = Timestamp() if starting_time is None else starting_time
        self.message_count = message_count
        self.topics_with_message_count = list(topics_with_message_count)
        self.compression_format = compression_format
        self.compression_mode = compression_mode
        self.custom_data = dict(custom_data or {})
        self.ros_distro = ros_distro


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
    folder = bag.paths[0] if os.path.isdir(bag.paths[0]) else os.path.dirname(bag.paths[0])
    try:
        found = MetadataIo().read_metadata(folder) if os.path.isdir(bag.paths[0]) else BagMetadata()
    except (OSError, RuntimeError):
        found = BagMetadata()
    about = bag.metadata
    found.bag_size = about["size_bytes"]
    found.storage_identifier = about["storages"][0] if about["storages"] else ""
    found.relative_file_paths = found.relative_file_paths or [os.path.relpath(file, folder or ".") for file in bag.files]
    found.duration, found.starting_time = Duration(bag.end - bag.start), Timestamp(bag.start)
    found.files = found.files or [FileInformation(path, found.starting_time, found.duration, len(bag)) for path in found.relative_file_paths[:1]]
    found.message_count = len(bag)
    topics = enumerate(about["topics"], 1)
    found.topics_with_message_count = [TopicInformation(_topic(number, info), info["count"]) for number, info in topics]
    found.compression_format = next(iter(filter(None, about["compressions"])), "")
    found.custom_data = about["custom_data"]
    found.ros_distro = next(iter(about["ros_distros"]), "")
    return found


class MetadataIo:
    """Reads and writes ``metadata.yaml``."""

    metadata_filename = "metadata.yaml"

    def _path(self, uri: str) -> Path:
        return Path(os.fspath(uri)) / self.metadata_filename

    def metadata_file_exists(self, uri: str) -> bool:
        """Whether a folder has one."""
        return self._path(uri).is_file()

    def read_metadata(self, uri: str) -> BagMetadata:
        """Reads that of a folder."""
        try:
            text = self._path(uri).read_text(encoding="utf-8")
        except OSError as error:
            raise RuntimeError(f"Exception on parsing info file: {error}") from error
        return self.deserialize_metadata(text)

    def write_metadata(self, uri: str, metadata: BagMetadata) -> None:
        """Writes that of a folder; one that is there is replaced."""
        path = self._path(uri)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            new.write_text(self.serialize_metadata(metadata), encoding="utf-8")
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)

    def serialize_metadata(self, metadata: BagMetadata) -> str:
        """Its text."""

        def start(time: Any) -> dict[str, int] | None:
            return {"nanoseconds_since_epoch": time.nanoseconds}

        def file(found: FileInformation) -> dict[str, Any]:
            return {
                "path": found.path,
                "starting_time": start(found.starting_time),
                "duration": {"nanoseconds": found.duration.nanoseconds},
                "message_count": found.message_count,
            }

        def topic(found: TopicInformation) -> dict[str, Any]:
            return {"topic_metadata": _topic_dict(found.topic_metadata), "message_count": found.message_count}

        about = {
            "version": metadata.version,
            "storage_identifier": metadata.storage_identifier,
            "duration": {"nanoseconds": metadata.duration.nanoseconds},
            "starting_time": start(metadata.starting_time),
            "message_count": metadata.message_count,
            "topics_with_message_count": [topic(found) for found in metadata.topics_with_message_count],
            "compression_format": metadata.compression_format,
            "compression_mode": metadata.compression_mode,
            "relative_file_paths": metadata.relative_file_paths,
            "files": [file(found) for found in metadata.files],
            "custom_data": metadata.custom_data,
            "ros_distro": metadata.ros_distro or None,
        }
        return _native.metadata_to_yaml(json.dumps(about))

    def deserialize_metadata(self, serialized_metadata: str) -> BagMetadata:
        """Of its text."""
        try:
            about = json.loads(_native.metadata_of_yaml(serialized_metadata))
        except ValueError as error:
            raise RuntimeError(f"Exception on parsing info file: {error}") from error

        def start(found: dict[str, Any]) -> Any:
            return Timestamp((found["starting_time"] or {"nanoseconds_since_epoch": 0})["nanoseconds_since_epoch"])

        def span(found: dict[str, Any]) -> Any:
            return Duration(found["duration"]["nanoseconds"])

        topics = enumerate(about["topics_with_message_count"], 1)
        return BagMetadata(
            version=about["version"],
            storage_identifier=about["storage_identifier"],
            relative_file_paths=about["relative_file_paths"],
            files=[FileInformation(found["path"], start(found), span(found), found["message_count"]) for found in about["files"]],
            duration=span(about),
            starting_time=start(about),
            message_count=about["message_count"],
            topics_with_message_count=[TopicInformation(_topic(number, found["topic_metadata"]), found["message_count"]) for number, found in topics],
            compression_format=about["compression_format"],
            compression_mode=about["compression_mode"],
            custom_data=about["custom_data"],
            ros_distro=about["ros_distro"] or "",
        )


def _qos(profiles: Any) -> list[dict[str, Any]] | None:
    """QoS profiles as the metadata of a bag has them: dicts, profiles of rclpy, or a text of a bag of before Jazzy."""
    if isinstance(profiles, str) or profiles is None:
        return None
    return [profile if isinstance(profile, dict) else rclpy.to_metadata(profile) for profile in profiles] or None


def _topic_dict(topic: TopicMetadata) -> dict[str, Any]:
    """A topic as the metadata of a bag has it."""
    return {
        "name": topic.name,
        "type": topic.type,
        "serialization_format": topic.serialization_format,
        "offered_qos_profiles": _qos(topic.offered_qos_profiles) or [],
        "type_description_hash": topic.type_description_hash,
    }


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
        _expect_cdr(converter_options, "input_serialization_format", "output_serialization_format")
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
        selection = selection.but(time="publish_time" if self._order.sort_by is ReadOrderSortBy.PublishedTimestamp else "log_time")
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
        _expect_cdr(converter_options, "input_serialization_format", "output_serialization_format")
        for name, is_set in (("snapshot_mode", storage_options.snapshot_mode), ("custom_data", storage_options.custom_data)):
            if is_set:
                raise NotImplementedError(f"StorageOptions.{name} of a writer is not there in holdall")
        if self._compression.compression_mode is not CompressionMode.NONE and self._compression.compression_format not in ("", "zstd"):
            raise NotImplementedError(f"CompressionOptions.compression_format is {self._compression.compression_format!r}: holdall has zstd only")
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
            warn=False,
        )

    def _opened(self) -> Writer:
        if self._writer is None:
            raise RuntimeError("Bag is not open. Call open() before writing.")
        return self._writer

    def create_topic(self, topic: TopicMetadata, message_definition: MessageDefinition | None = None) -> None:
        """Adds a topic."""
        text = message_definition.encoded_message_definition if message_definition else None
        qos = _qos(topic.offered_qos_profiles)
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


def get_default_storage_id() -> str:
    """The storage of bags that name none."""
    return "mcap"


def bag_rewrite(input_options: Sequence[StorageOptions], output_config_file: str) -> None:
    """Makes the bags that a YAML file lists under ``output_bags`` from others, as ``ros2 bag convert`` does."""
    _program.run("convert", [options.uri for options in input_options], output=os.fspath(output_config_file))


class LocalMessageDefinitionSource:
    """Definitions of installed packages; here those of ROS 2's own, and of bags that were opened."""

    def get_full_text(self, topic_type: str) -> MessageDefinition:
        """The definition of a type, with those of all nested types."""
        found = rosidl._message_type(topic_type)
        return MessageDefinition(topic_type, "ros2msg", found.definition, found.hash)


class ServiceRequestsSource(enum.Enum):
    """Whose requests of services are played."""

    SERVICE_INTROSPECTION = 0
    CLIENT_INTROSPECTION = 1


class MessageOrder(enum.Enum):
    """By which time messages are played."""

    RECEIVED_TIMESTAMP = 0
    SENT_TIMESTAMP = 1


class _Options(_Record):
    """Settings with defaults, which are attributes; an unknown one is an error."""

    _defaults: dict[str, Any] = {}
    #: The flags of the verb by setting.
    _names: dict[str, str] = {}
    #: Settings that change neither what is recorded nor what is played.
    _without_effect: frozenset[str] = frozenset()
    _milliseconds: frozenset[str] = frozenset()
    _words: dict[Any, str] = {}

    def __init__(self, **settings: Any) -> None:
        for name, value in self._defaults.items():
            vars(self)[name] = copy.copy(value)
        for name, value in settings.items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no setting {name}; it has {', '.join(self._defaults)}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults:
            raise AttributeError(f"{type(self).__name__} has no setting {name}; it has {', '.join(self._defaults)}")
        vars(self)[name] = value

    def _changed(self) -> dict[str, Any]:
        """The settings that are not the defaults."""
        return {name: value for name, value in vars(self).items() if value != self._defaults[name]}

    def _flags(self) -> dict[str, Any]:
        """Keywords of the verb; what it cannot do is an error."""
        _expect_cdr(self, "input_serialization_format", "output_serialization_format")
        flags: dict[str, Any] = {}
        for name, value in self._changed().items():
            flag = self._names.get(name)
            if flag is None and name not in self._without_effect:
                raise NotImplementedError(f"{type(self).__name__}.{name} is not there in holdall")
            if isinstance(value, enum.Enum):
                value = self._words[value]
            elif name in self._milliseconds:
                value = round(_seconds(value) * 1000) if isinstance(value, dt.timedelta) or hasattr(value, "nanoseconds") else value
            elif isinstance(value, dt.timedelta) or hasattr(value, "nanoseconds"):
                value = _seconds(value)
            if flag and isinstance(value, list):
                # Two settings may be one flag.
                flags[flag] = [*flags.get(flag, []), *value]
            elif flag:
                flags[flag] = value
        return flags


class RecordOptions(_Options):
    """What is recorded."""

    _defaults = {
        "all_topics": False, "all_services": False, "all_actions": False, "is_discovery_disabled": False, "topics": [], "topic_types": [],
        "services": [], "actions": [], "exclude_topics": [], "exclude_topic_types": [], "exclude_service_events": [], "exclude_actions": [],
        "rmw_serialization_format": "", "input_serialization_format": "", "output_serialization_format": "",
        "topic_polling_interval": dt.timedelta(milliseconds=100), "regex": "", "exclude_regex": "", "node_prefix": "", "compression_mode": "",
        "compression_format": "", "compression_queue_size": 1, "compression_threads": 0, "compression_threads_priority": 0,
        "topic_qos_profile_overrides": {}, "include_hidden_topics": False, "include_unpublished_topics": False, "ignore_leaf_topics": False,
        "start_paused": False, "use_sim_time": False, "disable_keyboard_controls": False,
    }
    _names = {
        "all_topics": "all_topics", "all_services": "all_services", "all_actions": "all_actions", "is_discovery_disabled": "no_discovery",
        "topics": "topics", "topic_types": "topic_types", "services": "services", "actions": "actions", "exclude_topics": "exclude_topics",
        "exclude_topic_types": "exclude_topic_types", "exclude_service_events": "exclude_services", "exclude_actions": "exclude_actions",
        "regex": "regex", "exclude_regex": "exclude_regex", "compression_mode": "compression_mode", "compression_format": "compression_format",
        "include_hidden_topics": "include_hidden_topics", "include_unpublished_topics": "include_unpublished_topics",
        "ignore_leaf_topics": "ignore_leaf_topics", "start_paused": "start_paused", "use_sim_time": "use_sim_time",
        "topic_polling_interval": "polling_interval", "compression_queue_size": "compression_queue_size",
        "compression_threads": "compression_threads", "compression_threads_priority": "compression_threads_priority",
        "rmw_serialization_format": "serialization_format",
    }
    # The program has no terminal; formats were compared before.
    _without_effect = frozenset({"disable_keyboard_controls", "input_serialization_format", "output_serialization_format"})
    _milliseconds = frozenset({"topic_polling_interval"})


class PlayOptions(_Options):
    """What is played, and how."""

    _defaults = {
        "read_ahead_queue_size": 1000, "node_prefix": "", "rate": 1.0, "topics_to_filter": [], "services_to_filter": [], "actions_to_filter": [],
        "regex_to_filter": "", "exclude_regex_to_filter": "", "exclude_topics_to_filter": [], "exclude_service_events_to_filter": [],
        "exclude_services_to_filter": [], "exclude_actions_to_filter": [], "topic_qos_profile_overrides": {}, "loop": False,
        "topic_remapping_options": [], "clock_publish_frequency": 0.0, "clock_publish_on_topic_publish": False, "clock_trigger_topics": [],
        "delay": 0.0, "playback_duration": -1.0, "playback_until_timestamp": -1, "start_paused": False, "start_offset": 0.0,
        "disable_keyboard_controls": False, "wait_acked_timeout": -1, "disable_loan_message": False, "publish_service_requests": False,
        "send_actions_as_client": False, "service_requests_source": ServiceRequestsSource.SERVICE_INTROSPECTION,
        "message_order": MessageOrder.RECEIVED_TIMESTAMP, "progress_bar_update_rate": 3, "progress_bar_separation_lines": 3,
    }
    _names = {
        "rate": "rate", "topics_to_filter": "topics", "services_to_filter": "services", "actions_to_filter": "actions", "regex_to_filter": "regex",
        "exclude_regex_to_filter": "exclude_regex", "exclude_topics_to_filter": "exclude_topics",
        "exclude_service_events_to_filter": "exclude_services", "exclude_services_to_filter": "exclude_services",
        "exclude_actions_to_filter": "exclude_actions", "loop": "loop", "clock_publish_frequency": "clock",
        "clock_publish_on_topic_publish": "clock_topics_all", "clock_trigger_topics": "clock_topics", "delay": "delay",
        "playback_duration": "playback_duration", "start_paused": "start_paused", "start_offset": "start_offset",
        "publish_service_requests": "publish_service_requests", "send_actions_as_client": "send_actions_as_client",
        "service_requests_source": "service_requests_source", "message_order": "message_order", "read_ahead_queue_size": "read_ahead_queue_size",
        "wait_acked_timeout": "wait_for_all_acked", "disable_loan_message": "disable_loan_message",
        "progress_bar_update_rate": "progress_bar_update_rate", "progress_bar_separation_lines": "progress_bar_separation_lines",
        "playback_until_timestamp": "playback_until_nsec", "topic_remapping_options": "remap",
    }
    _without_effect = frozenset({"disable_keyboard_controls"})
    _words = {
        ServiceRequestsSource.SERVICE_INTROSPECTION: "service_introspection", ServiceRequestsSource.CLIENT_INTROSPECTION: "client_introspection",
        MessageOrder.RECEIVED_TIMESTAMP: "received", MessageOrder.SENT_TIMESTAMP: "sent",
    }

    def _flags(self) -> dict[str, Any]:
        flags = super()._flags()
        # A negative span or time is none, as the defaults are.
        for name in ("playback_duration", "playback_until_nsec", "wait_for_all_acked"):
            if flags.get(name, 0) < 0:
                del flags[name]
        words = [word for word in flags.pop("remap", []) if word not in ("--ros-args", "--remap", "-r")]
        unknown = [word for word in words if ":=" not in word]
        if unknown:
            raise NotImplementedError(f"PlayOptions.topic_remapping_options has {unknown[0]!r}: holdall remaps topics only (/a:=/b)")
        return {**flags, **({"remap": words} if words else {})}


def _seconds(span: Any) -> Any:
    """A span of rclpy or datetime, or a number, in seconds."""
    if hasattr(span, "nanoseconds"):
        return span.nanoseconds / 1e9
    return span.total_seconds() if isinstance(span, dt.timedelta) else span


#: What :meth:`Recorder.cancel` and :meth:`Player.cancel` end.
_running: list[Any] = []


def _until_end(started: Any) -> dict[str, Any]:
    """Waits until it ends by itself, or is cancelled; Ctrl-C stops it."""
    _running.append(started)
    try:
        with started:
            return dict(started.wait())
    finally:
        _running.remove(started)


def _log_level(level: str) -> dict[str, Any]:
    return {} if level == "info" else {"log_level": level}


class Recorder:
    """Records: the program ``holdall`` does, beside this process."""

    def __init__(self, log_level: str = "info") -> None:
        self.report: dict[str, Any] = {}
        self._log = _log_level(log_level)

    def record(self, storage_options: StorageOptions, record_options: RecordOptions, node_name: str = "rosbag2_recorder") -> None:
        """Records until :meth:`cancel` is called (by another thread, or a signal handler)."""
        flags = {**self._log, **record_options._flags(), **_stored(storage_options)}
        if node_name != "rosbag2_recorder":
            flags["node_name"] = node_name
        self.report = _until_end(_verbs.record(storage_options.uri, flags.pop("topics", []), **flags))

    @staticmethod
    def cancel() -> None:
        """Ends all recordings of this process."""
        for started in list(_running):
            if isinstance(started, _program.Recording):
                started.stop()


def _stored(options: StorageOptions) -> dict[str, Any]:
    """The storage of a recording as keywords of the verb."""
    if options.start_time_ns >= 0 or options.end_time_ns >= 0:
        raise NotImplementedError("StorageOptions.start_time_ns and .end_time_ns are of readers: a recording has no part of its time")
    flags = {
        "storage": options.storage_id,
        "max_bag_size": options.max_bagfile_size,
        "max_bag_duration": options.max_bagfile_duration,
        "max_cache_size": options.max_cache_size,
        "storage_preset_profile": options.storage_preset_profile,
        "storage_config_file": options.storage_config_uri,
        "snapshot_mode": options.snapshot_mode,
        "custom_data": [f"{name}={value}" for name, value in options.custom_data.items()],
    }
    return {name: value for name, value in flags.items() if value}


class Player:
    """Plays: the program ``holdall`` does, beside this process."""

    def __init__(self, log_level: str = "info") -> None:
        self.report: dict[str, Any] = {}
        self._log = _log_level(log_level)

    def play(self, storage_options: Any, play_options: PlayOptions) -> None:
        """Plays one bag, or several, until the end."""
        several = storage_options if isinstance(storage_options, (list, tuple)) else [storage_options]
        bags = [os.fspath(options.uri) for options in several]
        self.report = _until_end(_program.Playback(["--", *bags], {**self._log, **play_options._flags()}, None))

    @staticmethod
    def cancel() -> None:
        """Ends all playbacks of this process."""
        for started in list(_running):
            if isinstance(started, _program.Playback):
                started.stop()


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
_storage = _reader = _writer = _info = _reindexer = _transport = _message_definitions = _compression_options = sys.modules[__name__]
