//! Transforms between frames over time, composed along the chain that joins two of them, as tf2 does.

use super::trajectory::{Pose, Trajectory};
use crate::text::Outside;
use std::collections::{HashMap, HashSet};

/// Most frames that are known at once: their names are from outside.
const FRAMES_MAX: usize = 10_000;

/// Which frame is within which, and the transforms of those that join a parent and a child.
#[derive(Clone, Debug)]
pub struct Frames {
    ends: [String; 2],
    /// By child.
    edges: HashMap<String, Edge>,
    /// The transform from one to the other itself, which needs no chain.
    direct: Option<Edge>,
    poses: usize,
}

/// The transforms from a frame to the one that it is in.
#[derive(Clone, Debug, Default)]
struct Edge {
    parent: String,
    other_parent: Option<String>,
    is_static: bool,
    poses: Vec<Pose>,
    unusable: u64,
}

impl Edge {
    /// The transform at a time, between its neighbours; `None` before the first and after the last. A static one holds at all times.
    fn at(&self, nanos: i64) -> Option<Pose> {
        if self.is_static {
            return self.poses.last().copied();
        }
        let place = self.poses.partition_point(|pose| pose.stamp_nanos < nanos);
        let next = self.poses.get(place)?;
        if next.stamp_nanos == nanos {
            return Some(*next);
        }
        Some(self.poses[place.checked_sub(1)?].towards(next, nanos))
    }
}

impl Frames {
    /// No frame is known; the ends are parent and child.
    pub fn new(ends: &[String; 2]) -> Self {
        Self {
            ends: ends.clone(),
            edges: HashMap::new(),
            direct: None,
            poses: 0,
        }
    }

    /// Notes that one frame is in another.
    ///
    /// # Errors
    /// Too many frames, one clause.
    pub fn join(&mut self, parent: &str, child: &str, is_static: bool) -> Result<(), String> {
        let new = || Edge {
            parent: parent.to_owned(),
            is_static,
            ..Edge::default()
        };
        if [parent, child] == self.ends.each_ref().map(String::as_str) {
            self.direct.get_or_insert_with(new);
        }
        let is_full = self.edges.len() >= FRAMES_MAX;
        match self.edges.get_mut(child) {
            Some(edge) if edge.parent != parent => edge.other_parent = Some(parent.to_owned()),
            Some(_) => {}
            None if is_full => {
                return Err(format!("it has more than {FRAMES_MAX} frames"));
            }
            None => _ = self.edges.insert(child.to_owned(), new()),
        }
        Ok(())
    }

    /// Keeps the frames that join the ends; none if nothing does.
    ///
    /// # Errors
    /// A frame among them that is in two others, one clause.
    pub fn narrow(&mut self) -> Result<(), String> {
        if let Some(direct) = self.direct.take() {
            self.edges = HashMap::from([(self.ends[1].clone(), direct)]);
            return Ok(());
        }
        let chain = self.chain().unwrap_or_default();
        let kept: HashSet<String> = chain.into_iter().flatten().collect();
        self.edges.retain(|name, _| kept.contains(name));
        for (name, edge) in &self.edges {
            if let Some(other) = &edge.other_parent {
                let [name, one, other] = [name, &edge.parent, other].map(|frame| Outside(frame));
                return Err(format!("the frame {name} is in {one} and in {other}"));
            }
        }
        Ok(())
    }

    /// The frames from each end to the nearest that has both, without that; `None` if there is none.
    fn chain(&self) -> Option<[Vec<String>; 2]> {
        let [mut first, mut second] = self.ends.each_ref().map(|end| {
            let mut path = vec![end.clone()];
            // A circle ends it.
            while let Some(edge) = self.edges.get(&path[path.len() - 1])
                && path.len() <= self.edges.len()
            {
                path.push(edge.parent.clone());
            }
            path
        });
        let mut is_joined = false;
        while !first.is_empty() && first.last() == second.last() {
            is_joined = true;
            first.pop();
            second.pop();
        }
        is_joined.then_some([first, second])
    }

    /// Adds a transform of one of the frames that were kept, or counts one that cannot be used; returns how many there are.
    pub fn add(&mut self, [parent, child]: [&str; 2], pose: Option<Pose>) -> usize {
        let edge = self.edges.get_mut(child);
        if let Some(edge) = edge.filter(|edge| edge.parent == parent) {
            self.poses += 1;
            edge.unusable += u64::from(pose.is_none());
            edge.poses.extend(pose);
        }
        self.poses
    }

    /// Where the child was in the parent, at the times of the transform of their chain that comes most often, of several the nearest to the child.
    /// A time gives a pose only if every other transform of the chain has one before it and one after it.
    pub fn trajectory(mut self) -> Trajectory {
        let Some(chain) = self.chain() else {
            return Trajectory::default();
        };
        for edge in self.edges.values_mut() {
            edge.poses.sort_by_key(|pose| pose.stamp_nanos);
            if !edge.is_static {
                // The first of one time counts, as for tf2.
                edge.poses.dedup_by_key(|pose| pose.stamp_nanos);
            }
        }
        let [of_parent, of_child] = chain.map(|names| -> Vec<&Edge> {
            let edges = names.iter().map(|name| &self.edges[name]);
            edges.collect()
        });
        let edges = || of_parent.iter().rev().chain(of_child.iter().rev()).copied();
        let moving = edges().filter(|edge| !edge.is_static);
        let clock = moving
            .max_by_key(|edge| edge.poses.len())
            .or_else(|| edges().max_by_key(|edge| edge.poses.len()));
        let stamps = clock.into_iter().flat_map(|edge| &edge.poses);
        let along = |edges: &[&Edge], nanos: i64| {
            let mut edges = edges.iter();
            edges.try_fold(Pose::origin(nanos), |inner, edge| {
                Some(edge.at(nanos)?.then(&inner))
            })
        };
        let pose = |Pose { stamp_nanos, .. }: &Pose| {
            let parent = along(&of_parent, *stamp_nanos)?;
            Some(parent.back().then(&along(&of_child, *stamp_nanos)?))
        };
        Trajectory {
            poses: stamps.filter_map(pose).collect(),
            unusable: edges().map(|edge| edge.unusable).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(parent: &str, child: &str) -> [String; 2] {
        [parent, child].map(str::to_owned)
    }

    /// `map` has `odom`, that `base` and that, fixed, `lens`; turned by 90° about z at the second time.
    fn frames(parent: &str, child: &str) -> Frames {
        let mut frames = Frames::new(&ends(parent, child));
        for (parent, child, is_static) in [
            ("map", "odom", false),
            ("odom", "base", false),
            ("base", "lens", true),
            ("odom", "wheel", false),
        ] {
            frames.join(parent, child, is_static).unwrap();
        }
        frames.narrow().unwrap();
        let half = 0.5_f64.sqrt();
        let pose = |nanos, x, turn| Pose::new(nanos, [x, 0.0, 0.0], turn);
        let (none, quarter) = ([0.0, 0.0, 0.0, 1.0], [0.0, 0.0, half, half]);
        frames.add(["map", "odom"], pose(10, 1.0, none));
        frames.add(["map", "odom"], pose(30, 3.0, quarter));
        for (nanos, x) in [(5, 0.0), (10, 10.0), (20, 20.0), (30, 30.0), (35, 0.0)] {
            frames.add(["odom", "base"], pose(nanos, x, none));
        }
        frames.add(["base", "lens"], pose(0, 100.0, none));
        frames.add(["odom", "wheel"], pose(10, 7.0, none));
        frames
    }

    fn found(parent: &str, child: &str) -> Vec<(i64, [f64; 3])> {
        let trajectory = frames(parent, child).trajectory();
        let rounded = |at: f64| (at * 1e6).round() / 1e6 + 0.0;
        let poses = trajectory.poses.iter();
        poses
            .map(|pose| (pose.stamp_nanos, pose.position.map(rounded)))
            .collect()
    }

    #[test]
    fn transforms_are_composed_along_the_chain_and_interpolated() {
        // Half of the way, half of the turn: 20 m at 45°.
        let half = (20.0 * 0.5_f64.sqrt() * 1e6).round() / 1e6;
        let middle = [2.0 + half, half, 0.0];
        assert_eq!(
            found("map", "base"),
            [(10, [11.0, 0.0, 0.0]), (20, middle), (30, [3.0, 30.0, 0.0])],
            "as long as both are known"
        );
        assert_eq!(found("map", "lens")[2], (30, [3.0, 130.0, 0.0]));
        assert_eq!(found("base", "map")[0], (10, [-11.0, 0.0, 0.0]), "the other way");
        assert_eq!(found("odom", "lens").len(), 5, "a static transform holds always");
        assert_eq!(found("wheel", "base"), [(10, [3.0, 0.0, 0.0])], "over both");
        assert_eq!(
            found("map", "odom"),
            [(10, [1.0, 0.0, 0.0]), (30, [3.0, 0.0, 0.0])]
        );
        assert_eq!(found("map", "nowhere"), []);
    }

    #[test]
    fn circles_end_and_a_chain_has_each_frame_in_one_other() {
        let joined = |parent: &str, child: &str| {
            let mut frames = Frames::new(&ends(parent, child));
            for (parent, child) in [
                ("b", "a"),
                ("a", "b"),
                ("map", "c"),
                ("other", "c"),
                ("root", "map"),
            ] {
                frames.join(parent, child, false).unwrap();
            }
            frames.narrow().map(|()| frames)
        };
        let circle = joined("map", "a").unwrap();
        assert_eq!(circle.trajectory(), Trajectory::default());
        let error = joined("root", "c").unwrap_err();
        assert_eq!(error, "the frame c is in map and in other");
        // The two frames are joined by one transform, so only one chain is possible.
        let mut direct = joined("other", "c").unwrap();
        let pose = Pose::new(1, [1.0, 2.0, 3.0], [0.0, 0.0, 0.0, 1.0]);
        direct.add(["map", "c"], pose);
        assert_eq!(direct.clone().trajectory().poses, []);
        direct.add(["other", "c"], pose);
        assert_eq!(direct.trajectory().poses.len(), 1);
    }

    #[test]
    fn names_from_outside_are_bounded() {
        let mut frames = Frames::new(&ends("map", "0"));
        let found = (0..=FRAMES_MAX).map(|number| frames.join("map", &number.to_string(), false));
        assert_eq!(found.filter(Result::is_err).count(), 1);
    }
}
