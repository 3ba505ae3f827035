"""The flags of the verbs as keywords, for type checkers and completion; ``holdall VERB --help`` explains them."""

from __future__ import annotations

import os
from typing import Sequence, TypedDict, Union

AnyPath = Union[str, "os.PathLike[str]"]
#: A text, or several.
Texts = Union[str, Sequence[str]]
#: A number, or a text with its unit (``"10MB"``, ``"500ms"``) or a time (``"12:30:05"``).
Number = Union[int, float, str]


class _Form(TypedDict, total=False):
    storage: str
    storage_preset_profile: str
    storage_config_file: AnyPath
    compression: str
    level: int
    compression_mode: str
    no_latched_state: bool
    custom_data: Texts
    encrypt_to: str
    identity: AnyPath
    definitions: AnyPath


class _Choice(TypedDict, total=False):
    topics: Texts
    topic_types: Texts
    services: Texts
    regex: str
    exclude_topics: Texts
    exclude_topic_types: Texts
    exclude_services: Texts
    exclude_regex: str
    publisher: Texts
    start: Number
    end: Number
    max_rate: Number
    where: str


class _Change(TypedDict, total=False):
    set: str
    rename: Texts
    frame: Texts
    shift_time: Number


class _Division(TypedDict, total=False):
    max_bag_size: Number
    max_bag_duration: Number
    max_bag_messages: int
    at: Union[Number, Sequence[Number]]


class MergeOptions(_Form, _Division, total=False):
    """The flags of ``holdall merge``."""


class FilterOptions(_Form, _Choice, _Change, total=False):
    """The flags of ``holdall filter``."""


class ConvertOptions(_Form, _Choice, _Change, _Division, total=False):
    """The flags of ``holdall convert``."""

    input_options: AnyPath


class ExportOptions(TypedDict, total=False):
    """The flags of ``holdall export``."""

    topics: Texts
    topic_types: Texts
    regex: str
    exclude_topics: Texts
    exclude_regex: str
    where: str
    time: str
    start: Number
    end: Number
    start_offset: Number
    duration: Number
    definitions: AnyPath
    count: int
    mapping: AnyPath
    overwrite: bool
    quality: int
    identity: AnyPath
    flat: bool


class SplitOptions(_Form, _Division, total=False):
    """The flags of ``holdall split``."""


class DiffOptions(TypedDict, total=False):
    """The flags of ``holdall diff``."""

    summary: bool
    count: int
    fields: bool
    definitions: AnyPath
    identity: AnyPath


class InfoOptions(TypedDict, total=False):
    """The flags of ``holdall info`` that a report has."""

    storage: str
    identity: AnyPath


class PlotOptions(TypedDict, total=False):
    """The flags of ``holdall plot``."""

    topics: Texts
    time: str
    start: Number
    end: Number
    start_offset: Number
    duration: Number
    overwrite: bool
    definitions: AnyPath
    identity: AnyPath


class CompressOptions(TypedDict, total=False):
    """The flags of ``holdall compress``."""

    mode: str
    compression: str
    level: int
    encrypt_to: str
    identity: AnyPath


class DecompressOptions(TypedDict, total=False):
    """The flags of ``holdall decompress``."""

    encrypt_to: str
    identity: AnyPath


class UploadOptions(TypedDict, total=False):
    """The flags of ``holdall upload``."""

    limit_rate: Number
    schedule: str
    delete_after_verify: bool
    overwrite: bool
    identity: AnyPath


class AttachOptions(TypedDict, total=False):
    """The flags of ``holdall attach``."""

    name: str
    media_type: str
    metadata: str
    entry: Texts
    remove: str
    identity: AnyPath
