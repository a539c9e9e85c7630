//! Threads that wait for the host's disk in place of serving threads.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use chronodisk_store::{Store, StoreError};

/// A helper's work on its own access to the store.
pub(super) type Job = Box<dyn FnOnce(&mut dyn Store) + Send>;

/// Threads that take jobs in their order, each started when all others are busy. They end with
/// this value, after all jobs.
pub(super) struct Helpers {
    shared: Arc<HelpersShared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    count_max: usize,
}

#[derive(Default)]
struct HelpersShared {
    queue: Mutex<Queue>,
    news: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    ended: bool,
}

/// Memory for a helper's stack.
const STACK_BYTES: usize = 128 << 10;

impl Helpers {
    /// A pool of at most this many helpers, which also limits the requests at the host's disk.
    pub fn new(count_max: usize) -> Self {
        Helpers { shared: Arc::default(), threads: Mutex::new(Vec::new()), count_max }
    }

    /// Queues a job for a helper. `way` opens the store for a further helper. Returns the job if no helper exists and
    /// none can be started.
    pub fn submit(
        &self,
        job: Job,
        way: impl FnOnce() -> Result<Option<Box<dyn Store>>, StoreError>,
    ) -> Result<(), Job> {
        {
            let mut queue = self.shared.queue();
            if queue.idle > queue.jobs.len() {
                queue.jobs.push_back(job);
                // Unlocks first, since the woken thread takes the lock.
                drop(queue);
                self.shared.news.notify_one();
                return Ok(());
            }
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // If no further helper can be started, the existing ones do the job.
        if threads.len() < self.count_max
            && let Ok(Some(store)) = way()
        {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("helper".into()).stack_size(STACK_BYTES);
            threads.extend(thread.spawn(move || help(&shared, store)));
        }
        if threads.is_empty() {
            return Err(job);
        }
        self.shared.queue().jobs.push_back(job);
        self.shared.news.notify_one();
        Ok(())
    }
}

impl Helpers {
    /// Waits until all jobs are done, and ends the threads.
    pub fn end(&self) {
        self.shared.queue().ended = true;
        self.shared.news.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        // The last job may be the one that ends its server.
        let others = threads.into_iter().filter(|thread| thread.thread().id() != std::thread::current().id());
        others.for_each(|thread| drop(thread.join()));
    }
}

impl HelpersShared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn help(shared: &HelpersShared, mut store: Box<dyn Store>) {
    loop {
        let job = {
            let mut queue = shared.queue();
            loop {
                if let Some(job) = queue.jobs.pop_front() {
                    break job;
                }
                if queue.ended {
                    return;
                }
                queue.idle += 1;
                queue = shared.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            }
        };
        job(&mut *store);
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use chronodisk_store::RamStore;

    use super::*;

    #[test]
    fn jobs_are_done_at_once_by_as_many_as_there_may_be() {
        let helpers = Helpers::new(3);
        let (done, meet) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::Barrier::new(3)));
        for _ in 0..30 {
            let (done, meet) = (done.clone(), meet.clone());
            // Three at a time can meet, fewer never.
            let job: Job = Box::new(move |store: &mut dyn Store| {
                store.write(0, &[1]).unwrap();
                meet.wait();
                done.fetch_add(1, Ordering::Relaxed);
            });
            let submitted = helpers.submit(job, || Ok(Some(Box::new(RamStore::new(4096, 1 << 20)))));
            assert!(submitted.is_ok());
        }
        drop(helpers);
        assert_eq!(done.load(Ordering::Relaxed), 30);
    }

    #[test]
    fn a_job_that_nobody_can_do_comes_back() {
        let helpers = Helpers::new(3);
        assert!(helpers.submit(Box::new(|_: &mut dyn Store| {}), || Ok(None)).is_err());
    }
}
