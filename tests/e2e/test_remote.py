"""Bags in a bucket: read in place by every verb, with few requests, through faults, and never a secret in a text."""

import json
import os
import random
import subprocess

import pytest
from buckets import SECRET, SERVER
from conftest import HOLDALL, take_domain
from mcap.reader import make_reader
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

START = 1_700_000_000_000_000_000
pytestmark = pytest.mark.skipif(not SERVER.exists(), reason="moto is not installed: scripts/setup.sh nodes")


def write_bag(path, topics, count, size):
    """A bag of strings: of each topic `count`, every one of another length."""
    store = get_typestore(Stores.ROS2_JAZZY)
    String = store.types["std_msgs/msg/String"]
    noise = random.Random(7)
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        added = [writer.add_connection(topic, "std_msgs/msg/String", typestore=store) for topic in topics]
        for number in range(count):
            for place, connection in enumerate(added):
                data = noise.randbytes(size + number % 100).hex() if place == 0 else f"{number}"
                writer.write(connection, START + number * 1000 + place, store.serialize_cdr(String(data=data), String.__msgtype__))
    return path


@pytest.fixture(scope="module")
def lab(tmp_path_factory, bucket):
    """A bag of 20 MB in chunks with a large and a small topic, here and in the bucket."""
    folder = tmp_path_factory.mktemp("lab")
    plain = write_bag(folder / "plain", ["/large", "/small"], 500, 20_000)
    subprocess.run([HOLDALL, "convert", plain, "-o", folder / "lab"], check=True, capture_output=True)
    bucket.put_folder(folder / "lab", "run/lab")
    return folder / "lab"


def holdall(bucket, *arguments, **more):
    env = bucket.env(**more)
    return subprocess.run([HOLDALL, *map(str, arguments)], capture_output=True, text=True, timeout=240, env=env)


def done(bucket, *arguments, **more):
    ran = holdall(bucket, *arguments, **more)
    assert ran.returncode == 0, ran.stderr
    return ran


def test_every_verb_reads_a_bucket_as_it_reads_a_folder(bucket, lab, tmp_path):
    url = "s3://fleet/run/lab"

    def same(verb, *more):
        local = subprocess.run([HOLDALL, verb, *more, str(lab)], capture_output=True, text=True, timeout=240)
        remote = holdall(bucket, verb, *more, url)
        assert remote.returncode == local.returncode, remote.stderr
        assert remote.stdout.replace(url, str(lab)) == local.stdout

    same("info")
    same("info", "--json")
    same("info", "-v")
    same("list", "topics")
    same("list", "chunks")
    same("cat", "--count", "20", "--json")
    same("cat", "--json", "--topics", "/small")
    same("check")
    same("audit")
    done(bucket, "diff", url, lab)
    done(bucket, "filter", url, "--topics", "/small", "-o", tmp_path / "small")
    done(bucket, "convert", url, "-o", tmp_path / "copy", "--compression", "zstd")
    done(bucket, "diff", lab, tmp_path / "copy")
    done(bucket, "export", "-f", "csv", url, "--topics", "/small", "-o", tmp_path / "csv")
    assert len(list((tmp_path / "csv").iterdir())) >= 1
    file = next(path.name for path in lab.iterdir() if path.suffix == ".mcap")
    assert json.loads(done(bucket, "info", "--json", f"{url}/{file}").stdout)["message_count"] == 1000


def test_a_bag_in_a_bucket_is_played(bucket, lab):
    # Without nodes: what is published is counted by the player.
    flags = ["--disable-keyboard-controls", "--json"]
    domain, lock = take_domain()
    with lock:
        played = json.loads(done(bucket, "play", *flags, "s3://fleet/run/lab", ROS_DOMAIN_ID=str(domain)).stdout)
        missing = holdall(bucket, "play", *flags, "s3://fleet/run/nothing", ROS_DOMAIN_ID=str(domain))
    assert played["published"] == 1000, played
    assert missing.returncode == 2 and "s3://fleet/run/nothing" in missing.stderr, missing.stderr


def test_few_requests_are_made_and_only_what_is_needed_is_read(bucket, lab):
    file = next(path for path in lab.iterdir() if path.suffix == ".mcap")
    done(bucket, "info", f"s3://fleet/run/lab/{file.name}")
    requests = bucket.proxy.take()
    assert len(requests) <= 2 and sum(request[3] for request in requests) < 400_000, requests
    done(bucket, "info", "s3://fleet/run/lab")
    requests = bucket.proxy.take()
    assert len(requests) <= 3 and sum(request[3] for request in requests) < 400_000, requests
    done(bucket, "cat", "--json", "s3://fleet/run/lab")
    assert sum(request[3] for request in bucket.proxy.take()) < 1.2 * file.stat().st_size


def test_a_small_topic_costs_its_chunks_only(bucket, tmp_path):
    path = tmp_path / "small.mcap"
    with open(path, "wb") as file:
        writer = McapWriter(file, compression=CompressionType.NONE)
        writer.start("ros2")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data")
        large, small = (writer.register_channel(topic, "cdr", schema) for topic in ("/large", "/small"))
        for number in range(30):
            writer.add_message(large, START + number, random.Random(number).randbytes(1_000_000), START)
            if number % 20 == 5:
                writer.add_message(small, START + number, b"\0\1\0\0\5\0\0\0abcd\0", START)
        writer.finish()
    with open(path, "rb") as file:
        chunks = make_reader(file).get_summary().chunk_indexes
    wanted = sum(chunk.chunk_length for chunk in chunks if small in chunk.message_index_offsets)
    bucket.put("small.mcap", path.read_bytes())
    bucket.proxy.take()
    assert len(done(bucket, "cat", "--json", "s3://fleet/small.mcap", "--topics", "/small").stdout.splitlines()) == 2
    # The first chunk is read for the first message, which shows whether payloads are packed.
    summary_and_first = 400_000 + chunks[0].chunk_length
    assert sum(request[3] for request in bucket.proxy.take()) <= 1.2 * wanted + summary_and_first


def test_a_service_that_fails_answers_late_and_truncates_changes_nothing(bucket, lab):
    def fault(number, _):
        return {0: "fail", 2: "late", 3: "truncate"}.get(number % 5)

    expected = subprocess.run([HOLDALL, "cat", "--json", str(lab)], capture_output=True, text=True, timeout=240).stdout
    bucket.proxy.fault = fault
    assert done(bucket, "cat", "--json", "s3://fleet/run/lab").stdout == expected


def test_an_object_that_is_replaced_while_it_is_read_is_one_sentence(bucket, lab):
    file = next(path for path in lab.iterdir() if path.suffix == ".mcap")
    bucket.put("replaced/lab.mcap", file.read_bytes())
    seen = []

    def before(handler):
        seen.append(handler.path)
        if len(seen) == 2:
            bucket.put("replaced/lab.mcap", file.read_bytes()[:-1] + b"\0")

    bucket.proxy.before = before
    ran = holdall(bucket, "cat", "--json", "s3://fleet/replaced/lab.mcap")
    assert ran.returncode == 1 and "it was replaced while it was read" in ran.stderr, ran.stderr
    assert "s3://fleet/replaced/lab.mcap" in ran.stderr


def test_what_cannot_be_read_is_one_sentence_without_a_secret(bucket, lab, tmp_path):
    def refused(words, *arguments, code=2, **more):
        ran = holdall(bucket, *arguments, **more)
        lines = [line for line in ran.stderr.splitlines() if line]
        assert ran.returncode == code and len(lines) == 1 and words in lines[0], (ran.returncode, ran.stderr)
        assert SECRET not in ran.stdout + ran.stderr
        return lines[0]

    assert "s3://fleet/none" in refused("nothing has this name", "info", "s3://fleet/none")
    refused("no", "info", "s3://vanished/run")
    refused("no credentials", "info", "s3://fleet/run/lab", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    refused("not on this computer", "reindex", "s3://fleet/run/lab")
    refused("holdall upload", "convert", lab, "-o", "s3://fleet/out")
    refused("holdall upload", "record", "-a", "-o", "s3://fleet/out")
    dead = refused("service cannot be used", "info", "s3://fleet/run/lab", AWS_ENDPOINT_URL="http://127.0.0.1:9", HOLDALL_REMOTE_TRIES="1")
    assert "127.0.0.1:9" in dead or "connect" in dead.lower(), dead
    file = next(path for path in lab.iterdir() if path.suffix == ".mcap")
    bucket.put("cut/lab_0.mcap", file.read_bytes()[: file.stat().st_size // 2])
    ran = holdall(bucket, "info", "s3://fleet/cut/lab_0.mcap")
    assert "is damaged at byte" in ran.stderr and len(ran.stderr.splitlines()) == 1, ran.stderr


def test_a_bag_of_another_storage_is_copied_first(bucket, lab, tmp_path):
    subprocess.run([HOLDALL, "convert", lab, "-o", tmp_path / "sql", "-s", "sqlite3"], check=True, capture_output=True)
    bucket.put_folder(tmp_path / "sql", "sql")
    ran = done(bucket, "info", "--json", "s3://fleet/sql")
    assert json.loads(ran.stdout)["message_count"] == 1000
    assert "copied" in ran.stderr


def test_a_web_server_is_read_by_ranges(bucket, lab):
    file = next(path for path in lab.iterdir() if path.suffix == ".mcap")
    bucket.put("web/lab.mcap", file.read_bytes())
    url = f"{bucket.proxy.url}/fleet/web/lab.mcap?X-Amz-Signature=0123456789secret"
    ran = done(bucket, "info", "--json", url)
    assert json.loads(ran.stdout)["message_count"] == 1000
    assert any("0123456789secret" in request[1] for request in bucket.proxy.take())
    ran = holdall(bucket, "info", f"{bucket.proxy.url}/fleet/web/none.mcap?X-Amz-Signature=0123456789secret")
    assert ran.returncode == 2 and "0123456789secret" not in ran.stderr, ran.stderr
