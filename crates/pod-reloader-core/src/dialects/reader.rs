//! Turns what a dialect asks for into claims.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::grammar::{Grammar, POD_RELOADER};
use super::{Subject, Wishes, own};
use crate::claim::{Claim, Pattern};
use crate::dialect::Dialect;
use crate::discovery::Use;
use crate::extent::Extent;
use crate::list::{first, items, items_with_keys, name_and_keys, quoted};
use crate::mark::Marks;
use crate::name::Name;
use crate::name_regex::Work;
use crate::reference::{ConfigKind, Reference};
use crate::references::{
    MAX_EXCLUDED, MAX_KEYS, MAX_PATTERNS, MAX_REFERENCES, References, Rejected,
};

/// The maximum number of rejected items that are named: a workload may hold 40,000 of them.
const MAX_REJECTED: usize = 20;

/// Collects what one workload asks to track.
pub(super) struct Reader<'a> {
    subject: &'a Subject<'a>,
    /// The uses in the pod specs, sorted by object, once they are needed.
    uses: Option<Vec<Use<'a>>>,
    /// The names that our own annotations exclude, by kind. They are never tracked.
    excluded: [BTreeSet<&'a str>; 2],
    /// Our own settings, which apply in every dialect.
    per_key: Option<bool>,
    only_where_needed: bool,
    claims: Vec<Claim>,
    patterns: Vec<Pattern>,
    work: Work,
    rejected: Vec<Rejected>,
    /// The number of further rejected items.
    others_rejected: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(subject: &'a Subject<'a>) -> Self {
        let mut rejected = Vec::new();
        let excluded =
            ConfigKind::ALL.map(|kind| excluded(subject, &POD_RELOADER, kind, &mut rejected));
        Self {
            subject,
            uses: None,
            excluded,
            per_key: own::per_key(subject),
            only_where_needed: own::restarts_where_needed(subject),
            claims: Vec::new(),
            patterns: Vec::new(),
            work: Work::new(),
            rejected,
            others_rejected: 0,
        }
    }

    pub(super) fn references(self) -> References {
        References::new(
            self.claims,
            self.patterns,
            self.rejected,
            self.others_rejected,
        )
    }

    pub(super) fn take_in(&mut self, dialect: Dialect, kind: ConfigKind, wishes: &Wishes<'_>) {
        let excluded = self.excluded(dialect, kind);
        if self.uses.is_none() && (self.only_where_needed || !wishes.discovers.is_empty()) {
            let pod_specs = self.subject.pod_specs.iter();
            let mut uses: Vec<_> = pod_specs.flat_map(|it| it.uses()).collect();
            uses.sort_unstable_by(|one, other| object(one).cmp(&object(other)));
            self.uses = Some(uses);
        }
        self.names(dialect, kind, wishes.names, &excluded);
        for (of, needs) in &wishes.discovers {
            self.discover(dialect.grammar(), *of, kind, *needs, &excluded);
        }
        self.patterns(dialect, kind, wishes.patterns, &excluded);
    }

    /// Returns the names to leave out: those of the dialect, and always those of our own annotations.
    fn excluded(&mut self, dialect: Dialect, kind: ConfigKind) -> BTreeSet<&'a str> {
        let own = &self.excluded[kind as usize];
        match dialect {
            Dialect::PodReloader | Dialect::AutoAll => own.clone(),
            _ => {
                let of_dialect = dialect.grammar();
                let theirs = excluded(self.subject, of_dialect, kind, &mut self.rejected);
                own.union(&theirs).copied().collect()
            }
        }
    }

    /// Returns the uses of an object in the pod specs.
    fn uses_of(&self, kind: ConfigKind, name: &Name) -> &[Use<'a>] {
        let uses = self.uses.as_deref().unwrap_or_default();
        let start = uses.partition_point(|it| object(it) < (kind, name));
        let rest = &uses[start..];
        &rest[..rest.partition_point(|it| object(it) == (kind, name))]
    }

    fn names(
        &mut self,
        dialect: Dialect,
        kind: ConfigKind,
        list: Option<&str>,
        excluded: &BTreeSet<&str>,
    ) {
        let takes_keys = dialect == Dialect::PodReloader;
        let mut named: BTreeMap<Name, Extent> = BTreeMap::new();
        let distinct: BTreeSet<_> = match takes_keys {
            true => items_with_keys(list).collect(),
            false => items(list).collect(),
        };
        for item in distinct {
            let Some((name, keys)) = self.name_and_keys(kind, item, takes_keys) else {
                continue;
            };
            if excluded.contains(name.as_str()) {
                continue;
            }
            let extent = self.listed_extent(kind, &name, keys);
            let extent = match named.remove(&name) {
                Some(known) => known.or(&extent),
                None => extent,
            };
            named.insert(name, extent);
            // One name over the limit is enough to report it.
            if named.len() > MAX_REFERENCES + 1 {
                named.pop_last();
            }
        }
        for (name, extent) in named {
            self.claim_listed(dialect, kind, name, extent);
        }
    }

    /// Returns the name in an item, and the keys in its brackets. Rejects an item that names no object.
    fn name_and_keys<'i>(
        &mut self,
        kind: ConfigKind,
        item: &'i str,
        takes_keys: bool,
    ) -> Option<(Name, Option<BTreeSet<&'i str>>)> {
        let parts = match takes_keys {
            true => name_and_keys(item, MAX_KEYS),
            false => Some((item, None)),
        };
        let Some((name, keys)) = parts else {
            self.reject(|| Rejected::Keys {
                kind,
                item: quoted(item),
            });
            return None;
        };
        match Name::parse(name) {
            Ok(name) => Some((name, keys)),
            Err(reason) => {
                self.reject(|| Rejected::Name {
                    kind,
                    item: quoted(item),
                    reason,
                });
                None
            }
        }
    }

    /// Returns the part of an object that is tracked if a list names these keys of it.
    fn listed_extent(
        &mut self,
        kind: ConfigKind,
        name: &Name,
        keys: Option<BTreeSet<&str>>,
    ) -> Extent {
        match keys {
            Some(keys) if keys.len() > MAX_KEYS => {
                self.reject(|| Rejected::TooManyKeys {
                    kind,
                    name: name.clone(),
                });
                Extent::All
            }
            Some(keys) if self.per_key != Some(false) => Extent::named(keys),
            _ => Extent::All,
        }
    }

    fn claim_listed(&mut self, dialect: Dialect, kind: ConfigKind, name: Name, extent: Extent) {
        let uses = self.uses_of(kind, &name).iter();
        let (seen, missed): (Vec<_>, Vec<_>) = uses.partition(|it| it.consumption.sees_changes());
        let is_seen = !seen.is_empty();
        let of_missed = missed
            .iter()
            .map(|it| Extent::named(it.keys.iter().copied()));
        let of_missed = of_missed.reduce(|one, other| one.or(&other));
        if !self.only_where_needed || (of_missed.is_none() && !is_seen) {
            return self.claim(dialect, kind, name, Marks::NONE, extent);
        }
        if let Some(extent) = of_missed.and_then(|of_missed| extent.and(&of_missed)) {
            self.claim(dialect, kind, name.clone(), Marks::NONE, extent);
        }
        if is_seen {
            self.claim(dialect, kind, name, Marks::IMMUTABLE, extent);
        }
    }

    fn discover(
        &mut self,
        grammar: &Grammar,
        dialect: Dialect,
        kind: ConfigKind,
        needs: Marks,
        excluded: &BTreeSet<&str>,
    ) {
        let takes_keys = self.per_key.unwrap_or(grammar.takes_keys);
        let uses = self.uses.take();
        let used = uses.iter().flatten().filter(|it| {
            it.kind == kind
                && grammar.sees.contains(&it.consumption)
                && !excluded.contains(it.name.as_str())
        });
        for it in used {
            let is_seen = self.only_where_needed && it.consumption.sees_changes();
            let needs = match is_seen {
                true => needs | Marks::IMMUTABLE,
                false => needs,
            };
            let extent = match takes_keys {
                true => Extent::named(it.keys.iter().copied()),
                false => Extent::All,
            };
            self.claim(dialect, kind, it.name.clone(), needs, extent);
        }
        self.uses = uses;
    }

    fn patterns(
        &mut self,
        dialect: Dialect,
        kind: ConfigKind,
        list: Option<&str>,
        excluded: &BTreeSet<&'a str>,
    ) {
        if list.is_none() {
            return;
        }
        let mut except: BTreeSet<Box<str>> = excluded.iter().map(|name| (*name).into()).collect();
        if self.only_where_needed {
            let uses = self.uses.iter().flatten().filter(|it| it.kind == kind);
            let (seen, missed): (Vec<_>, Vec<_>) =
                uses.partition(|it| it.consumption.sees_changes());
            let missed: BTreeSet<_> = missed.iter().map(|it| &it.name).collect();
            let seen = seen.iter().filter(|it| !missed.contains(&it.name));
            // If there are too many to exclude, the rest are tracked.
            except.extend(seen.take(MAX_EXCLUDED).map(|it| it.name.as_str().into()));
        }
        let except = Arc::new(except);
        let distinct: BTreeSet<_> = items(list).collect();
        let (mut names, mut patterns) = (0, 0);
        for item in distinct {
            match Name::parse(item) {
                // A name with a dot is a regular expression, too.
                Ok(name) if !item.contains('.') => {
                    if !excluded.contains(item) && names <= MAX_REFERENCES {
                        names += 1;
                        self.claim_listed(dialect, kind, name, Extent::All);
                    }
                }
                Err(reason) if !item.contains(is_of_a_pattern) => self.reject(|| Rejected::Name {
                    kind,
                    item: quoted(item),
                    reason,
                }),
                // One pattern over the limit is enough to report it.
                _ if patterns > MAX_PATTERNS => {}
                _ => {
                    patterns += 1;
                    match Pattern::new(kind, dialect, item, except.clone(), &mut self.work) {
                        Some(pattern) => self.patterns.push(pattern),
                        None => self.reject(|| Rejected::Pattern {
                            kind,
                            item: quoted(item),
                        }),
                    }
                }
            }
        }
    }

    fn claim(
        &mut self,
        dialect: Dialect,
        kind: ConfigKind,
        name: Name,
        needs: Marks,
        extent: Extent,
    ) {
        self.claims.push(Claim {
            reference: Arc::new(Reference {
                kind,
                namespace: self.subject.namespace.clone(),
                name,
            }),
            dialect,
            needs,
            extent,
        });
    }

    fn reject(&mut self, rejected: impl FnOnce() -> Rejected) {
        match self.rejected.len() < MAX_REJECTED {
            true => self.rejected.push(rejected()),
            false => self.others_rejected += 1,
        }
    }
}

fn is_of_a_pattern(character: char) -> bool {
    r".*+?()[]{}|^$\".contains(character)
}

/// Returns the names that one dialect leaves out.
pub(super) fn excluded<'a>(
    subject: &'a Subject<'_>,
    grammar: &Grammar,
    kind: ConfigKind,
    rejected: &mut Vec<Rejected>,
) -> BTreeSet<&'a str> {
    let lists = grammar.excludes.iter().filter(|(of, _)| *of == kind);
    let listed = lists.flat_map(|(_, key)| items(subject.annotation(key)));
    let prefixes = grammar.exclude_prefixes.iter();
    let prefixed = prefixes
        .filter(|(of, _)| *of == kind)
        .flat_map(|(_, prefix)| {
            let all = subject.annotations.iter();
            let begin = all.filter(move |(key, _)| key.starts_with(*prefix));
            begin.map(|(_, value)| value)
        });
    let (first, are_more) = first(listed.chain(prefixed), MAX_EXCLUDED);
    if are_more {
        rejected.push(Rejected::TooManyExcluded(kind));
    }
    first
}

/// Returns the object that is used.
fn object<'a>(used: &'a Use<'_>) -> (ConfigKind, &'a Name) {
    (used.kind, &used.name)
}
