//! Keeps threads on given processors; threads that are started later inherit it.

use crate::error::{BenchError, BenchResult};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The calling thread's processors, restored on drop.
#[derive(Debug)]
pub struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Keeps the calling thread on `processors`; does nothing when the list is empty.
    ///
    /// # Errors
    /// When none of them exists.
    pub fn to(option: &'static str, processors: &[u32]) -> BenchResult<Option<Self>> {
        if processors.is_empty() {
            return Ok(None);
        }
        let refused = |found: String| BenchError::option(option, "processors of this machine", found);
        let before = sched_getaffinity(None).map_err(|error| refused(error.to_string()))?;
        let mut wanted = CpuSet::new();
        processors
            .iter()
            .map(|&processor| processor as usize)
            .filter(|&processor| processor < CpuSet::MAX_CPU)
            .for_each(|processor| wanted.set(processor));
        sched_setaffinity(None, &wanted)
            .map_err(|error| refused(format!("{processors:?} ({error}; --no-affinity leaves them out)")))?;
        Ok(Some(Self { before }))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Restores the earlier processors. That fails only if another program removed them, and cannot be
        // helped then.
        let _processor_gone = sched_setaffinity(None, &self.before).is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_kept_on_a_processor_until_the_guard_is_gone() {
        let before = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU)
            .find(|&processor| before.is_set(processor))
            .unwrap();
        let pinned = Pinned::to("recorder_cpu_affinity", &[u32::try_from(first).unwrap()]).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        drop(pinned);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        assert!(Pinned::to("recorder_cpu_affinity", &[]).unwrap().is_none());
        let error = Pinned::to("recorder_cpu_affinity", &[1023])
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("recorder_cpu_affinity: expected processors of this machine"),
            "{error}"
        );
    }
}
