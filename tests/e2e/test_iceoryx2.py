"""Services of iceoryx2: pip `iceoryx2` publishes and listens, in a shared-memory root and prefix of each test's own."""

import glob
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time

import pytest
import test_disks
from conftest import HOLDALL, Node, Program, World, messages_of

SHM = ("record", "--transport", "iceoryx2", "-o")


@pytest.fixture(scope="module", autouse=True)
def needs_iceoryx2():
    said = subprocess.run([HOLDALL, "play", "--transport", "iceoryx2", "/nonexistent"], capture_output=True, text=True, timeout=60).stderr
    if "has no iceoryx2" in said:
        pytest.skip("this build has no iceoryx2; make e2e builds one that has")


class Shm(World):
    """A root and a prefix that no other test uses."""

    def __init__(self, folder):
        super().__init__(folder)
        self.prefix = f"h{os.getpid()}_{abs(hash(str(folder))) % 10**8}_"
        # A path with a dot or of more than 100 characters would be refused for sockets.
        self.root = f"/tmp/{self.prefix}iox2/"
        (folder / "config").mkdir()
        (folder / "config" / "iceoryx2.toml").write_text(f"[global]\nroot-path = '{self.root}'\nprefix = '{self.prefix}'\n")

    def peer(self, role, service, count=0, size=64, **plan):
        plan = {"role": role, "service": service, "count": count, "size": size, **plan}
        return self._keep(Node("iceoryx2_peer.py", plan, self.env, cwd=self.folder))

    def holdall(self, *arguments, **how):
        return self._keep(Program(arguments, self.env, cwd=self.folder, **how))

    def record(self, *arguments, bag="bag"):
        recorder = self.holdall(*SHM, bag, *arguments)
        recorder.wait_until_says("Listening for topics")
        return recorder

    def close(self):
        super().close()
        shutil.rmtree(self.root, ignore_errors=True)
        for left in glob.glob(f"/dev/shm/{self.prefix}*"):
            os.unlink(left)


@pytest.fixture
def shm(tmp_path):
    world = Shm(tmp_path)
    yield world
    world.close()


def payload(number, size):
    return (number.to_bytes(8, "little") + bytes([number % 251]) * size)[:size]


def topic_of(world, name):
    return next(topic for topic in world.info(world.folder / "bag")["topics"] if topic["name"] == name)


@pytest.mark.parametrize("size", [200, 200_000])
def test_cdr_of_a_ros_type_is_recorded_as_cdr(shm, size):
    recorder = shm.record("-a")
    peer = shm.peer("publish", "ros2://topics/camera/image", count=40, size=size, rate_hz=200, attributes={"ros_type": "sensor_msgs/msg/Image"}, stay=1)
    sent = peer.done()["md5"]
    code, said = recorder.stop()
    assert code == 0, said
    got = messages_of(shm.folder / "bag")["/camera/image"]
    assert hashlib.md5(b"".join(got)).hexdigest() == sent
    assert "lost: none" in said

    from mcap.reader import make_reader

    with open(shm.folder / "bag" / "bag_0.mcap", "rb") as stream:
        for schema, channel, message in make_reader(stream).iter_messages():
            assert (schema.name, channel.message_encoding) == ("sensor_msgs/msg/Image", "cdr")
            assert channel.metadata["holdall.transport"] == "iceoryx2"
            assert channel.metadata["holdall.origin.service"] == "ros2://topics/camera/image"
            assert 0 <= message.log_time - message.publish_time < 5 * 10**9, "the publisher's own stamp"
            assert 1 <= message.sequence <= 40


def test_a_service_of_an_unknown_type_is_recorded_with_its_header_and_offered_again(shm):
    recorder = shm.record("-a")
    native = {"type": "Point", "fixed": True, "header": "other"}
    peer = shm.peer("publish", "Lidar/Front", count=25, size=48, rate_hz=100, stay=1, **native)
    sent = peer.done()["md5"]
    code, said = recorder.stop()
    assert code == 0, said
    assert "losses cannot be known for /Lidar/Front" in said, "its header tells no sequence that we know"
    got = messages_of(shm.folder / "bag")["/Lidar/Front"]
    assert [len(message) for message in got] == [24 + 48] * 25
    assert hashlib.md5(b"".join(message[24:] for message in got)).hexdigest() == sent

    twin = shm.peer("subscribe", "Lidar/Front", count=25, size=48, **native)
    player = shm.holdall("play", "bag", "--transport", "iceoryx2")
    heard = twin.done()
    code, said = player.wait()
    assert code == 0, said
    assert heard["md5"] == sent
    assert heard["sequences"] == list(range(1, 26)), "an application's header is played as it was"
    assert heard["headers"] == [[21.5, 7]] * 25


def test_what_overflowed_is_counted_by_the_sequence(shm):
    recorder = shm.record("-a")
    peer = shm.peer("publish", "Gaps", count=50, rate_hz=200, skip=[11, 12, 30], stay=1)
    peer.done()
    code, said = recorder.stop()
    assert code == 3, said
    assert "lost: 3 messages" in said
    assert len(messages_of(shm.folder / "bag")["/Gaps"]) == 47


def test_a_publisher_that_is_killed_with_a_loan_disturbs_nobody(shm):
    recorder = shm.record("-a")
    other = shm.peer("publish", "Other", count=300, size=64, rate_hz=100, stay=1)
    other.wait_for("ready")
    victim = shm.peer("publish", "Victim", count=20, size=100_000, rate_hz=100, hold_at=15)
    victim.wait_for("holding")
    victim.process.send_signal(signal.SIGKILL)
    victim.process.wait()
    recorder.wait_until_says("cleaned up after 1 node(s) that died")
    # The service ends with its last user, and can be created again with another layout.
    again = shm.peer("publish", "Victim", count=10, size=100_000, rate_hz=100, stay=1)
    again.done()
    other.done()
    code, said = recorder.stop()
    assert code == 0, said
    got = messages_of(shm.folder / "bag")
    assert len(got["/Other"]) == 300
    # Bytes of no ROS type: the header's 16 are in front.
    assert [message[16:] for message in got["/Victim"]] == [payload(n, 100_000) for n in [*range(1, 15), *range(1, 11)]]


def test_a_recorder_that_is_killed_leaves_publishers_alone(shm):
    recorder = shm.record("-a")
    # Long enough for a second recorder to start before it ends, also on a busy machine.
    peer = shm.peer("publish", "Steady", count=800, size=50_000, rate_hz=100, buffer=2, borrow=2, stay=1)
    peer.wait_for("ready")
    recorder.wait_until_says("recording /Steady")
    recorder.process.kill()
    second = shm.record("-a", bag="second")
    assert peer.done()["md5"], "it was not blocked"
    code, said = second.stop()
    assert code in (0, 3), said
    assert messages_of(shm.folder / "second")["/Steady"][-1][16:] == payload(800, 50_000)


def test_events_wake_the_recorder_and_rest_costs_nothing(shm):
    recorder = shm.record("-a", "--control-socket", "control")
    peer = shm.peer("publish", "Event", count=30, size=64, rate_hz=100, events=True, stay=3)
    peer.wait_for("done")
    wait_until_received(shm, "/Event", 30)

    def cpu():
        with open(f"/proc/{recorder.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    # At rest until the publisher, which has sent everything, ends.
    before, begun = cpu(), time.monotonic()
    peer.process.wait()
    used = (cpu() - before) / (time.monotonic() - begun)
    code, said = recorder.stop()
    assert code == 0, said
    assert len(messages_of(shm.folder / "bag")["/Event"]) == 30
    assert used < 0.3, f"{used:.2f} cores at rest (a debug build on a busy machine; a busy loop takes a whole one)"


def test_a_ros_bag_is_played_to_services(shm):
    recorder = shm.record("-a")
    peer = shm.peer("publish", "ros2://topics/a", count=10, size=32, rate_hz=100, attributes={"ros_type": "std_msgs/msg/String"}, stay=1)
    sent = peer.done()["md5"]
    assert recorder.stop()[0] == 0
    heard_by = shm.peer("subscribe", "ros2://topics/b", count=10, size=32)
    player = shm.holdall("play", "bag", "--transport", "iceoryx2", "--remap", "/a:=/b")
    heard = heard_by.done()
    code, said = player.wait()
    assert code == 0, said
    assert heard["md5"] == sent
    assert heard["sequences"] == list(range(1, 11))


def wait_until_received(shm, topic, count):
    """Waits until the recording with a control socket has received so many messages of a topic, by its own report."""
    end = time.monotonic() + 60
    while True:
        told = shm.run("control", shm.folder / "control", "status")
        assert told.returncode == 0, told.stderr
        if json.loads(told.stdout)["status"]["topics"].get(topic, {}).get("received", 0) >= count:
            return
        assert time.monotonic() < end, told.stdout


def recorded_after_a_fault(shm, recorder, name="Other", count=40):
    """Publishes on another service and ends the recording; that service must be recorded completely."""
    other = shm.peer("publish", name, count=count, rate_hz=100, stay=1)
    other.done()
    code, said = recorder.stop()
    assert len(messages_of(shm.folder / "bag")[f"/{name}"]) == count
    return code, said


def test_a_buffer_that_overflows_is_counted_exactly(shm):
    """A burst into a buffer of two, from a publisher that never waits: messages dropped by the service are a gap, message for message."""
    recorder = shm.record("-a")
    peer = shm.peer("publish", "Burst", count=3000, size=64, buffer=2, borrow=2, stay=1)
    peer.done()
    code, said = recorder.stop()
    got = [int.from_bytes(message[16:24], "little") for message in messages_of(shm.folder / "bag")["/Burst"]]
    assert got == sorted(got) and len(got) < 3000, "nothing overflowed"
    (topic,) = json.loads(shm.run("audit", "--json", shm.folder / "bag").stdout)["topics"].values()
    # How many messages came after the last one that arrived cannot be known.
    assert topic["recorded"] == len(got)
    # Messages that a publisher that existed at the start had sent before are no loss.
    (publisher,) = topic["publishers"]
    assert topic["lost"] + topic["sent_before_match"] + publisher.get("sent_before", 0) == got[-1] - len(got) > 0, (topic, got[:5], got[-1])
    assert code == 3, said


def test_a_buffer_that_overflows_without_sequence_is_unknown_and_not_none(shm):
    recorder = shm.record("-a")
    peer = shm.peer("publish", "Burst", count=3000, size=64, buffer=2, borrow=2, header="none", stay=1)
    peer.done()
    code, said = recorder.stop()
    assert code == 0, said
    assert 0 < len(messages_of(shm.folder / "bag")["/Burst"]) < 3000
    assert "losses cannot be known for /Burst" in said


def test_a_service_without_a_place_for_a_subscriber_is_told_once_and_recorded_when_there_is_one(shm):
    publisher = shm.peer("publish", "Full", count=10**6, rate_hz=100, buffer=32, subscribers=1, wait_for_subscriber=True)
    publisher.wait_for("ready")
    taken = shm.peer("subscribe", "Full", count=10**9, size=64)
    taken.wait_for("ready")
    recorder = shm.record("-a", "--control-socket", "control")
    recorder.wait_until_says("cannot create a subscriber")
    # A service that came later is recorded: the recorder has looked again, and a second warning would have come.
    shm.peer("publish", "Later", count=1, size=64, rate_hz=100, stay=1)
    recorder.wait_until_says("recording /Later")
    taken.process.kill()
    taken.process.wait()
    recorder.wait_until_says("recording /Full")
    wait_until_received(shm, "/Full", 1)
    publisher.process.kill()
    code, said = recorded_after_a_fault(shm, recorder)
    assert said.count("cannot create a subscriber") == 1, said
    assert "/Full" in said
    assert messages_of(shm.folder / "bag")["/Full"], "a place became free"


def test_memory_of_a_publisher_that_vanishes_disturbs_nobody_else(shm):
    """The segment is unlinked before the recorder can open it."""
    publisher = shm.peer("publish", "Gone", count=10**6, rate_hz=100, buffer=32, wait_for_subscriber=False, size=100_000)
    publisher.wait_for("ready")
    segments = [path for path in glob.glob(f"/dev/shm/{shm.prefix}*") if path.endswith(".publisher_data") or "data" in path]
    assert segments, os.listdir("/dev/shm")
    for path in segments:
        os.unlink(path)
    recorder = shm.record("-a")
    recorder.wait_until_says("cannot be opened")
    code, said = recorded_after_a_fault(shm, recorder)
    told = [line for line in said.splitlines() if "/Gone" in line and "warn" in line]
    assert len(told) == 1, said


def test_a_service_that_cannot_be_opened_is_told_once(shm):
    """Its description is invalid."""
    first = shm.peer("publish", "Broken", count=1, wait_for_subscriber=False, stay=20)
    first.wait_for("done")
    (description,) = [path for path in glob.glob(f"{shm.root}services/*") if b"Broken" in open(path, "rb").read()]
    os.chmod(description, 0o600)
    with open(description, "wb") as file:
        file.write(b"this describes nothing")
    recorder = shm.record("-a")
    code, said = recorded_after_a_fault(shm, recorder)
    assert code == 0, said
    warnings = [line for line in said.splitlines() if "warn: iceoryx2" in line]
    assert len(warnings) <= 1, said


def test_a_path_that_iceoryx2_cannot_hold_ends_neither_the_recording_nor_its_report(shm):
    """iceoryx2 panics where it lists a folder with such a name, also when a node ends."""
    peer = shm.peer("publish", "talk", count=200, rate_hz=100, stay=1)
    recorder = shm.record("-a")
    recorder.wait_until_says("recording /talk")
    folders = [path for path in glob.glob(f"{shm.root}nodes/*") if os.path.isdir(path)]
    assert folders
    for folder in folders:
        open(os.path.join(folder, "a" * 250), "w").close()
    peer.done()
    code, said = recorder.stop()
    assert code == 0, said
    assert "(1 file)" in said and "internal reason" not in said, said
    assert len(messages_of(shm.folder / "bag")["/talk"]) == 200


@pytest.fixture
def frozen_at_will(shm):
    folder = test_disks.make(shm, "ext4")
    yield folder
    test_disks.run("fsfreeze", "-u", folder)
    shm.close()
    test_disks.run("umount", "-l", folder)


def test_a_disk_that_stands_still_never_holds_back_a_publisher(shm, frozen_at_will):
    """Its pool has four samples more than its service lends: if the recorder kept them, it could not send."""
    bag = frozen_at_will / "bag"
    recorder = shm.record("-a", "--max-cache-size", "4MB", bag=bag)
    camera = shm.peer("publish", "Camera", count=400, size=200_000, rate_hz=100, buffer=4, borrow=4, stay=1)
    camera.wait_for("ready")
    recorder.wait_until_says("recording /Camera")
    assert test_disks.run("fsfreeze", "-f", frozen_at_will).returncode == 0
    # A publisher that is blocked ends only when the disk continues, so never.
    camera.wait_for("done")
    assert test_disks.run("fsfreeze", "-u", frozen_at_will).returncode == 0
    code, said = recorder.stop()
    # 1 where nothing became durable for too long, which is reported as well.
    assert code in (1, 3), said
    told = json.loads(shm.run("audit", "--json", bag).stdout)
    assert told["balanced"], told
    camera = told["topics"]["/Camera"]
    assert camera["recorded"] + camera["lost"] >= 399, camera
    assert 0 < camera["recorded"] < 400, "the disk stood still, and what the cache could not hold was let go"


def test_all_threads_keep_to_their_cores_and_receiving_ones_go_first(shm):
    recorder = shm.record("-a", "--cpu-affinity", "0", "--rt-priority", "10")
    policies, end = {}, time.monotonic() + 20
    # A thread names itself when it first runs.
    while not {"iceoryx2", "drain"} <= policies.keys():
        assert time.monotonic() < end, policies
        for task in glob.glob(f"/proc/{recorder.process.pid}/task/*"):
            try:
                with open(f"{task}/status") as status, open(f"{task}/comm") as name:
                    cores = next(line.split()[1] for line in status if line.startswith("Cpus_allowed_list"))
                    policies[name.read().strip()] = os.sched_getscheduler(int(os.path.basename(task))) & ~os.SCHED_RESET_ON_FORK
            except (FileNotFoundError, ProcessLookupError):
                continue  # It has ended since the listing.
            assert cores == "0", task
    code, said = recorded_after_a_fault(shm, recorder)
    assert code == 0, said
    if not [line for line in said.splitlines() if "--rt-priority" in line]:
        assert policies["iceoryx2"] == os.SCHED_FIFO and policies["drain"] == os.SCHED_OTHER, policies


def test_a_priority_that_is_not_permitted_is_told_once_and_changes_nothing(shm):
    if shutil.which("setpriv") is None or os.geteuid() != 0:
        pytest.skip("needs setpriv and root, to take the permission away")
    recorder = shm.holdall(*SHM, "bag", "-a", "--rt-priority", "10", program=("setpriv", "--bounding-set=-sys_nice", HOLDALL))
    recorder.wait_until_says("Listening for topics")
    code, said = recorded_after_a_fault(shm, recorder)
    assert code == 0, said
    assert len([line for line in said.splitlines() if "--rt-priority" in line]) == 1, said
