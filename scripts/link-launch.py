#!/usr/bin/env python3
"""Links the launch of the ROS 2 that is sourced into a folder, without its rclpy and its libraries: the tests bring nodes of their own.

    scripts/link-launch.py FOLDER       then: HOLDALL_LAUNCH_PATH=FOLDER AMENT_PREFIX_PATH=FOLDER:VENV make e2e
"""

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

PACKAGES = ("launch", "launch_xml", "launch_yaml", "launch_ros", "osrf_pycommon", "ros2cli", "ros2launch", "ros2pkg", "composition_interfaces")
# Packages that launch and the command ros2 find by what their metadata says.
ANNOUNCED = ("launch_xml", "launch_yaml", "launch_ros", "ros2cli", "ros2launch")


def main(folder):
    folder = Path(folder)
    found = {name: importlib.util.find_spec(name) for name in PACKAGES}
    if missing := [name for name, spec in found.items() if spec is None]:
        sys.exit(f"these packages cannot be imported: {', '.join(missing)}; source a ROS 2 installation first")
    # Launch looks for the grammar of its files in the share folder of its package, which the index has to list.
    index = folder / "share/ament_index/resource_index/packages"
    index.mkdir(parents=True)
    for name, spec in found.items():
        package = Path(spec.origin).parent
        (folder / name).symlink_to(package)
        shares = [above / "share" / name for above in package.parents if (above / "share" / name).is_dir()]
        if shares:
            (folder / "share" / name).symlink_to(shares[0])
            (index / name).touch()
    for name in ANNOUNCED:
        metadata = importlib.metadata.distribution(name).locate_file("").resolve()
        (own,) = (path for path in metadata.iterdir() if path.name.startswith(f"{name}-") and path.suffix in (".egg-info", ".dist-info"))
        (folder / own.name).symlink_to(own)


if __name__ == "__main__":
    main(*sys.argv[1:])
