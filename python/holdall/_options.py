"""The flags of the verbs as keywords, for type checkers and completion; ``holdall VERB --help`` explains them.

scripts/python-options.py writes this file from the program's own table.
"""

from __future__ import annotations

import datetime as dt
import os
from typing import Literal, Sequence, TypedDict, TypeVar, Union

_T = TypeVar("_T")
AnyPath = Union[str, "os.PathLike[str]"]
#: A number, a text with its unit (``"10MB"``, ``"500ms"``) or a time (``"2026-11-25T12:03:11"``), a date, a span.
Number = Union[int, float, str, dt.datetime, dt.timedelta]
#: One, or several.
Some = Union[_T, Sequence[_T]]

AttachOptions = TypedDict("AttachOptions", {
    "entry": Some[str], "identity": Some[AnyPath], "media_type": str, "metadata": str, "name": str, "remove": Some[str],
}, total=False)  # fmt: skip

AuditOptions = TypedDict("AuditOptions", {
    "identity": Some[AnyPath],
}, total=False)  # fmt: skip

BurstOptions = TypedDict("BurstOptions", {
    "enclave": str, "identity": Some[AnyPath], "log_level": Literal["debug", "info", "warn", "error", "fatal"], "num_messages": int,
    "qos_profile_overrides_path": AnyPath, "read_ahead_queue_size": int, "remap": Some[str], "services": Some[str], "start_offset": Number,
    "storage": str, "storage_config_file": AnyPath, "topics": Some[str], "transport": Some[Literal["dds", "iceoryx2", "rmw", "zenoh", "auto"]],
}, total=False)  # fmt: skip

CheckOptions = TypedDict("CheckOptions", {
    "contract": AnyPath, "definitions": Some[AnyPath], "distro": str, "identity": Some[AnyPath], "old_definitions": Some[str],
    "profile": Literal["lake"], "rules": Some[AnyPath],
}, total=False)  # fmt: skip

CompressOptions = TypedDict("CompressOptions", {
    "as_": Literal["foxglove", "ffmpeg_image_transport", "compressed_image"], "cloud": Some[str], "compression": Literal["none", "lz4", "zstd"],
    "delete_original_after_verify": bool, "encrypt_to": Some[str], "identity": Some[AnyPath],
    "level": Literal["fastest", "fast", "default", "slow", "slowest"], "mode": Literal["chunk", "file", "message"], "video": Some[str],
}, total=False)  # fmt: skip

ConvertOptions = TypedDict("ConvertOptions", {
    "at": Some[Number], "by": Literal["episode"], "compression": Literal["none", "lz4", "zstd"],
    "compression_mode": Literal["none", "file", "message"], "custom_data": Some[str], "definitions": Some[AnyPath], "encrypt_to": Some[str],
    "end": Number, "exclude_regex": str, "exclude_services": Some[str], "exclude_topic_types": Some[str], "exclude_topics": Some[str],
    "frame": Some[str], "identity": Some[AnyPath], "input_options": AnyPath, "level": Literal["fastest", "fast", "default", "slow", "slowest"],
    "max_bag_duration": Number, "max_bag_messages": int, "max_bag_size": Number, "max_rate": Some[Number], "no_latched_state": bool,
    "publisher": Some[str], "regex": str, "rename": Some[str], "services": Some[str], "set": Some[str], "shift_time": Number, "start": Number,
    "storage": str, "storage_config_file": AnyPath, "storage_preset_profile": Literal["fastwrite", "none", "resilient", "zstd_fast", "zstd_small"],
    "topic_types": Some[str], "topics": Some[str], "where": Some[str],
}, total=False)  # fmt: skip

DecompressOptions = TypedDict("DecompressOptions", {
    "encrypt_to": Some[str], "identity": Some[AnyPath],
}, total=False)  # fmt: skip

DecryptOptions = TypedDict("DecryptOptions", {
    "identity": Some[AnyPath],
}, total=False)  # fmt: skip

DiffOptions = TypedDict("DiffOptions", {
    "count": int, "decoded": bool, "definitions": Some[AnyPath], "fields": bool, "identity": Some[AnyPath], "summary": bool, "tolerance": Some[str],
}, total=False)  # fmt: skip

EventsOptions = TypedDict("EventsOptions", {
    "after": Number, "before": Number, "definitions": Some[AnyPath], "identity": Some[AnyPath], "label_markers": str, "labels": AnyPath,
    "write_markers": bool,
}, total=False)  # fmt: skip

ExportOptions = TypedDict("ExportOptions", {
    "count": int, "definitions": Some[AnyPath], "duration": Number, "end": Number, "exclude_regex": str, "exclude_topics": Some[str], "flat": bool,
    "identity": Some[AnyPath], "mapping": AnyPath, "overwrite": bool, "quality": int, "regex": str, "start": Number, "start_offset": Number,
    "time": Literal["log_time", "publish_time", "header.stamp"], "topic_types": Some[str], "topics": Some[str], "where": Some[str],
}, total=False)  # fmt: skip

FilterOptions = TypedDict("FilterOptions", {
    "compression": Literal["none", "lz4", "zstd"], "compression_mode": Literal["none", "file", "message"], "custom_data": Some[str],
    "definitions": Some[AnyPath], "encrypt_to": Some[str], "end": Number, "exclude_regex": str, "exclude_services": Some[str],
    "exclude_topic_types": Some[str], "exclude_topics": Some[str], "frame": Some[str], "identity": Some[AnyPath],
    "level": Literal["fastest", "fast", "default", "slow", "slowest"], "max_rate": Some[Number], "no_latched_state": bool, "publisher": Some[str],
    "regex": str, "rename": Some[str], "services": Some[str], "set": Some[str], "shift_time": Number, "start": Number, "storage": str,
    "storage_config_file": AnyPath, "storage_preset_profile": Literal["fastwrite", "none", "resilient", "zstd_fast", "zstd_small"],
    "topic_types": Some[str], "topics": Some[str], "where": Some[str],
}, total=False)  # fmt: skip

GetOptions = TypedDict("GetOptions", {
    "identity": Some[AnyPath],
}, total=False)  # fmt: skip

InfoOptions = TypedDict("InfoOptions", {
    "identity": Some[AnyPath], "storage": str,
}, total=False)  # fmt: skip

MergeOptions = TypedDict("MergeOptions", {
    "at": Some[Number], "by": Literal["episode"], "compression": Literal["none", "lz4", "zstd"],
    "compression_mode": Literal["none", "file", "message"], "custom_data": Some[str], "definitions": Some[AnyPath], "encrypt_to": Some[str],
    "identity": Some[AnyPath], "level": Literal["fastest", "fast", "default", "slow", "slowest"], "max_bag_duration": Number,
    "max_bag_messages": int, "max_bag_size": Number, "no_latched_state": bool, "storage": str, "storage_config_file": AnyPath,
    "storage_preset_profile": Literal["fastwrite", "none", "resilient", "zstd_fast", "zstd_small"],
}, total=False)  # fmt: skip

MigrateOptions = TypedDict("MigrateOptions", {
    "definitions": Some[AnyPath], "distro": str, "draft_rules": bool, "dry_run": bool, "encrypt_to": Some[str], "identity": Some[AnyPath],
    "old_definitions": Some[str], "rules": Some[AnyPath], "storage": str,
}, total=False)  # fmt: skip

PlayOptions = TypedDict("PlayOptions", {
    "actions": Some[str], "clock": Union[bool, Number], "clock_topics": Some[str], "clock_topics_all": bool, "decode_video": bool,
    "definitions": Some[AnyPath], "delay": Number, "disable_loan_message": bool, "distro": str, "enclave": str, "end": Number, "episode": int,
    "exclude_actions": Some[str], "exclude_regex": str, "exclude_services": Some[str], "exclude_topics": Some[str], "fail_if_unanswered": bool,
    "foxglove": Union[bool, str], "foxglove_origin": Some[str], "identity": Some[AnyPath], "in_flight": int, "keep_publishers": bool,
    "log_level": Literal["debug", "info", "warn", "error", "fatal"], "loop": bool, "max_lateness": Number,
    "message_order": Literal["received", "sent"], "migrate": AnyPath, "no_latched_state": bool, "no_services": bool, "node_name": str,
    "old_definitions": Some[str], "pace": Literal["time", "listeners"], "params_file": Some[AnyPath], "persistent": bool,
    "playback_duration": Number, "playback_until_nsec": Number, "playback_until_sec": Number, "prefer_recorded_clock": bool, "profile": AnyPath,
    "progress_bar_separation_lines": int, "progress_bar_update_rate": Number, "publish_service_requests": bool, "publisher": Some[str],
    "qos_override": Some[str], "qos_profile_overrides_path": AnyPath, "rate": Number, "read_ahead_queue_size": int, "regex": str,
    "remap": Some[str], "send_actions_as_client": bool, "service_requests_source": Literal["service_introspection", "client_introspection"],
    "services": Some[str], "skip_empty": Union[bool, Number], "start": Number, "start_at": Number, "start_offset": Number, "start_paused": bool,
    "step_by": Some[str], "step_timeout": Number, "storage": str, "storage_config_file": AnyPath, "timeout": Number, "token_file": AnyPath,
    "topics": Some[str], "transport": Some[Literal["dds", "iceoryx2", "rmw", "zenoh", "auto"]], "wait_for_all_acked": Number,
    "wait_for_subscribers": Some[Number], "web": Union[bool, str],
}, total=False)  # fmt: skip

PlotOptions = TypedDict("PlotOptions", {
    "definitions": Some[AnyPath], "duration": Number, "end": Number, "identity": Some[AnyPath], "overwrite": bool, "start": Number,
    "start_offset": Number, "time": Literal["log_time", "publish_time", "header.stamp"], "topics": Some[str],
}, total=False)  # fmt: skip

PreflightOptions = TypedDict("PreflightOptions", {
    "actions": Some[str], "after": Number, "all": bool, "all_actions": bool, "all_services": bool, "all_topics": bool, "allow_paths": bool,
    "as_": Literal["foxglove", "ffmpeg_image_transport", "compressed_image"], "before": Number,
    "cache_policy": Literal["fair", "drop-new", "drop-old"], "cloud": Some[str], "compression_format": str,
    "compression_mode": Literal["none", "file", "message"], "compression_queue_size": int, "compression_threads": int,
    "compression_threads_priority": int, "contract": AnyPath, "cpu_affinity": Some[str], "custom_data": Some[str],
    "disk_mode": Literal["auto", "direct", "buffered"], "duration": Number, "enclave": str, "encrypt_to": Some[str], "episode_when": str,
    "exclude_actions": Some[str], "exclude_regex": str, "exclude_services": Some[str], "exclude_topic_types": Some[str],
    "exclude_topics": Some[str], "for_": Number, "foxglove_assets": bool, "foxglove_control": bool, "foxglove_origin": Some[str],
    "identity": Some[AnyPath], "ignore_leaf_topics": bool, "include_hidden_topics": bool, "include_unpublished_topics": bool, "limit_rate": Number,
    "log_level": Literal["debug", "info", "warn", "error", "fatal"], "max_cache_duration": Number, "max_cache_size": Number,
    "max_loss_window": Number, "merge_duplicates": bool, "merge_publishers": bool, "min_free_space": Number, "no_discovery": bool,
    "no_services": bool, "node_name": str, "on_disk_full": Literal["stop", "ring"], "output": AnyPath, "params_file": Some[AnyPath],
    "polling_interval": Number, "profile": AnyPath, "promote_on": Some[str], "qos_override": Some[str], "qos_profile_overrides_path": AnyPath,
    "regex": str, "repeat_all_transient_local": Union[bool, int], "repeat_transient_local": Some[str], "rescue_directory": AnyPath,
    "rt_priority": int, "serialization_format": str, "services": Some[str], "snapshot_mode": bool, "static_topics_path": AnyPath,
    "stats_max_publishing_rate": Number, "storage": str, "storage_config_file": AnyPath,
    "storage_preset_profile": Literal["fastwrite", "none", "resilient", "zstd_fast", "zstd_small"], "token_file": AnyPath,
    "topic_compression": Some[str], "topic_priority": Some[Number], "topic_throttle_frequency": Some[Number], "topic_types": Some[str],
    "transport": Some[Literal["dds", "iceoryx2", "rmw", "zenoh", "auto"]], "upload": str, "use_sim_time": bool, "video": Some[str],
    "video_when_behind": Literal["raw", "quality", "rate"],
}, total=False)  # fmt: skip

RecordOptions = TypedDict("RecordOptions", {
    "actions": Some[str], "after": Number, "alarm": Some[str], "all": bool, "all_actions": bool, "all_services": bool, "all_topics": bool,
    "allow_paths": bool, "as_": Literal["foxglove", "ffmpeg_image_transport", "compressed_image"], "before": Number,
    "cache_policy": Literal["fair", "drop-new", "drop-old"], "cloud": Some[str], "compression_format": str,
    "compression_mode": Literal["none", "file", "message"], "compression_queue_size": int, "compression_threads": int,
    "compression_threads_priority": int, "contract": AnyPath, "cpu_affinity": Some[str], "custom_data": Some[str], "diagnostics": bool,
    "disk_mode": Literal["auto", "direct", "buffered"], "enclave": str, "encrypt_to": Some[str], "episode_when": str, "exclude_actions": Some[str],
    "exclude_regex": str, "exclude_services": Some[str], "exclude_topic_types": Some[str], "exclude_topics": Some[str],
    "foxglove": Union[bool, str], "foxglove_assets": bool, "foxglove_control": bool, "foxglove_origin": Some[str], "identity": Some[AnyPath],
    "ignore_leaf_topics": bool, "include_hidden_topics": bool, "include_unpublished_topics": bool, "lane": Some[str], "limit_rate": Number,
    "log_level": Literal["debug", "info", "warn", "error", "fatal"], "max_bag_duration": Number, "max_bag_files": int, "max_bag_size": Number,
    "max_cache_duration": Number, "max_cache_size": Number, "max_loss_window": Number, "max_recording_duration": Number,
    "max_recording_messages": int, "max_recording_size": Number, "merge_duplicates": bool, "merge_publishers": bool, "metrics_file": AnyPath,
    "min_free_space": Number, "no_discovery": bool, "no_services": bool, "node_name": str, "on_alarm": str, "on_disk_full": Literal["stop", "ring"],
    "on_file_closed": str, "params_file": Some[AnyPath], "polling_interval": Number, "preflight": Union[bool, Number], "profile": AnyPath,
    "promote_on": Some[str], "qos_override": Some[str], "qos_profile_overrides_path": AnyPath, "regex": str,
    "repeat_all_transient_local": Union[bool, int], "repeat_transient_local": Some[str], "rescue_directory": AnyPath, "restart_on_stall": bool,
    "ring": Number, "rt_priority": int, "separate": Some[str], "separate_above": Number, "serialization_format": str, "services": Some[str],
    "snapshot_mode": bool, "start_paused": bool, "static_topics_path": AnyPath, "stats_max_publishing_rate": Number, "storage": str,
    "storage_config_file": AnyPath, "storage_preset_profile": Literal["fastwrite", "none", "resilient", "zstd_fast", "zstd_small"],
    "token_file": AnyPath, "topic_compression": Some[str], "topic_priority": Some[Number], "topic_throttle_frequency": Some[Number],
    "topic_types": Some[str], "transport": Some[Literal["dds", "iceoryx2", "rmw", "zenoh", "auto"]], "trigger": Some[str], "upload": str,
    "use_sim_time": bool, "video": Some[str], "video_when_behind": Literal["raw", "quality", "rate"], "web": Union[bool, str],
}, total=False)  # fmt: skip

ReindexOptions = TypedDict("ReindexOptions", {
    "identity": Some[AnyPath], "storage": str,
}, total=False)  # fmt: skip

RepairOptions = TypedDict("RepairOptions", {
    "identity": Some[AnyPath],
}, total=False)  # fmt: skip

SplitOptions = TypedDict("SplitOptions", {
    "at": Some[Number], "by": Literal["episode"], "compression": Literal["none", "lz4", "zstd"],
    "compression_mode": Literal["none", "file", "message"], "custom_data": Some[str], "definitions": Some[AnyPath], "encrypt_to": Some[str],
    "identity": Some[AnyPath], "level": Literal["fastest", "fast", "default", "slow", "slowest"], "max_bag_duration": Number,
    "max_bag_messages": int, "max_bag_size": Number, "no_latched_state": bool, "storage": str, "storage_config_file": AnyPath,
    "storage_preset_profile": Literal["fastwrite", "none", "resilient", "zstd_fast", "zstd_small"],
}, total=False)  # fmt: skip

UploadOptions = TypedDict("UploadOptions", {
    "delete_after_verify": bool, "identity": Some[AnyPath], "limit_rate": Number, "overwrite": bool, "schedule": str,
}, total=False)  # fmt: skip
