//! A trajectory beside that of a golden bag: absolute and relative errors (ATE, RPE) of the poses that belong together by time.

use super::{
    FieldDistance,
    result::finite,
    rigid::{
        Rotation, Vector, angle_deg, best_rotation, centre, difference, inverse, length, product, rotated,
        slerp,
    },
};
use crate::units::counted;
use serde::{Deserialize, Serialize};

/// Pairs that are needed to align a trajectory: with fewer of them, any fits.
const ALIGNED_MIN: usize = 3;

/// How far a trajectory may be from the golden one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", try_from = "Keys")]
pub struct TrajectoryLimits {
    /// Absolute error: root mean square of the distances between poses, in metres.
    pub ate: Option<f64>,
    /// Relative error: root mean square of what is between the movements from one pair to the next, in metres.
    pub rpe: Option<f64>,
    /// The same of their rotations, in degrees.
    pub rpe_angle: Option<f64>,
    /// Whether the trajectory is moved and turned onto the golden one before absolute errors are taken.
    pub align: bool,
    /// Seconds that the poses of a pair may be apart.
    pub within: f64,
    /// The part of the golden poses that may be without a partner.
    pub unpaired: f64,
    /// The frames of a transform: parent, child.
    pub frames: Option<[String; 2]>,
}

/// [`TrajectoryLimits`] as a suite has them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Keys {
    ate: Option<f64>,
    rpe: Option<f64>,
    rpe_angle: Option<f64>,
    #[serde(default)]
    align: bool,
    #[serde(default = "within")]
    within: f64,
    #[serde(default)]
    unpaired: f64,
    frames: Option<[String; 2]>,
}

fn within() -> f64 {
    0.01
}

impl TryFrom<Keys> for TrajectoryLimits {
    type Error = String;

    fn try_from(keys: Keys) -> Result<Self, String> {
        let errors = [keys.ate, keys.rpe, keys.rpe_angle];
        let numbers = errors.iter().flatten().chain([&keys.within, &keys.unpaired]);
        if let Some(wrong) = numbers.into_iter().find(|number| !(0.0..=1e9).contains(*number)) {
            return Err(format!(
                "a limit of a trajectory is a number from 0 to 1e9, found {wrong}"
            ));
        }
        if errors.iter().all(Option::is_none) {
            return Err("the trajectory has no limit; expected ate, rpe or rpe-angle".to_owned());
        }
        if keys.unpaired >= 1.0 {
            return Err(format!(
                "unpaired is a part of the poses, less than 1; found {}",
                keys.unpaired
            ));
        }
        Ok(Self {
            ate: keys.ate,
            rpe: keys.rpe,
            rpe_angle: keys.rpe_angle,
            align: keys.align,
            within: keys.within,
            unpaired: keys.unpaired,
            frames: keys.frames,
        })
    }
}

/// Where something was, and how it was turned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pose {
    pub(super) stamp_nanos: i64,
    pub(super) position: Vector,
    orientation: Rotation,
}

impl Pose {
    /// A pose at a time; `None` if a number is not finite, or the quaternion (x, y, z, w) is not a rotation.
    pub fn new(stamp_nanos: i64, position: [f64; 3], orientation: [f64; 4]) -> Option<Self> {
        let norm = orientation.iter().map(|part| part * part).sum::<f64>().sqrt();
        let is_pose = position.iter().all(|part| part.is_finite()) && (0.9..1.1).contains(&norm);
        is_pose.then(|| Self {
            stamp_nanos,
            position,
            orientation: orientation.map(|part| part / norm),
        })
    }

    /// Neither moved nor turned.
    pub(super) const fn origin(stamp_nanos: i64) -> Self {
        Self {
            stamp_nanos,
            position: [0.0; 3],
            orientation: [0.0, 0.0, 0.0, 1.0],
        }
    }

    /// A pose in the frame of this one, seen from outside.
    pub(super) fn then(&self, inner: &Self) -> Self {
        let moved = rotated(self.orientation, inner.position);
        Self {
            stamp_nanos: inner.stamp_nanos,
            position: std::array::from_fn(|axis| self.position[axis] + moved[axis]),
            orientation: product(self.orientation, inner.orientation),
        }
    }

    /// The outside, seen from this pose.
    pub(super) fn back(&self) -> Self {
        let orientation = inverse(self.orientation);
        Self {
            stamp_nanos: self.stamp_nanos,
            position: rotated(orientation, self.position).map(|part| -part),
            orientation,
        }
    }

    /// On the way to a later pose at a time between them.
    pub(super) fn towards(&self, next: &Self, stamp_nanos: i64) -> Self {
        let apart = |later: i64| later.abs_diff(self.stamp_nanos) as f64;
        let part = apart(stamp_nanos) / apart(next.stamp_nanos);
        let step = difference(next.position, self.position);
        Self {
            stamp_nanos,
            position: std::array::from_fn(|axis| self.position[axis] + part * step[axis]),
            orientation: slerp(self.orientation, next.orientation, part),
        }
    }
}

/// The poses of a topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trajectory {
    /// In the order of the bag.
    pub poses: Vec<Pose>,
    /// Poses that cannot be used: a number is not finite, or the rotation is missing.
    pub unusable: u64,
}

/// Errors of the pairs of a trajectory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// Root mean square.
    pub rmse: f64,
    /// Mean.
    pub mean: f64,
    /// The largest.
    pub max: f64,
}

impl Errors {
    fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        (!values.is_empty()).then(|| Self {
            rmse: finite((values.iter().map(|value| value * value).sum::<f64>() / count).sqrt()),
            mean: finite(values.iter().sum::<f64>() / count),
            max: finite(values.iter().copied().fold(0.0, f64::max)),
        })
    }
}

/// How far a trajectory is from the golden one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrajectoryComparison {
    /// What was allowed.
    pub limits: TrajectoryLimits,
    /// Poses of the golden trajectory and of the one that was found.
    pub poses: [u64; 2],
    /// Poses that cannot be used, of each.
    pub unusable: [u64; 2],
    /// Poses that belong together.
    pub pairs: u64,
    /// Absolute errors in metres, after the alignment if one was asked for; `None` without pairs.
    pub ate: Option<Errors>,
    /// Relative errors in metres; `None` with fewer than two pairs.
    pub rpe: Option<Errors>,
    /// Relative errors in degrees.
    pub rpe_angle: Option<Errors>,
}

impl TrajectoryComparison {
    /// Compares two trajectories, and notes the absolute error of each pair.
    pub fn of(
        limits: &TrajectoryLimits,
        [golden, found]: [Trajectory; 2],
        errors: &mut FieldDistance,
    ) -> Self {
        let sides = [golden.poses, found.poses].map(|mut poses| {
            poses.sort_by_key(|pose| pose.stamp_nanos);
            poses
        });
        let pairs = pairs(&sides[0], &sides[1], limits.within);
        let steps: Vec<_> = pairs.windows(2).map(|two| between(two[0], two[1])).collect();
        let absolute = absolute(&pairs, limits.align);
        for (number, error) in absolute.iter().enumerate() {
            errors.note(number as u64 + 1, *error);
        }
        let part = |take: fn(&(f64, f64)) -> f64| Errors::of(&steps.iter().map(take).collect::<Vec<_>>());
        Self {
            limits: limits.clone(),
            poses: sides.each_ref().map(|poses| poses.len() as u64),
            unusable: [golden.unusable, found.unusable],
            pairs: pairs.len() as u64,
            ate: Errors::of(&absolute),
            rpe: part(|step| step.0),
            rpe_angle: part(|step| step.1),
        }
    }

    /// Each error that has a limit: name, unit, found, limit.
    fn judged(&self) -> impl Iterator<Item = (&'static str, &'static str, Option<Errors>, f64)> {
        let TrajectoryLimits {
            ate, rpe, rpe_angle, ..
        } = self.limits;
        let all = [
            ("ATE", "m", self.ate, ate),
            ("RPE", "m", self.rpe, rpe),
            ("RPE", "°", self.rpe_angle, rpe_angle),
        ];
        all.into_iter()
            .filter_map(|(name, unit, found, limit)| limit.map(|limit| (name, unit, found, limit)))
    }

    /// What is wrong, one clause for each thing.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (unusable, which) in self.unusable.into_iter().zip(["golden poses", "poses"]) {
            if unusable > 0 {
                problems.push(format!(
                    "{which} without a finite position or a rotation: {unusable}"
                ));
            }
        }
        let alone = self.poses[0] - self.pairs;
        if self.poses[0] == 0 {
            problems.push("the golden bag has no pose of it".to_owned());
        } else if self.pairs == 0 || alone as f64 > self.limits.unpaired * self.poses[0] as f64 {
            problems.push(format!(
                "{alone} of {} have none within {} s",
                counted(self.poses[0], "golden pose"),
                self.limits.within
            ));
        }
        if self.limits.align && self.pairs < ALIGNED_MIN as u64 {
            problems.push(format!(
                "{} cannot be aligned, which needs {ALIGNED_MIN}",
                counted(self.pairs, "pair")
            ));
        }
        for (name, unit, found, limit) in self.judged() {
            match found {
                Some(found) if found.rmse <= limit => {}
                Some(found) => problems.push(format!("{name} {:.6} {unit}, at most {limit}", found.rmse)),
                None => problems.push(format!("{name} in {unit} needs more pairs of poses")),
            }
        }
        problems
    }

    /// The figures, one clause.
    pub fn figures(&self) -> String {
        let judged = self.judged().filter_map(|(name, unit, found, limit)| {
            found.map(|found| format!("{name} {:.6} {unit} of at most {limit}", found.rmse))
        });
        let judged: Vec<String> = judged.collect();
        format!(
            "{} of {} golden poses and {} now; {}",
            counted(self.pairs, "pair"),
            self.poses[0],
            self.poses[1],
            judged.join(", ")
        )
    }
}

/// Poses that belong together: each is the nearest to the other by time. Both lists are in the order of time.
fn pairs(golden: &[Pose], found: &[Pose], within_s: f64) -> Vec<(Pose, Pose)> {
    let within_nanos = (within_s * 1e9).round() as u64;
    let pair = |(place, pose): (usize, &Pose)| {
        let partner = nearest(found, pose.stamp_nanos)?;
        let is_near = found[partner].stamp_nanos.abs_diff(pose.stamp_nanos) <= within_nanos;
        let is_mutual = nearest(golden, found[partner].stamp_nanos) == Some(place);
        (is_near && is_mutual).then(|| (*pose, found[partner]))
    };
    golden.iter().enumerate().filter_map(pair).collect()
}

/// The place of the pose that is nearest to a time, the earliest of several.
fn nearest(poses: &[Pose], nanos: i64) -> Option<usize> {
    let after = poses.partition_point(|pose| pose.stamp_nanos < nanos);
    let apart = |place: usize| poses.get(place).map(|pose| pose.stamp_nanos.abs_diff(nanos));
    let before = after.checked_sub(1);
    match (before.and_then(apart), apart(after)) {
        (Some(before), Some(next)) if next < before => Some(after),
        (None, Some(_)) => Some(after),
        (Some(_), _) => {
            // Several may have the same stamp.
            let stamp = poses[after - 1].stamp_nanos;
            Some(poses.partition_point(|pose| pose.stamp_nanos < stamp))
        }
        (None, None) => None,
    }
}

/// The distance of each pair.
fn absolute(pairs: &[(Pose, Pose)], align: bool) -> Vec<f64> {
    let apart = |to: Vector, from: Vector| length(difference(to, from));
    if !align || pairs.is_empty() {
        return pairs
            .iter()
            .map(|(golden, found)| apart(golden.position, found.position))
            .collect();
    }
    let golden = centre(pairs.iter().map(|pair| pair.0.position));
    let found = centre(pairs.iter().map(|pair| pair.1.position));
    let from_centre = |pair: &(Pose, Pose)| {
        (
            difference(pair.0.position, golden),
            difference(pair.1.position, found),
        )
    };
    let rotation = best_rotation(pairs.iter().map(from_centre));
    let pairs = pairs.iter().map(from_centre);
    pairs
        .map(|(to, from)| apart(to, rotated(rotation, from)))
        .collect()
}

/// What is between the movements from one pair to the next: metres, degrees.
fn between(first: (Pose, Pose), second: (Pose, Pose)) -> (f64, f64) {
    let movement = |from: Pose, to: Pose| {
        let back = inverse(from.orientation);
        (
            rotated(back, difference(to.position, from.position)),
            product(back, to.orientation),
        )
    };
    let (step, turn) = movement(first.0, second.0);
    let (step_found, turn_found) = movement(first.1, second.1);
    (
        length(difference(step_found, step)),
        angle_deg(product(inverse(turn), turn_found)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(yaml: &str) -> Result<TrajectoryLimits, String> {
        let node = crate::yaml::parse(yaml).unwrap();
        crate::yaml::read_node(&node).map_err(|error: crate::YamlError| error.reason)
    }

    /// A curve, seen from a frame that is turned by 90° around z and moved.
    fn curve(is_moved: bool, noise: f64) -> Trajectory {
        let half = 0.5_f64.sqrt();
        let poses = (0..20).map(|step| {
            let angle = f64::from(step) * 0.1;
            let position = [10.0 * angle.sin(), 10.0 * angle.cos(), 0.2 * angle];
            let position = [
                position[0],
                position[1],
                position[2] + noise * f64::from(step % 2),
            ];
            let orientation = [0.0, 0.0, (-angle / 2.0).sin(), (-angle / 2.0).cos()];
            let turn = [0.0, 0.0, half, half];
            let stamp = i64::from(step) * 100_000_000;
            if is_moved {
                let [x, y, z] = rotated(turn, position);
                Pose::new(stamp, [x + 5.0, y - 3.0, z + 1.0], product(turn, orientation)).unwrap()
            } else {
                Pose::new(stamp, position, orientation).unwrap()
            }
        });
        Trajectory {
            poses: poses.collect(),
            unusable: 0,
        }
    }

    fn compare(text: &str, golden: Trajectory, found: Trajectory) -> TrajectoryComparison {
        TrajectoryComparison::of(
            &limits(text).unwrap(),
            [golden, found],
            &mut FieldDistance::default(),
        )
    }

    #[test]
    fn a_trajectory_in_another_frame_is_the_same_when_it_is_aligned() {
        let wide = compare("{ate: 0.001, rpe: 0.001}", curve(false, 0.0), curve(true, 0.0));
        assert!(
            wide.ate.unwrap().rmse > 5.0 && wide.rpe.unwrap().rmse < 1e-9,
            "{wide:?}"
        );
        assert_eq!(wide.problems().len(), 1, "{wide:?}");
        let near = compare(
            "{ate: 0.001, rpe-angle: 0.001, align: true}",
            curve(false, 0.0),
            curve(true, 0.0),
        );
        assert!(
            near.ate.unwrap().max < 1e-9 && near.problems().is_empty(),
            "{near:?}"
        );
        assert!(
            near.figures()
                .starts_with("20 pairs of 20 golden poses and 20 now; ATE 0.0000")
        );
    }

    #[test]
    fn errors_are_root_mean_squares_in_metres() {
        // Each second pose is 0.2 m too high: half of them by 0.2, and each step by 0.2.
        let found = compare("{ate: 0.1, rpe: 0.1}", curve(false, 0.0), curve(false, 0.2));
        assert!(
            (found.ate.unwrap().rmse - 0.2 * 0.5_f64.sqrt()).abs() < 1e-9,
            "{found:?}"
        );
        assert!((found.rpe.unwrap().rmse - 0.2).abs() < 1e-9, "{found:?}");
        assert_eq!(
            found.problems(),
            ["ATE 0.141421 m, at most 0.1", "RPE 0.200000 m, at most 0.1"]
        );
    }

    #[test]
    fn poses_belong_together_by_time_and_those_alone_are_counted() {
        let at = |nanos: i64| Pose::new(nanos, [nanos as f64, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]).unwrap();
        let poses = |stamps: &[i64]| stamps.iter().copied().map(at).collect::<Vec<_>>();
        let found = pairs(
            &poses(&[0, 10, 20, 20, 90]),
            &poses(&[1, 9, 12, 20, 20, 70]),
            10e-9,
        );
        let stamps: Vec<_> = found
            .iter()
            .map(|pair| (pair.0.stamp_nanos, pair.1.stamp_nanos))
            .collect();
        assert_eq!(stamps, [(0, 1), (10, 9), (20, 20)]);
        let mut short = curve(false, 0.0);
        short.poses.truncate(18);
        let found = compare("{ate: 1}", curve(false, 0.0), short.clone());
        assert_eq!(found.problems(), ["2 of 20 golden poses have none within 0.01 s"]);
        assert!(
            compare("{ate: 1, unpaired: 0.1}", curve(false, 0.0), short)
                .problems()
                .is_empty()
        );
    }

    #[test]
    fn what_cannot_be_judged_is_a_problem() {
        let none = compare("{ate: 1, rpe: 1}", Trajectory::default(), Trajectory::default());
        assert_eq!(none.problems().len(), 3, "{none:?}");
        assert_eq!(Pose::new(0, [0.0, f64::NAN, 0.0], [0.0, 0.0, 0.0, 1.0]), None);
        assert_eq!(Pose::new(0, [0.0; 3], [0.0; 4]), None);
        let mut far = curve(false, 0.0);
        for (pose, way) in far.poses.iter_mut().zip([1.0, -1.0].into_iter().cycle()) {
            pose.position = [way * f64::MAX; 3];
        }
        for text in ["{ate: 1, rpe: 1}", "{ate: 1, rpe: 1, align: true}"] {
            let huge = compare(text, curve(false, 0.0), far.clone());
            assert_eq!(huge.problems().len(), 2, "{huge:?}");
            let kept = serde_json::to_string(&huge).unwrap();
            assert!(
                serde_json::from_str::<TrajectoryComparison>(&kept).is_ok(),
                "{kept}"
            );
        }
        let mut one = curve(false, 0.0);
        one.poses.truncate(2);
        one.unusable = 1;
        let problems = compare("{ate: 1, align: true}", one.clone(), one).problems();
        assert_eq!(
            problems,
            [
                "golden poses without a finite position or a rotation: 1",
                "poses without a finite position or a rotation: 1",
                "2 pairs cannot be aligned, which needs 3"
            ]
        );
    }

    #[test]
    fn limits_that_make_no_sense_are_refused() {
        for (text, word) in [
            ("{align: true}", "no limit"),
            ("{ate: -1}", "from 0"),
            ("{ate: 1, unpaired: 1}", "less than 1"),
            ("{ate: 1, wthin: 1}", "wthin"),
        ] {
            let error = limits(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert_eq!(limits("{ate: 1}").unwrap().within, 0.01);
    }
}
