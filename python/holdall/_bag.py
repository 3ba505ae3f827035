"""Bags and their topics."""

from __future__ import annotations

import datetime as dt
import glob
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Union

from . import _html, _media, _native, _sync, _verbs
from ._errors import BagError, BagWarning, Error, TopicError
from ._progress import Progress
from ._time import datetime_of, span_ns, time_ns
from ._topic import Clock, Selection, Topic, check_errors, check_time

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


def _threads() -> int:
    try:
        found = len(os.sched_getaffinity(0))
    except AttributeError:
        found = os.cpu_count() or 1
    return min(found, _THREADS_MAX)


class Bag:
    """A bag that is open for reading, or several that are read as one. See :func:`open`."""

    def __init__(self, paths: list[str], threads: int | None = None, definitions: Sequence[str] = ()) -> None:
        self.paths = paths
        self.definitions: list[str] = list(definitions)
        self.threads: int = _threads() if threads is None else max(1, int(threads))
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
            infos = [info for info in self._about["topics"] if info["name"] == wanted]
            if infos:
                # One for each type of its messages.
                return Topic(self, {**infos[0], "count": sum(info["count"] for info in infos)})
        known = ", ".join(sorted(info["name"] for info in self._about["topics"])) or "no topics"
        raise TopicError(f"there is no topic {name} in the bag; it has {known}", topic=name)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.topics)

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
    def start_datetime(self) -> dt.datetime | None:
        """Log time of the first message (UTC), in whole microseconds; None for an empty bag."""
        return datetime_of(self.start) if len(self) else None

    @property
    def end_datetime(self) -> dt.datetime | None:
        """Log time of the last message, in the same form."""
        return datetime_of(self.end) if len(self) else None

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
    def summaries(self) -> list[dict[str, Any]]:
        """The account of each bag, as ``holdall info --json`` has it."""
        return list(json.loads(self._native.summaries()))

    @property
    def ledgers(self) -> list[dict[str, Any]]:
        """The whole loss ledger of each bag that has one."""
        return list(json.loads(self._native.ledgers()))

    @property
    def publishers(self) -> list[dict[str, Any]]:
        """Who published: ``topic``, ``messages``, and where the bag stores them ``gid``, ``node``, ``host``, ``transport``."""
        return [{"messages": found.pop("message_count"), **found} for found in json.loads(self._native.publishers())]

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
        time: Clock | None = None,
    ) -> _native.Messages:
        """Iterates over the messages of some topics, or of all, in order of time.

        ``start`` and ``end`` (not included) are those of :meth:`Topic.between`, ``where`` has a condition for each of some topics, ``every`` is the
        least span between two messages of a topic. ``errors="skip"`` passes over damaged parts. ``time`` is the clock that orders and bounds the
        messages and that their ``stamp`` is of: ``"log_time"``, ``"publish_time"`` (also ``order="sent"``) or ``"header.stamp"``, which leaves out
        topics without a header unless they are named.
        """
        if order not in ("received", "sent"):
            raise ValueError(f"order is 'received' or 'sent', not {order!r}")
        clock = check_time(time) if time is not None else "publish_time" if order == "sent" else "log_time"
        for name in topics:
            self[name]
        selection = Selection().within(*self._bounds(start, end)).but(
            conditions=tuple((self[name].name, condition) for name, condition in (where or {}).items()),
            every=None if every is None else span_ns(every),
            errors=check_errors(errors),
            time=clock,
        )
        return self._native.messages([self[name].name for name in topics], selection.native())

    def _bounds(self, start: Any, end: Any) -> tuple[int | None, int | None]:
        times = [None if moment is None else time_ns(moment, self.start) for moment in (start, end)]
        return times[0], times[1]

    def sync(
        self, *topics: str, tolerance: Any = "20ms", start: Any = None, end: Any = None, time: Clock = "log_time"
    ) -> Iterator[tuple[_native.Message, ...]]:
        """For each message of the first topic, the nearest one in time of each other topic; none where one is farther than ``tolerance``.

        ``time="header.stamp"`` compares when the data was measured, whatever time the messages took until they were recorded.
        """
        if len(topics) < 2:
            raise ValueError("sync needs two topics or more")
        streams = [self.messages(name, start=start, end=end, time=time) for name in topics]
        return _sync.nearest(streams, span_ns(tolerance))

    def images(self, topic: str) -> _media.Frames:
        """The images of a topic as arrays (height, width, channels): plain ones on the memory of the bag, compressed ones decoded, pictures of
        video by ``ffmpeg`` from the key frame before them. See :func:`holdall.image`."""
        found = self[topic]
        # A topic may have video and images that were not encoded: each message is read as what it is.
        types = {info["type"] for info in self._about["topics"] if info["name"] == found.name}
        is_video = len(types) > 1 or found.type in _media.VIDEO or self._native.is_video(found.name)
        return _media.VideoFrames(found) if is_video else _media.Frames(found, _media.image)

    def points(self, topic: str) -> _media.Frames:
        """The point clouds of a topic as structured arrays: plain ones on the memory of the bag, compressed ones decoded. See :func:`holdall.points`."""
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
