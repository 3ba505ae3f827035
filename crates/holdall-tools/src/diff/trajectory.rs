//! The poses of a topic of a bag, for the comparison of trajectories.

use super::{fields::value, golden::Side};
use holdall_bag::reader::ReadError;
use holdall_model::regress::{Pose, Trajectory, TrajectoryLimits};
use serde_json::Value;

/// Most poses of a topic: those of a day at 50 Hz, in 300 MB.
const POSES_MAX: usize = 50 * 24 * 3600;

/// Where the pose of a message is.
enum Place {
    /// The pose of this field.
    Field(&'static str),
    /// The translation and rotation of `transform`.
    Transform,
    /// The last one of `poses`.
    Last,
    /// The one of `transforms` between two frames.
    Between([String; 2]),
}

impl Place {
    fn of(type_name: &str, limits: &TrajectoryLimits) -> Result<Self, String> {
        Ok(match (type_name, &limits.frames) {
            ("tf2_msgs/msg/TFMessage", Some(frames)) => Self::Between(frames.clone()),
            ("tf2_msgs/msg/TFMessage", None) => {
                return Err("the trajectory of transforms needs frames: [PARENT, CHILD]".to_owned());
            }
            (_, Some(_)) => {
                return Err(format!(
                    "frames are those of transforms, but its type is {type_name}"
                ));
            }
            ("nav_msgs/msg/Odometry" | "geometry_msgs/msg/PoseWithCovarianceStamped", _) => {
                Self::Field("/pose/pose")
            }
            ("geometry_msgs/msg/PoseStamped", _) => Self::Field("/pose"),
            ("geometry_msgs/msg/TransformStamped", _) => Self::Transform,
            ("nav_msgs/msg/Path", _) => Self::Last,
            _ => return Err(format!("messages of {type_name} have no trajectory")),
        })
    }

    /// The pose of a message: the outer `None` if it has none, the inner one if that cannot be used.
    fn find(&self, message: &Value) -> Option<Option<Pose>> {
        match self {
            Self::Field(path) => Some(pose(
                stamp(message),
                message.pointer(path)?,
                ["position", "orientation"],
            )),
            Self::Transform => Some(transform(message)),
            Self::Last => {
                let last = message["poses"].as_array()?.last()?;
                // Many nodes fill in the stamp of the path only.
                let own = stamp(last).filter(|nanos| *nanos != 0);
                let stamp = own.or_else(|| stamp(message));
                Some(pose(stamp, &last["pose"], ["position", "orientation"]))
            }
            Self::Between([parent, child]) => {
                let is_it = |it: &&Value| {
                    it["header"]["frame_id"] == parent.as_str() && it["child_frame_id"] == child.as_str()
                };
                message["transforms"]
                    .as_array()?
                    .iter()
                    .find(is_it)
                    .map(transform)
            }
        }
    }
}

fn transform(message: &Value) -> Option<Pose> {
    pose(stamp(message), &message["transform"], ["translation", "rotation"])
}

fn stamp(message: &Value) -> Option<i64> {
    let stamp = &message["header"]["stamp"];
    let seconds = stamp["sec"].as_i64()?.checked_mul(1_000_000_000)?;
    seconds.checked_add(stamp["nanosec"].as_i64()?)
}

fn pose(stamp: Option<i64>, value: &Value, [position, orientation]: [&str; 2]) -> Option<Pose> {
    let number = |part: &str, axis: &str| value[part][axis].as_f64();
    let at = |axis| number(position, axis);
    let turn = |axis| number(orientation, axis);
    Pose::new(
        stamp?,
        [at("x")?, at("y")?, at("z")?],
        [turn("x")?, turn("y")?, turn("z")?, turn("w")?],
    )
}

/// The poses of a topic; one clause if it can have none.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn trajectory(
    side: &mut Side,
    type_name: &str,
    limits: &TrajectoryLimits,
) -> Result<Result<Trajectory, String>, ReadError> {
    let place = match Place::of(type_name, limits) {
        Ok(place) => place,
        Err(reason) => return Ok(Err(reason)),
    };
    let mut found = Trajectory::default();
    for message in side.messages.by_ref() {
        let message = message?;
        match value(&side.decoder, &message.payload).map(|message| place.find(&message)) {
            Some(None) => {}
            Some(Some(Some(_))) if found.poses.len() >= POSES_MAX => {
                return Ok(Err(format!(
                    "it has more than {POSES_MAX} poses; compare a part of the bag"
                )));
            }
            Some(Some(Some(pose))) => found.poses.push(pose),
            // Bytes that cannot be decoded have no pose either.
            None | Some(Some(None)) => found.unusable += 1,
        }
    }
    Ok(Ok(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn limits(frames: Option<[String; 2]>) -> TrajectoryLimits {
        TrajectoryLimits {
            frames,
            ..TrajectoryLimits::default()
        }
    }

    #[test]
    fn every_type_has_its_pose_at_its_place() {
        let header = json!({"stamp": {"sec": 2, "nanosec": 5}, "frame_id": "map"});
        let (position, turn) = (
            json!({"x": 1, "y": 2, "z": 3}),
            json!({"x": 0, "y": 0, "z": 0, "w": 1}),
        );
        let pose = json!({"position": position, "orientation": turn});
        let stamped = json!({"header": header, "pose": pose});
        let moved = json!({"header": header, "child_frame_id": "base", "transform": {"translation": position, "rotation": turn}});
        let other = json!({"header": header, "child_frame_id": "wheel", "transform": {}});
        let frames = Some(["map".to_owned(), "base".to_owned()]);
        let expected = Pose::new(2_000_000_005, [1.0, 2.0, 3.0], [0.0, 0.0, 0.0, 1.0]);
        let late = json!({"header": {"stamp": {"sec": 0, "nanosec": 0}}, "pose": pose});
        for (type_name, message, frames) in [
            (
                "nav_msgs/msg/Odometry",
                json!({"header": header, "pose": {"pose": pose}}),
                None,
            ),
            ("geometry_msgs/msg/PoseStamped", stamped.clone(), None),
            ("geometry_msgs/msg/TransformStamped", moved.clone(), None),
            (
                "nav_msgs/msg/Path",
                json!({"header": header, "poses": [{}, stamped]}),
                None,
            ),
            (
                "nav_msgs/msg/Path",
                json!({"header": header, "poses": [late]}),
                None,
            ),
            (
                "tf2_msgs/msg/TFMessage",
                json!({"transforms": [other, moved]}),
                frames.clone(),
            ),
        ] {
            let place = Place::of(type_name, &limits(frames)).unwrap();
            assert_eq!(place.find(&message), Some(expected), "{type_name}");
        }
        let place = Place::of("tf2_msgs/msg/TFMessage", &limits(frames)).unwrap();
        assert_eq!(place.find(&json!({"transforms": [other]})), None);
        let place = Place::of("geometry_msgs/msg/PoseStamped", &limits(None)).unwrap();
        let unusable = json!({"header": header, "pose": {"position": {"x": null}, "orientation": turn}});
        assert_eq!(place.find(&unusable), Some(None), "JSON has no NaN");
    }

    #[test]
    fn types_without_a_pose_and_frames_without_transforms_are_refused() {
        let frames = Some(["map".to_owned(), "base".to_owned()]);
        for (type_name, frames, word) in [
            ("std_msgs/msg/String", None, "have no trajectory"),
            ("tf2_msgs/msg/TFMessage", None, "needs frames"),
            ("nav_msgs/msg/Odometry", frames, "are those of transforms"),
        ] {
            let error = Place::of(type_name, &limits(frames)).err().unwrap();
            assert!(error.contains(word), "{error}");
        }
    }
}
