//! References: everything that one workload tracks.

mod otherwise;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::otherwise::{Candidate, Otherwise};
use crate::claim::{Claim, Pattern};
use crate::digest::{Content, Contents, Objects, Presence};
use crate::extent::Extent;
use crate::hash::Comparison;
use crate::name::{InvalidName, Name};
use crate::reference::{ConfigKind, Reference};

/// The maximum number of distinct objects that one workload tracks.
pub const MAX_REFERENCES: usize = 256;

/// The maximum number of regular expressions that one workload may have.
pub const MAX_PATTERNS: usize = 32;

/// The maximum number of keys that one workload tracks individually.
pub const MAX_KEYS: usize = 4096;

/// The maximum total size of these keys, in bytes.
const MAX_KEY_BYTES: usize = 64 << 10;

/// The maximum number of names that one list may exclude.
pub(crate) const MAX_EXCLUDED: usize = 1024;

/// Everything that one workload tracks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// The claims, sorted by object, on at most [`MAX_REFERENCES`] objects.
    pub(crate) claims: Box<[Claim]>,
    /// The regular expressions, at most [`MAX_PATTERNS`].
    pub(crate) patterns: Box<[Pattern]>,
    /// The items that were left out, with reasons.
    pub rejected: Box<[Rejected]>,
}

/// An item of an annotation that names no object, or that is over a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// An item that is not the name of an object.
    #[error("{kind} {item} is not a valid name: {reason}")]
    Name {
        /// The kind that the list is for.
        kind: ConfigKind,
        /// The item, made safe to print.
        item: String,
        /// The rule that the item breaks.
        #[source]
        reason: InvalidName,
    },
    /// An item that is not a name with keys.
    #[error("{kind} {item} is not a name with keys, such as app[log.level,mode]")]
    Keys {
        /// The kind that the list is for.
        kind: ConfigKind,
        /// The item, made safe to print.
        item: String,
    },
    /// An item that is not a regular expression, or is too large.
    #[error("{kind} {item} is not a valid regular expression, or is too large")]
    Pattern {
        /// The kind that the list is for.
        kind: ConfigKind,
        /// The item, made safe to print.
        item: String,
    },
    /// A SecretProviderClass that cannot be tracked.
    #[error("SecretProviderClass {item} is not tracked: {why}")]
    SecretProviderClass {
        /// The item, made safe to print.
        item: String,
        /// The reason.
        why: &'static str,
    },
    /// The number of further items that were rejected.
    #[error("{0} more items are not valid")]
    Others(usize),
    /// A name beyond [`MAX_REFERENCES`] distinct ones.
    #[error("{kind} {name} is left out: a workload may list {MAX_REFERENCES} distinct names")]
    TooMany {
        /// The kind that the list is for.
        kind: ConfigKind,
        /// The first name that is left out.
        name: Name,
    },
    /// An object with more named keys than there is room for. All of it is tracked, so no change is lost.
    #[error(
        "{kind} {name} is tracked as a whole: a workload may name {MAX_KEYS} keys, of {MAX_KEY_BYTES} bytes in all"
    )]
    TooManyKeys {
        /// The name of the first object that is tracked as a whole for this reason.
        kind: ConfigKind,
        /// The name of the first object that is tracked as a whole for this reason.
        name: Name,
    },
    /// A list that excludes more than `MAX_EXCLUDED` names.
    #[error("{0} names are not excluded: a workload may exclude {MAX_EXCLUDED} in each list")]
    TooManyExcluded(ConfigKind),
    /// More than [`MAX_PATTERNS`] regular expressions.
    #[error("regular expressions are left out: a workload may have {MAX_PATTERNS}")]
    TooManyPatterns,
}

impl References {
    /// Combines what was asked for. Claims on the same object are merged if possible, and what is over a
    /// limit is left out. If there are too many objects, the first ones in sorted order are tracked.
    pub(crate) fn new(
        mut claims: Vec<Claim>,
        mut patterns: Vec<Pattern>,
        mut rejected: Vec<Rejected>,
        others_rejected: usize,
    ) -> Self {
        // Claims with the same place are merged below, so the order among them does not matter.
        let place = |claim: &Claim| (claim.dialect, claim.needs);
        claims.sort_unstable_by(|one, next| {
            let by_object = one.reference.cmp(&next.reference);
            by_object.then_with(|| place(one).cmp(&place(next)))
        });
        claims.dedup_by(|next: &mut Claim, claim: &mut Claim| {
            let is_same = next.reference == claim.reference
                && next.dialect == claim.dialect
                && next.needs == claim.needs;
            if is_same {
                let extent = std::mem::replace(&mut claim.extent, Extent::All);
                claim.extent = extent.or(&next.extent);
            }
            is_same
        });
        if others_rejected > 0 {
            rejected.push(Rejected::Others(others_rejected));
        }
        let starts = claims.chunk_by(|one, next| one.reference == next.reference);
        let counting = starts.take(MAX_REFERENCES).map(<[_]>::len).sum();
        if let Some(first) = claims.get::<usize>(counting) {
            rejected.push(Rejected::TooMany {
                kind: first.reference.kind,
                name: first.reference.name.clone(),
            });
        }
        claims.truncate(counting);
        rejected.extend(within_room(&mut claims));
        if patterns.len() > MAX_PATTERNS {
            patterns.truncate(MAX_PATTERNS);
            rejected.push(Rejected::TooManyPatterns);
        }
        Self {
            claims: claims.into(),
            patterns: patterns.into(),
            rejected: rejected.into(),
        }
    }

    /// Returns the objects that are tracked by name, sorted.
    pub fn named(&self) -> impl Iterator<Item = &Reference> + Clone {
        self.shared().map(|reference| &**reference)
    }

    /// Returns the same objects, for a table to share.
    pub(crate) fn shared(&self) -> impl Iterator<Item = &Arc<Reference>> + Clone {
        let of_one = self
            .claims
            .chunk_by(|one, next| one.reference == next.reference);
        of_one.map(|claims| &claims[0].reference)
    }

    /// Replaces each reference by the equal one that `shared` returns, which is asked once for each object.
    pub(crate) fn share(&mut self, shared: impl Fn(&Reference) -> Arc<Reference>) {
        let of_one = |one: &Claim, next: &Claim| one.reference == next.reference;
        for claims in self.claims.chunk_by_mut(of_one) {
            let reference = shared(&claims[0].reference);
            for claim in claims {
                claim.reference = reference.clone();
            }
        }
    }

    /// Returns the number of regular expressions, at most [`MAX_PATTERNS`].
    pub fn pattern_count(&self) -> usize {
        self.patterns.len()
    }

    /// Returns true if nothing is tracked, whichever objects exist.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.patterns.is_empty()
    }

    /// Returns the kinds whose object names must be known, because a regular expression matches them.
    pub fn pattern_kinds(&self) -> impl Iterator<Item = ConfigKind> {
        let is_asked_for = |kind| self.patterns.iter().any(|pattern| pattern.kind == kind);
        ConfigKind::ALL
            .into_iter()
            .filter(move |kind| is_asked_for(*kind))
    }

    /// Returns true if both have the same regular expressions.
    pub fn same_patterns(&self, other: &Self) -> bool {
        self.patterns == other.patterns
    }

    /// Returns the memory used by the regular expressions, in bytes.
    #[cfg(test)]
    pub(crate) fn size_of_patterns(&self) -> usize {
        self.patterns.iter().map(Pattern::size).sum()
    }

    /// Returns true if a regular expression matches the object.
    pub fn matches(&self, reference: &Reference) -> bool {
        self.matching(reference).next().is_some()
    }

    /// Returns true if the object may be tracked, by its name or as a match.
    pub fn mention(&self, reference: &Reference) -> bool {
        self.names(reference) || self.matches(reference)
    }

    /// Returns true if the object may be tracked by its name.
    pub fn names(&self, reference: &Reference) -> bool {
        !self.claims_on(reference).is_empty()
    }

    /// Returns all objects that may be tracked, given the existing objects of the
    /// [`References::pattern_kinds`]. If there are more than [`MAX_REFERENCES`], named objects come before
    /// matches, and the second value names the first object that is left out.
    pub fn with_matches(
        &self,
        there: impl IntoIterator<Item = Reference>,
    ) -> (BTreeSet<Reference>, Option<Rejected>) {
        let mut all: BTreeSet<_> = self.named().cloned().collect();
        let is_more = |it: &Reference| !all.contains(it) && self.matches(it);
        let matches: BTreeSet<_> = there.into_iter().filter(is_more).collect();
        let mut matches = matches.into_iter();
        let room = MAX_REFERENCES - all.len();
        all.extend(matches.by_ref().take(room));
        let left_out = matches.next().map(|first| Rejected::TooMany {
            kind: first.kind,
            name: first.name,
        });
        (all, left_out)
    }

    /// Returns the keys of an object that are tracked individually.
    pub fn data_keys(&self, reference: &Reference) -> impl Iterator<Item = &str> {
        let claims = self.claims_on(reference).iter();
        let named = claims.filter_map(|claim| match &claim.extent {
            Extent::All => None,
            Extent::Named(keys) => Some(&**keys),
        });
        named.flatten().map(|key| &**key)
    }

    /// Returns how much of an object may be tracked, by name or as a match. `None` means nothing.
    pub fn extent(&self, reference: &Reference) -> Option<Extent> {
        let named = self.claims_on(reference).iter();
        let named = named.map(|claim| claim.extent.clone());
        let matched = self.matches(reference).then_some(Extent::All);
        named.chain(matched).reduce(|one, other| one.or(&other))
    }

    /// Returns a fingerprint of the tracked entries, for each of `objects` whose keys are tracked
    /// individually.
    pub fn fingerprints<'a>(
        &'a self,
        objects: &'a Objects,
    ) -> impl Iterator<Item = (&'a Reference, u64)> {
        let by_keys = |it: &Reference| self.data_keys(it).next().is_some();
        let by_keys = objects.iter().filter(move |(it, _)| by_keys(it));
        by_keys.filter_map(|(reference, object)| {
            let named = self.claims_on(reference).iter().map(|claim| &claim.extent);
            let matched = self.matches(reference).then_some(&Extent::All);
            let content = Content::of(object, named.chain(matched))?;
            Some((reference, content.fingerprint()))
        })
    }

    /// Returns the tracked content of `objects`, which are those of [`References::with_matches`], as read.
    pub fn contents<'a>(&'a self, objects: &'a Objects) -> Contents<'a> {
        let of = |(reference, object): (&'a Reference, &'a Presence)| {
            let candidate = Candidate::new(self, reference, object);
            Some((reference, candidate.content_now()?))
        };
        Contents(objects.iter().filter_map(of).collect())
    }

    /// Returns true if `hash` stands for these same objects as of a time when different ones were tracked:
    /// before one of them got a mark, or before a dialect was enabled.
    ///
    /// # Caveats
    ///
    /// The search gives up before it hashes more than 4 MiB. Then the answer is no, so no change is lost.
    pub fn tracked_otherwise(&self, objects: &Objects, hash: &Comparison) -> bool {
        let candidates = objects.iter();
        let candidates =
            candidates.map(|(reference, object)| Candidate::new(self, reference, object));
        Otherwise::new(candidates.collect(), hash).is_met()
    }

    /// Returns true if the object is tracked, given its marks.
    pub fn tracks(&self, reference: &Reference, object: &Presence) -> bool {
        Candidate::new(self, reference, object).tracks()
    }

    /// Returns the regular expressions that match an object.
    pub(crate) fn matching<'a>(
        &'a self,
        reference: &Reference,
    ) -> impl Iterator<Item = &'a Pattern> {
        self.patterns
            .iter()
            .filter(|pattern| pattern.kind == reference.kind && pattern.matches(&reference.name))
    }

    /// Returns the claims on an object by its name.
    pub(crate) fn claims_on(&self, reference: &Reference) -> &[Claim] {
        let start = self
            .claims
            .partition_point(|claim| *claim.reference < *reference);
        let rest = &self.claims[start..];
        let length = rest.partition_point(|claim| *claim.reference == *reference);
        &rest[..length]
    }
}

/// Turns claims with too many keys into claims on whole objects, and returns the first such object.
fn within_room(claims: &mut [Claim]) -> Option<Rejected> {
    // The number and size of further keys that may be tracked individually.
    let (mut keys, mut bytes) = (MAX_KEYS, MAX_KEY_BYTES);
    let mut first = None;
    for claim in claims {
        let Extent::Named(named) = &claim.extent else {
            continue;
        };
        let size = named.iter().map(|key| key.len()).sum();
        match (keys.checked_sub(named.len()), bytes.checked_sub(size)) {
            (Some(other_keys), Some(other_bytes)) => (keys, bytes) = (other_keys, other_bytes),
            _ => {
                claim.extent = Extent::All;
                first.get_or_insert(Rejected::TooManyKeys {
                    kind: claim.reference.kind,
                    name: claim.reference.name.clone(),
                });
            }
        }
    }
    first
}
