"""Plays a bag and records what is published meanwhile, until the bag has been played: ``ros2 launch play_and_record.launch.py bag:=lab uri:=lab_again``."""

from holdall.launch import OnEnd, OnStart, Play, Record

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, RegisterEventHandler, Shutdown
from launch.substitutions import LaunchConfiguration


def generate_launch_description():
    # Playing begins when both hear each other: the recorder listens, and the player waits for a subscription of each topic.
    recording = Record(uri=LaunchConfiguration("uri"), all=True)
    playing = Play(LaunchConfiguration("bag"), rate=LaunchConfiguration("rate"), clock=True, wait_for_subscribers=1)
    return LaunchDescription([
        DeclareLaunchArgument("bag", description="the bag to play"),
        DeclareLaunchArgument("uri", default_value="", description="the bag to record"),
        DeclareLaunchArgument("rate", default_value="1"),
        recording,
        # The nodes under test are started here, with use_sim_time.
        RegisterEventHandler(OnStart(target_action=recording, on_start=[playing])),
        RegisterEventHandler(OnEnd(target_action=playing, on_end=[Shutdown(reason="the bag has been played")])),
    ])
