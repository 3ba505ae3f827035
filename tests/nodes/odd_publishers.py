"""Publishers that a recorder can see and cannot receive, made with pip's cyclonedds in the form of rmw_cyclonedds: their nodes are announced in ros_discovery_info.

Usage: odd_publishers.py    (the domain is ROS_DOMAIN_ID)

/partitioned is in a partition, /owned of exclusive ownership: no reader with ROS's QoS is matched with any. /keyed is of a type with a key. /absent is a node that announces a writer which it does not have.
/plain is an ordinary publisher. All publish std_msgs/msg/String ten times a second until SIGINT or SIGTERM. Says {"event": "ready"}.
"""

import json
import os
import signal
import threading
from dataclasses import dataclass

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct, annotations, types
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.topic import Topic
from cyclonedds.util import duration


@dataclass
class String(IdlStruct, typename="std_msgs::msg::dds_::String_"):
    data: str


@dataclass
class Keyed(IdlStruct, typename="std_msgs::msg::dds_::String_"):
    data: str
    annotations.key("data")


@dataclass
class Gid(IdlStruct, typename="rmw_dds_common::msg::dds_::Gid_"):
    data: types.array[types.uint8, 16]


@dataclass
class NodeEntities(IdlStruct, typename="rmw_dds_common::msg::dds_::NodeEntitiesInfo_"):
    node_namespace: str
    node_name: str
    reader_gid_seq: types.sequence[Gid]
    writer_gid_seq: types.sequence[Gid]


@dataclass
class Entities(IdlStruct, typename="rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_"):
    gid: Gid
    node_entities_info_seq: types.sequence[NodeEntities]


# Other participants of this host only, as ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST does it for rmw_cyclonedds.
os.environ["CYCLONEDDS_URI"] = (
    "<General><Interfaces><NetworkInterface name='lo' multicast='true'/></Interfaces></General><Discovery><ParticipantIndex>auto</ParticipantIndex>"
    "<MaxAutoParticipantIndex>32</MaxAutoParticipantIndex><Peers><Peer address='127.0.0.1'/></Peers></Discovery>"
)
RELIABLE = Policy.Reliability.Reliable(duration(seconds=1))
PLAIN_CDR = Policy.DataRepresentation(use_cdrv0_representation=True)


def main():
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    participant = DomainParticipant(int(os.environ["ROS_DOMAIN_ID"]))

    def writer(name, *policies, publisher=None, kind=String):
        topic = Topic(participant, f"rt/{name}", kind)
        return DataWriter(publisher or participant, topic, Qos(RELIABLE, PLAIN_CDR, *policies))

    writers = {
        "plain": writer("plain"),
        "partitioned": writer("partitioned", publisher=Publisher(participant, Qos(Policy.Partition(["apart"])))),
        "owned": writer("owned", Policy.Ownership.Exclusive),
        "keyed": writer("keyed", kind=Keyed),
    }
    gids = {name: Gid(list(one.guid.bytes)) for name, one in writers.items()}
    # As a real identifier of this participant, of a writer that is not there.
    gids["absent"] = Gid([*participant.guid.bytes[:12], 0, 0x7F, 0xFF, 0x03])
    graph = DataWriter(
        participant,
        Topic(participant, "ros_discovery_info", Entities),
        Qos(RELIABLE, PLAIN_CDR, Policy.Durability.TransientLocal, Policy.History.KeepLast(1)),
    )
    nodes = [NodeEntities("/", name, [], [gid]) for name, gid in gids.items()]
    graph.write(Entities(Gid(list(participant.guid.bytes)), nodes))
    print(json.dumps({"event": "ready"}), flush=True)
    while not stop.wait(0.1):
        for name, one in writers.items():
            one.write((Keyed if name == "keyed" else String)(name))


if __name__ == "__main__":
    main()
