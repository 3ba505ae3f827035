"""`holdall bench link`: real programs with an emulated link between them."""

import json
import os
import signal
import subprocess
import sys

import pytest
from conftest import HOLDALL, NODES, messages_of

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not os.access("/dev/net/tun", os.R_OK | os.W_OK), reason="needs root and /dev/net/tun"
)

SEND = """
import socket, sys, time
count, size, gap = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
while True:
    try:
        link = socket.create_connection(("10.99.0.2", 4000))
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.recv(1)
for number in range(count):
    out.sendto(number.to_bytes(4, "big") + bytes(size - 4), ("10.99.0.2", 5000))
    time.sleep(gap)
"""

# A connection says when to begin; after the last datagram nothing comes for a while. 33 is SO_RCVBUFFORCE.
RECEIVE = """
import socket
server = socket.create_server(("10.99.0.2", 4000))
port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
port.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
port.bind(("10.99.0.2", 5000))
peer, _ = server.accept()
peer.send(b"g")
port.settimeout(2)
found = []
try:
    while True:
        found.append(int.from_bytes(port.recv(65536)[:4], "big"))
except TimeoutError:
    pass
print("received", len(found), found == sorted(found), flush=True)
"""


# In one system call: `print` may take two for a line, and the line of the other program comes between them.
WRITE_LINE = "; os.write(1, f'{said}\\n'.encode())"


def python(text, *arguments):
    return [sys.executable, "-c", text, *map(str, arguments)]


def link(world, spec, a, b, *flags, check=True):
    """The report, and what the programs printed before it."""
    env = {**world.env, "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}
    done = subprocess.run(
        [HOLDALL, "bench", "link", spec, "--json", *flags, "--", *map(str, a), "--", *map(str, b)],
        env=env, cwd=world.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stderr + done.stdout
    begin = done.stdout.index("{\n")
    report = json.loads(done.stdout[begin:])
    assert report["balances"], report
    return report, done.stdout[:begin], done


def books(direction):
    dropped = sum(reason["packets"] for reason in direction["dropped"].values())
    return direction["arrived"]["packets"] + dropped + direction["under_way"]


def test_what_enters_an_ideal_link_arrives_in_order(world):
    report, said, _ = link(world, "", python(SEND, 500, 4000, 0.0005), python(RECEIVE))
    assert "received 500 True" in said
    there = report["a_to_b"]
    # Three fragments for each datagram, and the connection.
    assert there["fragments"] == 1500
    assert there["entered"]["packets"] == there["arrived"]["packets"] == books(there) == report["kernel"][0]["sent_packets"]
    assert report["kernel"][1]["protocols"]["Ip.ReasmOKs"] == 500


def test_loss_takes_whole_packets_and_is_counted(world):
    report, said, _ = link(world, "loss=20%/burst=3,delay=2ms±1ms,seed=5", python(SEND, 3000, 200, 0.0002), python(RECEIVE))
    received = int(said.split()[1])
    there = report["a_to_b"]
    assert 2000 < received < 2800 and "True" in said
    assert there["dropped"]["loss"]["packets"] >= 3000 - received > 0
    assert there["entered"]["packets"] == books(there)


def test_a_rate_on_the_path_drops_what_is_too_much_and_one_at_the_interface_makes_the_sender_wait(world):
    # 2 000 datagrams of 1428 bytes at once are 23.5 Mbit with all headers, and the queue holds 0.1 s: a sender on a machine that is busy would
    # have to take ten seconds for them to find room at 2 Mb/s.
    burst = python(SEND, 2000, 1400, 0)
    path, said, _ = link(world, "rate=2Mb/s,queue=100ms", burst, python(RECEIVE))
    assert path["a_to_b"]["dropped"]["queue"]["packets"] > 500
    assert int(said.split()[1]) < 1500
    nic, said, _ = link(world, "rate=20Mb/s,queue=100ms,bottleneck=nic", burst, python(RECEIVE))
    assert nic["a_to_b"]["dropped"]["queue"]["packets"] == 0
    assert "received 2000 True" in said


def test_nothing_arrives_during_an_outage(world):
    report, said, _ = link(world, "down=1s@1s", python(SEND, 3000, 100, 0.001), python(RECEIVE))
    lost = report["a_to_b"]["dropped"]["outage"]["packets"]
    assert lost > 0 and int(said.split()[1]) + lost >= 3000


# What is sent before the recorder has discovered its publisher, which takes longer where packets are lost, is sent again.
LATCHED = {"depth": 1000, "durability": "transient_local"}


def test_fast_dds_publishes_to_the_recorder_over_a_lossy_link(world):
    plan = {
        "publishers": [{"topic": "/chatter", "type": "std_msgs/msg/String", "count": 300, "rate_hz": 100, "text": "n{n}", "qos": LATCHED}],
        "wait_for_subscriptions": 1,
        "tell_when_alone": True,
    }
    (world.folder / "plan.json").write_text(json.dumps(plan))
    talker = [sys.executable, NODES / "talker.py", world.folder / "plan.json"]
    record = [HOLDALL, "record", "/chatter", "-o", "bag", "--max-recording-messages", 300, "--disable-keyboard-controls"]
    report, _, _ = link(world, "rate=54Mb/s,loss=10%,delay=1ms", talker, record)
    assert len(messages_of(world.folder / "bag")["/chatter"]) == 300, "the working folder is kept, reliable messages are sent again"
    there, back = report["a_to_b"], report["b_to_a"]
    assert there["rtps"]["DATA"] >= 300 and there["rtps_repairs"] > 0 and there["multicast"] > 0
    assert back["rtps"]["ACKNACK"] > 0


def test_the_player_reaches_a_fast_dds_node_over_a_lossy_link(world):
    from test_play import write_with_pip_mcap

    start = 1_700_000_000_000_000_000
    write_with_pip_mcap(world.folder / "lab.mcap", {"/chatter": [(start + i * 10_000_000, f"x{i}") for i in range(200)]})
    plan = {"subscriptions": [{"topic": "/chatter", "type": "std_msgs/msg/String", "qos": {"depth": 1000}}], "expect": {"/chatter": 200}}
    (world.folder / "plan.json").write_text(json.dumps(plan))
    listener = [sys.executable, NODES / "listener.py", world.folder / "plan.json"]
    play = [HOLDALL, "play", "lab.mcap", "--wait-for-subscribers", "/chatter=1", "--wait-for-all-acked", 20000, "--disable-keyboard-controls"]
    _, said, _ = link(world, "loss=5%/burst=2,delay=1ms", play, listener)
    done = [json.loads(line) for line in said.splitlines() if line.startswith('{"event": "done"')]
    assert done[0]["received"]["/chatter"]["count"] == 200


def test_programs_share_no_memory_and_no_loopback(world):
    code = "import os, socket; open('/dev/shm/mine', 'x'); said = sorted(os.listdir('/dev/shm')), [name for _, name in socket.if_nameindex()]"
    code += WRITE_LINE
    _, said, _ = link(world, "", python(code), python(code))
    assert said.splitlines() == ["(['mine'], ['lo', 'link0'])"] * 2
    assert not os.path.exists("/dev/shm/mine")


def test_a_program_that_fails_is_named(world):
    _, _, done = link(world, "", python("raise SystemExit(7)"), python(""), check=False)
    assert done.returncode == 1
    table = subprocess.run(
        [HOLDALL, "bench", "link", "", "--", *python("raise SystemExit(7)"), "--", "true"], stdout=subprocess.PIPE, text=True, timeout=60
    )
    assert table.returncode == 1 and "ended with exit code 7" in table.stdout, table.stdout


def test_both_programs_end_on_a_signal_and_the_report_is_printed(world):
    wait = python("import os, time; said = 'here'" + WRITE_LINE + "; time.sleep(600)")
    process = subprocess.Popen([HOLDALL, "bench", "link", "", "--", *wait, "--", *wait], stdout=subprocess.PIPE, text=True)
    assert [process.stdout.readline() for _ in range(2)] == ["here\n"] * 2
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and said.count("was ended by signal 15") == 2, said


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["rate=54", "--", "true", "--", "true"], "expected a rate from 1kb/s to 100Gb/s, for example 54Mb/s"),
        (["loss=10%", "--", "true"], "expected two command lines"),
        (["", "--", "true", "--", "no-such-program-at-all"], "cannot start no-such-program-at-all on the link"),
    ],
)
def test_bad_input_is_one_sentence(world, arguments, reason):
    done = subprocess.run([HOLDALL, "bench", "link", *arguments], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2 and reason in done.stderr, done.stderr


def test_a_kernel_without_netem_is_named_in_one_sentence(world):
    done = subprocess.run(
        [HOLDALL, "bench", "link", "delay=5ms,backend=netem", "--", "true", "--", "true"],
        stderr=subprocess.PIPE, text=True, timeout=60,
    )  # fmt: skip
    if done.returncode == 0:
        pytest.skip("this kernel has netem")
    assert done.returncode == 2 and "load the kernel's module sch_netem" in done.stderr, done.stderr
