"""Encrypted bags: recorded from real nodes, read with the key, refused without, killed, changed, decrypted; pip mcap judges."""

import hashlib
import json
import signal
import subprocess
import time

import pytest
from conftest import DEADLINE_S, messages_of, text_of
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

STRING = "std_msgs/msg/String"


@pytest.fixture
def keys(tmp_path):
    """Folder with two ssh keys without passphrase: `owner` and `other`."""
    folder = tmp_path / "keys"
    folder.mkdir()
    for name in ("owner", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name], check=True)
    return folder


def test_an_encrypted_bag_is_its_owners_and_decrypts_to_what_was_sent(world, keys):
    plan = {"topic": "/chatter", "type": STRING, "count": 1000, "rate_hz": 500, "text": "the secret {n}", "qos": {"depth": 1000}}
    talker = world.talker(plan)
    talker.wait_for("ready")
    bag, clear = world.folder / "bag", world.folder / "clear"
    recorder = world.holdall("record", "--topics", "/chatter", "-o", bag, "-b", "64KiB", "--encrypt-to", keys / "owner.pub")
    sent = talker.done()["sent"]["/chatter"][0]
    code, said = recorder.stop()
    assert code == 0, said
    stored = sorted(bag.iterdir())
    assert len(stored) > 2, "it was split"
    for file in stored:
        content = file.read_bytes()
        assert content.startswith(b"\x89holdall sealed\n"), file
        assert b"chatter" not in content and b"secret" not in content and b"std_msgs" not in content, file
    for arguments in (["info", bag], ["info", bag, "--identity", keys / "other"], ["cat", bag], ["repair", bag, "-o", world.folder / "no"]):
        refused = world.run(*arguments)
        assert refused.returncode == 2 and "it is encrypted, and no" in refused.stderr, refused
        assert "--identity" in refused.stderr and not refused.stdout
    key = ["--identity", keys / "owner"]
    shown = world.run("info", bag, *key)
    assert "Encrypted:         yes" in shown.stdout and "Count: 1000" in shown.stdout, shown
    assert world.run("check", bag, *key).returncode == 0
    assert world.run("audit", bag, *key).returncode == 0
    first = json.loads(world.run("cat", bag, "--json", *key).stdout.splitlines()[0])
    assert "the secret 0" in json.dumps(first)
    made = world.run("decrypt", bag, "-o", clear, *key)
    assert made.returncode == 0, made.stderr
    got = messages_of(clear)["/chatter"]
    assert len(got) == 1000 and hashlib.md5(b"".join(got)).hexdigest() == sent["md5"]
    assert world.run("diff", bag, clear, *key).returncode == 0
    assert world.run("check", clear).returncode == 0
    cut = world.run("filter", bag, "-o", world.folder / "cut", "--topics", "/chatter", *key)
    assert cut.returncode == 0 and "is not encrypted, but the bag that is read is" in cut.stderr, cut
    # Copied chunk by chunk, and written anew: encrypted to others, or to the same.
    theirs = ["--identity", keys / "other"]
    for arguments in (
        ["filter", bag, "--topics", "/chatter"],
        ["convert", bag, "--compression-mode", "message"],
        ["split", bag, "--max-bag-messages", "300"],
        ["merge", bag, clear],
        ["compress", bag],
        ["filter", bag, "--start", "+0.5"],
    ):
        made = world.folder / "_".join(map(str, arguments[:1] + arguments[2:])).replace("/", "")
        done = world.run(*arguments, "-o", made, "--encrypt-to", keys / "other.pub", *key)
        assert done.returncode == 0 and "is not encrypted" not in done.stderr, done
        for file in made.iterdir():
            content = file.read_bytes()
            assert content.startswith(b"\x89holdall sealed\n") and b"secret" not in content and b"chatter" not in content, file
        assert world.run("info", made, *key).returncode == 2, "it is theirs alone"
        assert world.run("check", made, *theirs).returncode == 0, made
    assert '"message_count": 2000' in world.run("info", world.folder / f"merge_{clear}".replace("/", ""), "--json", *theirs).stdout
    for arguments in (["convert", bag, "-s", "sqlite3"], ["compress", bag, "--mode", "file"]):
        refused = world.run(*arguments, "-o", world.folder / "no", "--encrypt-to", keys / "other.pub", *key)
        assert refused.returncode != 0 and "cannot be encrypted" in refused.stderr, refused
        assert not (world.folder / "no").exists()
    # What changes it in place leaves it encrypted.
    note = world.folder / "note.txt"
    note.write_text("the secret note")
    for arguments in (["attach", bag, note], ["reindex", bag]):
        changed = world.run(*arguments, *key)
        assert changed.returncode == 0, changed.stderr
    for file in bag.iterdir():
        assert file.read_bytes().startswith(b"\x89holdall sealed\n"), file
    assert world.run("check", bag, *key).returncode == 0
    again = world.run("decrypt", bag, "-o", clear, *key)
    assert again.returncode == 2 and "already exists" in again.stderr


def test_a_changed_byte_is_named_and_all_other_chunks_are_read(world, keys):
    plan = {"topic": "/large", "type": "std_msgs/msg/UInt8MultiArray", "count": 40, "rate_hz": 200, "size": 100_000, "qos": {"depth": 100}}
    talker = world.talker(plan)
    talker.wait_for("ready")
    bag, key = world.folder / "bag", ["--identity", keys / "owner"]
    recorder = world.holdall("record", "--topics", "/large", "-o", bag, "--encrypt-to", (keys / "owner.pub").read_text())
    talker.done()
    assert recorder.stop()[0] == 0
    file = bag / "bag_0.mcap"
    content = bytearray(file.read_bytes())
    place = len(content) // 2
    content[place] ^= 0x10
    file.write_bytes(content)
    checked = world.run("check", bag, *key)
    assert checked.returncode == 1 and "bag_0.mcap" in checked.stdout + checked.stderr
    read = world.run("cat", bag, "--json", *key)
    numbers = read.stdout.count("\n")
    # A chunk has about 1 MB; the first and the last messages are there.
    assert 20 <= numbers < 40 and read.returncode == 1, (numbers, read.stderr)
    assert "bag_0.mcap is damaged at byte" in read.stderr and "the encrypted file was changed" in read.stderr
    made = world.run("decrypt", bag, "-o", world.folder / "clear", *key)
    assert made.returncode == 1 and "bag_0.mcap: " in made.stderr and "were changed after they were written" in made.stderr
    assert world.run("info", world.folder / "clear").returncode == 0


def test_a_file_that_is_gone_or_of_another_bag_is_named(world, keys):
    key = ["--identity", keys / "owner"]
    plan = {"topic": "/chatter", "type": STRING, "count": 300, "rate_hz": 1000, "qos": {"depth": 1000}}
    talker = world.talker(plan)
    talker.wait_for("ready")
    recorder = world.holdall("record", "--topics", "/chatter", "-o", world.folder / "plain")
    talker.done()
    assert recorder.stop()[0] == 0
    for bag in ("one", "two"):
        made = world.run("split", world.folder / "plain", "-o", world.folder / bag, "--max-bag-messages", "100", "--encrypt-to", keys / "owner.pub")
        assert made.returncode == 0, made
    middle = world.folder / "one" / "one_1.mcap"
    middle.write_bytes((world.folder / "two" / "two_1.mcap").read_bytes())
    found = world.run("check", world.folder / "one", *key)
    assert found.returncode == 1 and "that of another bag" in found.stdout + found.stderr, found
    middle.unlink()
    found = world.run("check", world.folder / "one", *key)
    assert found.returncode == 1 and "one_1.mcap" in found.stdout + found.stderr, found


@pytest.fixture
def two_bags(world, keys):
    """Two encrypted bags, `one` and `two`, of three files each, for the same owner."""
    talker = world.talker({"topic": "/chatter", "type": STRING, "count": 300, "rate_hz": 1000, "qos": {"depth": 1000}})
    talker.wait_for("ready")
    recorder = world.holdall("record", "--topics", "/chatter", "-o", world.folder / "plain")
    talker.done()
    assert recorder.stop()[0] == 0
    for bag in ("one", "two"):
        made = world.run("split", world.folder / "plain", "-o", world.folder / bag, "--max-bag-messages", "100", "--encrypt-to", keys / "owner.pub")
        assert made.returncode == 0, made
    return world.folder / "one", world.folder / "two"


@pytest.mark.parametrize("forgery", ["another bag", "plain", "plain with metadata", "first plain"])
def test_a_file_that_someone_puts_into_an_encrypted_bag_is_not_read(world, keys, two_bags, forgery):
    one, two = two_bags
    key = ["--identity", keys / "owner"]
    clear = world.folder / "clear"
    assert world.run("decrypt", two, "-o", clear, *key).returncode == 0
    number = 0 if forgery == "first plain" else 1
    source = two / "two_1.mcap" if forgery == "another bag" else clear / f"two_{number}.mcap"
    (one / f"one_{number}.mcap").write_bytes(source.read_bytes())
    if forgery == "plain with metadata":
        (one / "metadata.yaml").write_text((clear / "metadata.yaml").read_text().replace("two_", "one_"))
    for verb in (["info"], ["cat", "--json"], ["audit"], ["play", "--rate", "100"], ["check"]):
        done = world.run(verb[0], one, *verb[1:], *key)
        said = done.stdout + done.stderr
        assert done.returncode != 0 and ("of another bag" in said or "not encrypted" in said), (verb, done)
        assert f"one_{number}.mcap" in said, (verb, done)
    made = world.run("decrypt", one, "-o", world.folder / "decrypted", *key)
    assert made.returncode != 0 and not (world.folder / "decrypted").exists(), made


def test_files_of_an_encrypted_bag_in_another_order_or_of_another_time_are_named(world, keys, two_bags):
    one, _ = two_bags
    key = ["--identity", keys / "owner"]

    def named(name):
        found = [world.run(verb, one, *key) for verb in ("info", "cat", "check", "audit")]
        for done in found:
            assert name in done.stderr + done.stdout and "another file, or of an older one" in done.stderr + done.stdout, done
        assert found[2].returncode == 1, found[2]

    first, second = (one / f"one_{number}.mcap" for number in (0, 1))
    contents = [first.read_bytes(), second.read_bytes()]
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    named("one_0.mcap")
    first.write_bytes(contents[0])
    second.write_bytes(contents[1])
    assert world.run("check", one, *key).returncode == 0
    # A change of a bag is a change of what it may have.
    last = one / "one_2.mcap"
    older = last.read_bytes()
    note = world.folder / "note.txt"
    note.write_text("the secret note")
    assert world.run("attach", one, note, *key).returncode == 0
    assert world.run("check", one, *key).returncode == 0, world.run("check", one, *key)
    newer = last.read_bytes()
    last.write_bytes(older)
    named("one_2.mcap")
    # The last file is gone.
    last.unlink()
    for verb in ("info", "cat", "check"):
        gone = world.run(verb, one, *key)
        assert gone.returncode != 0 and "one_2.mcap" in gone.stdout + gone.stderr, gone
    last.write_bytes(newer)
    for verb in ("repair", "reindex"):
        assert world.run(verb, one, *key).returncode == 0
        assert world.run("check", one, *key).returncode == 0


def test_an_encrypted_recording_that_is_killed_is_read_and_repaired_with_the_key(world, keys):
    talker = world.talker({"topic": "/t", "type": STRING, "count": None, "rate_hz": 500, "text": "the secret {n}", "qos": {"depth": 1000}})
    talker.wait_for("ready")
    bag, key = world.folder / "bag", ["--identity", keys / "owner"]
    recorder = world.holdall("record", "--topics", "/t", "-o", bag, "--max-loss-window", "0.3", "--encrypt-to", keys / "owner.pub")
    talker.wait_for("matched")
    end = time.monotonic() + DEADLINE_S
    counted = 0
    # A bag that is being recorded is read with the key, too.
    while counted < 1000:
        assert time.monotonic() < end, counted
        live = world.run("info", "--json", bag, *key)
        counted = json.loads(live.stdout)["message_count"] if live.returncode == 0 else 0
    recorder.process.send_signal(signal.SIGKILL)
    recorder.wait()
    talker.interrupt()
    for file in bag.iterdir():
        assert b"secret" not in file.read_bytes(), file
    assert not list(bag.glob("*memory*")), "nothing in the clear survives elsewhere"
    assert world.run("info", bag).returncode == 2
    torn = json.loads(world.run("info", "--json", bag, *key).stdout)["message_count"]
    assert torn >= counted
    # Decrypted first and repaired after that, or the other way round.
    copy = world.run("repair", bag, "-o", world.folder / "copy", *key)
    assert copy.returncode in (0, 3), copy
    assert all(b"secret" not in file.read_bytes() for file in (world.folder / "copy").iterdir())
    for name, source in (("first", bag), ("second", world.folder / "copy")):
        made = world.run("decrypt", source, "-o", world.folder / name, *key)
        assert made.returncode == 0, made.stderr
        assert world.run("repair", world.folder / name).returncode in (0, 3)
        numbers = [int(text_of(message).rsplit(" ", 1)[1]) for message in messages_of(world.folder / name)["/t"]]
        assert len(numbers) >= torn and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert world.run("repair", bag, *key).returncode in (0, 3)
    assert world.run("check", bag, *key).returncode == 0
    assert all(file.read_bytes().startswith(b"\x89holdall sealed\n") for file in bag.iterdir())


def test_what_cannot_be_encrypted_is_refused_in_one_sentence(world, keys):
    owner = keys / "owner.pub"
    for arguments, sentence in (
        (["-s", "sqlite3"], "storage sqlite3 writes its files itself"),
        (["-s", "leveldb"], "storage leveldb writes its files itself"),
        (["--compression-mode", "file", "--compression-format", "zstd"], "compression of whole files"),
        (["--encrypt-to", "age1nonsense"], "is not a recipient"),
        (["--encrypt-to", keys / "owner"], "secret key"),
    ):
        refused = world.run("record", "-a", "-o", world.folder / "bag", "--encrypt-to", owner, *arguments)
        assert refused.returncode == 2 and sentence in refused.stderr, refused
        assert not (world.folder / "bag").exists()
    with Writer(world.folder / "plain", version=9, storage_plugin=StoragePlugin.SQLITE3) as writer:
        store = get_typestore(Stores.ROS2_JAZZY)
        text = store.serialize_cdr(store.types["std_msgs/msg/String"](data="x"), "std_msgs/msg/String")
        writer.write(writer.add_connection("/t", "std_msgs/msg/String", typestore=store), 10**18, text)
    # Without a storage the output has that of the input.
    for arguments in ([], ["-s", "sqlite3"], ["-s", "mcap", "--compression-mode", "file"]):
        refused = world.run("convert", world.folder / "plain", "-o", world.folder / "bag", "--encrypt-to", owner, *arguments)
        assert refused.returncode == 2 and "partial" not in refused.stderr and "cannot be encrypted" in refused.stderr, refused
        assert not list(world.folder.glob("*bag*")), refused
