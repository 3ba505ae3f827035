"""Records everything, or some topics, into a bag: ``ros2 launch record_all.launch.py uri:=lab storage:=mcap topics:="/imu /scan"``."""

from holdall.launch import Record

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration


def generate_launch_description():
    # What is empty is left out: without topics, all are recorded.
    return LaunchDescription([
        DeclareLaunchArgument("uri", default_value="", description="the bag; without it, one that is named after the time"),
        DeclareLaunchArgument("storage", default_value="mcap", choices=["mcap", "sqlite3"]),
        DeclareLaunchArgument("topics", default_value="", description="these only, with blanks between them"),
        Record(uri=LaunchConfiguration("uri"), topics=LaunchConfiguration("topics"), storage=LaunchConfiguration("storage")),
    ])
