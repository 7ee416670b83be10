//! Checks whether a config hash stands for the same objects as of a time when different ones were tracked.

use crate::claim::{Claim, Pattern};
use crate::dialect::Dialect;
use crate::digest::{Content, Presence};
use crate::extent::Extent;
use crate::hash::{Comparison, encode};
use crate::reference::Reference;

use super::References;

/// The maximum number of bytes hashed for one answer: enough to try the marks of 256 objects with short
/// names.
pub(crate) const MAX_HASHED: usize = 4 << 20;

/// The maximum number of dialects that are told apart in one workload.
const MAX_DIALECTS: usize = 5;

/// An object, with every claim and regular expression that asks for it.
pub(crate) struct Candidate<'a> {
    reference: &'a Reference,
    object: &'a Presence,
    claims: &'a [Claim],
    /// The regular expressions that match the object.
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

    /// Returns the tracked content of the object, given its marks.
    pub(crate) fn content_now(&self) -> Option<Content<'a>> {
        self.content(
            |claim| claim.tracks(self.object),
            |pattern| pattern.tracks(self.object),
        )
    }

    /// Returns true if the object is tracked, given its marks.
    pub(crate) fn tracks(&self) -> bool {
        self.claims.iter().any(|claim| claim.tracks(self.object))
            || self.matching.iter().any(|it| it.tracks(self.object))
    }

    /// Returns the content tracked by the claims and patterns that pass the filters.
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

    /// Returns the content that would be tracked if the marks said the opposite.
    fn content_inverted(&self) -> Option<Content<'a>> {
        let tracks = self.tracks();
        self.content(|_| !tracks, |_| !tracks)
    }

    /// Does the same, but only if marks decide whether the object is tracked.
    fn content_with_all_inverted(&self) -> Option<Content<'a>> {
        match self.depends_on_marks() {
            true => self.content_inverted(),
            false => self.content_now(),
        }
    }

    /// Returns the content that would be tracked regardless of marks.
    fn content_unmarked(&self) -> Option<Content<'a>> {
        let is_present = matches!(self.object, Presence::Present(_));
        self.content(|_| true, |_| is_present)
    }

    /// Returns true if a mark, present or absent, decides whether the object is tracked. An object that
    /// matches a pattern and is denied by no mark may have only just been created, so it does not qualify.
    fn depends_on_marks(&self) -> bool {
        let is_denied = |pattern: &&Pattern| {
            matches!(self.object, Presence::Present(_)) && !pattern.tracks(self.object)
        };
        self.claims
            .iter()
            .any(|it| it.depends_on_marks(self.object))
            || self.matching.iter().any(is_denied)
    }

    /// Returns true if the object is not tracked now, but was tracked as long as it was absent.
    fn tracked_while_absent(&self) -> bool {
        matches!(self.object, Presence::Present(_))
            && self
                .claims
                .iter()
                .any(|claim| claim.tracks(&Presence::Absent))
            && !self.tracks()
    }

    fn dialects(&self) -> impl Iterator<Item = Dialect> {
        let claims = self.claims.iter().map(|claim| claim.dialect);
        claims.chain(self.matching.iter().map(|pattern| pattern.dialect))
    }
}

/// The search for the objects that were tracked before.
pub(crate) struct Otherwise<'a> {
    candidates: Vec<Candidate<'a>>,
    hash: &'a Comparison,
    /// The number of bytes that may still be hashed.
    left: usize,
}

/// The bytes that a hash covers for some objects.
#[derive(Default)]
struct Encoded {
    bytes: Vec<u8>,
    /// The end of each object in `bytes`.
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

    /// Returns the bytes before an object, and the bytes after it.
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

    /// Tries every object regardless of marks, all marks that may have changed at once, each of them alone,
    /// the latest objects as if they did not exist yet, and each subset of the dialects.
    pub(crate) fn is_met(&mut self) -> bool {
        let by_marks = self.candidates.iter().any(Candidate::depends_on_marks)
            && (self.stood(Candidate::content_unmarked)
                || self.stood(Candidate::content_with_all_inverted)
                || self.stood_with_one_inverted()
                || self.stood_before_the_latest_came());
        by_marks || self.stood_for_fewer_dialects()
    }

    /// Returns true if the hash stood before one of the marks changed.
    fn stood_with_one_inverted(&mut self) -> bool {
        let mut now = Encoded::default();
        for candidate in &self.candidates {
            now.add(candidate, candidate.content_now().as_ref());
        }
        // The bytes before the object are hashed once for all candidates.
        let mut before = self.hash.clone();
        let mut hashed = 0;
        for (at, candidate) in self.candidates.iter().enumerate() {
            if !candidate.depends_on_marks() {
                continue;
            }
            let mut inverted = Encoded::default();
            inverted.add(candidate, candidate.content_inverted().as_ref());
            let (start, end) = now.around(at);
            before.add(&start[hashed..]);
            let bytes = start.len() - hashed + inverted.bytes.len() + end.len();
            hashed = start.len();
            let Some(left) = self.left.checked_sub(bytes) else {
                return false;
            };
            self.left = left;
            let mut hash = before.clone();
            hash.add(&inverted.bytes);
            hash.add(end);
            if hash.holds() {
                return true;
            }
        }
        false
    }

    /// Returns true if the hash stood before the latest objects came, which were tracked only while absent.
    fn stood_before_the_latest_came(&mut self) -> bool {
        let came = |at: usize| self.candidates[at].object.present()?.created;
        let all = 0..self.candidates.len();
        let mut latest: Vec<_> = all
            .filter(|at| self.candidates[*at].tracked_while_absent())
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

    /// Returns true if the hash stood before some of the dialects were enabled.
    fn stood_for_fewer_dialects(&mut self) -> bool {
        let mut dialects: Vec<_> = self
            .candidates
            .iter()
            .flat_map(Candidate::dialects)
            .collect();
        dialects.sort_unstable();
        dialects.dedup();
        dialects.truncate(MAX_DIALECTS);
        // An object that a regular expression matches may have only just been created.
        let matches = self.candidates.iter().flat_map(|candidate| {
            let counting = candidate
                .matching
                .iter()
                .filter(|it| it.tracks(candidate.object));
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
                        |claim| speaks(claim.dialect) && claim.tracks(candidate.object),
                        |pattern| speaks(pattern.dialect) && pattern.tracks(candidate.object),
                    )
                })
        })
    }

    fn stood(&mut self, content: impl Fn(&Candidate<'a>) -> Option<Content<'a>>) -> bool {
        self.stood_numbered(|_, candidate| content(candidate))
    }

    /// Returns true if the hash stands for these contents, or false once no bytes are left to hash.
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
