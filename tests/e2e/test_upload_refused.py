"""Uploads to a service that is wrong or gone, and of many tiny files."""

import json
import os
import subprocess

import pytest
from buckets import SECRET, SERVER
from conftest import HOLDALL
from mcap.writer import Writer as McapWriter

pytestmark = pytest.mark.skipif(not SERVER.exists(), reason="moto is not installed: scripts/setup.sh nodes")
# `HOLDALL_TINY_FILES=10000` is the figure of the documentation.
TINY_FILES = int(os.environ.get("HOLDALL_TINY_FILES", "150"))
NO_BUCKET = (404, "<?xml version='1.0'?><Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>")
WRONG_REGION = (
    400,
    "<?xml version='1.0'?><Error><Code>AuthorizationHeaderMalformed</Code><Message>The authorization header is malformed; "
    "the region 'us-east-1' is wrong; expecting 'eu-west-1'</Message><Region>eu-west-1</Region></Error>",
)
# What also the answer to a HEAD request names, which has no text.
ELSEWHERE = [(status, "", {"x-amz-bucket-region": "eu-west-1"}) for status in (400, 301)]


def holdall(bucket, *words):
    done = subprocess.run([HOLDALL, *map(str, words)], env=bucket.env(), capture_output=True, text=True, timeout=1200)
    assert SECRET not in done.stdout + done.stderr
    return done


def tiny_bag(folder, files):
    """A bag of many files with a message each."""
    folder.mkdir()
    for number in range(files):
        with open(folder / f"{folder.name}_{number}.mcap", "wb") as file:
            writer = McapWriter(file)
            writer.start("ros2")
            schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data")
            channel = writer.register_channel("/t", "cdr", schema)
            time = 1_700_000_000_000_000_000 + number
            writer.add_message(channel, time, b"\0\1\0\0\5\0\0\0abcd\0", time)
            writer.finish()
    done = subprocess.run([HOLDALL, "reindex", folder], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("answer", [WRONG_REGION, NO_BUCKET, *ELSEWHERE], ids=["wrong region", "no bucket", "400 with header", "301 with header"])
def test_a_wrong_region_and_a_bucket_that_is_gone_are_one_sentence(bucket, tmp_path, answer):
    bag = tiny_bag(tmp_path / "tiny", 3)
    bucket.proxy.fault = lambda *_: answer
    for words in (["upload", bag, "s3://fleet/gone"], ["info", "s3://fleet/gone/lab"], ["cat", "s3://fleet/gone/lab.mcap"]):
        refused = holdall(bucket, *words)
        assert refused.returncode in (1, 2), refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1 and "s3://fleet/gone" in refused.stderr, refused.stderr
        if answer != NO_BUCKET:
            assert "check AWS_REGION" in refused.stderr, refused.stderr
        if answer in ELSEWHERE:
            assert "eu-west-1" in refused.stderr, refused.stderr


def test_a_bucket_that_vanishes_in_the_middle_keeps_what_is_sent_and_the_next_run_continues(bucket, tmp_path):
    bag = tiny_bag(tmp_path / "tiny", 12)
    bucket.proxy.fault = lambda number, handler: NO_BUCKET if len(bucket.proxy.requests) > 9 else None
    gone = holdall(bucket, "upload", bag, "s3://fleet/vanishes")
    assert gone.returncode == 1 and len(gone.stderr.strip().splitlines()) == 1 and "s3://fleet/vanishes" in gone.stderr, gone.stderr
    bucket.proxy.fault = lambda *_: None
    sent = {name for name in (path.name for path in bag.iterdir()) if bucket.get(f"vanishes/{name}")}
    assert 0 < len(sent) < 12
    bucket.proxy.take()
    assert holdall(bucket, "upload", bag, "s3://fleet/vanishes").returncode == 0
    again = [request for request in bucket.proxy.take() if request[0] == "PUT" and request[1].rsplit("/", 1)[-1].split("?")[0] in sent]
    assert not again, "what was sent is not sent again"
    assert json.loads(holdall(bucket, "info", "--json", "s3://fleet/vanishes").stdout)["message_count"] == 12


def test_many_tiny_files_are_sent_listed_and_read(bucket, tmp_path):
    bag = tiny_bag(tmp_path / "tiny", TINY_FILES)
    sent = holdall(bucket, "upload", bag, "s3://fleet/tiny")
    assert sent.returncode == 0, sent.stderr
    assert json.loads(holdall(bucket, "info", "--json", "s3://fleet/tiny").stdout)["message_count"] == TINY_FILES
    bucket.proxy.take()
    assert holdall(bucket, "upload", bag, "s3://fleet/tiny").returncode == 0
    assert not [request for request in bucket.proxy.take() if request[0] == "PUT"], "nothing is sent twice"
    assert len(holdall(bucket, "cat", "--json", "s3://fleet/tiny").stdout.splitlines()) == TINY_FILES
