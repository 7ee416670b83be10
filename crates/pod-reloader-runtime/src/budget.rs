//! Bounds the memory for data from outside: one budget for the whole process.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of bytes of bodies in memory at once: reviews with what becomes of them, and config objects that
/// are read. The longest review fits once. Reads that wait for more hold only a small part of it.
pub const BYTES: usize = 64 << 20;

/// The maximum number of bytes of one object of a list or a watch. etcd accepts 1.5 MiB, which becomes six
/// times as much in JSON if every character is escaped, as `<` is.
pub(crate) const LONGEST: usize = 12 << 20;
/// The maximum number of long objects of lists and watches in memory at once, in addition to the bodies.
const LONG_AT_ONCE: usize = 2;

/// The bytes that are left. Clones share them.
#[derive(Clone, Debug)]
pub struct Budget {
    bodies: Arc<Semaphore>,
    /// Separate from the bytes above: a list must never wait for a review, nor a review for a list.
    turns: Arc<Semaphore>,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new()
    }
}

impl Budget {
    /// Returns the budget of a process, of which nothing has been taken yet.
    pub fn new() -> Self {
        Self {
            bodies: Arc::new(Semaphore::new(BYTES)),
            turns: Arc::new(Semaphore::new(LONG_AT_ONCE)),
        }
    }

    /// Returns a share that has no bytes yet.
    pub fn share(&self) -> Share {
        Share {
            budget: self.bodies.clone(),
            permit: None,
        }
    }

    /// Waits for the right to hold an object of a list or a watch of up to [`LONGEST`] bytes.
    ///
    /// # Caveats
    ///
    /// The holder of a turn must wait for nothing except the rest of that object, and not for long.
    pub(crate) async fn turn(&self) -> Turn {
        let turn = self.turns.clone().acquire_owned().await;
        Turn {
            _permit: turn.expect("the semaphore is never closed"),
        }
    }
}

/// The right to hold one long object. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
}

/// A part of the budget. Dropping it gives it back.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

/// The error of asking for more bytes than are left.
#[derive(Debug, PartialEq, Eq)]
pub struct Exhausted;

impl Share {
    /// Returns the number of bytes of this share.
    pub fn bytes(&self) -> usize {
        self.permit
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Takes more bytes, now or not at all.
    ///
    /// # Errors
    ///
    /// Returns [`Exhausted`] if fewer bytes are left.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let more = self.budget.clone().try_acquire_many_owned(permits(bytes));
        more.map(|more| self.add(more)).map_err(|_| Exhausted)
    }

    /// Takes more bytes, now or not at all, and only if at least `rest` bytes remain for others.
    ///
    /// # Errors
    ///
    /// Returns [`Exhausted`] if fewer bytes are left.
    pub fn grow_leaving(&mut self, rest: usize, bytes: usize) -> Result<(), Exhausted> {
        if self.budget.available_permits() < bytes + rest {
            return Err(Exhausted);
        }
        self.grow(bytes)
    }

    /// Waits until more bytes are available, and takes them.
    ///
    /// # Caveats
    ///
    /// A waiting share withholds its bytes from others. The bytes that shares can hold while they wait must
    /// leave enough for one share that no longer has to wait.
    pub async fn grow_in_turn(&mut self, bytes: usize) {
        let more = self.budget.clone().acquire_many_owned(permits(bytes)).await;
        self.add(more.expect("the semaphore is never closed"));
    }

    fn add(&mut self, more: OwnedSemaphorePermit) {
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
    }
}

fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_released_can_be_taken_again() {
        let budget = Budget::new();
        let (mut one, mut other) = (budget.share(), budget.share());
        one.grow(BYTES - 1).unwrap();
        other.grow(1).unwrap();
        assert_eq!(other.grow(1), Err(Exhausted));
        assert_eq!((one.bytes(), other.bytes()), (BYTES - 1, 1));
        drop(one);
        other.grow(BYTES - 1).unwrap();
        assert_eq!(other.bytes(), BYTES);
    }

    #[test]
    fn bytes_that_are_to_remain_are_not_taken() {
        let mut share = Budget::new().share();
        assert_eq!(share.grow_leaving(1, BYTES), Err(Exhausted));
        share.grow_leaving(1, BYTES - 1).unwrap();
    }

    #[tokio::test]
    async fn a_share_that_waits_goes_on_when_another_is_dropped() {
        let budget = Budget::new();
        let (mut one, mut other) = (budget.share(), budget.share());
        one.grow(BYTES).unwrap();
        let waits = tokio::spawn(async move {
            other.grow_in_turn(2).await;
            other.bytes()
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(one);
        assert_eq!(waits.await.unwrap(), 2);
    }
}
