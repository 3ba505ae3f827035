"""A real ROS 1 node (rospy): publishes messages of many shapes, each topic as soon as all have a subscriber.

Usage: /usr/bin/python3 ros1_talker.py COUNT

Runs in Debian's own Python, where ROS 1 is installed. Publishes COUNT messages on every topic of TOPICS and ends.
"""

import struct
import sys
import time

import genpy.dynamic
import rospy
from geometry_msgs.msg import Point, Quaternion, TransformStamped
from nav_msgs.msg import OccupancyGrid
from sensor_msgs.msg import BatteryState, CameraInfo, Image, Imu, JointState, PointCloud2, PointField
from std_msgs.msg import Bool, ColorRGBA, Empty, String
from tf2_msgs.msg import TFMessage
from visualization_msgs.msg import Marker, MarkerArray

LINE = "=" * 80
OWN = f"""Header header
uint8 KIND=3
string NAME=a # b
bool flag
time at
duration span
char letter
byte small
uint64 large
Part[] parts
float64[] none
string[2] pair
Part[2] two
duration[] spans
{LINE}
MSG: std_msgs/Header
uint32 seq
time stamp
string frame_id
{LINE}
MSG: own_msgs/Part
uint8 kind
float64 value
int16[] steps
string name
"""
Own = genpy.dynamic.generate_dynamic("own_msgs/Own", OWN)["own_msgs/Own"]
Part = type(Own().two[0])


def own(n):
    message = Own()
    message.header.seq, message.header.stamp, message.header.frame_id = n, rospy.Time(n, n), "own" * (n % 3)
    message.flag, message.at, message.span = n % 2 == 0, rospy.Time(n, 7), rospy.Duration(-n, 9)
    message.letter, message.small, message.large = n % 256, -(n % 100), 2**63 + n
    message.parts = [Part(k % 256, k / 3, list(range(k)), "p" * k) for k in range(n % 4)]
    message.none, message.pair, message.two = [], ["a" * (n % 5), "ß"], [Part(1, 2, [3], "4"), Part()]
    message.spans = [rospy.Duration(k, k) for k in range(n % 3)]
    return message


def image(n):
    message = Image(height=24, width=32, encoding="mono8", step=32, data=bytes((n + k) % 256 for k in range(24 * 32)))
    message.header.frame_id = "camera"
    return message


def cloud(n):
    fields = [PointField(name, 4 * k, PointField.FLOAT32, 1) for k, name in enumerate("xyz")]
    data = b"".join(struct.pack("<fff", k, n, 0.5) for k in range(50 + n))
    return PointCloud2(height=1, width=50 + n, fields=fields, point_step=12, row_step=len(data), data=data, is_dense=True)


def tf(n):
    transforms = []
    for k in range(1 + n % 3):
        transform = TransformStamped(child_frame_id=f"child{k}")
        transform.header.stamp, transform.header.frame_id = rospy.Time(n, k), "map"
        transform.transform.rotation = Quaternion(0, 0, 0, 1)
        transforms.append(transform)
    return TFMessage(transforms)


def camera(n):
    message = CameraInfo(height=n, width=2 * n, distortion_model="plumb_bob", D=[0.1] * (n % 6), K=[float(k) for k in range(9)])
    message.roi.do_rectify = True
    return message


def markers(n):
    def marker(k):
        made = Marker(ns="test", id=k, lifetime=rospy.Duration(1, 5), text="hello" * (k % 2), mesh_resource="file.stl")
        made.points = [Point(k, j, 0.5) for j in range(k)]
        made.colors = [ColorRGBA(1, 0, 0, 1) for _ in range(k)]
        return made

    return MarkerArray([marker(k) for k in range(n % 4)])


TOPICS = {
    "/chatter": (String, lambda n: String(f"hello {n}" + "ä" * (n % 7)), False),
    "/own": (Own, own, False),
    "/image": (Image, image, False),
    "/cloud": (PointCloud2, cloud, False),
    "/tf": (TFMessage, tf, False),
    "/camera_info": (CameraInfo, camera, False),
    "/imu": (Imu, lambda n: Imu(orientation_covariance=[float(n)] * 9), False),
    "/joints": (JointState, lambda n: JointState(name=["a", "bc"], position=[1.0, n], effort=[0.5]), False),
    "/map": (OccupancyGrid, lambda n: OccupancyGrid(data=[-1, 0, 100, n % 100] * 25), True),
    "/battery": (BatteryState, lambda n: BatteryState(voltage=n, current=-1, cell_voltage=[3.7] * (n % 4), location="slot"), False),
    "/markers": (MarkerArray, markers, False),
    "/flag": (Bool, lambda n: Bool(n % 2 == 0), False),
    "/nothing": (Empty, lambda n: Empty(), False),
}


def main():
    count = int(sys.argv[1])
    rospy.init_node("talker", disable_signals=True)
    # Without a queue a publisher sends before it returns.
    publishers = {topic: rospy.Publisher(topic, kind, latch=latch, queue_size=None) for topic, (kind, _, latch) in TOPICS.items()}
    deadline = time.monotonic() + 60
    while not all(publisher.get_num_connections() for publisher in publishers.values()):
        assert time.monotonic() < deadline, "nobody listens"
        time.sleep(0.02)
    for n in range(count):
        for topic, (_, make, _) in TOPICS.items():
            publishers[topic].publish(make(n))
        time.sleep(0.002)
    sys.stdin.read()  # Until the sent messages have been recorded.


if __name__ == "__main__":
    main()
