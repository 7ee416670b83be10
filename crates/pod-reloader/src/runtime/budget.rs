//! The memory that what comes from elsewhere may take up: one budget for the whole process.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many bytes of bodies are held at once: of reviews, and of config objects that are read. The
/// longest review fits twice, and what reads hold while they wait for more is a small part of it.
pub(crate) const BYTES: usize = 64 << 20;

/// The most bytes of one object of a list or a watch. etcd takes 1.5 MiB, of which JSON makes six times as
/// much where every character is escaped, as `<` is.
pub(crate) const LONGEST: usize = 12 << 20;
/// How many long objects of lists and watches are held at once, besides the bodies.
const LONG_AT_ONCE: usize = 2;

/// The bytes that are left; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    bodies: Arc<Semaphore>,
    /// Not of the same bytes: a list must wait for no review, and no review for a list.
    turns: Arc<Semaphore>,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self {
            bodies: Arc::new(Semaphore::new(BYTES)),
            turns: Arc::new(Semaphore::new(LONG_AT_ONCE)),
        }
    }

    /// A share without bytes.
    pub(crate) fn share(&self) -> Share {
        Share {
            budget: self.bodies.clone(),
            permit: None,
        }
    }

    /// Waits until one may hold an object of a list or a watch of up to [`LONGEST`] bytes.
    ///
    /// *Caveats*: whoever has a turn must wait for nothing but the rest of that object, and not for long.
    pub(crate) async fn turn(&self) -> Turn {
        let turn = self.turns.clone().acquire_owned().await;
        Turn {
            _permit: turn.expect("the semaphore is never closed"),
        }
    }
}

/// The right to hold one long object, which is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
}

/// A part of the budget, which is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

/// There are not that many bytes left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

impl Share {
    /// How many bytes it has.
    pub(crate) fn bytes(&self) -> usize {
        self.permit
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Takes more bytes, now or not at all.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let more = self.budget.clone().try_acquire_many_owned(permits(bytes));
        more.map(|more| self.add(more)).map_err(|_| Exhausted)
    }

    /// Takes more bytes, now or not at all, and only where as many as `rest` remain for others.
    pub(crate) fn grow_leaving(&mut self, rest: usize, bytes: usize) -> Result<(), Exhausted> {
        if self.budget.available_permits() < bytes + rest {
            return Err(Exhausted);
        }
        self.grow(bytes)
    }

    /// Takes more bytes, as soon as there are.
    ///
    /// *Caveats*: whoever has a share and waits keeps others waiting. All that may be had while waiting
    /// must leave room for one that need not wait any more.
    pub(crate) async fn grow_in_turn(&mut self, bytes: usize) {
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
    fn what_is_dropped_can_be_taken_again() {
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
    fn what_is_to_remain_is_not_taken() {
        let mut share = Budget::new().share();
        assert_eq!(share.grow_leaving(1, BYTES), Err(Exhausted));
        share.grow_leaving(1, BYTES - 1).unwrap();
    }

    #[tokio::test]
    async fn one_that_waits_goes_on_when_another_is_dropped() {
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
