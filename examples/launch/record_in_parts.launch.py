"""Records in files of a minute, and logs each file that is complete and each loss: ``ros2 launch record_in_parts.launch.py uri:=lab seconds:=60``."""

from holdall.launch import OnEnd, OnLoss, OnSplit, OnStart, Record

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, LogInfo, RegisterEventHandler, Shutdown
from launch.substitutions import LaunchConfiguration


def generate_launch_description():
    recording = Record(
        uri=LaunchConfiguration("uri"),
        all=True,
        max_bag_duration=LaunchConfiguration("seconds"),
        max_recording_duration=LaunchConfiguration("stop_after"),
    )
    return LaunchDescription([
        DeclareLaunchArgument("uri", default_value=""),
        DeclareLaunchArgument("seconds", default_value="60"),
        DeclareLaunchArgument("stop_after", default_value="", description="seconds; without it, until Ctrl-C"),
        recording,
        RegisterEventHandler(OnStart(target_action=recording, on_start=[LogInfo(msg="recording")])),
        RegisterEventHandler(OnSplit(target_action=recording, on_split=lambda event, context: LogInfo(msg=f"complete: {event.closed_file}"))),
        RegisterEventHandler(OnLoss(target_action=recording, on_loss=lambda event, context: LogInfo(msg=f"lost: {event.topics}"))),
        RegisterEventHandler(OnEnd(target_action=recording, on_end=[Shutdown(reason="the recording has ended")])),
    ])
