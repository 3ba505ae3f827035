"""Records as a node of the ament package `holdall`, with rosbag2's parameter file: ``ros2 launch record_as_node.launch.py params:=recorder.yaml``."""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node


def generate_launch_description():
    return LaunchDescription([
        DeclareLaunchArgument("params", description="parameters of rosbag2's composable recorder: record.topics, storage.uri"),
        DeclareLaunchArgument("namespace", default_value=""),
        Node(
            package="holdall",
            executable="holdall",
            name="recorder",
            namespace=LaunchConfiguration("namespace"),
            arguments=["record"],
            parameters=[LaunchConfiguration("params")],
            output="screen",
            sigterm_timeout="60",
        ),
    ])
