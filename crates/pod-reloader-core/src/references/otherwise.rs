//! Tells whether a config hash stands for the same objects as of a time when something else counted.

use crate::claim::{Claim, Pattern};
use crate::dialect::Dialect;
use crate::digest::{Content, Presence};
use crate::extent::Extent;
use crate::hash::{Comparison, encode};
use crate::reference::Reference;

use super::References;

/// The most bytes that are hashed for one answer: enough to try each mark of 256 objects with short names.
pub(crate) const MAX_HASHED: usize = 4 << 20;

/// So many dialects in one workload are told apart.
const MAX_DIALECTS: usize = 5;

/// An object, with everything that asks for it.
pub(crate) struct Candidate<'a> {
    reference: &'a Reference,
    object: &'a Presence,
    claims: &'a [Claim],
    /// The regular expressions that match it.
    matching: Vec<&'a Pattern>,
}

impl<'a> Candidate<'a> {
    pub(crate) fn new(
        references: &'a References,
        reference: &'a Reference,
        object: &'a Presence,
    ) -> Self {
        Self {
            reference,
            object,
            claims: references.claims_on(reference),
            matching: references.matching(reference).collect(),
        }
    }

    /// What of it counts, as its marks are.
    pub(crate) fn content_now(&self) -> Option<Content<'a>> {
        self.content(
            |claim| claim.counts(self.object),
            |pattern| pattern.counts(self.object),
        )
    }

    /// Whether it counts, as its marks are.
    pub(crate) fn counts(&self) -> bool {
        self.claims.iter().any(|claim| claim.counts(self.object))
            || self.matching.iter().any(|it| it.counts(self.object))
    }

    /// What of it counts by the claims and patterns for which that is said.
    fn content(
        &self,
        claims: impl Fn(&Claim) -> bool,
        patterns: impl Fn(&Pattern) -> bool,
    ) -> Option<Content<'a>> {
        let by_name = self.claims.iter().filter(|claim| claims(claim));
        let is_matched = self.matching.iter().any(|pattern| patterns(pattern));
        let matched = is_matched.then_some(&Extent::All);
        Content::of(
            self.object,
            by_name.map(|claim| &claim.extent).chain(matched),
        )
    }

    /// What of it would count if what decides about that were turned round.
    fn content_turned(&self) -> Option<Content<'a>> {
        let counts = self.counts();
        self.content(|_| !counts, |_| !counts)
    }

    /// The same where its marks decide about that.
    fn content_with_all_turned(&self) -> Option<Content<'a>> {
        match self.depends_on_marks() {
            true => self.content_turned(),
            false => self.content_now(),
        }
    }

    /// What of it counts whatever its marks.
    fn content_unmarked(&self) -> Option<Content<'a>> {
        let is_present = matches!(self.object, Presence::Present(_));
        self.content(|_| true, |_| is_present)
    }

    /// Whether a mark that it has, or has not, decides about whether it counts. What matches without any may
    /// have come just now, and so does not.
    fn depends_on_marks(&self) -> bool {
        let is_denied = |pattern: &&Pattern| {
            matches!(self.object, Presence::Present(_)) && !pattern.counts(self.object)
        };
        self.claims
            .iter()
            .any(|it| it.depends_on_marks(self.object))
            || self.matching.iter().any(is_denied)
    }

    /// Whether it does not count now, but did as long as it was absent.
    fn counted_while_absent(&self) -> bool {
        matches!(self.object, Presence::Present(_))
            && self
                .claims
                .iter()
                .any(|claim| claim.counts(&Presence::Absent))
            && !self.counts()
    }

    fn dialects(&self) -> impl Iterator<Item = Dialect> {
        let claims = self.claims.iter().map(|claim| claim.dialect);
        claims.chain(self.matching.iter().map(|pattern| pattern.dialect))
    }
}

/// The search for what counted before.
pub(crate) struct Otherwise<'a> {
    candidates: Vec<Candidate<'a>>,
    hash: &'a Comparison,
    /// How many more bytes may be hashed.
    left: usize,
}

/// What a hash covers of some objects.
#[derive(Default)]
struct Encoded {
    bytes: Vec<u8>,
    /// Where each object ends in it.
    ends: Vec<usize>,
}

impl Encoded {
    fn add(&mut self, candidate: &Candidate<'_>, content: Option<&Content<'_>>) {
        if let Some(content) = content {
            let bytes = &mut self.bytes;
            encode(candidate.reference, content, |part| {
                bytes.extend_from_slice(part)
            });
        }
        self.ends.push(self.bytes.len());
    }

    /// What stands before an object, and what behind it.
    fn around(&self, at: usize) -> (&[u8], &[u8]) {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        (&self.bytes[..start], &self.bytes[self.ends[at]..])
    }
}

impl<'a> Otherwise<'a> {
    pub(crate) fn new(candidates: Vec<Candidate<'a>>, hash: &'a Comparison) -> Self {
        Self {
            candidates,
            hash,
            left: MAX_HASHED,
        }
    }

    /// Tries all objects whatever their marks, all marks that may have changed, each of them, the latest
    /// objects as if they were not there yet, and each set of the dialects.
    pub(crate) fn is_met(&mut self) -> bool {
        let by_marks = self.candidates.iter().any(Candidate::depends_on_marks)
            && (self.stood(Candidate::content_unmarked)
                || self.stood(Candidate::content_with_all_turned)
                || self.stood_with_one_turned()
                || self.stood_before_the_latest_came());
        by_marks || self.stood_for_fewer_dialects()
    }

    /// Whether one of the marks has changed.
    fn stood_with_one_turned(&mut self) -> bool {
        let mut now = Encoded::default();
        for candidate in &self.candidates {
            now.add(candidate, candidate.content_now().as_ref());
        }
        // What stands before the object is hashed once for all of them.
        let mut before = self.hash.clone();
        let mut hashed = 0;
        for (at, candidate) in self.candidates.iter().enumerate() {
            if !candidate.depends_on_marks() {
                continue;
            }
            let mut turned = Encoded::default();
            turned.add(candidate, candidate.content_turned().as_ref());
            let (start, end) = now.around(at);
            before.add(&start[hashed..]);
            let bytes = start.len() - hashed + turned.bytes.len() + end.len();
            hashed = start.len();
            let Some(left) = self.left.checked_sub(bytes) else {
                return false;
            };
            self.left = left;
            let mut hash = before.clone();
            hash.add(&turned.bytes);
            hash.add(end);
            if hash.holds() {
                return true;
            }
        }
        false
    }

    /// Whether objects have come since that do not count: while they were absent, they did.
    fn stood_before_the_latest_came(&mut self) -> bool {
        let came = |at: usize| match self.candidates[at].object {
            Presence::Present(object) => object.created,
            Presence::Absent => None,
        };
        let all = 0..self.candidates.len();
        let mut latest: Vec<_> = all
            .filter(|at| self.candidates[*at].counted_while_absent())
            .collect();
        latest.sort_by_key(|at| std::cmp::Reverse(came(*at)));
        let mut is_absent = vec![false; self.candidates.len()];
        for at in latest {
            is_absent[at] = true;
            let absent = |at: usize| is_absent[at].then_some(Content::Absent);
            if self.stood_numbered(|at, candidate| absent(at).or_else(|| candidate.content_now())) {
                return true;
            }
        }
        false
    }

    /// Whether one of the dialects was not spoken.
    fn stood_for_fewer_dialects(&mut self) -> bool {
        let mut dialects: Vec<_> = self
            .candidates
            .iter()
            .flat_map(Candidate::dialects)
            .collect();
        dialects.sort_unstable();
        dialects.dedup();
        dialects.truncate(MAX_DIALECTS);
        // What a regular expression matches may have come just now.
        let matches = self.candidates.iter().flat_map(|candidate| {
            let counting = candidate
                .matching
                .iter()
                .filter(|it| it.counts(candidate.object));
            counting.map(|pattern| pattern.dialect)
        });
        let mut of_matches: Vec<_> = matches.collect();
        of_matches.sort_unstable();
        of_matches.dedup();
        (1..(1_u32 << dialects.len()) - 1).any(|set| {
            let speaks = |dialect: Dialect| {
                let at = dialects.iter().position(|it| *it == dialect);
                at.is_some_and(|at| set >> at & 1 == 1)
            };
            of_matches.iter().all(|dialect| speaks(*dialect))
                && self.stood(|candidate| {
                    candidate.content(
                        |claim| speaks(claim.dialect) && claim.counts(candidate.object),
                        |pattern| speaks(pattern.dialect) && pattern.counts(candidate.object),
                    )
                })
        })
    }

    fn stood(&mut self, content: impl Fn(&Candidate<'a>) -> Option<Content<'a>>) -> bool {
        self.stood_numbered(|_, candidate| content(candidate))
    }

    /// Whether the hash stands for these contents. No once there is nothing left to hash with.
    fn stood_numbered(
        &mut self,
        content: impl Fn(usize, &Candidate<'a>) -> Option<Content<'a>>,
    ) -> bool {
        let mut hash = self.hash.clone();
        for (at, candidate) in self.candidates.iter().enumerate() {
            let mut encoded = Encoded::default();
            encoded.add(candidate, content(at, candidate).as_ref());
            let Some(left) = self.left.checked_sub(encoded.bytes.len()) else {
                self.left = 0;
                return false;
            };
            self.left = left;
            hash.add(&encoded.bytes);
        }
        hash.holds()
    }
}

#[cfg(test)]
mod tests;
