"""Keeps only what surrounds the end of a node, with a marker: ``ros2 launch mark_crashes.launch.py uri:=crashes command:="ros2 run demo_nodes_py talker"``."""

from holdall.launch import Record, Request

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, RegisterEventHandler
from launch.event_handlers import OnProcessExit
from launch.substitutions import LaunchConfiguration


def generate_launch_description():
    # Its first trigger is never true; events come from here.
    recording = Record(uri=LaunchConfiguration("uri"), all=True, trigger=LaunchConfiguration("trigger"), before=30, after=LaunchConfiguration("after"))
    node = ExecuteProcess(cmd=[LaunchConfiguration("command")], shell=True, output="screen")

    def mark(event, context):
        return Request(recording, "trigger", name=f"{event.process_name} ended with {event.returncode}")

    return LaunchDescription([
        DeclareLaunchArgument("uri", default_value=""),
        DeclareLaunchArgument("command", description="the node"),
        DeclareLaunchArgument("trigger", default_value="/rosout: level >= 50", description="also an event: here, a message of level FATAL"),
        DeclareLaunchArgument("after", default_value="10", description="seconds that are kept after an event"),
        recording,
        node,
        RegisterEventHandler(OnProcessExit(target_action=node, on_exit=mark)),
    ])
