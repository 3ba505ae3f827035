"""Images and point clouds as arrays on the memory of the bag."""

from __future__ import annotations

import json
import sys
from bisect import bisect, bisect_left
from collections.abc import Iterator
from itertools import accumulate
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Callable, SupportsIndex, overload

from . import _html, _native
from ._columns import numpy
from ._errors import TopicError

if TYPE_CHECKING:
    from array import array

    import numpy.typing as npt

    from ._topic import Topic

    Pixels = npt.NDArray[Any]

# Number type and channels of `sensor_msgs/image_encodings.hpp`.
_ENCODINGS = {
    "mono8": ("u1", 1), "mono16": ("u2", 1), "rgb8": ("u1", 3), "bgr8": ("u1", 3), "rgba8": ("u1", 4), "bgra8": ("u1", 4),
    "rgb16": ("u2", 3), "bgr16": ("u2", 3), "rgba16": ("u2", 4), "bgra16": ("u2", 4),
    "yuv422": ("u1", 2), "uyvy": ("u1", 2), "yuv422_yuy2": ("u1", 2), "yuyv": ("u1", 2),
    "bayer_rggb8": ("u1", 1), "bayer_bggr8": ("u1", 1), "bayer_gbrg8": ("u1", 1), "bayer_grbg8": ("u1", 1),
    "bayer_rggb16": ("u2", 1), "bayer_bggr16": ("u2", 1), "bayer_gbrg16": ("u2", 1), "bayer_grbg16": ("u2", 1),
    "nv12": ("u1", 1), "nv21": ("u1", 1), "nv24": ("u1", 1),
}
# Rows of brightness and colour for each row of the image.
_PLANES = {"nv12": (3, 2), "nv21": (3, 2), "nv24": (3, 1)}
_CV_TYPES = {"8U": "u1", "8S": "i1", "16U": "u2", "16S": "i2", "32S": "i4", "32F": "f4", "64F": "f8"}
_POINT_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}


def image(msg: Any) -> Pixels:
    """An image message as an array (height, width, channels), or (height, width) for one channel.

    A ``sensor_msgs/msg/Image`` is a view of the message, in its encoding; planes of brightness and colour (``nv12``, ``nv21``, ``nv24``) are rows
    one after another, as OpenCV converts them. A ``sensor_msgs/msg/CompressedImage`` is decoded: colours are red, green, blue; compressed depth is
    millimetres (16 bits) or metres (floats, NaN where nothing was measured), as the format text states; planes are what the image was.
    """
    if not hasattr(msg, "encoding"):
        return _decoded(msg)
    np = numpy()
    encoding = msg.encoding
    number, channels = _layout(encoding)
    dtype = np.dtype(number).newbyteorder(">" if msg.is_bigendian else "<")
    height, width, step = msg.height, msg.width, msg.step
    rows = _PLANES.get(encoding.lower())
    if rows:
        height = height * rows[0] // rows[1]
    data = np.asarray(msg.data)
    row_bytes = width * channels * dtype.itemsize
    if step < row_bytes or len(data) < (height - 1) * step + row_bytes * (height > 0):
        raise ValueError(f"an image of {width} x {height} {encoding} with rows of {step} bytes does not fit into {len(data)} bytes")
    strides = (step, channels * dtype.itemsize, dtype.itemsize)
    view: Pixels = np.ndarray((height, width, channels), dtype, buffer=data, strides=strides)
    return view[:, :, 0] if channels == 1 else view


def _layout(encoding: str) -> tuple[str, int]:
    """Number type and channels of an encoding, in small or capital letters."""
    known = _ENCODINGS.get(encoding.lower())
    if known:
        return known
    # OpenCV's names: 32FC1, 8UC(5).
    name, _, count = encoding.upper().partition("C")
    if name not in _CV_TYPES or not (count.strip("()") or "1").isdecimal():
        raise ValueError(f"there is no image encoding {encoding!r}")
    return _CV_TYPES[name], int(count.strip("()") or 1)


def _decoded(msg: Any) -> Pixels:
    """A ``sensor_msgs/msg/CompressedImage`` as an array of its own."""
    np = numpy()
    height, width, encoding, is_bigendian, step, data = _native.decode_image(_bytes(msg.data), msg.format)
    pixels = np.frombuffer(data, np.uint8)
    return image(SimpleNamespace(height=height, width=width, encoding=encoding, is_bigendian=is_bigendian, step=step, data=pixels))


def _bytes(data: Any) -> bytes:
    return data.tobytes() if hasattr(data, "tobytes") else bytes(data)


def points(msg: Any) -> Pixels:
    """A ``sensor_msgs/msg/PointCloud2`` as a structured array with a field for each of the cloud's: a view of the message.

    A ``point_cloud_interfaces/msg/CompressedPointCloud2`` of holdall, Cloudini or Draco is decoded.
    """
    np = numpy()
    order = ">" if msg.is_bigendian else "<"
    names, formats, offsets = [], [], []
    for field in msg.fields:
        if field.datatype not in _POINT_TYPES:
            raise ValueError(f"{field.name}: there is no type {field.datatype} of points")
        number = order + _POINT_TYPES[field.datatype]
        names.append(field.name)
        formats.append(number if field.count <= 1 else (number, (field.count,)))
        offsets.append(field.offset)
    dtype = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": msg.point_step})
    height, width, row_step, step = msg.height, msg.width, msg.row_step, msg.point_step
    if hasattr(msg, "compressed_data"):
        fields = [(field.name, field.offset, field.datatype, field.count) for field in msg.fields]
        unpacked = _native.unpack_cloud((height, width, step), fields, msg.is_bigendian, _bytes(msg.compressed_data), msg.format)
        data, row_step = np.frombuffer(unpacked, np.uint8), width * step
    else:
        data = np.asarray(msg.data)
    if height and len(data) < (height - 1) * row_step + width * step:
        raise ValueError(f"a cloud of {width} x {height} points of {step} bytes does not fit into {len(data)} bytes")
    shape, strides = ((width,), (step,)) if height == 1 else ((height, width), (row_step, step))
    view: Pixels = np.ndarray(shape, dtype, buffer=data, strides=strides)
    return view


_TYPES: dict[Any, tuple[str, ...]] = {
    image: ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"),
    points: ("sensor_msgs/msg/PointCloud2", "point_cloud_interfaces/msg/CompressedPointCloud2"),
}


class Frames:
    """The messages of a topic as arrays: by number, by slices as of the topic, or one after another."""

    def __init__(self, topic: Topic, view: Callable[[Any], Pixels]) -> None:
        wanted = _TYPES[view]
        if topic.type not in (*wanted, *(name.replace("/msg/", "/") for name in wanted)):
            raise TopicError(f"{topic.name} has messages of {topic.type}, not {' or '.join(wanted)}", topic=topic.name)
        self.topic = topic
        self._view = view

    def __len__(self) -> int:
        return len(self.topic)

    @overload
    def __getitem__(self, place: slice) -> Frames: ...
    @overload
    def __getitem__(self, place: SupportsIndex) -> Pixels: ...
    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Frames(self.topic[place], self._view)
        return self._view(self.topic[place].msg)

    def between(self, start: Any = None, end: Any = None) -> Frames:
        """Those of a part of the time; see :meth:`Topic.between`."""
        return Frames(self.topic.between(start, end), self._view)

    def __iter__(self) -> Iterator[Pixels]:
        for message in self.topic:
            yield self._view(message.msg)

    @property
    def times(self) -> array[int]:
        """Log times in nanoseconds since 1970."""
        return self.topic.times

    def __repr__(self) -> str:
        return f"<{len(self)} arrays of {self.topic.name}>"

    def _repr_html_(self) -> str:
        return _html.topic(self.topic)


# Pictures between two key frames, at most.
_GROUP_MAX = 3000
# How long before a time a key frame is searched, in nanoseconds, where the bag's list has none.
_KEY_SPANS = (1_300_000_000, 6_000_000_000, 30_000_000_000)
# Bytes of decoded pictures that are kept, those of one group at least.
_KEPT_BYTES_MAX = 512 << 20


# Messages that are pictures of a video, which depend on others, and those that may be.
VIDEO = ("foxglove_msgs/msg/CompressedVideo", "ffmpeg_image_transport_msgs/msg/FFMPEGPacket")
COMPRESSED = "sensor_msgs/msg/CompressedImage"


def is_video(message: _native.Message) -> bool:
    """Whether a message is a picture of a video; a compressed image is one where its format is a codec."""
    if message.type == COMPRESSED:
        return message.msg.format.lower() in ("h264", "h265", "hevc", "av1", "vp9")
    return message.type in VIDEO


def _gid(message: _native.Message) -> str | None:
    """What distinguishes the publishers of a topic, where the bag does."""
    publisher = message.publisher
    return publisher["gid"] if publisher else None


def _picture(message: _native.Message) -> tuple[bytes, str]:
    """A picture of a video, and its format."""
    msg = message.msg
    return bytes(msg.data), msg.format if hasattr(msg, "format") else msg.encoding


class VideoFrames(Frames):
    """The pictures of a video as arrays; each is decoded with those of its publisher from the key frame before it on.

    The second picture of a group, as those from a key frame to the next one are called here, is decoded with the whole group, which is kept.
    """

    def __init__(self, topic: Topic, numbers: range | None = None) -> None:
        self.topic = topic
        self._numbers = range(len(topic)) if numbers is None else numbers
        self._groups: dict[str | None, dict[int, Pixels]] = {}
        # The key frame of each publisher's last group.
        self._begins: dict[str | None, int] = {}
        # Of what these are a part from a time on, if their topic is one, and its first messages.
        self._whole: tuple[VideoFrames, int] | None = None
        self._read: list[_native.Message] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return self._some(self._numbers[place])
        return self._picture(self._numbers[place])

    def _some(self, numbers: range) -> VideoFrames:
        some = VideoFrames(self.topic, numbers)
        some._whole, some._read = self._whole, self._read
        return some

    def between(self, start: Any = None, end: Any = None) -> VideoFrames:
        """Those of a part of the time; see :meth:`Topic.between`."""
        first_time, end_time = self.topic.bag._bounds(start, end)
        is_whole = self._numbers == range(len(self.topic))
        if first_time is not None and is_whole and (read := self._from_key(first_time)):
            # The times of all other pictures are not read.
            topic = self.topic._narrowed(self.topic._selection.within(read[0].time, end_time))
            part = VideoFrames(topic, range(bisect_left(topic.times, first_time), len(topic.times)))
            part._whole, part._read = (self, read[0].time), read
            return part
        wanted = self.topic.between(start, end).times
        if not len(wanted):
            return self._some(range(0))
        first, last = wanted[0], wanted[-1]
        inside = [place for place, number in enumerate(self._numbers) if first <= self.topic.times[number] <= last]
        return self._some(self._numbers[inside[0] : inside[-1] + 1] if inside else range(0))

    def _from_key(self, time: int) -> list[_native.Message]:
        """The messages up to a time from the last key frames on, those of all publishers; none where they are long before."""
        for since in (*self._listed_before(time), *(time - span for span in _KEY_SPANS)):
            read = list(self.topic._narrowed(self.topic._selection.within(since, time + 1)))
            begins: dict[str | None, int | None] = {}
            for message in filter(is_video, read):
                publisher = _gid(message)
                try:
                    is_begin = _native.begins_video(*_picture(message))
                except ValueError:
                    is_begin = False
                begins[publisher] = message.time if is_begin else begins.get(publisher)
            found = [begin for begin in begins.values() if begin is not None]
            if found and len(found) == len(begins):
                return [message for message in read if message.time >= min(found)]
        return []

    def _listed_before(self, time: int) -> list[int]:
        """The last key frame before a time that the bag lists, if it is near: whole milliseconds, rounded down. A damaged list is none."""
        listed: list[int] = []
        try:
            for entry in json.loads((self.topic.bag._about.get("custom_data") or {}).get("holdall.recoded", "[]")):
                if entry["topic"] == self.topic.name and entry.get("keys"):
                    keys = list(accumulate(map(int, entry["keys"].split())))
                    listed += [key * 1_000_000 for key in keys[: bisect(keys, time // 1_000_000)][-1:]]
        except (ValueError, KeyError, TypeError, AttributeError):
            return []
        return [key for key in sorted(listed)[-1:] if time - key <= _KEY_SPANS[-1]]

    def __iter__(self) -> Iterator[Pixels]:
        for number in self._numbers:
            yield self._picture(number, is_whole=True)

    @property
    def times(self) -> array[int]:
        """Log times in nanoseconds since 1970."""
        times = self.topic.times
        return type(times)("q", [times[number] for number in self._numbers])

    def _message(self, number: int) -> _native.Message:
        return self._read[number] if number < len(self._read) else self.topic[number]

    def _picture(self, number: int, is_whole: bool = False) -> Pixels:
        for group in self._groups.values():
            if number in group:
                return group[number]
        message = self._message(number)
        if not is_video(message):
            return image(message.msg)
        return self._decode(number, _gid(message), is_whole)

    def _unit(self, number: int, publisher: str | None) -> tuple[bytes, str, bool] | None:
        """A picture, its format and whether a decoder can begin with it; None for an image between pictures, and for another publisher's."""
        message = self._message(number)
        if not is_video(message) or _gid(message) != publisher:
            return None
        data, form = _picture(message)
        return data, form, _native.begins_video(data, form)

    def _decode(self, number: int, publisher: str | None, is_whole: bool) -> Pixels:
        np = numpy()
        begin, units, pictures_before = number, {number: self._unit(number, publisher)}, 0
        while not (unit := units[begin]) or not unit[2]:
            begin -= 1
            pictures_before += unit is not None
            if begin < 0 and self._whole:
                whole, since = self._whole
                return whole._picture(bisect_left(whole.topic.times, since) + number, is_whole)
            if begin < 0 or pictures_before > _GROUP_MAX:
                raise ValueError(f"no key frame of {self.topic.name} is before its picture {number}")
            units[begin] = self._unit(begin, publisher)
        is_whole = is_whole or self._begins.get(publisher) == begin
        self._begins[publisher] = begin
        for after in range(number + 1, min(begin + _GROUP_MAX, len(self.topic))) if is_whole else ():
            unit = self._unit(after, publisher)
            if unit and unit[2]:
                break
            units[after] = unit
        group = {place: unit for place, unit in sorted(units.items()) if unit}
        wanted = list(group) if is_whole else [number]
        pictures = _native.decode_video([data for data, _, _ in group.values()], group[begin][1], len(group) - len(wanted))
        decoded = (np.frombuffer(pixels, np.uint8).reshape(height, width, 3) for height, width, pixels in pictures)
        self._groups.pop(publisher, None)
        found = self._groups[publisher] = dict(zip(wanted, decoded))
        while len(self._groups) > 1 and sum(one.nbytes for kept in self._groups.values() for one in kept.values()) > _KEPT_BYTES_MAX:
            del self._groups[next(iter(self._groups))]
        if number not in found:
            raise ValueError(f"picture {number} of {self.topic.name} depends on one that is missing")
        return found[number]


assert sys.byteorder == "little"
