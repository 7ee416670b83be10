//! The halves of a pass.

/// The half of a pass in which restraints are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The half that works from memory. A restart that nothing holds back takes nothing yet: it is asked about again.
    Preview,
    /// The half with fresh reads. A restart that nothing holds back is written next: it takes its slot, and others of its
    /// stages wait for it.
    Commit,
}
