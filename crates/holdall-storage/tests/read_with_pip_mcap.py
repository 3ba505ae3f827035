"""Prints what pip `mcap` reads from files, with all checksums checked: front to end, and by the index where there is one."""

import hashlib
import sys

from mcap.reader import NonSeekingReader, SeekingReader


def lines(reader):
    for _, channel, message in reader.iter_messages(log_time_order=False):
        digest = hashlib.md5(message.data).hexdigest()
        yield f"{channel.topic} {message.log_time} {message.publish_time} {message.sequence} {digest}"


for path in sys.argv[1:]:
    with open(path, "rb") as stream:
        linear = sorted(lines(NonSeekingReader(stream, validate_crcs=True)))
    with open(path, "rb") as stream:
        indexed = sorted(lines(SeekingReader(stream, validate_crcs=True)))
    assert linear == indexed, f"{path}: {len(linear)} messages from front to end, {len(indexed)} by the index"
    print("file")
    for line in linear:
        print(line)
