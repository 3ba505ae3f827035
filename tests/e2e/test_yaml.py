"""The YAML of `cat` and `echo` as PyYAML reads it: random messages of every type that holdall carries, written by pip rosbags."""

import json
import math
import random

import numpy as np
import pytest
import yaml
from conftest import DEADLINE_S, DEFINITIONS, HOLDALL
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

START = 1_700_000_000_000_000_000
# Names that YAML 1.1 takes for booleans or for nothing, and a struct without fields.
ODD = "bool on\nbool off\nint32 y\nint32 n\nstring yes\nstring no\nstring null\nfloat64 true\nodd_msgs/Nothing nothing\nodd_msgs/Nothing[] many\n"
TEXTS = (
    *("", " ", "a", "yes", "NO", "~", "null", "12", "1e5", "0x1f", "1:30", "2001-01-01", ".inf", "- a", "a: b", "a #b", "#", "'", '"', "\\", "a\\n", "%x", "@a", "`"),
    *("!!int 3", "&a", "*a", "?", "|", ">", "{a}", "[a", "a,b", "a\nb", "\na", "a\n", "\ta", "a\tb", "a\r\nb", " a ", "---", "...", "=", "<<", "\x7f", "\x01", "\x1b[31m"),
    *("\x80", "\x85", "\u2028", "\u2029", "\u00a0", "\ufeffa", "a\ufeff", "\ufffe", "\uffff", "\ufffd", "\u202e", "é", "日本", "😀", "\U0001fffe", "/tf", "base_link"),
)
FLOATS = (0.0, -0.0, 1.0, 0.1, 1e-7, 1e16, 1e22, 1e300, -2.5e-300, 5e-324, math.nan, math.inf, -math.inf, 123456789.125)


def carried():
    """The types of the bundle: name and text; of a service its request and its response, as messages, because pip rosbags resolves names in those only."""
    text, at = DEFINITIONS.read_bytes(), 0
    while (at := text.find(b"\n@@ ", at)) >= 0:
        end = text.index(b"\n", at + 1)
        name, kind, _, length = text[at + 4 : end].decode().split(" ")
        body = text[end + 1 : end + 1 + int(length)].decode()
        at = end + int(length)
        if kind == "srv":
            request, response = ("\n" + body).split("\n---", 1)
            yield f"{name}_Request".replace("/srv/", "/msg/"), request + "\n"
            yield f"{name}_Response".replace("/srv/", "/msg/"), response.lstrip("-") + "\n"
        else:
            yield name, body


@pytest.fixture(scope="module")
def store():
    store = get_typestore(Stores.EMPTY)
    types = {}
    for name, text in [*carried(), ("odd_msgs/msg/Nothing", ""), ("odd_msgs/msg/Odd", ODD)]:
        types.update(get_types_from_msg(text, name))
    # pip rosbags has no wide texts.
    store.register({name: fields for name, fields in types.items() if "msg/wstring'" not in str(fields)})
    return store


class Dice(random.Random):
    """Random messages: as pip rosbags writes them, and as what a reader must find."""

    def __init__(self, store, seed):
        super().__init__(seed)
        self.store = store

    def base(self, kind, bound):
        if kind == "string":
            text = self.choice(TEXTS)
            while bound and len(text.encode()) > bound:
                text = text[:-1]
            return text, text
        if kind == "bool":
            flag = bool(self.getrandbits(1))
            return flag, flag
        if kind.startswith("float"):
            width = np.float32 if kind == "float32" else np.float64
            number = width(self.choice(FLOATS) if kind == "float64" else self.choice([f for f in FLOATS if not math.isfinite(f) or abs(f) < 1e30]))
            return number, float(number)
        low, high = {"byte": (0, 127), "char": (0, 255)}.get(kind) or (
            (0, 2 ** int(kind[4:]) - 1) if kind[0] == "u" else (-(2 ** (int(kind[3:]) - 1)), 2 ** (int(kind[3:]) - 1) - 1)
        )
        number = self.choice([low, high, self.randint(low, high)])
        return number, number

    def value(self, described):
        node, of = described
        if node.name == "BASE":
            return self.base(*of)
        if node.name == "NAME":
            return self.message(of)
        count = of[1] if node.name == "ARRAY" else self.randrange(min(of[1] or 4, 4) + 1)
        pairs = [self.value(of[0]) for _ in range(count)]
        built, seen = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        inner, kind = of[0]
        if inner.name == "BASE" and kind[0] != "string":
            built = np.array(built, dtype={"byte": "uint8", "char": "uint8"}.get(kind[0], kind[0]))
        return built, seen

    def message(self, name):
        pairs = {field: self.value(described) for field, described in self.store.fielddefs[name][1]}
        # rosbags gives a struct without fields the one that it has on the wire.
        pairs.pop("structure_needs_at_least_one_member", None)
        built = {field: pair[0] for field, pair in pairs.items()}
        if not pairs and self.store.fielddefs[name][1]:
            built = {"structure_needs_at_least_one_member": 0}
        return self.store.types[name](**built), {field: pair[1] for field, pair in pairs.items()}


def same(found, sent, kind=float):
    """Whether a value was read as it was sent; a float of 32 bits has the digits of its width."""
    if isinstance(sent, dict):
        return isinstance(found, dict) and list(found) == list(sent) and all(same(found[name], sent[name]) for name in sent)
    if isinstance(sent, list):
        return isinstance(found, list) and len(found) == len(sent) and all(map(same, found, sent))
    if isinstance(sent, float):
        if math.isnan(sent):
            return isinstance(found, float) and math.isnan(found)
        with np.errstate(over="ignore"):
            narrow = np.float32(found) == np.float32(sent) and float(np.float32(sent)) == sent
        return isinstance(found, float) and (found == sent or bool(narrow)) and math.copysign(1, found) == math.copysign(1, sent)
    return type(found) is type(sent) and found == sent


def write(path, store, names, rounds, apart=1000):
    """A bag with random messages; what was sent by topic, in order."""
    sent, dice = {}, Dice(store, 7)
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for place, name in enumerate(names):
            topic = f"/t{place}"
            connection = writer.add_connection(topic, name, typestore=store)
            for turn in range(rounds):
                message, seen = dice.message(name)
                writer.write(connection, START + (turn * len(names) + place) * apart, store.serialize_cdr(message, name))
                sent.setdefault(topic, []).append((name, seen))
    return sent


def test_every_type_is_yaml_for_a_foreign_reader(world, store, tmp_path):
    names = list(store.fielddefs)
    assert len(names) > 200
    sent = write(tmp_path / "all", store, names, 6)
    shown = world.run("cat", tmp_path / "all")
    assert shown.returncode == 0, shown.stderr[-2000:]
    found = {}
    for document in yaml.load_all(shown.stdout, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if document is not None:
            found.setdefault(document["topic"], []).append(document["message"])
    assert {topic: len(messages) for topic, messages in found.items()} == {topic: 6 for topic in sent}
    for topic, messages in sent.items():
        for (name, seen), message in zip(messages, found[topic], strict=True):
            assert same(message or {}, seen), (name, seen, message)
    # The parser that is written in Python is stricter with characters than the one in C.
    for document in shown.stdout.split("\n---\n")[::7]:
        yaml.safe_load(document)
    lines = [json.loads(line) for line in world.run("cat", "--json", tmp_path / "all").stdout.splitlines()]
    assert len(lines) == 6 * len(sent)


def test_echo_writes_yaml_for_every_type(world, store, tmp_path):
    # pip rosbags computes the hash of `char` as if it were `uint8`: it is the hash of no type.
    hashed = [name for name, _ in carried() if name in store.fielddefs and "('char'" not in str(store.fielddefs[name])]
    names = [name for name in hashed if not name.endswith(("_Request", "_Response")) and not name.startswith("rmw_dds_common")]
    sent = write(tmp_path / "all", store, names, 1, apart=20_000_000)
    echo = world.program(["sh", "-c", 'exec "$@" 2>/dev/null', "sh", HOLDALL, "echo", *sent])
    world.holdall("play", tmp_path / "all", "--loop")
    for topic in sent:
        echo.wait_until_says(f"# {topic}", deadline_s=3 * DEADLINE_S)
    text = echo.stop()[1]
    found = {}
    for document in text[: text.rindex("\n---")].split("\n---\n"):
        topic, _, body = document.partition("\n")
        found.setdefault(topic.removeprefix("# "), []).append(body)
    assert found.keys() == sent.keys()
    for topic, [(name, seen)] in sent.items():
        message = yaml.safe_load(found[topic][0])
        assert same(message or {}, seen), (name, seen, found[topic][0])
