//! Nodes that all start at the same time, half of them on each end of a link: how long until each knows all of the other half.

use super::{
    Bench, Run,
    programs::{WorkerSpec, meeting_place},
    sides::{LEAD, READY_MAX, event},
};
use crate::{
    error::BenchResult,
    middleware::{
        result::Discovery,
        worker::{Role, WorkerEvent},
    },
    suite::live::child::Program,
};
use holdall_io::link::LinkEnd;
use std::{path::Path, time::Duration};

/// Nodes that do not know all others after this never will, as far as anyone waits.
const DISCOVERY_MAX: Duration = Duration::from_secs(60);

impl Bench<'_> {
    /// Starts all nodes, waits until they know each other, and ends them at once: no farewell is counted.
    pub(super) fn drive_nodes(
        &self,
        run: &Run<'_>,
        nodes: u32,
        ends: Option<&[LinkEnd; 2]>,
    ) -> BenchResult<Discovery> {
        let meet = meeting_place(ends.is_some(), 0)?;
        // Publishers on the first end, one more where the number is odd.
        let halves = [nodes.div_ceil(2), nodes / 2];
        let mut programs = Vec::new();
        for (side, role) in [(1, Role::Subscriber), (0, Role::Publisher)] {
            for number in 0..halves[side] {
                let spec = WorkerSpec {
                    others: Some(halves[1 - side] as usize),
                    is_met: side == 1 && number == 0,
                    ..self.spec(run, run.case, (side, role), ends.is_some(), meet)
                };
                let mut command = self.site.command(&spec, Path::new("/dev/null"))?;
                if let Some(ends) = ends {
                    ends[side].place(&mut command);
                }
                let name = format!("node {} of {}", programs.len() + 1, run.middleware);
                programs.push(Program::start(&name, &mut command, self.clock)?);
            }
        }
        for program in &programs {
            program.wait_for(READY_MAX, |line| event(line, WorkerEvent::Ready))?;
        }
        let start = self.clock.monotonic() + LEAD;
        for program in &mut programs {
            program.send(&format!("start {}", start.as_nanos()))?;
        }
        let end = start + DISCOVERY_MAX;
        let mut known_s = Vec::new();
        for program in &programs {
            let left = end.saturating_sub(self.clock.monotonic());
            let at = program.wait_for(left, |line| match WorkerEvent::read(line)? {
                WorkerEvent::Discovered { at } => Some(Duration::from_nanos(at)),
                _ => None,
            });
            match at {
                Ok(at) => known_s.push(at.saturating_sub(start).as_secs_f64()),
                // It was in time, or it has ended: that is an error and not a slow discovery.
                Err(error) if self.clock.monotonic() < end => return Err(error),
                Err(_) => {}
            }
        }
        known_s.sort_by(f64::total_cmp);
        Ok(Discovery { nodes, known_s })
    }
}
