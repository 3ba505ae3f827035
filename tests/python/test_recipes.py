"""The recipes of docs/python.md, as they are written there."""

import datetime
import os
import re
import subprocess
from pathlib import Path

import duckdb
import holdall
import numpy as np
import pytest

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "python.md"
RECIPES = re.findall(r"^### (\d+)\. (.*?)$.*?```python\n(.*?)```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
START = 1_700_000_000_000_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")
    points = [{"name": name, "offset": 4 * place, "datatype": 7, "count": 1} for place, name in enumerate(("x", "y", "intensity"))]
    with holdall.create(folder / "run1") as out:
        for number in range(2000):
            time = START + number * 10_000_000
            fields = {"header": {"frame_id": "imu"}, "linear_acceleration": {"z": 9.81 + (number % 500 == 0) * 5}}
            out.write("/imu", "sensor_msgs/msg/Imu", fields, time=time)
            if number % 200 == 0:
                image = {"height": 2, "width": 2, "encoding": "rgb8", "step": 6, "data": bytes(12)}
                out.write("/camera", "sensor_msgs/msg/Image", image, time=time + 1)
                cloud = {"height": 1, "width": 3, "fields": points, "point_step": 12, "row_step": 36, "data": np.arange(9, dtype="f4").tobytes()}
                out.write("/lidar", "sensor_msgs/msg/PointCloud2", cloud, time=time)
                out.write("/battery", "sensor_msgs/msg/BatteryState", {"voltage": 12.5}, time=time)
    return folder


def test_there_are_ten_recipes():
    assert [int(number) for number, _, _ in RECIPES] == list(range(1, 11))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe[1])
def test_a_recipe_works(folder, recipe, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "OFF")
    number, _, text = recipe
    bag = holdall.open("run1")
    names = {"holdall": holdall, "duckdb": duckdb, "datetime": datetime.datetime, "timezone": datetime.timezone, "bag": bag, "imu": bag["/imu"]}
    exec(compile(text, f"recipe {number}", "exec"), names)
    checks = {
        "1": lambda: "/imu" in capsys.readouterr().out,
        "3": lambda: names["acceleration"].shape == (2000, 3) and names["stamps"].dtype.names == ("sec", "nanosec"),
        "5": lambda: (len(names["bumps"]), len(names["slow"])) == (4, 200),
        "6": lambda: len(names["frame"]) == 2000 and names["peak"] == [(14.81,)] and names["flat"].column_names[3] == "header.stamp.sec",
        "7": lambda: names["image"].shape == (2, 2, 3) and names["cloud"]["x"].tolist() == [0, 3, 6] and len(names["brightness"]) == 10,
        "9": lambda: holdall.open("out")["/pair"][0].msg.to_dict() == {"a": 2, "b": 1.5} and [message.msg.header.frame_id for message in holdall.open("out")["/battery"]] == ["base"] * 10,
        "10": lambda: len(holdall.open("bumps")["/imu"]) == 4 and os.path.exists("tables/battery.csv") and len(holdall.open("parts").files) == 4,
    }
    assert checks.get(number, lambda: True)()


def test_the_slices_of_recipe_four_select(folder):
    imu = holdall.open(folder / "run1")["/imu"]
    parts = (imu.between(5, 7.5), imu["22:13:25":"22:13:27"], imu["500ms":"1s"], imu.between(1_700_000_005_000_000_000), imu[5:10], imu[-100:], imu[::10])
    assert [len(part) for part in parts] == [250, 200, 50, 1500, 5, 100, 200]


def test_the_commands_for_old_scripts_find_and_rewrite_their_slices(tmp_path):
    section = DOCUMENT.read_text().partition("## Scripts for versions before")[2].partition("\n## ")[0]
    grep, sed = re.findall(r"`((?:grep|sed) .*?)`", section)
    old = 'imu[5.0:7.5].to_numpy("x")\nimu["x"], imu[3], bag["/imu"]\nlen(topic[start:])\nx = frames[:100]\nimu[:5.0], topic[a:b]\n'
    (tmp_path / "script.py").write_text(old)
    found = subprocess.run(grep, shell=True, cwd=tmp_path, capture_output=True, text=True).stdout
    assert [line.partition(":")[0] for line in found.splitlines()] == ["1", "3", "4", "5"]
    new = subprocess.run(f"{sed} script.py", shell=True, cwd=tmp_path, capture_output=True, text=True).stdout
    assert new.splitlines() == [
        'imu.between(5.0, 7.5).to_numpy("x")', 'imu["x"], imu[3], bag["/imu"]', "len(topic.between(start))", "x = frames[:100]",
        "imu.between(None, 5.0), topic.between(a, b)",
    ]  # fmt: skip
