//! References: everything that counts for one workload.

mod otherwise;

use std::collections::BTreeSet;

use self::otherwise::{Candidate, Otherwise};
use crate::claim::{Claim, Pattern};
use crate::digest::{Content, Contents, Objects, Presence};
use crate::extent::Extent;
use crate::hash::Comparison;
use crate::name::{InvalidName, Name};
use crate::reference::{ConfigKind, Reference};

/// The most distinct objects that count for one workload.
pub const MAX_REFERENCES: usize = 256;

/// The most regular expressions that one workload may have.
pub const MAX_PATTERNS: usize = 32;

/// The most keys that are tracked by themselves for one workload.
pub const MAX_KEYS: usize = 4096;

/// The most bytes that these keys may have together.
const MAX_KEY_BYTES: usize = 64 << 10;

/// The most names that one list may exclude.
pub(crate) const MAX_EXCLUDED: usize = 1024;

/// Everything that counts for one workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Sorted by object, for at most [`MAX_REFERENCES`] of them.
    claims: Box<[Claim]>,
    /// At most [`MAX_PATTERNS`].
    patterns: Box<[Pattern]>,
    /// What was left out, and why.
    pub rejected: Vec<Rejected>,
}

/// Something in an annotation that names no object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Not the name of an object.
    #[error("{kind} {item} is not a valid name: {reason}")]
    Name {
        /// Of which list.
        kind: ConfigKind,
        /// The item, made safe to print.
        item: String,
        /// What is wrong with it.
        #[source]
        reason: InvalidName,
    },
    /// Not a name with keys.
    #[error("{kind} {item} is no name with keys, such as app[log.level,mode]")]
    Keys {
        /// Of which list.
        kind: ConfigKind,
        /// The item, made safe to print.
        item: String,
    },
    /// Not a regular expression.
    #[error("{kind} {item} is no regular expression, or too large a one")]
    Pattern {
        /// Of which list.
        kind: ConfigKind,
        /// The item, made safe to print.
        item: String,
    },
    /// So many more that name nothing either.
    #[error("{0} more items are no valid names")]
    Others(usize),
    /// One of more than [`MAX_REFERENCES`] distinct names.
    #[error("{kind} {name} is left out: a workload may list {MAX_REFERENCES} distinct names")]
    TooMany {
        /// Of which list.
        kind: ConfigKind,
        /// The first name that is left out.
        name: Name,
    },
    /// Of an object, more keys are named than there is room for. All of it counts, so that no change is lost.
    #[error(
        "{kind} {name} counts as a whole: a workload may name {MAX_KEYS} keys, of {MAX_KEY_BYTES} bytes in all"
    )]
    TooManyKeys {
        /// The kind of the object.
        kind: ConfigKind,
        /// The first object that counts as a whole for that.
        name: Name,
    },
    /// More than `MAX_EXCLUDED` names that are not to count.
    #[error("{0} names are not excluded: a workload may exclude {MAX_EXCLUDED} in each list")]
    TooManyExcluded(ConfigKind),
    /// More than [`MAX_PATTERNS`] regular expressions.
    #[error("regular expressions are left out: a workload may have {MAX_PATTERNS}")]
    TooManyPatterns,
}

impl References {
    /// Puts together what was asked for: claims on the same object are made one where they can be, and
    /// what is too much is left out. Of objects, the first in sorted order count.
    pub(crate) fn new(
        mut claims: Vec<Claim>,
        mut patterns: Vec<Pattern>,
        rejected: Vec<Rejected>,
        others_rejected: usize,
    ) -> Self {
        // Their keys are put together, in whichever order.
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
        let mut references = Self {
            claims: Box::default(),
            patterns: Box::default(),
            rejected,
        };
        if others_rejected > 0 {
            references.rejected.push(Rejected::Others(others_rejected));
        }
        let starts = claims.chunk_by(|one, next| one.reference == next.reference);
        let counting = starts.take(MAX_REFERENCES).map(<[_]>::len).sum();
        if let Some(first) = claims.get::<usize>(counting) {
            references.rejected.push(Rejected::TooMany {
                kind: first.reference.kind,
                name: first.reference.name.clone(),
            });
        }
        claims.truncate(counting);
        let rejected = within_room(&mut claims);
        references.rejected.extend(rejected);
        if patterns.len() > MAX_PATTERNS {
            patterns.truncate(MAX_PATTERNS);
            references.rejected.push(Rejected::TooManyPatterns);
        }
        references.claims = claims.into();
        references.patterns = patterns.into();
        references
    }

    /// The objects that count by their names, sorted.
    pub fn named(&self) -> impl Iterator<Item = &Reference> + Clone {
        let of_one = self
            .claims
            .chunk_by(|one, next| one.reference == next.reference);
        of_one.map(|claims| &claims[0].reference)
    }

    /// Every claim, sorted by object.
    pub(crate) fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// Every regular expression.
    pub(crate) fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// Whether nothing counts, whatever there is.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.patterns.is_empty()
    }

    /// The kinds of objects of which the names have to be known.
    pub fn pattern_kinds(&self) -> impl Iterator<Item = ConfigKind> {
        let is_asked_for = |kind| self.patterns.iter().any(|pattern| pattern.kind == kind);
        ConfigKind::ALL
            .into_iter()
            .filter(move |kind| is_asked_for(*kind))
    }

    /// Whether both have the same regular expressions.
    pub fn same_patterns(&self, other: &Self) -> bool {
        self.patterns == other.patterns
    }

    /// The memory that the regular expressions take up, in bytes.
    #[cfg(test)]
    pub(crate) fn size_of_patterns(&self) -> usize {
        self.patterns.iter().map(Pattern::size).sum()
    }

    /// Whether a regular expression matches the object.
    pub fn matches(&self, reference: &Reference) -> bool {
        self.matching(reference).next().is_some()
    }

    /// Whether the object may count, by its name or as a match.
    pub fn mention(&self, reference: &Reference) -> bool {
        self.names(reference) || self.matches(reference)
    }

    /// Whether the object may count by its name.
    pub fn names(&self, reference: &Reference) -> bool {
        !self.claims_on(reference).is_empty()
    }

    /// All objects that may count, given those that are there of the [`References::pattern_kinds`]. Of
    /// more than [`MAX_REFERENCES`], those that are named come before matches, and the second value names
    /// the first that is left out.
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

    /// The keys of an object that are tracked by themselves.
    pub fn data_keys(&self, reference: &Reference) -> impl Iterator<Item = &str> {
        let claims = self.claims_on(reference).iter();
        let named = claims.filter_map(|claim| match &claim.extent {
            Extent::All => None,
            Extent::Named(keys) => Some(&**keys),
        });
        named.flatten().map(|key| &**key)
    }

    /// How much of an object may count, by its name or as a match. `None` where nothing does.
    pub fn extent(&self, reference: &Reference) -> Option<Extent> {
        let named = self.claims_on(reference).iter();
        let named = named.map(|claim| claim.extent.clone());
        let matched = self.matches(reference).then_some(Extent::All);
        named.chain(matched).reduce(|one, other| one.or(&other))
    }

    /// A fingerprint of the tracked entries of each of `objects` of which single keys are tracked.
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

    /// What counts of `objects`: those of [`References::with_matches`], each as it was read.
    pub fn contents<'a>(&'a self, objects: &'a Objects) -> Contents<'a> {
        let of = |(reference, object): (&'a Reference, &'a Presence)| {
            let candidate = Candidate::new(self, reference, object);
            Some((reference, candidate.content_now()?))
        };
        Contents(objects.iter().filter_map(of).collect())
    }

    /// Whether `hash` stands for what these same objects came to when something else counted: before a mark
    /// was set on one of them, or a dialect was spoken.
    ///
    /// *Caveats*: it gives up when 4 MiB are hashed. Then the answer is no, so that no change is lost.
    pub fn counted_otherwise(&self, objects: &Objects, hash: &Comparison) -> bool {
        let candidates = objects.iter();
        let candidates =
            candidates.map(|(reference, object)| Candidate::new(self, reference, object));
        Otherwise::new(candidates.collect(), hash).is_met()
    }

    /// Whether an object counts, as its marks are.
    pub fn counts(&self, reference: &Reference, object: &Presence) -> bool {
        Candidate::new(self, reference, object).counts()
    }

    /// The regular expressions that match an object.
    pub(crate) fn matching<'a>(
        &'a self,
        reference: &Reference,
    ) -> impl Iterator<Item = &'a Pattern> {
        self.patterns
            .iter()
            .filter(|pattern| pattern.kind == reference.kind && pattern.matches(&reference.name))
    }

    /// What is asked of an object by its name.
    pub(crate) fn claims_on(&self, reference: &Reference) -> &[Claim] {
        let start = self
            .claims
            .partition_point(|claim| claim.reference < *reference);
        let rest = &self.claims[start..];
        let length = rest.partition_point(|claim| claim.reference == *reference);
        &rest[..length]
    }
}

/// Makes those claims ask for whole objects whose keys are too many. Names the first of these objects.
fn within_room(claims: &mut [Claim]) -> Option<Rejected> {
    let mut room = KeyRoom::default();
    let mut first = None;
    for claim in claims {
        if !room.take(&claim.extent) {
            claim.extent = Extent::All;
            first.get_or_insert(Rejected::TooManyKeys {
                kind: claim.reference.kind,
                name: claim.reference.name.clone(),
            });
        }
    }
    first
}

/// How many more keys may be tracked by themselves.
struct KeyRoom {
    keys: usize,
    bytes: usize,
}

impl Default for KeyRoom {
    fn default() -> Self {
        Self {
            keys: MAX_KEYS,
            bytes: MAX_KEY_BYTES,
        }
    }
}

impl KeyRoom {
    /// Says whether there is room for these, and takes it.
    fn take(&mut self, extent: &Extent) -> bool {
        let Extent::Named(named) = extent else {
            return true;
        };
        let bytes = named.iter().map(|key| key.len()).sum();
        let left = (
            self.keys.checked_sub(named.len()),
            self.bytes.checked_sub(bytes),
        );
        let (Some(keys), Some(bytes)) = left else {
            return false;
        };
        *self = Self { keys, bytes };
        true
    }
}
