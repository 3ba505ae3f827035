"""``sensor_msgs_py.point_cloud2`` where ROS is not installed: point clouds as arrays, and arrays as point clouds."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import Any

from .._columns import numpy
from . import rosidl

#: The numpy type of each ``datatype`` of a PointField.
_DATATYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
#: Fields without a name are called so, with their number.
DUMMY_FIELD_PREFIX = "unnamed_field"


def dtype_from_fields(fields: Iterable[Any], point_step: int | None = None) -> Any:
    """The numpy type of points with these fields; one with a count above 1 becomes that many numbered ones."""
    names, formats, offsets = [], [], []
    for number, field in enumerate(fields):
        kind = _DATATYPES[field.datatype]
        own = field.name or f"{DUMMY_FIELD_PREFIX}_{number}"
        size = int(kind[1:])
        for part in range(field.count):
            names.append(own if field.count == 1 else f"{own}_{part}")
            formats.append(kind)
            offsets.append(field.offset + part * size)
    whole: dict[str, Any] = {"names": names, "formats": formats, "offsets": offsets}
    if point_step is not None:
        whole["itemsize"] = point_step
    return numpy().dtype(whole)


def read_points(
    cloud: Any,
    field_names: Sequence[str] | None = None,
    skip_nans: bool = False,
    uvs: Iterable[Any] | None = None,
    reshape_organized_cloud: bool = False,
) -> Any:
    """The points of a cloud as a structured array with the named fields, or all."""
    np = numpy()
    dtype = dtype_from_fields(cloud.fields, cloud.point_step).newbyteorder(">" if cloud.is_bigendian else "<")
    data = np.frombuffer(bytes(np.asarray(cloud.data, dtype=np.uint8)), dtype=np.uint8)
    rows = [data[row * cloud.row_step : row * cloud.row_step + cloud.width * cloud.point_step] for row in range(cloud.height)]
    points = np.concatenate(rows).view(dtype) if rows else np.empty(0, dtype)
    if field_names is not None:
        missing = [name for name in field_names if name not in points.dtype.names]
        assert not missing, "Requests field is not in the fields list!"  # noqa: S101 - as there
        points = points[list(field_names)]
    if skip_nans and not cloud.is_dense:
        keep = np.ones(len(points), dtype=bool)
        for name in points.dtype.names:
            keep &= ~np.isnan(points[name])
        points = points[keep]
    if uvs is not None:
        places = np.asarray(list(uvs))
        points = points[places[:, 1] * cloud.width + places[:, 0]] if places.ndim == 2 else points[places]
    if reshape_organized_cloud and cloud.height > 1:
        points = points.reshape(cloud.width, cloud.height)
    return points


def read_points_numpy(
    cloud: Any,
    field_names: Sequence[str] | None = None,
    skip_nans: bool = False,
    uvs: Iterable[Any] | None = None,
    reshape_organized_cloud: bool = False,
) -> Any:
    """The points of a cloud as an array with a column for each field, all of which have one type."""
    np = numpy()
    points = read_points(cloud, field_names, skip_nans, uvs, reshape_organized_cloud)
    kinds = {points.dtype[name] for name in points.dtype.names}
    assert len(kinds) == 1, "All fields need to have the same datatype. Use `read_points()` otherwise."  # noqa: S101 - as there
    return np.stack([points[name] for name in points.dtype.names], axis=-1)


def read_points_list(
    cloud: Any, field_names: Sequence[str] | None = None, skip_nans: bool = False, uvs: Iterable[Any] | None = None
) -> list[Any]:
    """The points of a cloud as named tuples."""
    points = read_points(cloud, field_names, skip_nans, uvs)
    point = namedtuple("Point", points.dtype.names)  # type: ignore[misc]  # noqa: PYI024 - its fields are those of the cloud
    return [point._make(values) for values in points.tolist()]


def create_cloud(header: Any, fields: Iterable[Any], points: Any, step: int | None = None, point_offset: int = 0) -> Any:
    """A cloud of points: an iterable of tuples, an array with a column for each field, or a structured array."""
    np = numpy()
    fields = list(fields)
    dtype = dtype_from_fields(fields, step)
    if isinstance(points, np.ndarray) and points.dtype.names:
        values = points
        if values.dtype != dtype:
            values = np.empty(points.shape, dtype)
            for name in dtype.names:
                values[name] = points[name]
    else:
        array = points if isinstance(points, np.ndarray) else np.array(list(map(tuple, points)), dtype=dtype)
        if array.dtype.names:
            values = array
        else:
            values = np.empty(array.shape[:-1], dtype)
            for place, name in enumerate(dtype.names):
                values[name] = array[..., place]
    width, height = (values.shape[0], 1) if values.ndim == 1 else (values.shape[0], values.shape[1])
    cloud = rosidl.get_message("sensor_msgs/msg/PointCloud2")
    return cloud(
        header=header,
        height=height,
        width=width,
        is_dense=False,
        is_bigendian=False,
        fields=fields,
        point_step=dtype.itemsize,
        row_step=dtype.itemsize * width,
        data=np.frombuffer(np.ascontiguousarray(values).tobytes(), dtype=np.uint8),
    )


def create_cloud_xyz32(header: Any, points: Any) -> Any:
    """A cloud of points with x, y and z as 32-bit floats."""
    field = rosidl.get_message("sensor_msgs/msg/PointField")
    fields = [field(name=name, offset=4 * place, datatype=7, count=1) for place, name in enumerate("xyz")]
    return create_cloud(header, fields, points)
