//! References: everything that counts for one workload.

use std::collections::BTreeSet;

use crate::claim::{Claim, Keys, Pattern};
use crate::dialect::Dialect;
use crate::digest::{Content, Contents, Objects, Presence};
use crate::name::{InvalidName, Name};
use crate::reference::{ConfigKind, Reference};

/// The most distinct objects that count for one workload.
pub const MAX_REFERENCES: usize = 256;

/// The most regular expressions that one workload may have.
pub const MAX_PATTERNS: usize = 32;

/// So many dialects in one workload are told apart when it is asked what counted before.
const MAX_DIALECTS: usize = 5;

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
        claims.sort_unstable();
        claims.dedup_by(|next: &mut Claim, claim: &mut Claim| {
            let is_same = next.reference == claim.reference
                && next.dialect == claim.dialect
                && next.needs == claim.needs;
            if is_same {
                let keys = std::mem::replace(&mut claim.keys, Keys::All);
                claim.keys = keys.or(&next.keys);
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

    /// Whether a regular expression matches the object.
    pub fn matches(&self, reference: &Reference) -> bool {
        self.matching(reference).next().is_some()
    }

    /// Whether the object may count, by its name or as a match.
    pub fn mention(&self, reference: &Reference) -> bool {
        !self.claims_on(reference).is_empty() || self.matches(reference)
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

    /// Whether of the object some keys alone count: then it must be read by its keys.
    pub fn by_keys(&self, reference: &Reference) -> bool {
        let mut claims = self.claims_on(reference).iter();
        claims.any(|claim| claim.keys != Keys::All)
    }

    /// How much of an object may count, by its name or as a match. `None` where nothing does.
    pub fn keys(&self, reference: &Reference) -> Option<Keys> {
        let named = self.claims_on(reference).iter();
        let named = named.map(|claim| claim.keys.clone());
        let matched = self.matches(reference).then_some(Keys::All);
        named.chain(matched).reduce(|one, other| one.or(&other))
    }

    /// A fingerprint of the tracked entries of each of `objects` of which single keys are tracked.
    pub fn fingerprints<'a>(
        &'a self,
        objects: &'a Objects,
    ) -> impl Iterator<Item = (&'a Reference, u64)> {
        let by_keys = objects.iter().filter(|(it, _)| self.by_keys(it));
        by_keys.filter_map(|(reference, object)| {
            let content = Content::of(object, &self.keys(reference)?);
            Some((reference, content.fingerprint()))
        })
    }

    /// What counts of `objects`: those of [`References::with_matches`], each as it was read.
    pub fn contents<'a>(&'a self, objects: &'a Objects) -> Contents<'a> {
        let by_pattern = |pattern: &Pattern, _: &Reference, object: &_| pattern.counts(object);
        self.chosen(objects, Claim::counts, by_pattern)
    }

    /// Whether `is_it` holds for what these same objects came to when something else counted: before a mark
    /// was set on one of them, or a dialect was spoken.
    ///
    /// It tries each set of the dialects, each mark that may have changed, all those at once, and all
    /// objects whatever their marks.
    pub fn counted_otherwise(
        &self,
        objects: &Objects,
        mut is_it: impl FnMut(&Contents<'_>) -> bool,
    ) -> bool {
        let mut dialects: Vec<Dialect> = self.claims.iter().map(|claim| claim.dialect).collect();
        dialects.extend(self.patterns.iter().map(|pattern| pattern.dialect));
        dialects.sort_unstable();
        dialects.dedup();
        dialects.truncate(MAX_DIALECTS);
        let by_dialect = (1..(1_u32 << dialects.len()) - 1).any(|set| {
            let speaks = |dialect| {
                let at = dialects.iter().position(|it| *it == dialect);
                at.is_some_and(|at| set >> at & 1 == 1)
            };
            // What a regular expression matches may have come just now.
            let mut matches = objects.iter().flat_map(|(reference, object)| {
                let matching = self.matching(reference);
                matching.filter(|pattern| pattern.counts(object))
            });
            if !matches.all(|pattern| speaks(pattern.dialect)) {
                return false;
            }
            is_it(&self.chosen(
                objects,
                |claim, object| speaks(claim.dialect) && claim.counts(object),
                |pattern, _, object| speaks(pattern.dialect) && pattern.counts(object),
            ))
        });
        if by_dialect {
            return true;
        }
        let markable = objects
            .iter()
            .filter(|(reference, object)| self.depends_on_marks(reference, object));
        let markable: Vec<_> = markable.map(|(reference, _)| reference).collect();
        if markable.is_empty() {
            return false;
        }
        let mut with_turned = |turned: &[&Reference]| {
            let counts = |reference: &Reference, object: &Presence, by_this: bool| match turned
                .binary_search(&reference)
            {
                Ok(_) => !self.counts(reference, object),
                Err(_) => by_this,
            };
            is_it(&self.chosen(
                objects,
                |claim, object| counts(&claim.reference, object, claim.counts(object)),
                |pattern, reference, object| counts(reference, object, pattern.counts(object)),
            ))
        };
        markable.iter().any(|one| with_turned(&[*one]))
            || with_turned(&markable)
            || is_it(&self.chosen(
                objects,
                |_, _| true,
                |_, _, object| matches!(object, Presence::Present(_)),
            ))
    }

    /// Whether an object counts, as its marks are.
    pub fn counts(&self, reference: &Reference, object: &Presence) -> bool {
        let mut claims = self.claims_on(reference).iter();
        claims.any(|claim| claim.counts(object))
            || self.matching(reference).any(|it| it.counts(object))
    }

    /// Whether a mark that the object has, or has not, decides about that. What matches without any may
    /// have come just now, and so does not.
    fn depends_on_marks(&self, reference: &Reference, object: &Presence) -> bool {
        let mut claims = self.claims_on(reference).iter();
        let is_denied =
            |pattern: &Pattern| matches!(object, Presence::Present(_)) && !pattern.counts(object);
        claims.any(|claim| claim.depends_on_marks(object))
            || self.matching(reference).any(is_denied)
    }

    /// What of `objects` counts by the claims and patterns for which that is said.
    fn chosen<'a>(
        &'a self,
        objects: &'a Objects,
        claims: impl Fn(&Claim, &Presence) -> bool,
        patterns: impl Fn(&Pattern, &Reference, &Presence) -> bool,
    ) -> Contents<'a> {
        let of = |(reference, object): (&'a Reference, &'a Presence)| {
            let by_name = self.claims_on(reference).iter();
            let by_name = by_name.filter(|claim| claims(claim, object));
            let named = by_name.map(|claim| claim.keys.clone());
            let matched = self
                .matching(reference)
                .any(|pattern| patterns(pattern, reference, object));
            let matched = matched.then_some(Keys::All);
            let keys = named.chain(matched).reduce(|one, other| one.or(&other))?;
            Some((reference, Content::of(object, &keys)))
        };
        Contents(objects.iter().filter_map(of).collect())
    }

    fn matching<'a>(&'a self, reference: &Reference) -> impl Iterator<Item = &'a Pattern> {
        self.patterns
            .iter()
            .filter(|pattern| pattern.kind == reference.kind && pattern.matches(&reference.name))
    }

    fn claims_on(&self, reference: &Reference) -> &[Claim] {
        let start = self
            .claims
            .partition_point(|claim| claim.reference < *reference);
        let rest = &self.claims[start..];
        let length = rest.partition_point(|claim| claim.reference == *reference);
        &rest[..length]
    }
}
