"""Images without loss as arrays: those of the bag that they were compressed from."""

import holdall
import numpy as np
import pytest
from conftest import START, header
from test_meaning import MS, write


def test_images_of_planes_are_the_arrays_that_they_were(store, make, tmp_path):
    dice = np.random.default_rng(3)
    metres = dice.random((6, 9)).astype("<f4")
    metres.view("<u4")[2, :4] = 0x7FC00001, 0xFF800000, 0x80000000, 1
    images = {
        "/metres": ("32FC1", 0, 0, metres),
        "/swapped": ("32FC1", 1, 0, metres.byteswap()),
        "/deep": ("rgb16", 0, 5, dice.integers(0, 60_000, (6, 9, 3)).astype("<u2")),
        "/signed": ("16SC1", 0, 0, dice.integers(-9, 9, (6, 9)).astype("<i2")),
        "/planes": ("nv12", 0, 0, dice.integers(0, 255, (9, 10)).astype("u1")),
        "/depth": ("16UC1", 0, 3, dice.integers(0, 255, (6, 9)).astype("<u2")),
    }
    messages = []
    for topic, (encoding, is_bigendian, more, pixels) in images.items():
        rows = np.hstack([pixels.view("u1").reshape(len(pixels), -1), np.full((len(pixels), more), 7, "u1")])
        message = make(
            "sensor_msgs/msg/Image", header=header(make, START, "lens"), height=6, width=pixels.shape[1], encoding=encoding, is_bigendian=is_bigendian,
            step=rows.shape[1], data=rows.ravel(),
        )  # fmt: skip
        messages += [(topic, START + number * MS, message) for number in range(2)]
    write(tmp_path / "bag", store, dict.fromkeys(images, "sensor_msgs/msg/Image"), messages)
    report = holdall.compress(tmp_path / "bag", tmp_path / "small", video=".*=lossless")
    assert {(one["codec"], one["messages"], one["kept"]) for one in report["recoded"]} == {("planes", 2, 0)}
    bag, small = holdall.open(tmp_path / "bag"), holdall.open(tmp_path / "small")
    for topic in images:
        was, found = bag.images(topic)[1], small.images(topic)[1]
        assert small[topic][1].type == "sensor_msgs/msg/CompressedImage"
        assert (found.dtype, found.shape, found.tobytes()) == (was.dtype, was.shape, was.tobytes()), topic
    assert holdall._native.picture(small["/metres"][0].msg, 100)[0] == "image/png"
    msg = small["/deep"][0].msg
    with pytest.raises(ValueError, match="an image of planes is cut off or damaged"):
        holdall._native.decode_image(bytes(msg.data)[:-1], msg.format)
