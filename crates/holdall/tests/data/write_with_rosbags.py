"""Writes `rosbags_written` beside this file with pip `rosbags` 0.11: python write_with_rosbags.py rosbags_written"""
import sys
from pathlib import Path

from rosbags.rosbag2 import Writer, StoragePlugin
from rosbags.typesys import Stores, get_typestore
ts = get_typestore(Stores.ROS2_JAZZY)
String = ts.types['std_msgs/msg/String']
Time = ts.types['builtin_interfaces/msg/Time']
out = Path(sys.argv[1])
T0 = 1_700_000_000_000_000_000
with Writer(out, version=9, storage_plugin=StoragePlugin.MCAP) as w:
    a = w.add_connection('/chatter', 'std_msgs/msg/String', typestore=ts)
    b = w.add_connection('/stamp', 'builtin_interfaces/msg/Time', typestore=ts)
    for i in range(10):
        w.write(a, T0 + i * 10_000_000, ts.serialize_cdr(String(f'hello {i}'), 'std_msgs/msg/String'))
        if i % 2 == 0:
            w.write(b, T0 + i * 10_000_000 + 5_000_000, ts.serialize_cdr(Time(i, 7), 'builtin_interfaces/msg/Time'))
