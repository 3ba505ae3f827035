"""Real Ray, Dask and Spark on this computer, with several processes; a worker that is killed in the middle changes nothing."""

import os
import signal
import shutil

import holdall
import pyarrow as pa
import pytest

START = 1_793_577_600_000_000_000
MS = 1_000_000
BAGS, COUNT = 3, 300


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    """The folder of the bags, and what a reader must get: bag, time, value."""
    folder = tmp_path_factory.mktemp("bags")
    expected = []
    for bag in range(BAGS):
        path = folder / f"run{bag}"
        with holdall.create(path, config="chunkSize: 8192\ncompression: None\n") as out:
            for number in range(COUNT):
                time = START + number * MS
                out.write("/range", "sensor_msgs/msg/Range", {"range": float(number), "header": {"frame_id": "y" * 200}}, time=time)
                expected.append((str(path), time, float(number)))
    return folder, sorted(expected)


def rows(table):
    times = table["log_time"].cast(pa.int64()).to_pylist()
    return sorted(zip(table["bag"].to_pylist(), times, table["range"].to_pylist(), strict=True))


def die_once(marker):
    """Kills the process that comes here first; true in all that come later."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def test_ray_reads_all_with_a_worker_killed_in_the_middle(bags, tmp_path):
    ray = pytest.importorskip("ray")
    import holdall.ray

    folder, expected = bags
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False, _node_ip_address="127.0.0.1")
    try:
        marker = str(tmp_path / "died")

        def through(batch):
            # Not in the first task: what is done by then must stay.
            if batch["range"][0].as_py() > 0:
                die_once(marker)
            return batch

        found = holdall.ray.read_bags(str(folder), "/range", ["range"], task_bytes=20_000).map_batches(through, batch_format="pyarrow")
        table = pa.concat_tables(ray.get(found.to_arrow_refs()))
        assert os.path.exists(marker)
        assert rows(table) == expected
    finally:
        ray.shutdown()


def test_dask_reads_all_with_a_worker_killed_in_the_middle(bags, tmp_path):
    distributed = pytest.importorskip("distributed")
    import holdall.dask

    folder, expected = bags
    marker = str(tmp_path / "died")

    def through(frame):
        if len(frame) and frame["range"].iloc[0] > 0:
            die_once(marker)
        return frame

    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster:
        with distributed.Client(cluster):
            frame = holdall.dask.read_bags(str(folder), "/range", ["range"], task_bytes=20_000)
            assert frame.npartitions > 4
            found = frame.map_partitions(through, meta=frame._meta).compute()
            first = holdall.dask.delayed(str(folder), "/range", ["range"], task_bytes=20_000)[0].compute()
    assert os.path.exists(marker)
    assert rows(pa.Table.from_pandas(found, preserve_index=False)) == expected
    assert 0 < first.num_rows < len(expected)


@pytest.fixture
def old_fleet(tmp_path):
    """A catalog of bags with a definition of Humble, of which two have one name, and a bag that needs nothing."""
    definition = "std_msgs/Header header\nuint8 ULTRASOUND=0\nuint8 INFRARED=1\nuint8 radiation_type\nfloat32 field_of_view\nfloat32 min_range\nfloat32 max_range\nfloat32 range"
    for place in ("a/run", "b/run", "b/other"):
        (tmp_path / "fleet" / place).parent.mkdir(parents=True, exist_ok=True)
        with holdall.create(tmp_path / "fleet" / place) as out:
            out.define("sensor_msgs/msg/Range", definition)
            for number in range(COUNT):
                out.write("/range", "sensor_msgs/msg/Range", {"range": float(number)}, time=START + number * MS)
    with holdall.create(tmp_path / "fleet/b/same") as out:
        out.write("/range", "sensor_msgs/msg/Range", {"range": 1.0}, time=START)
    assert holdall.catalog(tmp_path / "fleet", tmp_path / "catalog")["bags"] == 4
    return tmp_path


def assert_migrated(folder):
    new = sorted(str(path.parent.relative_to(folder / "new")) for path in (folder / "new").rglob("metadata.yaml"))
    assert new == ["a/run", "b/other", "b/run"]
    for place in new:
        topic = holdall.open(folder / "new" / place)["/range"]
        assert topic.to_numpy("range").tolist() == [float(number) for number in range(COUNT)]
        assert not topic.to_numpy("variance").any()


def dying_once(marker):
    """A migration whose process is killed the first time, after the bag was written."""

    def run(migration):
        done = migration.run()
        if migration.bag.endswith("other"):
            die_once(marker)
        return done

    return run


def test_ray_migrates_a_catalog_and_a_worker_that_dies_after_its_work_loses_nothing(old_fleet):
    ray = pytest.importorskip("ray")
    import holdall.ray

    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False, _node_ip_address="127.0.0.1")
    try:
        marker = str(old_fleet / "died")
        reports = holdall.ray.migrate(old_fleet / "catalog", old_fleet / "new", distro="kilted", rules="ros2")
        assert [report["message_count"] for report in reports] == [COUNT] * 3
        again = ray.remote(dying_once(marker))
        plan = [holdall.Migration(str(old_fleet / "fleet/b/other"), str(old_fleet / "again"), (("distro", "kilted"),))]
        assert ray.get([again.remote(each) for each in plan])[0]["already_migrated"] and os.path.exists(marker)
    finally:
        ray.shutdown()
    assert_migrated(old_fleet)


def test_dask_migrates_a_catalog_and_refuses_before_anything_is_written(old_fleet):
    distributed = pytest.importorskip("distributed")
    import dask
    import holdall.dask

    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster:
        with distributed.Client(cluster):
            reports = dask.compute(*holdall.dask.migrate(old_fleet / "catalog", old_fleet / "new", distro="kilted"))
    assert [report["message_count"] for report in reports] == [COUNT] * 3
    assert_migrated(old_fleet)
    with pytest.raises(holdall.ProgramError, match="3 of 4 bags cannot be migrated"):
        holdall.dask.migrate(old_fleet / "catalog", old_fleet / "new", distro="kilted")


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_spark_reads_all(bags):
    sql = pytest.importorskip("pyspark.sql")
    import holdall.spark

    folder, expected = bags
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    session = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    try:
        frame = holdall.spark.read_bags(session, str(folder), "/range", ["range"], tasks=6)
        assert frame.rdd.getNumPartitions() >= 5
        found = [(row.bag, int(row.log_time.timestamp() * 1000), row["range"]) for row in frame.collect()]
        assert sorted(found) == [(bag, time // MS, value) for bag, time, value in expected]
    finally:
        session.stop()
