//! Estimates how much memory the reconcile loop needs for a workload.

use std::collections::BTreeSet;

use crate::advice::Advice;
use crate::claim::Claim;
use crate::discovery::{Requirement, Unmet};
use crate::extent::Extent;
use crate::gate::Gates;
use crate::http_reload::HttpReload;
use crate::name::Name;
use crate::pins::Pinning;
use crate::reference::Reference;
use crate::references::{References, Rejected};
use crate::release::Release;
use crate::secret_provider_class::Classes;
use crate::together::Together;
use crate::workload::{Rare, Values, Workload};

impl Workload {
    /// Returns the maximum memory that the reconcile loop needs for the workload, in bytes: its references,
    /// what is remembered of objects that no other workload references, and its part of queues and tables.
    ///
    /// # Caveats
    ///
    /// The content of existing objects is not included, nor are the names that regular expressions match.
    pub fn weight(&self) -> usize {
        let Self {
            id,
            uid,
            references,
            listed_only,
            requirements,
            untracked_requirements,
            templates,
            restart,
            markers,
            staging,
            releases,
            rare,
            generation: _,
            opt_in: _,
            stall: _,
        } = self;
        let hashes = templates.iter().map(|it| it.config_hash.as_deref());
        let ours = hashes.chain([restart.value(), markers.baseline.as_deref()]);
        size_of::<Self>()
            + WORKLOAD
            + text(&id.name)
            + text(uid)
            + ours.map(of_ours).sum::<usize>()
            + of_references(references)
            + size_of_val(&**listed_only)
            + requirements
                .iter()
                .chain(untracked_requirements)
                .map(|it| of_requirement(it, references))
                .sum::<usize>()
            + of_values(&markers.annotations)
            + of_values(&markers.labels)
            + staging.as_deref().map_or(0, size_of_val)
            + releases.iter().map(of_release).sum::<usize>()
            + rare.as_deref().map_or(0, of_rare)
            + templates
                .iter()
                .filter_map(|it| it.pins.as_deref())
                .map(text)
                .sum::<usize>()
    }
}

fn of_rare(rare: &Rare) -> usize {
    let Rare {
        api_version,
        advice,
        gates,
        together,
        pinning,
        classes,
        http_reload,
        settle_period: _,
    } = rare;
    size_of_val(rare)
        + api_version.as_deref().map_or(0, text)
        + advice.len() * (size_of::<Advice>() + ESCAPED)
        + gates.as_deref().map_or(0, Gates::weight)
        + together.as_deref().map_or(0, Together::weight)
        + pinning.as_deref().map_or(0, Pinning::weight)
        + classes.as_deref().map_or(0, Classes::weight)
        + http_reload.as_deref().map_or(0, HttpReload::weight)
}

fn of_release(release: &Release) -> usize {
    let namespace = release.namespace.as_ref().map_or("", Name::as_str);
    size_of_val(release) + text(&release.name) + text(namespace)
}

/// Returns the size of a value that we write, or that somebody else writes in its place. It is included
/// before it exists: our own write must not make a workload too large.
fn of_ours(value: Option<&str>) -> usize {
    value.map_or(0, text).max(OURS)
}

fn of_references(references: &References) -> usize {
    let objects = references.named().count() * OBJECT;
    let claims = references.claims.iter().map(|claim| {
        let keys = match &claim.extent {
            Extent::All => 0,
            Extent::Named(keys) => of_names(keys),
        };
        // The name may be stored a second time, with the fingerprint taken when the workload was first seen.
        // A digest is remembered for the entry of each key.
        size_of::<Claim>() + 2 * text(claim.reference.name.as_str()) + 2 * keys
    });
    let mut excepted = None;
    let patterns = references.patterns.iter().map(|pattern| {
        // The patterns of one list share their exceptions.
        let except = &*pattern.except;
        let is_shared = excepted
            .replace(except)
            .is_some_and(|it| std::ptr::eq(it, except));
        let except = if is_shared { 0 } else { of_names(except) };
        PATTERN + pattern.size() + except
    });
    // Rejected items are stored a second time, to remember what was reported.
    let rejected = references.rejected.len() * 2 * (size_of::<Rejected>() + ESCAPED);
    objects + claims.sum::<usize>() + patterns.sum::<usize>() + rejected
}

fn of_requirement(requirement: &Requirement, references: &References) -> usize {
    let Requirement {
        reference,
        key,
        is_variable: _,
    } = requirement;
    // It shares the reference of a claim on the object, if there is one.
    let own = if references.names(reference) {
        0
    } else {
        REFERENCE
    };
    // The key is stored twice more: with the digest of its entry, and in what was reported as missing.
    let key = key.as_deref().map_or(0, text);
    let rest = text(reference.name.as_str()) + 3 * key;
    size_of::<Requirement>() + own + 2 * size_of::<Unmet>() + rest
}

fn of_values(values: &Values) -> usize {
    let of_one = |(key, value)| 2 * size_of::<Box<str>>() + text(key) + text(value);
    values.present().map(of_one).sum()
}

fn of_names(names: &BTreeSet<Box<str>>) -> usize {
    names.iter().map(|name| NAME + text(name)).sum()
}

/// Returns the size of a separate string: its length, reference counts and allocator overhead.
fn text(text: &str) -> usize {
    text.len() + 40
}

/// A workload in the tables of the loop, apart from its own data: index, queue, progress and brakes.
const WORKLOAD: usize = 1 << 10;
/// A named object in the tables of the loop: the reference, index and digests, each with room to grow.
const OBJECT: usize = 544;
/// A reference on its own, apart from its names: with reference counts and allocator overhead.
const REFERENCE: usize = size_of::<Reference>() + 24;
/// A regular expression, apart from its text and tables, with its place in the index.
const PATTERN: usize = 1 << 10;
/// A config hash or a baseline.
const OURS: usize = 256;
/// A name in a set, apart from its text.
const NAME: usize = 2 * size_of::<Box<str>>();
/// The maximum length of the text shown for an item of a list.
const ESCAPED: usize = 512;
