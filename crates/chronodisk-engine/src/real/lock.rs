//! A lock whose holder inherits the priority of its waiters.
//!
//! The thread that waits for completions has real-time priority; the others have not. While it waits for a lock, any
//! busy program on the host could keep the lock's holder from running for 4 ms and more: *priority inversion*. With
//! priority inheritance (POSIX.1-2017, `pthread_mutexattr_setprotocol`; futex(2), `FUTEX_LOCK_PI`) the holder runs at
//! the waiter's priority until it unlocks.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

/// A mutex with priority inheritance, where the host supports it.
///
/// A panic while it is locked unlocks it: the thread has ended its own connection, and the others continue.
pub struct InheritingMutex<T> {
    /// Boxed, because a mutex must not be moved.
    raw: Box<UnsafeCell<libc::pthread_mutex_t>>,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that has locked the mutex gets at the value.
unsafe impl<T: Send> Send for InheritingMutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for InheritingMutex<T> {}

impl<T> InheritingMutex<T> {
    /// Creates an unlocked mutex.
    #[must_use]
    pub fn new(value: T) -> Self {
        let raw = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        // SAFETY: the first call initialises the attributes before later calls use them, and no other thread refers to
        // the mutex yet. If the host refuses the protocol, the mutex is an ordinary one.
        unsafe {
            if libc::pthread_mutexattr_init(attributes.as_mut_ptr()) == 0 {
                libc::pthread_mutexattr_setprotocol(attributes.as_mut_ptr(), libc::PTHREAD_PRIO_INHERIT);
                if libc::pthread_mutex_init(raw.get(), attributes.as_ptr()) != 0 {
                    *raw.get() = libc::PTHREAD_MUTEX_INITIALIZER;
                }
                libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
            }
        }
        InheritingMutex { raw, value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// If this thread already holds it.
    pub fn lock(&self) -> InheritingGuard<'_, T> {
        // SAFETY: the mutex is initialised and stays where it is.
        let status = unsafe { libc::pthread_mutex_lock(self.raw.get()) };
        assert_eq!(status, 0, "a thread locks what it has locked");
        InheritingGuard(self, PhantomData)
    }

    /// Returns `None` if another thread holds the lock.
    #[must_use]
    pub fn try_lock(&self) -> Option<InheritingGuard<'_, T>> {
        // SAFETY: as above.
        let status = unsafe { libc::pthread_mutex_trylock(self.raw.get()) };
        (status == 0).then_some(InheritingGuard(self, PhantomData))
    }
}

impl<T> Drop for InheritingMutex<T> {
    fn drop(&mut self) {
        // SAFETY: this is the last reference, so the lock is not held.
        unsafe { libc::pthread_mutex_destroy(self.raw.get()) };
    }
}

/// The value, as long as this thread has the lock. It stays with the thread, because only that may unlock it.
pub struct InheritingGuard<'a, T>(&'a InheritingMutex<T>, PhantomData<*const ()>);

impl<T> Deref for InheritingGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread has the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for InheritingGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread has the lock, and the guard is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for InheritingGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this thread has the lock.
        unsafe { libc::pthread_mutex_unlock(self.0.raw.get()) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        let counter = Arc::new(InheritingMutex::new(0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let counter = counter.clone();
                std::thread::spawn(move || (0..10_000).for_each(|_| *counter.lock() += 1))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*counter.lock(), 40_000);
    }

    #[test]
    fn who_tries_does_not_wait_and_a_panic_unlocks() {
        let value = Arc::new(InheritingMutex::new(1));
        let held = value.lock();
        let other = value.clone();
        assert!(std::thread::spawn(move || other.try_lock().is_none()).join().unwrap());
        drop(held);
        let other = value.clone();
        let ended = std::thread::spawn(move || {
            let _held = other.lock();
            panic!("with the lock in hand");
        });
        assert!(ended.join().is_err());
        assert_eq!(value.try_lock().map(|held| *held), Some(1));
    }
}
