//! What a workload asks for without naming it, in any dialect.

use std::collections::BTreeSet;

use super::{Dialect, Dialects, Subject, reader, stakater};
use crate::mark::Marks;
use crate::reference::ConfigKind;

/// What a workload asks for without naming it.
pub(crate) struct Finding {
    /// The kinds of object that are tracked if the pod template uses them.
    pub(crate) kinds: Vec<ConfigKind>,
    /// True if only the keys that the pod template names are tracked.
    pub(crate) takes_keys: bool,
    /// The names that are left out, by kind.
    pub(crate) excluded: [BTreeSet<String>; 2],
    /// The annotations by which the workload opts out where every workload is managed.
    pub(crate) opting_out: Vec<&'static str>,
}

impl Dialects {
    /// Returns what a workload asks for without naming it.
    pub(crate) fn finding(&self, subject: &Subject<'_>) -> Finding {
        let applying = self.dialects();
        let applying = applying.filter(|it| (it.grammar().applies_to)(subject.kind));
        let applying: Vec<Dialect> = applying.collect();
        let finds = |dialect: Dialect, kind: ConfigKind| {
            let wishes = self.wishes(dialect, kind, subject);
            let mut needs = wishes.discovers.iter().map(|(_, needs)| *needs);
            needs.any(|needs| needs == Marks::NONE)
        };
        let finds_any = |dialect: &&Dialect| {
            let mut kinds = ConfigKind::ALL.into_iter();
            kinds.any(|kind| finds(**dialect, kind))
        };
        let kinds = ConfigKind::ALL.into_iter();
        let kinds = kinds.filter(|kind| applying.iter().any(|dialect| finds(*dialect, *kind)));
        let takes_keys = applying
            .iter()
            .filter(finds_any)
            .all(|dialect| dialect.grammar().takes_keys);
        Finding {
            kinds: kinds.collect(),
            takes_keys,
            excluded: ConfigKind::ALL.map(|kind| excluded(&applying, subject, kind)),
            opting_out: stakater::opting_out(subject).collect(),
        }
    }
}

fn excluded(dialects: &[Dialect], subject: &Subject<'_>, kind: ConfigKind) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for dialect in dialects {
        let names = reader::excluded(subject, dialect.grammar(), kind, &mut Vec::new());
        all.extend(names.into_iter().map(str::to_owned));
    }
    all
}
