//! Work on a Parquet file beside the thread that gives it, one piece after another, while a processor is free for it.

use parquet::errors::ParquetError;
use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::sync_channel,
    },
    thread::{Builder, JoinHandle},
};

/// Number of threads that may work beside the giving one, for all files of an export. It bounds what is held for them.
#[derive(Clone)]
pub(super) struct Spare(Arc<AtomicUsize>);

impl Spare {
    /// Threads for all processors but one.
    pub fn new() -> Self {
        Self::of(holdall_io::machine::processor_count() - 1)
    }

    /// This many threads.
    pub fn of(threads: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(threads)))
    }

    fn take(&self) -> Option<Taken> {
        let less = |spare: usize| spare.checked_sub(1);
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        taken.is_ok().then(|| Taken(self.clone()))
    }
}

/// A thread's part of [`Spare`], given back when it ends.
struct Taken(Spare);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// A thing that is worked on, here or in a thread.
pub(super) struct Beside<T> {
    /// `None` after an error.
    place: Option<Place<T>>,
    spare: Spare,
}

enum Place<T> {
    Here(T),
    There(JoinHandle<Result<T, ParquetError>>),
}

impl<T: Send + 'static> Beside<T> {
    pub fn new(thing: T, spare: &Spare) -> Self {
        Self {
            place: Some(Place::Here(thing)),
            spare: spare.clone(),
        }
    }

    /// Waits for the last piece of work and begins the next: in a thread if one is free, else here.
    ///
    /// # Errors
    /// That of the last piece; that of this one if it was done here.
    pub fn then<W>(&mut self, work: W) -> Result<(), ParquetError>
    where
        W: FnOnce(&mut T) -> Result<(), ParquetError> + Send + 'static,
    {
        let mut thing = self.back()?;
        let Some(taken) = self.spare.take() else {
            work(&mut thing)?;
            self.place = Some(Place::Here(thing));
            return Ok(());
        };
        // A thread that cannot be started takes nothing with it.
        let (give, given) = sync_channel::<(T, W)>(1);
        let run = move || {
            let _taken = taken;
            let (mut thing, work) = given.recv().map_err(|_| lost())?;
            work(&mut thing).map(|()| thing)
        };
        self.place = Some(match Builder::new().name("encode".to_owned()).spawn(run) {
            Ok(thread) => {
                give.send((thing, work)).map_err(|_| lost())?;
                Place::There(thread)
            }
            Err(_) => {
                work(&mut thing)?;
                Place::Here(thing)
            }
        });
        Ok(())
    }

    /// Waits for the last piece of work, and takes the thing.
    ///
    /// # Errors
    /// That of the last piece.
    pub fn back(&mut self) -> Result<T, ParquetError> {
        match self.place.take() {
            Some(Place::Here(thing)) => Ok(thing),
            Some(Place::There(thread)) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            None => Err(lost()),
        }
    }
}

/// What comes after an error, which was returned.
fn lost() -> ParquetError {
    ParquetError::General("an earlier write failed".to_owned())
}

impl<T> Drop for Beside<T> {
    /// An unfinished file is removed by the one who has it, before the program ends.
    fn drop(&mut self) {
        if let Some(Place::There(thread)) = self.place.take() {
            // Its error, or its panic, is that of an export that failed already.
            let _abandoned = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(number: usize) -> impl FnOnce(&mut Vec<usize>) -> Result<(), ParquetError> + Send {
        move |numbers| {
            numbers.push(number);
            Ok(())
        }
    }

    #[test]
    fn pieces_are_done_in_order_with_and_without_threads() {
        for threads in 0..3 {
            let spare = Spare::of(threads);
            let mut things = [(); 4].map(|()| Beside::new(Vec::new(), &spare));
            for number in 0..100 {
                for thing in &mut things {
                    thing.then(append(number)).unwrap();
                }
            }
            for thing in &mut things {
                assert_eq!(thing.back().unwrap(), (0..100).collect::<Vec<_>>());
            }
            assert_eq!(spare.0.load(Ordering::Acquire), threads);
        }
    }

    #[test]
    fn no_more_threads_work_than_are_spare() {
        let spare = Spare::of(1);
        let (mut busy, mut other) = (Beside::new((), &spare), Beside::new(Vec::new(), &spare));
        let (go, wait) = sync_channel(1);
        busy.then(move |_| wait.recv().map_err(|_| lost())).unwrap();
        other.then(append(1)).unwrap();
        assert!(matches!(&other.place, Some(Place::Here(numbers)) if *numbers == [1]));
        go.send(()).unwrap();
        assert!(busy.back().is_ok());
    }

    #[test]
    fn an_error_comes_once_and_what_is_dropped_is_waited_for() {
        let failing = |_: &mut Vec<usize>| Err(ParquetError::General("full".to_owned()));
        for threads in [0, 1] {
            let mut thing = Beside::new(Vec::new(), &Spare::of(threads));
            let first = thing.then(failing).err();
            let error = first.or_else(|| thing.then(append(1)).err()).unwrap();
            assert!(error.to_string().contains("full"));
            assert!(thing.then(append(1)).is_err() && thing.back().is_err());
        }
        let held = Arc::new(());
        let mut thing = Beside::new(Arc::clone(&held), &Spare::of(1));
        thing.then(|_| Ok(())).unwrap();
        drop(thing);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
