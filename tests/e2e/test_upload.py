"""Bags on their way into a bucket: finished files only, through faults and kills at any moment, complete and equal, and nothing sent twice in full."""

import json
import os
import random
import signal
import subprocess
import threading
import time

import pytest
from buckets import SECRET, SERVER
from conftest import HOLDALL
from mcap.reader import make_reader
from test_remote import write_bag

pytestmark = pytest.mark.skipif(not SERVER.exists(), reason="moto is not installed: scripts/setup.sh nodes")
# `HOLDALL_UPLOAD_KILLS=200` is the figure of the documentation.
KILLS = int(os.environ.get("HOLDALL_UPLOAD_KILLS", "8"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Three storage files, two of them of two parts."""
    folder = tmp_path_factory.mktemp("plain")
    source = write_bag(folder / "source", ["/large", "/small"], 600, 20_000)
    subprocess.run([HOLDALL, "split", source, "--max-bag-size", "10MB", "-o", folder / "lab"], check=True, capture_output=True)
    return folder / "lab"


@pytest.fixture
def lab(plain, tmp_path):
    """A copy that a test may remove."""
    subprocess.run(["cp", "-r", plain, tmp_path / "lab"], check=True)
    return tmp_path / "lab"


def holdall(bucket, *arguments, **more):
    return subprocess.run([HOLDALL, *map(str, arguments)], capture_output=True, text=True, timeout=240, env=bucket.env(**more))


def done(bucket, *arguments, **more):
    ran = holdall(bucket, *arguments, **more)
    assert ran.returncode == 0, ran.stderr
    return ran


def files_of(bag):
    return sorted(path for path in bag.iterdir() if not path.name.startswith("."))


def equal(bucket, bag, prefix):
    for path in files_of(bag):
        assert bucket.get(f"{prefix}/{path.name}") == path.read_bytes(), path.name


def sent(requests, name):
    """Bytes of a file that were sent."""
    return sum(request[2] for request in requests if request[0] == "PUT" and f"/{name}" in request[1])


def test_a_bag_is_there_as_it_is_here_and_is_sent_once(bucket, lab):
    told = json.loads(done(bucket, "upload", "--json", lab, "s3://fleet/once").stdout)
    assert told["sent_bytes"] == sum(path.stat().st_size for path in files_of(lab))
    equal(bucket, lab, "once")
    last = [request[1] for request in bucket.proxy.take() if request[0] == "PUT"][-1]
    assert last.startswith("/fleet/once/metadata.yaml"), "the description comes last"
    done(bucket, "diff", "s3://fleet/once", lab)
    done(bucket, "check", "s3://fleet/once")
    bucket.proxy.take()
    again = done(bucket, "upload", lab, "s3://fleet/once")
    assert "uploaded already" in again.stdout
    assert not [request for request in bucket.proxy.take() if request[0] in ("PUT", "POST")]
    # Also without the journal.
    for journal in lab.glob(".holdall-upload-*"):
        journal.unlink()
    assert json.loads(done(bucket, "upload", "--json", lab, "s3://fleet/once").stdout)["sent_bytes"] == 0


def test_other_content_is_never_overwritten_unasked(bucket, lab):
    name = files_of(lab)[0].name
    bucket.put(f"taken/{name}", b"something else")
    ran = holdall(bucket, "upload", lab, "s3://fleet/taken")
    assert ran.returncode == 2 and f"s3://fleet/taken/{name} already exists" in ran.stderr, ran.stderr
    assert bucket.get(f"taken/{name}") == b"something else"
    done(bucket, "upload", "--overwrite", lab, "s3://fleet/taken")
    equal(bucket, lab, "taken")


def test_a_bag_is_removed_here_only_when_all_of_it_is_there(bucket, lab, plain):
    done(bucket, "upload", "--delete-after-verify", lab, "s3://fleet/moved/")
    assert not lab.exists()
    equal(bucket, plain, "moved/lab")


def test_a_service_that_fails_answers_late_truncates_and_loses_answers_gets_every_byte(bucket, lab):
    def fault(number, _):
        return {0: "fail", 1: "cut", 2: "late", 3: "truncate"}.get(number % 5 if number % 10 != 1 else 1)

    bucket.proxy.fault = fault
    done(bucket, "upload", lab, "s3://fleet/faults")
    bucket.proxy.fault = lambda *_: None
    equal(bucket, lab, "faults")


def test_kills_at_any_moment_lose_nothing_and_send_nothing_twice_in_full(bucket, lab):
    noise = random.Random(int(os.environ.get("HOLDALL_SEED", "1")))
    total = sum(path.stat().st_size for path in files_of(lab))
    began = time.monotonic()
    bucket.proxy.fault = lambda number, _: "late" if number % 3 == 0 else None
    kills, rounds, all_sent = 0, 0, 0
    while kills < KILLS:
        rounds += 1
        prefix = f"kills{rounds}"
        bucket.proxy.take()
        of_round = 0
        while True:
            run = subprocess.Popen([HOLDALL, "upload", lab, f"s3://fleet/{prefix}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=bucket.env())
            # The moment is the next of some requests, and a little: not a time that a slow machine does not reach.
            goal, killed = len(bucket.proxy.requests) + noise.randrange(1, 14), threading.Event()

            def watch(run=run, goal=goal, killed=killed, more=noise.random() * 0.05):
                while run.poll() is None:
                    if len(bucket.proxy.requests) >= goal:
                        time.sleep(more)
                        run.send_signal(signal.SIGKILL)
                        killed.set()
                        return
                    time.sleep(0.002)

            watcher = threading.Thread(target=watch)
            watcher.start()
            _, err = run.communicate(timeout=240)
            watcher.join()
            if run.returncode == 0:
                break
            assert run.returncode == -signal.SIGKILL, err
            kills += 1
            of_round += 1
        equal(bucket, lab, prefix)
        requests = bucket.proxy.take()
        for path in files_of(lab):
            size = path.stat().st_size
            # A kill may cost the parts in flight, four of 8 MiB at most; what the journal has is not sent again.
            assert sent(requests, path.name) <= size + of_round * min(size, 4 * (8 << 20)), path.name
        all_sent += sum(sent(requests, path.name) for path in files_of(lab))
    share = all_sent / (rounds * total)
    print(f"{kills} kills, {rounds} bags of {total} bytes, {share:.2f} x their bytes sent, {time.monotonic() - began:.0f} s")


def test_no_secret_is_in_a_text_or_a_journal(bucket, lab):
    texts = [done(bucket, "upload", lab, "s3://fleet/secret")]
    texts.append(holdall(bucket, "upload", lab, "s3://nobucket/secret"))
    assert texts[1].returncode == 1 and "no such bucket" in texts[1].stderr, texts[1].stderr
    journals = [path.read_text() for path in lab.glob(".holdall-upload-*")]
    assert journals
    for text in [*journals, *(part for ran in texts for part in (ran.stdout, ran.stderr))]:
        assert SECRET not in text and "AKIAOFTHESETESTS" not in text


def test_what_is_no_finished_bag_is_not_sent(bucket, lab, tmp_path):
    ran = holdall(bucket, "upload", tmp_path / "none", "s3://fleet/none")
    assert ran.returncode == 2 and "none" in ran.stderr
    ran = holdall(bucket, "upload", lab, "/tmp/not-a-url")
    assert ran.returncode == 2 and "s3://" in ran.stderr
    file = files_of(lab)[0]
    file.write_bytes(file.read_bytes()[:-5])
    ran = holdall(bucket, "upload", lab, "s3://fleet/torn")
    assert ran.returncode == 1 and "holdall repair" in ran.stderr, ran.stderr
    assert bucket.get(f"torn/{file.name}") is None and bucket.get("torn/metadata.yaml") is None
    assert bucket.get(f"torn/{files_of(lab)[1].name}") is not None


def test_a_damaged_bag_is_sent_as_it_is_and_said_to_be_damaged(bucket, lab):
    file = files_of(lab)[0]
    content = bytearray(file.read_bytes())
    # A chunk near the middle: its first records.
    with open(file, "rb") as stream:
        chunks = make_reader(stream).get_summary().chunk_indexes
    at = sorted(chunk.chunk_start_offset for chunk in chunks)[len(chunks) // 2] + 100
    content[at : at + 400] = bytes(byte ^ 0x5A for byte in content[at : at + 400])
    file.write_bytes(content)
    assert subprocess.run([HOLDALL, "reindex", lab], capture_output=True).returncode == 3
    ran = holdall(bucket, "upload", "--json", "--delete-after-verify", lab, "s3://fleet/damaged")
    assert ran.returncode == 3 and "is damaged" in ran.stderr and "holdall check" in json.loads(ran.stdout)["damage"], ran
    assert file.read_bytes() == content
    equal(bucket, lab, "damaged")


def test_a_bag_that_cannot_be_opened_is_sent_and_kept_and_no_success(bucket, lab):
    for file in lab.glob("*.mcap"):
        content = bytearray(file.read_bytes())
        content[: len(content) - 8] = bytes(byte ^ 0x5A for byte in content[: len(content) - 8])
        file.write_bytes(content)
    ran = holdall(bucket, "upload", "--json", "--delete-after-verify", lab, "s3://fleet/noise")
    assert ran.returncode == 3 and "is damaged" in ran.stderr and json.loads(ran.stdout)["damage"], ran
    assert list(lab.glob("*.mcap"))
    equal(bucket, lab, "noise")


def test_a_rate_is_kept(bucket, lab):
    ran = done(bucket, "upload", "--limit-rate", "1GB", "--schedule", "00:00-23:59", "--json", lab, "s3://fleet/paced")
    assert json.loads(ran.stdout)["sent_bytes"] > 0


def test_an_encrypted_bag_is_sent_without_its_secret_key(bucket, plain, tmp_path):
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    sealed = tmp_path / "sealed"
    done(bucket, "convert", plain, "-o", sealed, "--encrypt-to", f"{key}.pub")
    done(bucket, "upload", sealed, "s3://fleet/robot")
    equal(bucket, sealed, "robot")
    # A recording that was killed has not ended, as the memory shows that is kept for it; nor has a file of which the end was only reserved.
    (sealed / ".holdall-rescue.json").write_text("{}")
    torn = holdall(bucket, "upload", sealed, "s3://fleet/torn")
    assert torn.returncode != 0 and "was not ended" in torn.stderr, torn
    (sealed / ".holdall-rescue.json").unlink()
    last = sorted(sealed.glob("*.mcap"))[-1]
    with open(last, "ab") as file:
        file.truncate(last.stat().st_size + 65_536)
    torn = holdall(bucket, "upload", sealed, "s3://fleet/cut")
    assert torn.returncode != 0 and "has no end" in torn.stderr, torn
    # One that was killed between two writes: all of it was written, and neither memory nor a reserved tail shows that.
    with open(last, "ab") as file:
        file.truncate(last.stat().st_size - 65_536 - 4096)
    torn = holdall(bucket, "upload", sealed, "s3://fleet/killed")
    assert torn.returncode != 0 and "has no end" in torn.stderr, torn
    assert bucket.get("killed/metadata.yaml") is None
