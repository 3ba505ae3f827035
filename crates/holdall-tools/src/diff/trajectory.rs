//! The poses of a topic of a bag, for the comparison of trajectories.

use super::{
    fields::value,
    golden::{Side, side},
};
use holdall_bag::{
    decode::Decoders,
    reader::{BagSet, ReadError},
};
use holdall_model::{
    regress::{Frames, Pose, Trajectory, TrajectoryLimits},
    topic::TopicInfo,
};
use serde_json::Value;

const TRANSFORMS: &str = "tf2_msgs/msg/TFMessage";

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
}

impl Place {
    fn of(type_name: &str, limits: &TrajectoryLimits) -> Result<Self, String> {
        if limits.frames.is_some() {
            return Err(format!(
                "frames are those of transforms, but its type is {type_name}"
            ));
        }
        Ok(match type_name {
            TRANSFORMS => return Err("the trajectory of transforms needs frames: [PARENT, CHILD]".to_owned()),
            "nav_msgs/msg/Odometry" | "geometry_msgs/msg/PoseWithCovarianceStamped" => {
                Self::Field("/pose/pose")
            }
            "geometry_msgs/msg/PoseStamped" => Self::Field("/pose"),
            "geometry_msgs/msg/TransformStamped" => Self::Transform,
            "nav_msgs/msg/Path" => Self::Last,
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
    bags: &BagSet,
    topic: &TopicInfo,
    decoders: &mut Decoders,
    limits: &TrajectoryLimits,
) -> Result<Result<Trajectory, String>, ReadError> {
    if let (TRANSFORMS, Some(frames)) = (topic.type_name.as_str(), &limits.frames) {
        return of_transforms(bags, topic, decoders, frames);
    }
    let place = match Place::of(&topic.type_name, limits) {
        Ok(place) => place,
        Err(reason) => return Ok(Err(reason)),
    };
    let Side {
        messages, decoder, ..
    } = side(bags, topic, decoders)?;
    let mut found = Trajectory::default();
    for message in messages {
        let message = message?;
        match value(&decoder, &message.payload).map(|message| place.find(&message)) {
            Some(None) => {}
            Some(Some(Some(_))) if found.poses.len() >= POSES_MAX => return Ok(Err(too_many())),
            Some(Some(Some(pose))) => found.poses.push(pose),
            // Bytes that cannot be decoded have no pose either.
            None | Some(Some(None)) => found.unusable += 1,
        }
    }
    Ok(Ok(found))
}

fn too_many() -> String {
    format!("it has more than {POSES_MAX} poses; compare a part of the bag")
}

/// Where one frame was in another, by the transforms of a topic and those of the topic with the static ones beside it.
fn of_transforms(
    bags: &BagSet,
    topic: &TopicInfo,
    decoders: &mut Decoders,
    ends: &[String; 2],
) -> Result<Result<Trajectory, String>, ReadError> {
    let topics = bags.topics();
    let static_name = format!("{}_static", topic.name);
    let statics = topics
        .iter()
        .find(|info| info.name == static_name && info.type_name == TRANSFORMS);
    let topics = [Some(topic), statics];
    let (mut frames, mut unreadable, mut is_full) = (Frames::new(ends), 0, false);
    // First which frames there are, then the transforms of those that matter.
    for is_second in [false, true] {
        for topic in topics.into_iter().flatten() {
            let is_static = topic.name == static_name;
            let Side {
                messages, decoder, ..
            } = side(bags, topic, decoders)?;
            for message in messages {
                let Some(message) = value(&decoder, &message?.payload) else {
                    unreadable += u64::from(is_second);
                    continue;
                };
                for each in message["transforms"].as_array().into_iter().flatten() {
                    let names = [&each["header"]["frame_id"], &each["child_frame_id"]].map(Value::as_str);
                    let [Some(parent), Some(child)] = names else {
                        continue;
                    };
                    if is_second {
                        is_full |= frames.add([parent, child], transform(each)) > POSES_MAX;
                    } else if let Err(reason) = frames.join(parent, child, is_static) {
                        return Ok(Err(reason));
                    }
                }
                if is_full {
                    return Ok(Err(too_many()));
                }
            }
        }
        if !is_second && let Err(reason) = frames.narrow() {
            return Ok(Err(reason));
        }
    }
    let mut found = frames.trajectory();
    found.unusable += unreadable;
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
        let expected = Pose::new(2_000_000_005, [1.0, 2.0, 3.0], [0.0, 0.0, 0.0, 1.0]);
        let late = json!({"header": {"stamp": {"sec": 0, "nanosec": 0}}, "pose": pose});
        for (type_name, message) in [
            (
                "nav_msgs/msg/Odometry",
                json!({"header": header, "pose": {"pose": pose}}),
            ),
            ("geometry_msgs/msg/PoseStamped", stamped.clone()),
            ("geometry_msgs/msg/TransformStamped", moved),
            (
                "nav_msgs/msg/Path",
                json!({"header": header, "poses": [{}, stamped]}),
            ),
            ("nav_msgs/msg/Path", json!({"header": header, "poses": [late]})),
        ] {
            let place = Place::of(type_name, &limits(None)).unwrap();
            assert_eq!(place.find(&message), Some(expected), "{type_name}");
        }
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
