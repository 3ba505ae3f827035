"""Columns for numpy, pandas, polars, pyarrow and duckdb, each against the messages that rosbags wrote."""

import gc

import duckdb
import holdall
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from conftest import MS, START, plain


@pytest.fixture(scope="module")
def bag(written):
    return holdall.open(written[0])


def test_numpy_has_a_row_for_each_message(bag, written):
    imu, expected = bag["/imu"], [message for _, message in written[1]["/imu"]]
    acceleration = imu.to_numpy("linear_acceleration")
    assert acceleration.shape == (300, 3) and acceleration.dtype == np.float64
    assert acceleration.tolist() == [[m.linear_acceleration.x, m.linear_acceleration.y, m.linear_acceleration.z] for m in expected]
    assert not acceleration.flags.owndata, "a view of the column"
    assert imu.to_numpy("angular_velocity.z").tolist() == [m.angular_velocity.z for m in expected]
    assert imu.to_numpy("orientation_covariance").tolist() == [m.orientation_covariance.tolist() for m in expected]
    assert imu.to_numpy("header.frame_id").tolist() == [m.header.frame_id for m in expected]
    stamp = imu.to_numpy("header.stamp")
    assert stamp.dtype.names == ("sec", "nanosec") and stamp["nanosec"].tolist() == [m.header.stamp.nanosec for m in expected]
    both = imu.to_numpy(["linear_acceleration", "header.frame_id"])
    assert list(both) == ["log_time", "header.frame_id", "linear_acceleration"]
    assert both["log_time"].tolist() == [time for time, _ in written[1]["/imu"]]
    assert (imu["linear_acceleration"] == acceleration).all()
    assert len(imu.between(0.5, 1.0).to_numpy("linear_acceleration")) == 50
    sums = acceleration.sum()
    del imu, stamp, both
    gc.collect()
    assert acceleration.sum() == sums


def test_numpy_has_lists_texts_and_structs_as_objects(bag, written):
    expected = [message for _, message in written[1]["/odd"]]
    columns = bag["/odd"].to_numpy()
    for name in ("flag", "names", "many", "two", "bits", "three", "blob", "wide", "last"):
        assert [plain(value) for value in columns[name]] == [plain(getattr(message, name)) for message in expected], name


def test_arrow_has_every_column_nested_or_flat(bag, written):
    expected = [plain(message) for _, message in written[1]["/odd"]]
    table = bag["/odd"].to_arrow()
    table.validate(full=True)
    assert table.column_names[:3] == ["log_time", "publish_time", "sequence"]
    assert table.schema.field("log_time").type == pa.timestamp("ns", "UTC")
    assert table.schema.field("blob").type == pa.large_binary()
    for row, wanted in zip(table.to_pylist(), expected, strict=True):
        assert {name: plain(row[name]) for name in wanted} == wanted
    imu = bag["/imu"].to_arrow(flat=True)
    imu.validate(full=True)
    assert imu.num_rows == 300 and "linear_acceleration.z" in imu.column_names
    assert imu["orientation_covariance"].type == pa.list_(pa.float64(), 9)
    nested = pa.table(bag["/imu"].arrow_stream("header", ["angular_velocity"]))
    assert nested.column_names == ["log_time", "publish_time", "sequence", "header", "angular_velocity"]
    assert nested["header"][3].as_py() == plain(written[1]["/imu"][3][1])["header"]


def test_pandas_polars_and_duckdb_read_the_same(bag, written):
    z = [message.angular_velocity.z for _, message in written[1]["/imu"]]
    imu = bag["/imu"]
    frame = imu.to_pandas()
    assert frame["angular_velocity.z"].tolist() == z and frame.index[0] == pd.Timestamp(bag.start, tz="UTC")
    assert list(imu.to_pandas("header.frame_id").columns) == ["header.frame_id"]
    assert imu.to_polars("angular_velocity.z", flat=True)["angular_velocity.z"].to_list() == z
    frame = imu.to_polars()
    assert frame["angular_velocity"].struct.field("z").to_list() == z and frame.schema["log_time"] == pl.Datetime("ns", "UTC")
    assert pl.DataFrame(imu).equals(frame)
    odd = bag["/odd"].to_polars()
    assert odd["two"].to_list() == [plain(message.two) for _, message in written[1]["/odd"]]
    assert odd["bits"].to_list() == [plain(message.bits) for _, message in written[1]["/odd"]]
    rows = pa.RecordBatchReader.from_stream(imu)
    assert duckdb.sql("select count(*), max(linear_acceleration.x) from rows").fetchall() == [(300, 299.0)]
    assert duckdb.sql("select count(*) from imu where linear_acceleration.x > 290").fetchall() == [(9,)]


def test_an_arrow_stream_is_read_once_and_may_be_dropped(bag):
    stream = bag["/odd"].arrow_stream()
    stream.__arrow_c_stream__()
    gc.collect()
    with pytest.raises(ValueError, match="handed out"):
        stream.read()
    reader = pa.RecordBatchReader.from_stream(bag["/odd"])
    schema = reader.schema
    del reader
    gc.collect()
    assert "many" in schema.names


def test_an_error_within_a_stream_reaches_its_reader(tmp_path):
    with holdall.create(tmp_path / "bag") as out:
        for number in range(3):
            out.write("/t", "std_msgs/msg/Int32", b"\0\1\0\0\5" if number == 2 else {"data": number}, time=number)
    with pytest.raises((OSError, pa.ArrowException), match="message of 2 ns"):
        holdall.open(tmp_path / "bag")["/t"].to_arrow()


def test_empty_selections_and_types_without_fields_are_tables(bag, tmp_path):
    nothing = bag["/imu"].where("linear_acceleration.x > 1e6")
    assert nothing.to_numpy("linear_acceleration").shape == (0, 3) and len(nothing.to_pandas()) == 0
    assert nothing.to_arrow().num_rows == 0 and nothing.to_polars().height == 0
    assert bag["/odd"].where("last > 5").to_polars().height == 0
    with holdall.create(tmp_path / "bag") as out:
        out.write("/e", "std_msgs/msg/Empty", {}, time=1)
    assert holdall.open(tmp_path / "bag")["/e"].to_arrow().num_rows == 1


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A bag of several spans that are decoded side by side; one message of /torn does not fit its type."""
    path = tmp_path_factory.mktemp("long") / "bag"
    with holdall.create(path, preset="zstd_fast") as out:
        for number in range(3000):
            time = START + number * MS
            header = {"frame_id": " " * (16_000 + number % 7)}
            out.write("/imu", "sensor_msgs/msg/Imu", {"header": header, "linear_acceleration": {"x": number}}, time=time)
            out.write("/torn", "std_msgs/msg/Float64", b"\0\1\0\0\0" if number == 2000 else {"data": number}, time=time)
    return path


def test_columns_are_the_same_by_one_thread_and_by_many(long):
    one, many = holdall.open(long, threads=1), holdall.open(long, threads=4)
    expected, found = one["/imu"].to_numpy(), many["/imu"].to_numpy()
    assert list(expected) == list(found) and len(found["log_time"]) == 3000
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    assert found["linear_acceleration"][:, 0].tolist() == list(range(3000))
    nested = many["/imu"].to_arrow()
    assert nested.equals(one["/imu"].to_arrow()) and nested.column(0).num_chunks > 1
    some = [bag["/imu"].between(0.5, 2.9).where("linear_acceleration.x >= 700") for bag in (one, many)]
    assert np.array_equal(*(topic.to_numpy("linear_acceleration") for topic in some)) and len(some[1]) == 2200
    assert np.array_equal(*(bag["/imu"].every("10ms").to_numpy("linear_acceleration") for bag in (one, many)))


def test_a_fault_in_the_middle_of_many_spans_is_raised_or_counted(long):
    for threads in (1, 4):
        torn = holdall.open(long, threads=threads)["/torn"]
        with pytest.raises(holdall.DecodeError) as caught:
            torn.to_numpy("data")
        assert caught.value.topic == "/torn"
        source = torn.skip_errors()._source(["data"], False)
        rows = source.read()
        assert len(rows) == 2999 and source.skipped[0] == 1 and "/torn" in source.skipped[1]


def test_a_stream_of_many_spans_may_be_left_at_any_time(long):
    for batches in range(3):
        reader = pa.RecordBatchReader.from_stream(holdall.open(long, threads=4)["/imu"])
        for _ in range(batches):
            reader.read_next_batch()
        del reader
