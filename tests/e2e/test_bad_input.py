"""What a user gets for wrong input: one clear sentence, the right exit code, nothing overwritten, no panic."""

import pytest


def refused(told, code, *words):
    text = told.stderr
    assert told.returncode == code, (told.returncode, text)
    assert "panicked" not in text and "RUST_BACKTRACE" not in text, text
    for word in words:
        assert word in text, text
    assert told.stdout == ""


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["record"], ["topic"]),
        (["record", "--exclude-regex", "x", "--topics", "/t"], ["exclude"]),
        (["record", "-a", "--exclude-regex", "("], ["regex"]),
        (["record", "-e", "[a"], ["regex"]),
        (["record", "--topics", "/bad topic"], ["/bad topic"]),
        (["record", "-a", "--no-discovery", "--use-sim-time"], ["--use-sim-time"]),
        (["record", "-a", "--max-bag-files", "3"], ["--max-bag-files"]),
        (["record", "-a", "-b", "10"], ["1024"]),
        (["record", "-a", "--storage", "floppy"], ["floppy"]),
        (["record", "-a", "--custom-data", "novalue"], ["novalue"]),
        (["play", "bag", "-r", "0"], ["rate"]),
        (["play", "bag", "-m", "nonsense"], ["nonsense"]),
    ],
)
def test_wrong_flags_are_refused_with_exit_2(world, arguments, words):
    refused(world.run(*arguments), 2, *words)


def test_existing_output_directory_is_not_touched(world):
    bag = world.folder / "bag"
    bag.mkdir()
    (bag / "precious.txt").write_text("do not lose me")
    refused(world.run("record", "-a", "-o", bag), 2, str(bag), "exists")
    assert [p.name for p in bag.iterdir()] == ["precious.txt"]


def test_output_below_a_file_is_refused(world):
    (world.folder / "file").write_text("")
    refused(world.run("record", "-a", "-o", world.folder / "file" / "bag"), 2, str(world.folder / "file"))


@pytest.mark.parametrize(
    "text, words",
    [
        ("/t:\n  depht: 3\n", ["depht", "/t"]),
        ("/t:\n  deadline:\n    sec: 1\n", ["nsec", "deadline"]),
        ("/t:\n  reliability: sometimes\n", ["sometimes"]),
        ("/t: [", ["qos.yaml"]),
    ],
)
def test_broken_qos_file_is_explained(world, text, words):
    path = world.folder / "qos.yaml"
    path.write_text(text)
    refused(world.run("record", "-a", "--qos-profile-overrides-path", path, "-o", world.folder / "bag"), 2, str(path), *words)
    assert not (world.folder / "bag").exists()


@pytest.mark.parametrize("verb", ["info", "play"])
def test_things_that_are_no_bag_are_named(world, verb):
    missing = world.folder / "missing"
    refused(world.run(verb, missing), 2, str(missing))
    empty = world.folder / "empty"
    empty.mkdir()
    refused(world.run(verb, empty), 2, str(empty))
    text = world.folder / "text.mcap"
    text.write_text("this is not a bag")
    refused(world.run(verb, text), 2, str(text))
    nothing = world.folder / "nothing.mcap"
    nothing.write_bytes(b"")
    refused(world.run(verb, nothing), 2, str(nothing))


def test_truncated_bag_still_shows_what_is_there(world):
    from mcap.writer import Writer

    path = world.folder / "torn.mcap"
    with open(path, "wb") as stream:
        writer = Writer(stream, chunk_size=500)
        writer.start(profile="ros2")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data\n")
        channel = writer.register_channel("/t", "cdr", schema)
        for i in range(100):
            writer.add_message(channel, i, b"\0\1\0\0\2\0\0\0a\0", i)
        writer.finish()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    told = world.run("info", path)
    assert told.returncode == 0, told.stderr
    assert "/t" in told.stdout
    assert str(path) in told.stderr, "says once that the file is torn"
    assert path.read_bytes() == whole[: len(whole) // 2], "reading changes nothing"
