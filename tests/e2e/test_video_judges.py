"""Video in bags as programs of others read it: PyAV picture by picture, mcap-frames by number, also of what was recorded."""

import av
import mcap_frames
import numpy as np
import pytest
from test_latched import files_of
from test_record_video import HEIGHT, WIDTH, camera, record
from test_small import START, STEP, plain, psnr, read, scene, write

IMAGE, VIDEO = "sensor_msgs/msg/Image", "foxglove_msgs/msg/CompressedVideo"
COUNT = 75
# How PyAV names what decodes a format.
DECODERS = {"h264": "h264", "h265": "hevc", "av1": "libdav1d", "vp9": "vp9"}
CODECS = ["h264", "h265", "av1", "vp9", "lossless"]


def decoder(form):
    """One that has nothing of other pictures, and waits for none."""
    made = av.CodecContext.create(DECODERS[form], "r")
    made.thread_count = 1
    made.flags |= av.codec.context.Flags.low_delay
    return made


@pytest.fixture
def small(tmp_path, world, ffmpeg):
    """A bag with video of a scene."""

    def make(codec, size=(320, 240), carrier="foxglove"):
        pictures = [scene(number, *size) for number in range(COUNT)]
        bag = write(tmp_path / "camera.mcap", {"/camera": (IMAGE, [(n, plain(n, "rgb8", picture)) for n, picture in enumerate(pictures)])})
        done = world.run("compress", bag, "-o", world.folder / "small", "--video", f"/camera={codec}", "--as", carrier)
        assert done.returncode == 0, done.stderr
        return world.folder / "small", pictures

    return make


def assert_shows(codec, image, picture):
    assert np.array_equal(image, picture) if codec == "lossless" else psnr(image, picture) > 28


@pytest.mark.parametrize("codec", CODECS)
def test_pyav_decodes_a_picture_of_each_message_and_begins_at_any_key_frame(small, codec):
    bag, pictures = small(codec)
    messages = [one[4] for one in read(bag)["/camera"]]
    running, keys = decoder(messages[0].format), []
    for number, (message, picture) in enumerate(zip(messages, pictures, strict=True)):
        packet = av.Packet(bytes(message.data))
        (frame,) = running.decode(packet)
        assert frame.pict_type != av.video.frame.PictureType.B and (frame.width, frame.height) == (320, 240)
        assert_shows(codec, frame.to_ndarray(format="rgb24"), picture)
        if frame.key_frame:
            # What a decoder needs is in the message itself.
            (alone,) = decoder(message.format).decode(packet)
            assert np.array_equal(alone.to_ndarray(format="rgb24"), frame.to_ndarray(format="rgb24"))
            keys.append(number)
    assert not running.decode(None), "no picture waits for a later message"
    # 20 pictures a second, and 30 where the rate is not known yet.
    assert keys[0] == 0 and all(b - a <= 30 for a, b in zip(keys, [*keys[1:], COUNT], strict=True)), keys


def assert_mcap_frames_reads(path, topic, numbers):
    """Returns the pictures; its own check of the file finds no fault."""
    report = mcap_frames.check(str(path))
    issues = [issue for one in report.topics.values() for issue in one.issues if issue.level in ("error", "warning")]
    assert not issues, report.summary()
    video = mcap_frames.open(str(path)).video(topic)
    assert len(video) == len(numbers) and video.keyframes[0] == 0
    return video


@pytest.mark.parametrize("codec", ["h264", "h265", "lossless"])
@pytest.mark.parametrize("carrier", ["foxglove", "compressed_image"])
def test_mcap_frames_finds_any_picture_by_its_number(small, codec, carrier):
    bag, pictures = small(codec, carrier=carrier)
    (path,) = bag.glob("*.mcap")
    video = assert_mcap_frames_reads(path, "/camera", range(COUNT))
    keys = list(video.keyframes)
    for number in (COUNT - 1, 0, 33, keys[-1], keys[-1] - 1):
        frame = video.frame(number)
        assert (frame.log_time_ns, frame.stamp_ns) == (START + number * STEP, (100 + number) * 10**9 + 7 * number)
        assert frame.decoded_from == max(key for key in keys if key <= number)
        assert_shows(codec, frame.image, pictures[number])


def test_mcap_frames_finds_any_picture_of_a_recording(world, ffmpeg):
    recorder = record(world, "-d", "2", "--video", "/camera=lossless,preset=ultrafast")
    count = 150
    world.talker(camera("/camera", count)).done()
    code, said = recorder.stop()
    assert code == 0, said
    files, seen = files_of(world.folder / "bag")[0], []
    assert len(files) > 1
    for path in files:
        numbers = [one.timestamp.sec * 1000 + one.timestamp.nanosec // 10**6 for *_, one in read(path).get("/camera", [])]
        if numbers:
            video = assert_mcap_frames_reads(path, "/camera", numbers)
            images = [video.frame(place).image for place in range(len(numbers))]
            # The publisher writes the number into the first pixels.
            assert [int.from_bytes(image.tobytes()[:8], "little") for image in images] == numbers
            assert {image.shape for image in images} == {(HEIGHT, WIDTH, 3)}
        seen += numbers
    assert seen == list(range(count))
