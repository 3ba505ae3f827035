"""Nodes are heard on all networks of a host, whichever came first: hosts with several interfaces in network namespaces of the test's own."""

import json
import subprocess
import sys
import time

import pytest
from conftest import DEADLINE_S
from served import served, until
from test_network import MESSAGES, MOST_SENT, PAYLOAD_BYTES, bare_hosts, big  # noqa: F401

SUBNET = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}
LOCALHOST = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}


def tick(**plan):
    return {"topic": "/tick", "type": "std_msgs/msg/String", "count": 40, "rate_hz": 20, "qos": {"depth": 1000}, **plan}


def docker_and_wlan(hosts):
    """Two hosts with a network between them; each has a bridge as Docker makes it, which came first."""
    here, there = hosts(2)
    for host in (here, there):
        host.ip("link", "add", "docker0", "type", "bridge")
        host.ip("addr", "add", "172.17.0.1/16", "dev", "docker0")
        host.ip("link", "set", "docker0", "up")
    here.link("wlan0", "10.88.0.1/24", there, "10.88.0.2/24")
    return here, there


def start(host, bag, *arguments, **env):
    recorder = host.record("--topics", "/tick", "/big", "-o", bag, *arguments, **{**SUBNET, **env})
    recorder.wait_until_says("Listening for topics")
    return recorder


@pytest.mark.parametrize("order", ["node_first", "recorder_first"])
@pytest.mark.parametrize("dds", ["fastdds", "cyclone"])
def test_a_bridge_that_came_first_hides_no_network(bare_hosts, tmp_path, dds, order):
    here, there = docker_and_wlan(bare_hosts)

    def publish():
        if dds == "fastdds":
            node = there.talker(tick(count=None), env=SUBNET)
        else:
            node = there.node("cyclone_node.py", {"publish": "/tick", "interface": "wlan0"})
        node.wait_for("ready")
        return node

    if order == "node_first":
        node = publish()
        recorder = start(here, tmp_path / "bag")
    else:
        recorder = start(here, tmp_path / "bag")
        node = publish()
    recorder.wait_until_says("recording /tick")
    wait_for_messages(here.world, tmp_path / "bag", 20)
    node.interrupt()
    node.done()
    code, said = recorder.stop()
    assert code == 0, said
    assert said.count("DDS uses the networks docker0 (172.17.0.1), lo (127.0.0.1), wlan0 (10.88.0.1)") == 1, said


def addresses(host):
    """All IPv4 addresses of a host, as the system lists them: interface, address, whether it is up and has a carrier."""
    listed = json.loads(subprocess.run(host.inside("ip", "-j", "addr"), check=True, capture_output=True, text=True).stdout)
    works = lambda link: "UP" in link["flags"] and "NO-CARRIER" not in link["flags"]  # noqa: E731
    return {(link["ifname"], one["local"], works(link)) for link in listed for one in link["addr_info"] if one["family"] == "inet"}


def networks_of(bag_status):
    return {(one["interface"], one["address"], one["used"]) for one in bag_status["networks"]}


def test_the_networks_that_are_used_can_be_read_while_it_records_and_afterwards(bare_hosts, world, tmp_path):
    (here,) = bare_hosts(1)
    here.link("net-a", "10.88.0.1/24")
    here.link("net-b", "10.99.0.1/24")
    here.ip("link", "set", "net-b", "down")
    recorder = start(here, tmp_path / "bag", "--json", "--control-socket", tmp_path / "socket", "--web", "127.0.0.1:0")
    page = served(recorder)

    def status():
        return json.loads(world.run("control", tmp_path / "socket", "status").stdout)["status"]

    def wait_for(expected):
        until(lambda: networks_of(status()) == expected, f"{expected} as networks")

    assert ("net-b", "10.99.0.1", False) in addresses(here)
    wait_for(addresses(here))
    here.ip("link", "set", "net-b", "up")
    here.link("net-c", "10.111.0.1/24")
    wait_for(addresses(here))
    # The other end of an interface, as a switch that is turned off.
    here.ip("link", "set", "net-b-far", "down")
    recorder.wait_until_says("DDS has lost the network net-b (10.99.0.1): no carrier")
    assert ("net-b", "10.99.0.1", False) in addresses(here)
    wait_for(addresses(here))
    assert [one["reason"].split(":")[0] for one in status()["networks"] if not one["used"]] == ["no carrier"]
    here.ip("link", "set", "net-b-far", "up")
    wait_for(addresses(here))
    everywhere = addresses(here)
    assert all(is_up for _, _, is_up in everywhere) and len(everywhere) == 4, everywhere
    here.ip("link", "del", "net-c")
    here.ip("link", "set", "net-a", "down")
    gone = addresses(here) | {("net-c", "10.111.0.1", False)}
    wait_for(gone)
    reasons = {one["interface"]: one["reason"] for one in status()["networks"]}
    assert reasons["net-a"] == "its interface is down" and "is gone" in reasons["net-c"] and reasons["net-b"] is reasons["lo"] is None, reasons
    get = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())"
    get = here.inside(sys.executable, "-c", get, f"{page.root}api/status?token={page.token}")
    fetch = lambda: json.loads(subprocess.run(get, check=True, capture_output=True, text=True).stdout)["status"]  # noqa: E731
    until(lambda: networks_of(fetch()) == gone, "the networks in the page's state")
    code, said = recorder.stop()
    assert code == 0, said
    report, _ = json.JSONDecoder().raw_decode(said[said.index("\n{\n") + 1 :])
    assert networks_of(report) == gone


def test_a_network_without_room_for_its_multicast_is_named(bare_hosts, world, tmp_path):
    (here,) = bare_hosts(1)
    subprocess.run(here.inside("sh", "-c", "echo 4 > /proc/sys/net/ipv4/igmp_max_memberships"), check=True)
    for number in range(6):
        here.link(f"net-{number}", f"10.88.{number}.1/24")
    recorder = start(here, tmp_path / "bag", "--control-socket", tmp_path / "socket")
    recorder.wait_until_says("in part: nodes there are heard only when they know this computer")
    subprocess.run(here.inside("sh", "-c", "echo 20 > /proc/sys/net/ipv4/igmp_max_memberships"), check=True)

    def all_used():
        networks = json.loads(world.run("control", tmp_path / "socket", "status").stdout)["status"]["networks"]
        return len(networks) == 7 and all(one["used"] and one["reason"] is None for one in networks)

    until(all_used, "all networks as used")
    recorder.stop()


def wait_for_messages(world, bag, count):
    deadline = time.monotonic() + DEADLINE_S
    while True:
        info = world.run("info", "--json", bag)
        if info.returncode == 0 and json.loads(info.stdout)["message_count"] >= count:
            return
        assert time.monotonic() < deadline, f"fewer than {count} messages were recorded"
        time.sleep(0.1)


def test_a_player_is_heard_behind_a_second_network(bare_hosts, world, tmp_path):
    here, there = docker_and_wlan(bare_hosts)
    recorder = start(here, tmp_path / "bag")
    talker = here.talker(tick(), env=SUBNET, wait_for_subscriptions=1)
    talker.done()
    assert recorder.stop()[0] == 0
    plan = {"subscriptions": [{"topic": "/tick", "type": "std_msgs/msg/String", "qos": {"depth": 1000}}], "expect": {"/tick": 40}}
    listener = there.node("listener.py", plan, SUBNET)
    listener.wait_for("ready")
    player = here.holdall("play", tmp_path / "bag", "--disable-keyboard-controls", **SUBNET)
    assert listener.done()["received"]["/tick"]["count"] == 40
    assert player.wait()[0] == 0


@pytest.mark.parametrize("reliability", ["reliable", "best_effort"])
def test_two_networks_to_one_publisher_bring_each_byte_once(bare_hosts, tmp_path, reliability):
    here, there = bare_hosts(2)
    here.link("net-a", "10.88.0.1/24", there, "10.88.0.2/24")
    here.link("net-b", "10.99.0.1/24", there, "10.99.0.2/24")
    recorder = start(here, tmp_path / "bag")
    interfaces = ("net-a", "net-b", "lo")
    before = {name: there.sent_bytes(name) for name in interfaces}
    talker = there.talker(big("/big", reliability=reliability), env=SUBNET, wait_for_subscriptions=1)
    talker.done()
    sent = {name: (there.sent_bytes(name) - before[name]) / (MESSAGES * PAYLOAD_BYTES) for name in interfaces}
    code, said = recorder.stop()
    assert code in (0, 3) and "recorded" in said, said
    assert 1 <= sum(sent.values()) < MOST_SENT[reliability], sent


@pytest.mark.parametrize("at_first", ["nothing", "another"])
def test_a_network_that_comes_later_is_heard(bare_hosts, tmp_path, at_first):
    here, there = bare_hosts(2)
    if at_first == "another":
        here.link("net-a", "10.88.0.1/24")
    recorder = start(here, tmp_path / "bag")
    talker = there.talker(tick(count=None), env=SUBNET)
    talker.wait_for("ready")
    here.link("net-b", "10.99.0.1/24", there, "10.99.0.2/24")
    # A node that was there before its network is heard once Fast DDS uses the network, so another one is started, too.
    other = there.talker(tick(topic="/big"), env=SUBNET, wait_for_subscriptions=1)
    other.done()
    recorder.wait_until_says("DDS uses the network net-b (10.99.0.1), which has come")
    talker.interrupt()
    talker.done()
    code, said = recorder.stop()
    assert code == 0 and "recording /big" in said, said


def test_a_network_that_goes_is_named_and_heard_again(bare_hosts, world, tmp_path):
    here, there = bare_hosts(2)
    here.link("net-a", "10.88.0.1/24")
    here.link("net-b", "10.99.0.1/24", there, "10.99.0.2/24")
    recorder = start(here, tmp_path / "bag")
    talker = there.talker(tick(count=None), env=SUBNET, wait_for_subscriptions=1)
    talker.wait_for("matched")
    wait_for_messages(world, tmp_path / "bag", 20)
    here.ip("addr", "del", "10.99.0.1/24", "dev", "net-b")
    recorder.wait_until_says("DDS has lost the network net-b (10.99.0.1)")
    here.ip("addr", "add", "10.99.0.1/24", "dev", "net-b")
    recorder.wait_until_says("DDS uses the network net-b (10.99.0.1), which has come")
    recorded = json.loads(world.run("info", "--json", tmp_path / "bag").stdout)["message_count"]
    wait_for_messages(world, tmp_path / "bag", recorded + 100)
    talker.interrupt()
    talker.done()
    recorder.stop()


def test_interfaces_that_the_user_names_are_all_that_is_used(bare_hosts, tmp_path):
    here, there = bare_hosts(2)
    here.link("net-a", "10.88.0.1/24", there, "10.88.0.2/24")
    here.link("net-b", "10.99.0.1/24")
    uri = "<General><Interfaces><NetworkInterface name='net-b'/></Interfaces></General>"
    recorder = start(here, tmp_path / "bag", CYCLONEDDS_URI=uri)
    unheard = there.talker(tick(count=None), env=SUBNET)
    unheard.wait_for("ready")
    here.talker(tick(topic="/big"), env={**SUBNET, "CYCLONEDDS_URI": uri}, wait_for_subscriptions=1).done()
    unheard.interrupt()
    code, said = recorder.stop()
    assert "DDS uses the networks net-b (10.99.0.1)\n" in said and "recording /big" in said and "recording /tick" not in said, (code, said)


@pytest.mark.parametrize("discovery_range", [LOCALHOST, SUBNET], ids=["LOCALHOST", "SUBNET"])
@pytest.mark.parametrize("order", ["node_first", "recorder_first"])
def test_a_cyclone_node_of_this_host_is_heard_in_both_orders(bare_hosts, tmp_path, order, discovery_range):
    (here,) = bare_hosts(1)
    here.link("eth0", "10.88.0.1/24")

    def publish():
        node = here.node("cyclone_node.py", {"publish": "/tick"})
        node.wait_for("ready")
        return node

    if order == "node_first":
        node = publish()
        # Longer than its announcements at the start.
        time.sleep(1)
        recorder = start(here, tmp_path / "bag", **discovery_range)
    else:
        recorder = start(here, tmp_path / "bag", **discovery_range)
        node = publish()
    recorder.wait_until_says("recording /tick")
    wait_for_messages(here.world, tmp_path / "bag", 20)
    node.interrupt()
    node.done()
    code, said = recorder.stop()
    assert code == 0, said


def test_a_cyclone_subscription_of_this_host_that_is_there_first_is_played_to(bare_hosts, tmp_path):
    (here,) = bare_hosts(1)
    here.link("eth0", "10.88.0.1/24")
    recorder = start(here, tmp_path / "bag", **LOCALHOST)
    node = here.node("cyclone_node.py", {"publish": "/tick"})
    recorder.wait_until_says("recording /tick")
    wait_for_messages(here.world, tmp_path / "bag", 50)
    node.interrupt()
    node.done()
    assert recorder.stop()[0] == 0
    count = json.loads(here.world.run("info", "--json", tmp_path / "bag").stdout)["message_count"]
    listener = here.node("cyclone_node.py", {"subscribe": "/tick", "expect": count})
    listener.wait_for("ready")
    # Longer than its announcements at the start.
    time.sleep(1)
    player = here.holdall("play", tmp_path / "bag", "--disable-keyboard-controls", **LOCALHOST)
    assert listener.done()["count"] == count
    assert player.wait()[0] == 0
