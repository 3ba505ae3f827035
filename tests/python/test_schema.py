"""The columns of a topic are the same in Arrow, in DuckDB and in Parquet files, nested and flat."""

import re

import duckdb
import holdall
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import MS, START

CLASH = "int32 sequence\nclash_msgs/Time log_time\nstd_msgs/Empty nothing\nstd_msgs/Empty[] some\nuint8[4] key\nchar[] text\nclash_msgs/Time[2] two\nfloat32[3] xyz\n"
TYPES = {
    "/imu": ("sensor_msgs/msg/Imu", None),
    "/cloud": ("sensor_msgs/msg/PointCloud2", None),
    "/empty": ("std_msgs/msg/Empty", None),
    "/joints": ("sensor_msgs/msg/JointState", None),
    "/clash": ("clash_msgs/msg/Clash", f"{CLASH}{'=' * 80}\nMSG: clash_msgs/Time\nint32 sec\nstring place\n{'=' * 80}\nMSG: std_msgs/Empty\n"),
}
FIELDS = {
    "/imu": {"header": {"frame_id": "imu", "stamp": {"sec": 5}}, "linear_acceleration": {"z": 9.81}, "orientation_covariance": list(range(9))},
    "/cloud": {"fields": [{"name": "x", "offset": 3}, {"name": "y"}], "data": b"123"},
    "/joints": {"name": ["a", "b"], "position": [1.5, 2.5]},
    "/clash": {"sequence": 7, "log_time": {"sec": 3, "place": "UTC"}, "some": [{}, {}], "key": b"abcd", "text": b"xy", "two": [{"place": "a"}, {}], "xyz": [1, 2, 3]},
}
VECTOR = "STRUCT(x DOUBLE, y DOUBLE, z DOUBLE)"
STAMPS = {"log_time": "TIMESTAMPTZ_NS", "publish_time": "TIMESTAMPTZ_NS", "sequence": "UINTEGER"}
GOLDEN = {
    "/imu": {
        **STAMPS,
        "header": "STRUCT(stamp STRUCT(sec INTEGER, nanosec UINTEGER), frame_id VARCHAR)",
        "orientation": "STRUCT(x DOUBLE, y DOUBLE, z DOUBLE, w DOUBLE)",
        "orientation_covariance": "DOUBLE[]",
        "angular_velocity": VECTOR,
        "angular_velocity_covariance": "DOUBLE[]",
        "linear_acceleration": VECTOR,
        "linear_acceleration_covariance": "DOUBLE[]",
    },
    "/clash": {
        "bag_log_time": "TIMESTAMPTZ_NS",
        "publish_time": "TIMESTAMPTZ_NS",
        "bag_sequence": "UINTEGER",
        "sequence": "INTEGER",
        "log_time": "STRUCT(sec INTEGER, place VARCHAR)",
        "some": "STRUCT(structure_needs_at_least_one_member UTINYINT)[]",
        "key": "BLOB",
        "text": "BLOB",
        "two": "STRUCT(sec INTEGER, place VARCHAR)[]",
        "xyz": "FLOAT[]",
    },
    "/empty": STAMPS,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schema")
    with holdall.create(folder / "bag") as out:
        for topic, (name, definition) in TYPES.items():
            if definition:
                out.define(name, definition)
            for number in range(3):
                out.write(topic, name, FIELDS.get(topic, {}), time=START + number * MS)
    holdall.export(folder / "bag", folder / "nested", "parquet")
    holdall.export(folder / "bag", folder / "flat", "parquet", flat=True)
    return folder


def described(source, topic=None):
    """DuckDB's types of the columns. Arrays of a fixed length are lists in files."""
    rows = duckdb.sql(f"describe select * from {source}").fetchall()
    return {name: re.sub(r"\[\d+\]", "[]", kind) for name, kind, *_ in rows}


def plain(kind):
    """A type as Parquet can have it: lists and bytes without a fixed length, one kind of offsets, nothing null."""
    if pa.types.is_struct(kind):
        # Parquet has no empty structs.
        fields = [pa.field(field.name, plain(field.type)) for field in kind] or [pa.field("structure_needs_at_least_one_member", pa.uint8())]
        return pa.struct(fields)
    if pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    others = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else others.get(kind, kind)


@pytest.mark.parametrize("topic", TYPES)
@pytest.mark.parametrize("flat", [False, True], ids=["nested", "flat"])
def test_a_topic_has_the_columns_of_its_file(folder, topic, flat):
    table = holdall.open(folder / "bag")[topic].to_arrow(flat=flat)
    file = pq.read_table(folder / ("flat" if flat else "nested") / f"{topic[1:]}.parquet")
    assert [(field.name, plain(field.type)) for field in table.schema] == [(field.name, plain(field.type)) for field in file.schema]
    names = [name for name in table.column_names if name != "some"]
    assert table.select(names).to_pylist() == file.select(names).to_pylist() and len(file) == 3


@pytest.mark.parametrize("topic", GOLDEN)
def test_the_columns_are_those_that_are_written_here(folder, topic):
    bag = holdall.open(folder / "bag")
    found = bag[topic]
    assert described(f"'{folder}/nested/{topic[1:]}.parquet'") == GOLDEN[topic]
    if topic != "/clash":
        # DuckDB has no empty structs.
        assert described("topic", found) == GOLDEN[topic] == described("topic", found.to_arrow())
    assert pl.read_parquet(folder / f"nested/{topic[1:]}.parquet").columns == found.to_polars().columns == list(GOLDEN[topic])


def test_flat_columns_have_dotted_names_and_one_query_does_for_topic_and_file(folder):
    bag = holdall.open(folder / "bag")
    imu, file = bag["/imu"], f"'{folder}/nested/imu.parquet'"
    query = "select header.stamp.sec, linear_acceleration.z, orientation_covariance[2] from "
    assert duckdb.sql(query + "imu").fetchall() == duckdb.sql(query + file).fetchall() == [(5, 9.81, 1.0)] * 3
    flat = imu.to_arrow(flat=True)
    assert flat.column_names == pq.read_schema(folder / "flat/imu.parquet").names == ["log_time", "publish_time", "sequence", *imu.fields]
    assert imu.fields[:3] == ["header.stamp.sec", "header.stamp.nanosec", "header.frame_id"]


def test_the_stamp_of_the_header_is_a_column_of_its_own(folder, tmp_path):
    bag = holdall.open(folder / "bag")
    holdall.export(folder / "bag", tmp_path, "parquet", topics=["/imu"], time="header.stamp")
    table, file = bag["/imu"].to_arrow(time="header.stamp"), pq.read_table(tmp_path / "imu.parquet")
    assert table.column_names == file.column_names and table.column_names[0] == "header_stamp"
    assert table["header_stamp"].to_pylist() == file["header_stamp"].to_pylist()
    assert holdall.plan(folder / "bag", "/imu", flat=True)[0].flat
    assert holdall.read(holdall.plan(folder / "bag", "/imu")[0]).column_names == ["bag", "topic", *bag["/imu"].to_arrow().column_names]


def test_a_flat_file_is_a_choice_of_parquet_only(folder, tmp_path):
    with pytest.raises(holdall.ProgramError, match="use -f parquet") as refused:
        holdall.export(folder / "bag", tmp_path / "x", "csv", flat=True)
    assert refused.value.code == 2
