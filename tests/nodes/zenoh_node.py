"""A node of rmw_zenoh that is not ours: pyzeros and eclipse-zenoh, controlled by one request per line.

Usage: zenoh_node.py    (reads JSON lines from standard input, writes JSON events to standard output)

First line: {"mode": "peer" | "client" | "router", "listen": [ENDPOINT...], "connect": [ENDPOINT...], "shared_memory": false,
             "domain": N, "node": NAME}; answered by {"event": "open", "zid": ...}
Then any of:
  {"do": "advertise", "topic", "type", "hash", "qos": {...}, "by": "pyzeros" | "advanced" | "plain"}   -> {"event": "advertised", "key", "gid"}
      pyzeros: pyzeros.Pub; advanced: zenoh.ext's advanced publisher with a cache, which is what rmw_zenoh uses for transient local;
      plain: a zenoh publisher on the same key with a token, whose attachments are given with each message
  {"do": "publish", "topic", "payloads": [HEX...] | "size", "count", "shared", "attachment": HEX | "short" | null}      -> {"event": "published", "count"}
  {"do": "token", "key": KEY}                                                                             -> {"event": "declared"}
  {"do": "withdraw", "topic"}                                                                             -> {"event": "withdrawn"}
  {"do": "close"}: the session says farewell as a whole                                                    -> {"event": "closed"}
  {"do": "subscribe", "topic", "type", "hash", "qos": {...}}                                              -> {"event": "subscribed"}
  {"do": "await", "topic", "count"}                    -> {"event": "received", "messages": [{"payload", "attachment", "key"}...]}
  {"do": "call", "service", "type", "payload": HEX, "hash"} -> {"event": "answered", "hash", "payload", "sequence", "is_ours"}: the answer's attachment
  {"do": "describe", "type", "hash", "sources": {TYPE: TEXT}}                                             -> {"event": "declared"}
  {"do": "await_subscription", "topic"}                                                                   -> {"event": "matched"}
  {"do": "await_no_match", "topic"}                                                                       -> {"event": "alone"}
  {"do": "await_publisher", "topic"}                                                                      -> {"event": "matched"}
  {"do": "tokens_seen", "topic"}                             -> {"event": "tokens", "tokens": [{"key", "gid"}...]}, also of those that went
"""

import json
import os
import struct
import sys
import threading
import time
import traceback

# Where pyzeros stores the serializers that it compiles (17 s for the first one).
os.environ.setdefault("CYDR_CACHE_DIR", os.path.join(sys.prefix, "cydr-cache"))

import zenoh
from pamoja import ros2
from pyzeros import Node, Pub, Sub
from pyzeros.pub import token_keyexpr
from pyzeros.qos import QosProfile
from pyzeros.sub import RawSub
from pyzeros.utils import rmw_zenoh_gid, ros_type_to_dds_type

DEADLINE_S = 60


def tell(**event):
    # One write: lines of several threads do not mix.
    os.write(1, json.dumps(event).encode() + b"\n")


def message_type(name, digest):
    """The type information that pyzeros needs."""
    return type("Message", (), {"get_type_name": staticmethod(lambda: name), "hash_rihs01": staticmethod(lambda: digest)})


def open_session(plan):
    config = zenoh.Config()
    for key, value in {
        "mode": plan.get("mode", "peer"),
        "listen/endpoints": plan.get("listen", []),
        "connect/endpoints": plan.get("connect", []),
        "scouting/multicast/enabled": False,
        "timestamping/enabled": True,
        "transport/shared_memory/enabled": plan.get("shared_memory", False),
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        "connect/retry": {"period_init_ms": 50, "period_max_ms": 100, "period_increase_factor": 1.0},
    }.items():
        config.insert_json5(key, json.dumps(value))
    return zenoh.open(config)


class Counterpart:
    def __init__(self, plan):
        self.domain = plan.get("domain", 0)
        self.session = open_session(plan)
        self.node = Node(plan.get("node", "talker"), session=self.session, domain_id=self.domain)
        self.publishers, self.tokens, self.queryables, self.providers, self.received = {}, [], [], [], {}
        self.changed = threading.Condition()
        self.tokens_there, self.tokens_ever = set(), set()
        self.graph = self.session.liveliness().declare_subscriber(f"@ros2_lv/{self.domain}/**", self.on_token, history=True)
        tell(event="open", zid=str(self.session.zid()))

    def on_token(self, sample):
        key = str(sample.key_expr)
        with self.changed:
            if sample.kind == zenoh.SampleKind.PUT:
                self.tokens_there.add(key)
                self.tokens_ever.add(key)
            else:
                self.tokens_there.discard(key)
            self.changed.notify_all()

    def await_until(self, done):
        with self.changed:
            if not self.changed.wait_for(done, DEADLINE_S):
                raise TimeoutError("what was awaited did not come")

    def do_advertise(self, topic, type, hash, qos=None, by="pyzeros"):
        # The key as two other implementations build it, which must agree.
        key = ros2.entity_key(self.domain, topic, type, hash)
        qos = QosProfile(**(qos or {}))
        if by == "pyzeros":
            publisher = Pub(message_type(type, hash), topic, qos, session=self.node)
            assert publisher.publisher_keyexpr == key, (publisher.publisher_keyexpr, key)
            self.publishers[topic] = publisher
            return tell(event="advertised", key=key, gid=bytes(publisher.gid).hex())
        token = token_keyexpr(
            topic, ros_type_to_dds_type(type), hash, qos, node_name=self.node.name, session=self.session, domain_id=self.domain, namespace="/"
        )
        if by == "advanced":
            publisher = zenoh.ext.declare_advanced_publisher(
                self.session, key, cache=zenoh.ext.CacheConfig(max_samples=qos.depth), publisher_detection=True
            )
        else:
            publisher = self.session.declare_publisher(key, congestion_control=zenoh.CongestionControl.BLOCK)
        gid = rmw_zenoh_gid(token)
        self.publishers[topic] = [publisher, gid, 0, self.session.liveliness().declare_token(token)]
        tell(event="advertised", key=key, gid=gid.hex())

    def numbered(self, count, size, shared):
        """Payloads that begin with their number, in shared memory where requested."""
        zeros = bytes(size - 8)
        provider = zenoh.shm.ShmProvider.default_backend(8 * size) if shared else None
        # Kept, as rmw_zenoh keeps its own: when a provider is dropped, zenoh reclaims its buffers in flight.
        self.providers.append(provider)
        for number in range(count):
            payload = number.to_bytes(8, "little") + zeros
            if not shared:
                yield payload
                continue
            buffer = provider.alloc(size, policy=zenoh.shm.BlockOn(zenoh.shm.GarbageCollect()))
            buffer[:] = payload
            yield buffer

    def do_publish(self, topic, payloads=None, size=8, count=1, shared=False, attachment="whole"):
        publisher = self.publishers[topic]
        if payloads is None:
            payloads = self.numbered(count, size, shared)
        else:
            payloads = map(bytes.fromhex, payloads)
        sent = 0
        for payload in payloads:
            sent += 1
            if isinstance(publisher, Pub):
                publisher.publish(payload)
                continue
            zenoh_publisher, gid, sequence, _ = publisher
            publisher[2] = sequence + 1
            whole = struct.pack("<qqB", sequence + 1, time.time_ns(), 16) + gid
            forms = {"whole": whole, "short": whole[:16] + whole[17:], None: None}
            attached = forms[attachment] if attachment in forms else bytes.fromhex(attachment)
            zenoh_publisher.put(payload, attachment=attached)
        tell(event="published", count=sent)

    def do_close(self):
        self.session.close()
        tell(event="closed")

    def do_withdraw(self, topic):
        publisher = self.publishers.pop(topic)
        if isinstance(publisher, Pub):
            publisher.undeclare()
        else:
            publisher[3].undeclare()
            publisher[0].undeclare()
        tell(event="withdrawn")

    def do_token(self, key):
        self.tokens.append(self.session.liveliness().declare_token(key))
        tell(event="declared")

    def do_subscribe(self, topic, type, hash, qos=None):
        arrived = self.received[topic] = []

        def on_sample(sample):
            with self.changed:
                arrived.append(sample)
                self.changed.notify_all()

        qos = QosProfile(**(qos or {}))
        if qos.durability == 1:
            key = ros2.entity_key(self.domain, topic, type, hash)
            history = zenoh.ext.HistoryConfig(detect_late_publishers=True, max_samples=qos.depth)
            subscription = zenoh.ext.declare_advanced_subscriber(self.session, key, on_sample, history=history)
            token = token_keyexpr(topic, ros_type_to_dds_type(type), hash, qos, session=self.session, domain_id=self.domain)
            self.tokens.append(self.session.liveliness().declare_token(token.replace("/MP/", "/MS/")))
        else:
            subscription = RawSub(message_type(type, hash), topic, on_sample, qos, session=self.node)
        self.tokens.append(subscription)
        tell(event="subscribed")

    def do_await(self, topic, count):
        arrived = self.received[topic]
        self.await_until(lambda: len(arrived) >= count)
        messages = [
            {"payload": s.payload.to_bytes().hex(), "attachment": s.attachment.to_bytes().hex() if s.attachment else None, "key": str(s.key_expr)}
            for s in arrived
        ]
        tell(event="received", messages=messages)

    def tokens_of(self, kind, topic, tokens):
        part = "/" + ros2.percent_mangle(topic) + "/"
        return [key for key in tokens if f"/{kind}/" in key and part in key]

    def await_matching(self, topic, wanted):
        publisher = self.publishers[topic]
        zenoh_publisher = publisher.zenoh_pub if isinstance(publisher, Pub) else publisher[0]
        if not isinstance(zenoh_publisher, zenoh.Publisher):
            return
        end = time.monotonic() + DEADLINE_S
        while zenoh_publisher.matching_status.matching is not wanted:
            if time.monotonic() > end:
                raise TimeoutError(f"{topic} never had matching {wanted}")
            time.sleep(0.002)

    def do_await_subscription(self, topic):
        self.await_until(lambda: self.tokens_of("MS", topic, self.tokens_there))
        self.await_matching(topic, True)
        tell(event="matched")

    def do_await_no_match(self, topic):
        self.await_matching(topic, False)
        tell(event="alone")

    def do_await_publisher(self, topic):
        self.await_until(lambda: self.tokens_of("MP", topic, self.tokens_there))
        tell(event="matched")

    def do_tokens_seen(self, topic):
        found = {key for kind in ("MP", "MS") for key in self.tokens_of(kind, topic, self.tokens_ever)}
        tell(event="tokens", tokens=[{"key": key, "gid": rmw_zenoh_gid(key).hex()} for key in found])

    def do_call(self, service, type, payload, hash=None):
        """Calls a service as rmw_zenoh's clients do, once a token announces it: under the client's own type hash, where it is another one."""
        mangled = service.replace("/", "%")
        servers = lambda: [key for key in self.tokens_there if "/SS/" in key and key.split("/")[9] == mangled]  # noqa: E731
        self.await_until(servers)
        parts = servers()[0].split("/")
        assert parts[10] == ros_type_to_dds_type(type), parts
        key = ros2.entity_key(self.domain, service, type, hash or parts[11])
        gid = bytes(range(16))
        how = {"target": zenoh.QueryTarget.ALL_COMPLETE, "consolidation": zenoh.ConsolidationMode.NONE, "timeout": DEADLINE_S}
        attachment = struct.pack("<qqB", 7, time.time_ns(), 16) + gid
        [reply] = self.session.get(key, payload=bytes.fromhex(payload), attachment=attachment, **how)
        answered = reply.ok.attachment.to_bytes()
        tell(
            event="answered",
            hash=parts[11],
            payload=reply.ok.payload.to_bytes().hex(),
            sequence=struct.unpack_from("<q", answered)[0],
            is_ours=answered[17:] == gid,
        )

    def do_describe(self, type, hash, sources):
        """The service get_type_description, with messages that rclpy serializes."""
        from rclpy.serialization import deserialize_message, serialize_message
        from type_description_interfaces.msg import TypeSource
        from type_description_interfaces.srv import GetTypeDescription

        service = f"/{self.node.name}/get_type_description"
        service_type, service_hash = "type_description_interfaces/srv/GetTypeDescription", "RIHS01_" + "5e" * 32
        key = ros2.entity_key(self.domain, service, service_type, service_hash)

        def on_query(query):
            asked = deserialize_message(query.payload.to_bytes(), GetTypeDescription.Request)
            answer = GetTypeDescription.Response(successful=asked.type_name == type and asked.type_hash == hash)
            if answer.successful:
                answer.type_description.type_description.type_name = type
                answer.type_sources = [TypeSource(type_name=n, encoding="msg", raw_file_contents=t) for n, t in sources.items()]
            else:
                answer.failure_reason = f"no {asked.type_name} here"
            assert len(query.attachment.to_bytes()) == 33
            query.reply(key, serialize_message(answer), attachment=query.attachment)

        self.queryables.append(self.session.declare_queryable(key, on_query, complete=True))
        token = token_keyexpr(service, ros_type_to_dds_type(service_type), service_hash, node_name=self.node.name, session=self.session, domain_id=self.domain, namespace="/")
        self.do_token(token.replace("/MP/", "/SS/"))


def main():
    counterpart = Counterpart(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        command = json.loads(line)
        getattr(counterpart, "do_" + command.pop("do"))(**command)
    counterpart.session.close()


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        # zenoh's threads would keep the process, and a reader that waits for its next line, for ever.
        os._exit(1)
