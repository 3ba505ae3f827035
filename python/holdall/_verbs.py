"""The verbs of the program as functions: each runs the program, whose flags are keywords, and returns its report."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, Sequence, overload

from ._options import (
    AnyPath,
    AttachOptions,
    AuditOptions,
    BurstOptions,
    CheckOptions,
    CompressOptions,
    ConvertOptions,
    DecompressOptions,
    DecryptOptions,
    DiffOptions,
    EventsOptions,
    ExportOptions,
    FilterOptions,
    GetOptions,
    InfoOptions,
    MergeOptions,
    MigrateOptions,
    PlayOptions,
    PlotOptions,
    PreflightOptions,
    RecordOptions,
    ReindexOptions,
    RepairOptions,
    SplitOptions,
    UploadOptions,
)
from ._program import DIFFERENT, DONE, LOST, SELECTING, Playback, Recording, run
from ._progress import Progress

if TYPE_CHECKING:
    from typing_extensions import Unpack

Bags = AnyPath | Sequence[AnyPath]
Report = dict[str, Any]


def _one(reports: list[Report]) -> Report:
    return reports[0] if reports else {}


def _choice(topics: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Flags with these topics; with all where nothing is selected."""
    if topics:
        return {"topics": [topics] if isinstance(topics, str) else list(topics), **options}
    return dict(options) if any(options.get(name) for name in SELECTING) else {"all": True, **options}


# What is in a bag.


def info(bag: AnyPath, **options: Unpack[InfoOptions]) -> Report:
    """What is in a bag, and what was lost."""
    return _one(run("info", bag, allowed=(DONE, DIFFERENT, LOST), **options))


def check(bags: Bags, *, progress: Progress = None, **options: Unpack[CheckOptions]) -> list[Report]:
    """Checks whole bags: records, checksums, indexes, counts, definitions. A report for each bag; findings are not errors.

    This and the functions below show how far they are to ``progress``; see :func:`run`.
    """
    return run("check", bags, allowed=(DONE, DIFFERENT), progress=progress, **options)


def audit(bag: AnyPath, *, progress: Progress = None, **options: Unpack[AuditOptions]) -> Report:
    """Counts what is in a bag and compares it with the recording's account of every message."""
    return _one(run("audit", bag, allowed=(DONE, DIFFERENT, LOST), progress=progress, **options))


def diff(first: AnyPath, second: AnyPath, *, progress: Progress = None, **options: Unpack[DiffOptions]) -> Report:
    """The differences between two bags (``fields=True``: of each field)."""
    return _one(run("diff", [first, second], allowed=(DONE, DIFFERENT), progress=progress, **options))


def events(bags: Bags, trigger: str | Sequence[str], *, progress: Progress = None, **options: Unpack[EventsOptions]) -> list[Report]:
    """What triggers would have caught in bags (``events("lab", "/battery: voltage < 11.5", label_markers="crash.*")``). A report for each bag."""
    return run("events", bags, progress=progress, trigger=trigger, **options)


def plot(bags: Bags, output: AnyPath, *, progress: Progress = None, **options: Unpack[PlotOptions]) -> Path:
    """Draws bags over time into a file: a page (``.html``), ``.svg`` or ``.png``; ``topics="/imu.linear_acceleration.z"`` draws values. Returns its path."""
    run("plot", bags, progress=progress, json=False, output=output, **options)
    return Path(output)


# Bags out of bags.


def convert(bags: Bags, output: AnyPath, *, progress: Progress = None, **options: Unpack[ConvertOptions]) -> Report:
    """Converts bags to another storage or compression, or to a selection (``storage="sqlite3"``, ``topics=["/imu"]``, ``compression="zstd"``)."""
    return _one(run("convert", bags, progress=progress, output=output, **options))


def merge(bags: Sequence[AnyPath], output: AnyPath, *, progress: Progress = None, **options: Unpack[MergeOptions]) -> Report:
    """Makes one bag out of several."""
    return _one(run("merge", bags, progress=progress, output=output, **options))


def split(bags: Bags, output: AnyPath, *, progress: Progress = None, **options: Unpack[SplitOptions]) -> Report:
    """Divides a bag into files by size, span, number of messages or at times (``max_bag_duration=60``, ``at=[30, 90]``)."""
    return _one(run("split", bags, progress=progress, output=output, **options))


def filter(bags: Bags, output: AnyPath, *, progress: Progress = None, **options: Unpack[FilterOptions]) -> Report:  # noqa: A001
    """Keeps some messages: by topic, type, time, rate or content (``where="/imu: linear_acceleration.z > 12"``)."""
    return _one(run("filter", bags, progress=progress, output=output, **options))


def migrate(bag: AnyPath, output: AnyPath, *, progress: Progress = None, **options: Unpack[MigrateOptions]) -> Report:
    """Gives messages the definitions of a workspace (``definitions=...``) or a distribution (``distro="kilted"``), by ``rules`` where they differ."""
    return _one(run("migrate", bag, progress=progress, output=output, **options))


def compress(bags: Bags, output: AnyPath, *, progress: Progress = None, **options: Unpack[CompressOptions]) -> Report:
    """Compresses a bag: its chunks, its files or its messages (``mode="chunk"``, ``compression="zstd"``)."""
    return _one(run("compress", bags, progress=progress, output=output, **options))


def decompress(bags: Bags, output: AnyPath, *, progress: Progress = None, **options: Unpack[DecompressOptions]) -> Report:
    """Writes an uncompressed copy of a compressed bag."""
    return _one(run("decompress", bags, progress=progress, output=output, **options))


def decrypt(bag: AnyPath, output: AnyPath, *, progress: Progress = None, **options: Unpack[DecryptOptions]) -> Report:
    """Writes a decrypted copy of an encrypted bag; ``identity`` is the file with the key."""
    return _one(run("decrypt", bag, progress=progress, output=output, **options))


# Changes of a bag itself.


def repair(bag: AnyPath, output: AnyPath | None = None, *, progress: Progress = None, **options: Unpack[RepairOptions]) -> Report:
    """Completes a bag whose recorder was killed, in place or as a new bag."""
    return _one(run("repair", bag, output=output, progress=progress, **options))


def reindex(bags: Bags, *, progress: Progress = None, **options: Unpack[ReindexOptions]) -> list[Report]:
    """Rebuilds ``metadata.yaml``, and the index of MCAP files that have none. A report for each bag."""
    return run("reindex", bags, progress=progress, **options)


def attach(bag: AnyPath, files: Bags = (), **options: Unpack[AttachOptions]) -> Report:
    """Stores files, and key-value pairs (``metadata="trip", entry=["driver=Kim"]``), in a bag; ``remove`` takes out an attachment. Returns what is
    attached."""
    named = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    return _one(run("attach", [bag, *named], **options))


@overload
def get(bag: AnyPath, name: None = None, **options: Unpack[GetOptions]) -> Report: ...
@overload
def get(bag: AnyPath, name: str, **options: Unpack[GetOptions]) -> bytes: ...
def get(bag: AnyPath, name: str | None = None, **options: Unpack[GetOptions]) -> Report | bytes:
    """What is attached to a bag, or the contents of the attachment of this name."""
    if name is None:
        return _one(run("get", bag, **options))
    with tempfile.TemporaryDirectory(prefix="holdall-") as folder:
        run("get", [bag, name], json=False, output=Path(folder) / "file", **options)
        return (Path(folder) / "file").read_bytes()


# Bags for others.


def export(bags: Bags, output: AnyPath, format: str, *, progress: Progress = None, **options: Unpack[ExportOptions]) -> Report:  # noqa: A002
    """Writes messages as tables (``csv``, ``parquet``), images (``png``, ``jpeg``), point clouds (``pcd``, ``ply``) or training data."""
    return _one(run("export", bags, progress=progress, format=format, output=output, **options))


def upload(bag: AnyPath, url: str, *, progress: Progress = None, **options: Unpack[UploadOptions]) -> Report:
    """Uploads a bag to a bucket (``s3://...``), and verifies the copy."""
    return _one(run("upload", [bag, url], progress=progress, **options))


# Live topics. The program runs beside Python: no middleware is loaded into the interpreter.


def record(output: AnyPath | None = None, topics: Sequence[str] = (), *, env: dict[str, str] | None = None, **options: Unpack[RecordOptions]) -> Recording:
    """Starts to record topics, or all of them; the flags of ``holdall record`` are keywords. Stop it, or use it in ``with``."""
    return Recording([], {"output": output, **_choice(topics, options)}, env)


def play(bag: AnyPath, *, env: dict[str, str] | None = None, **options: Unpack[PlayOptions]) -> Playback:
    """Starts to play a bag; the flags of ``holdall play`` are keywords (``rate=2``, ``loop=True``)."""
    return Playback(["--", os.fspath(bag)], dict(options), env)


def burst(bag: AnyPath, **options: Unpack[BurstOptions]) -> Report:
    """Publishes messages of a bag without waiting between them (``num_messages=100``); the flags of ``holdall burst`` are keywords."""
    return _one(run("burst", bag, disable_keyboard_controls=True, **options))


def preflight(topics: Sequence[str] = (), **options: Unpack[PreflightOptions]) -> Report:
    """Records for a short time (``duration=10``) and forecasts whether a recording of topics, or of all, will fit (``for_="2h"``)."""
    return _one(run("preflight", [], allowed=(DONE, LOST), **_choice(topics, options)))
