"""What type checkers and editors know; mypy reads it, nothing runs it."""

import datetime as dt
from typing import Any, assert_type

import holdall
import numpy.typing as npt
from holdall import Bag, Message, Topic

bag = holdall.open("run1")
assert_type(bag, Bag)
assert_type(bag["/imu"], Topic)
assert_type(bag.topics["/imu"][5:10], Topic)
assert_type(bag["/imu"]["1s":"2s"].between(1, 2).where("x > 1").every("1s").head(), Topic)
assert_type(bag["/imu"][3], Message)
assert_type(bag["/imu"][3].datetime, dt.datetime)
assert_type(bag["/imu"]["linear_acceleration"], npt.NDArray[Any])
assert_type(bag["/imu"].to_numpy("linear_acceleration"), npt.NDArray[Any])
assert_type(bag["/imu"].to_numpy("linear_acceleration", "header"), dict[str, npt.NDArray[Any]])
assert_type(bag["/imu"].to_numpy(), dict[str, npt.NDArray[Any]])
assert_type(bag.images("/camera")[3], npt.NDArray[Any])
for pixels in bag.images("/camera")[2:4].between(1):
    assert_type(pixels, npt.NDArray[Any])
for message in bag["/imu"][::10]:
    assert_type(message, Message)
assert_type(holdall.get("run1"), dict[str, Any])
assert_type(holdall.get("run1", "map.yaml"), bytes)
holdall.convert("run1", "out", storage="sqlite3", topics=["/imu"])
holdall.convert("run1", "out", storge="sqlite3")  # type: ignore[call-arg]
assert_type(holdall.record("run2", ["/imu"], max_bag_size="1GB", cache_policy="drop-old", trigger=["/imu silent 2s"], web=True), holdall.Recording)
assert_type(holdall.record("run2").promote("event", 1_700_000_000, dt.datetime.now(), topics=["/imu"], timeout=5), dict[str, Any])
holdall.record("run2").promote("event", dt.timedelta(1))  # type: ignore[arg-type]
assert_type(holdall.play("run1", rate=2, loop=True, topics=["/imu"], clock=100), holdall.Playback)
holdall.record("run2", max_bag_sise=5)  # type: ignore[call-arg]
holdall.play("run1", pace="slow")  # type: ignore[arg-type]
holdall.burst("run1", num_messages="few")  # type: ignore[arg-type]
holdall.preflight(["/imu"], for_="2h", max_bag_files=2)  # type: ignore[call-arg]
bag["/imu"].to_pandas(time="now")  # type: ignore[arg-type]
