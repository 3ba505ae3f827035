"""A publisher or subscription of pip's cyclonedds, in the form of rmw_cyclonedds.

Usage: cyclone_node.py PLAN.json    (or `-` for standard input; the domain is ROS_DOMAIN_ID)

PLAN: {"publish": TOPIC} or {"subscribe": TOPIC, "expect": N}, "interface": NAME or [NAME...], "keyed": true, "dispose": true, "later": TOPIC, "count": N, "size": BYTES, "reliability": "best_effort"
Without an interface it is in the range LOCALHOST, with one in SUBNET. Publishes std_msgs/msg/String twenty times a second until SIGINT or SIGTERM, or N messages from the first match on, or subscribes until N messages were received. With `keyed` the type is
lab_msgs/msg/Wheel: `id`, its key, and `speed`. With `dispose` every tenth message is followed by the end of its instance. At SIGUSR1 a publisher of the topic `later` is created, which publishes beside the other one from its first match on.
Prints {"event": "ready"}, {"event": "later"}, and at the end {"event": "done", "count", "values", "later": N}.
"""

import json
import os
import signal
import sys
import threading
from dataclasses import dataclass

plan = json.load(sys.stdin if sys.argv[1] == "-" else open(sys.argv[1], encoding="utf-8"))
if "interface" in plan:
    names = [plan["interface"]] if isinstance(plan["interface"], str) else plan["interface"]
    interfaces = "".join(f"<NetworkInterface name='{name}'/>" for name in names)
    os.environ["CYCLONEDDS_URI"] = f"<General><Interfaces>{interfaces}</Interfaces></General>"
    if plan["interface"] == "lo":
        os.environ["CYCLONEDDS_URI"] += (
            "<Discovery><ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>32</MaxAutoParticipantIndex>"
            "<Peers><Peer address='127.0.0.1'/></Peers></Discovery>"
        )
else:
    # As rmw_cyclonedds has it; the interface is Cyclone's choice.
    os.environ["CYCLONEDDS_URI"] = (
        "<General><AllowMulticast>false</AllowMulticast></General><Discovery><ParticipantIndex>auto</ParticipantIndex>"
        "<MaxAutoParticipantIndex>32</MaxAutoParticipantIndex><Peers><Peer address='localhost'/></Peers></Discovery>"
    )

from cyclonedds.core import Policy, Qos  # noqa: E402
from cyclonedds.domain import DomainParticipant  # noqa: E402
from cyclonedds.idl import IdlStruct, annotations  # noqa: E402
from cyclonedds.idl.types import int32  # noqa: E402
from cyclonedds.pub import DataWriter  # noqa: E402
from cyclonedds.sub import DataReader  # noqa: E402
from cyclonedds.topic import Topic  # noqa: E402
from cyclonedds.util import duration  # noqa: E402


@dataclass
class String(IdlStruct, typename="std_msgs::msg::dds_::String_"):
    data: str


@dataclass
class Wheel(IdlStruct, typename="lab_msgs::msg::dds_::Wheel_"):
    id: int32
    annotations.key("id")
    speed: int32


def tell(**event):
    os.write(1, json.dumps(event).encode() + b"\n")


def main():
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    later = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: later.set())
    participant = DomainParticipant(int(os.environ["ROS_DOMAIN_ID"]))
    name = plan.get("publish") or plan["subscribe"]
    topic = Topic(participant, "rt" + name, Wheel if plan.get("keyed") else String)
    reliable = Policy.Reliability.Reliable(duration(seconds=1))
    reliability = Policy.Reliability.BestEffort if plan.get("reliability") == "best_effort" else reliable
    qos = Qos(reliability, Policy.History.KeepAll, Policy.DataRepresentation(use_cdrv0_representation=True))
    values, late, late_count = [], None, 0
    if "publish" in plan:
        writer = DataWriter(participant, topic, qos)
        tell(event="ready")
        while not stop.wait(0.05) and len(values) != plan.get("count"):
            if later.is_set() and late is None:
                late = DataWriter(participant, Topic(participant, "rt" + plan["later"], String), qos)
                tell(event="later")
            if late and (late_count or late.get_matched_subscriptions()):
                late.write(String(str(late_count)))
                late_count += 1
            if "count" in plan and not values and not writer.get_matched_subscriptions():
                continue
            number = len(values)
            sample = Wheel(id=number % 4, speed=number) if plan.get("keyed") else String(str(number).ljust(plan.get("size", 0)))
            writer.write(sample)
            values.append(number)
            if plan.get("dispose") and number % 10 == 9:
                writer.dispose(sample)
    else:
        reader = DataReader(participant, topic, qos)
        tell(event="ready")
        while not stop.wait(0.02) and len(values) < plan["expect"]:
            for sample in reader.take(N=1000):
                if isinstance(sample, (Wheel, String)):
                    values.append(sample.speed if plan.get("keyed") else int(sample.data))
    tell(event="done", count=len(values), values=values, later=late_count)


main()
