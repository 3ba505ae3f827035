"""Runs a launch file with ROS 2's own launch, and prints what happened to recordings and playbacks as JSON lines.

Usage: launching.py FILE [NAME:=VALUE...]
"""

import json
import sys

from holdall.launch import OnAlarm, OnEnd, OnLoss, OnSplit, OnStart

from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription, RegisterEventHandler
from launch.launch_description_sources import AnyLaunchDescriptionSource


def say(event, _context):
    fields = ("closed_file", "opened_file", "lost", "total", "topics", "returncode", "report", "reports", "state", "kind", "topic", "text", "since_ns")
    values = {name: getattr(event, name) for name in fields if hasattr(event, name)}
    print(json.dumps({"event": type(event).__name__, "verb": type(event.action).__name__, **values}), flush=True)


def main(path, *arguments):
    included = IncludeLaunchDescription(AnyLaunchDescriptionSource(path), launch_arguments=[word.split(":=", 1) for word in arguments])
    handlers = [OnStart(on_start=say), OnSplit(on_split=say), OnLoss(on_loss=say), OnAlarm(on_alarm=say), OnEnd(on_end=say)]
    service = LaunchService()
    service.include_launch_description(LaunchDescription([*map(RegisterEventHandler, handlers), included]))
    return service.run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
