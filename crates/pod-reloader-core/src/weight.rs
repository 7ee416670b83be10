//! Estimates how much memory the reconcile loop takes for a workload.

use std::collections::BTreeSet;

use crate::advice::Advice;
use crate::claim::Claim;
use crate::discovery::Requirement;
use crate::extent::Extent;
use crate::references::{References, Rejected};
use crate::workload::{Restart, Values, Workload};

impl Workload {
    /// How much memory the reconcile loop takes for it at most, in bytes: its references, what is remembered
    /// of objects that nobody else references, and its part in queues and tables.
    ///
    /// # Caveats
    /// What an object that is there has in it is no part of that, nor are the names that a regular
    /// expression is matched with.
    pub fn weight(&self) -> usize {
        let Self {
            id,
            api_version,
            uid,
            references,
            requirements,
            templates,
            restart,
            markers,
            advice,
            generation: _,
            subscription: _,
            stall: _,
            settle_period: _,
        } = self;
        let restart = match restart {
            Restart::Template => None,
            Restart::At { value, .. } => value.as_deref(),
        };
        let hashes = templates.iter().map(|it| it.config_hash.as_deref());
        let ours = hashes.chain([restart, markers.baseline.as_deref()]);
        let single = [Some(&*id.name), api_version.as_deref(), Some(&**uid)];
        size_of::<Self>()
            + WORKLOAD
            + single.into_iter().flatten().map(text).sum::<usize>()
            + ours.map(of_ours).sum::<usize>()
            + of_references(references)
            + requirements.iter().map(of_requirement).sum::<usize>()
            + of_values(&markers.annotations)
            + of_values(&markers.labels)
            + advice.len() * (size_of::<Advice>() + ESCAPED)
    }
}

/// What we write ourselves, or somebody in our place. It is counted before it is there: what we write must
/// not make a workload too large.
fn of_ours(value: Option<&str>) -> usize {
    value.map_or(0, text).max(OURS)
}

fn of_references(references: &References) -> usize {
    let objects = references.named().count() * OBJECT;
    let claims = references.claims().iter().map(|claim| {
        let keys = match &claim.extent {
            Extent::All => 0,
            Extent::Named(keys) => of_names(keys),
        };
        // The name may be there a second time, since the workload was first seen. Of the entry with each
        // key, a digest is remembered.
        size_of::<Claim>() + 2 * text(claim.reference.name.as_str()) + 2 * keys
    });
    let mut excepted = None;
    let patterns = references.patterns().iter().map(|pattern| {
        // Those of one list have the same exceptions.
        let except = pattern.except();
        let is_shared = excepted
            .replace(except)
            .is_some_and(|it| std::ptr::eq(it, except));
        let except = if is_shared { 0 } else { of_names(except) };
        PATTERN + pattern.size() + except
    });
    // They are remembered a second time as told.
    let rejected = references.rejected.len() * 2 * (size_of::<Rejected>() + ESCAPED);
    objects + claims.sum::<usize>() + patterns.sum::<usize>() + rejected
}

fn of_requirement(Requirement { reference, key }: &Requirement) -> usize {
    // Those that are missing are remembered a second time as told.
    let key = key.as_deref().map_or(0, text);
    3 * size_of::<Requirement>() + text(reference.name.as_str()) + 2 * key
}

fn of_values(values: &Values) -> usize {
    let of_one = |(key, value)| 2 * size_of::<Box<str>>() + text(key) + text(value);
    values.present().map(of_one).sum()
}

fn of_names(names: &BTreeSet<Box<str>>) -> usize {
    names.iter().map(|name| NAME + text(name)).sum()
}

/// A text of its own: with its length, counts and the gaps of the allocator.
fn text(text: &str) -> usize {
    text.len() + 40
}

/// A workload in the tables of the loop, beside what is known of it: index, queue, progress, brakes.
const WORKLOAD: usize = 1 << 10;
/// A named object in the tables of the loop: index and digests, each with room to grow.
const OBJECT: usize = 640;
/// A regular expression, beside its text and tables, with its place in the index.
const PATTERN: usize = 1 << 10;
/// A config hash or a baseline.
const OURS: usize = 256;
/// A name in a set, beside its text.
const NAME: usize = 2 * size_of::<Box<str>>();
/// The longest text that an item of a list is shown as.
const ESCAPED: usize = 512;
