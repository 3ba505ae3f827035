"""Catalogs, plans and whole copies of bags in a bucket: one listing, the ends of files, and what changed."""

import json
import subprocess

import pytest
from buckets import SECRET, SERVER
from conftest import HOLDALL
from test_python import environment, installed  # noqa: F401
from test_remote import write_bag

pytestmark = pytest.mark.skipif(not SERVER.exists(), reason="moto is not installed: scripts/setup.sh nodes")
BAGS = 12


@pytest.fixture(scope="module")
def runs(tmp_path_factory, bucket):
    """Bags of a fleet, here and in the bucket: folders with metadata, one without, single files, and what is none."""
    folder = tmp_path_factory.mktemp("runs")
    for number in range(BAGS):
        bag = folder / f"robot{number % 3}" / f"run{number}"
        bag.parent.mkdir(exist_ok=True)
        write_bag(bag, ["/large", "/small"], 5 + number, 200)
    (folder / "robot1/run1/metadata.yaml").unlink()
    single = folder / "files"
    single.mkdir()
    for number in (2, 3):
        found = next((folder / f"robot{number % 3}/run{number}").glob("*.mcap"))
        (single / f"take{number}.mcap").write_bytes(found.read_bytes() + b"")
    (folder / ".hidden").mkdir()
    (folder / ".hidden/old.mcap").write_bytes(b"nothing")
    (folder / "files/broken.mcap").write_bytes(b"this is no bag" * 9)
    for path in folder.rglob("*"):
        if path.is_file():
            bucket.put(f"runs/{path.relative_to(folder)}", path.read_bytes())
    return folder


def run(bucket, *words, code=0, remote=True):
    env = bucket.env() if remote else None
    done = subprocess.run([HOLDALL, *map(str, words)], capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode == code, done.stderr
    assert SECRET not in done.stderr + done.stdout
    return done


def catalog(bucket, root, out, code=0, remote=True):
    return json.loads(run(bucket, "catalog", root, "-o", out, "--json", code=code, remote=remote).stdout)


def found(bucket, out, root, remote=True):
    """What is known of each topic of each bag below a root."""
    lines = run(bucket, "find", "messages >= 0", out, "--json", remote=remote).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    named = ("bag", "topic", "type", "messages", "state", "storage", "files", "start", "duration_ns")
    return sorted(json.dumps({name: str(row.get(name)).removeprefix(root) for name in named}) for row in rows)


def test_a_bucket_is_catalogued_as_a_folder_is_with_one_listing_and_the_ends_of_files(bucket, runs, tmp_path):
    local = catalog(bucket, runs, tmp_path / "local", code=1, remote=False)
    bucket.proxy.take()
    remote = catalog(bucket, "s3://fleet/runs", tmp_path / "remote", code=1)
    requests = bucket.proxy.take()
    assert remote["bags"] == local["bags"] == BAGS + 3 and remote["messages"] == local["messages"]
    assert [bad["bag"] for bad in remote["unreadable"]] == ["s3://fleet/runs/files/broken.mcap"]
    assert found(bucket, tmp_path / "remote", "s3://fleet/runs") == found(bucket, tmp_path / "local", str(runs), remote=False)
    listings = [request for request in requests if "list-type=2" in request[1] and "delimiter" not in request[1]]
    assert len(listings) == 1, listings
    assert len(requests) <= 1 + 4 * remote["bags"], len(requests)


def test_only_what_changed_is_read_again(bucket, runs, tmp_path):
    out = tmp_path / "catalog"
    assert catalog(bucket, "s3://fleet/runs/robot0", out)["read"] == 4
    bucket.proxy.take()
    again = catalog(bucket, "s3://fleet/runs/robot0", out)
    assert (again["read"], again["unchanged"]) == (0, 4) and len(bucket.proxy.take()) == 1
    # The same content at another time is no change; another content of the same length is one.
    bag = runs / "robot0/run0"
    file = next(bag.glob("*.mcap"))
    bucket.put(f"runs/robot0/run0/{file.name}", file.read_bytes())
    assert catalog(bucket, "s3://fleet/runs/robot0", out)["read"] == 0
    other = bytearray((bag / "metadata.yaml").read_bytes())
    other[-1:] = b" "
    bucket.put("runs/robot0/run0/metadata.yaml", bytes(other))
    assert catalog(bucket, "s3://fleet/runs/robot0", out)["read"] == 1
    for name in ("metadata.yaml", file.name):
        bucket.request("DELETE", f"runs/robot0/run0/{name}")
    left = catalog(bucket, "s3://fleet/runs/robot0", out)
    assert (left["removed"], left["bags"]) == (1, 3)
    bucket.put_folder(bag, "runs/robot0/run0")


def test_what_a_service_did_not_send_is_a_row_and_is_read_the_next_time(bucket, runs, tmp_path):
    out = tmp_path / "catalog"

    def refuse(handler_of):
        return lambda _, handler: "truncate" if handler_of in handler.path and handler.command == "GET" else None

    bucket.proxy.fault = refuse("/runs/robot2/run5/run5")
    bad = catalog(bucket, "s3://fleet/runs/robot2", out, code=1)
    assert [row["bag"] for row in bad["unreadable"]] == ["s3://fleet/runs/robot2/run5"] and bad["bags"] == 4
    bucket.proxy.fault = lambda *_: None
    assert catalog(bucket, "s3://fleet/runs/robot2", out)["read"] == 1


def test_nothing_and_no_bucket_are_one_sentence(bucket, runs, tmp_path):
    for url, word in [("s3://fleet/nothing", "nothing"), ("s3://gone/runs", "gone")]:
        refused = run(bucket, "catalog", url, "-o", tmp_path / "catalog", code=2)
        assert refused.stderr.count("\n") == 1 and word in refused.stderr, refused.stderr
        assert not (tmp_path / "catalog").exists()


def test_a_plan_over_a_bucket_reads_each_message_once(bucket, runs, installed, tmp_path):  # noqa: F811
    python, site = installed
    catalog(bucket, "s3://fleet/runs", tmp_path / "catalog", code=1)
    script = (
        "import holdall, sys\n"
        "for source in (sys.argv[1], ['s3://fleet/runs/robot0', 's3://fleet/runs/robot2']):\n"
        "    tasks = holdall.plan(source, topics='/small', task_bytes=2000)\n"
        "    tables = [holdall.read(task) for task in tasks]\n"
        "    print(len(tasks), sum(len(table) for table in tables), len({name for table in tables for name in table['bag'].to_pylist()}))\n"
    )
    env = environment(site, **{name: value for name, value in bucket.env().items() if name.startswith("AWS_")})
    done = subprocess.run([python, "-c", script, str(tmp_path / "catalog")], env=env, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    all_of, some = (tuple(map(int, line.split())) for line in done.stdout.splitlines())
    counts = {number: 5 + number for number in range(BAGS)}
    assert all_of[1] == sum(counts.values()) + counts[2] + counts[3] and all_of[2] == BAGS + 2 and all_of[0] > 1
    assert some[1] == sum(count for number, count in counts.items() if number % 3 != 1) and some[2] == 8


def test_a_bag_is_converted_from_a_bucket_with_few_large_requests(bucket, tmp_path):
    write_bag(tmp_path / "plain", ["/large", "/small"], 1500, 10_000)
    subprocess.run([HOLDALL, "convert", tmp_path / "plain", "-o", tmp_path / "lab"], check=True, capture_output=True)
    bucket.put_folder(tmp_path / "lab", "large/lab")
    file = next((tmp_path / "lab").glob("*.mcap"))
    run(bucket, "convert", tmp_path / "lab", "-o", tmp_path / "here", remote=False)
    bucket.proxy.take()
    run(bucket, "convert", "s3://fleet/large/lab", "-o", tmp_path / "there")
    gets = [request for request in bucket.proxy.take() if request[0] == "GET" and ".mcap" in request[1]]
    size = file.stat().st_size
    assert size > 25_000_000, "several requests' worth"
    assert len(gets) <= 3 + size // (3 << 20), gets
    assert sum(request[3] for request in gets) < 1.05 * size + (512 << 10)
    run(bucket, "diff", tmp_path / "there", tmp_path / "here", remote=False)
    run(bucket, "check", tmp_path / "there", remote=False)
