//! Claims: the config objects that one annotation of a workload asks to track.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::dialect::Dialect;
use crate::digest::Presence;
use crate::extent::Extent;
use crate::mark::Marks;
use crate::name::Name;
use crate::name_regex::{NameRegex, Work};
use crate::reference::{ConfigKind, Reference};

/// A request by one dialect to track one config object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// The object.
    pub reference: Arc<Reference>,
    /// The dialect of the annotation.
    pub dialect: Dialect,
    /// The marks that the object must carry to be tracked.
    pub needs: Marks,
    /// The part of the object that is tracked.
    pub extent: Extent,
}

impl Claim {
    /// Returns true if this claim tracks the object.
    pub(crate) fn tracks(&self, object: &Presence) -> bool {
        match object {
            // An absent object is tracked, so one that is created with a mark can be told from one that
            // gets the mark later. The exception is `IMMUTABLE`: running pods see a new object by
            // themselves, even if it is immutable.
            Presence::Absent => !self.needs.meet(Marks::IMMUTABLE),
            Presence::Present(object) => {
                object.marks.contain(self.needs) && !object.marks.meet(self.dialect.denying_marks())
            }
        }
    }

    /// Returns true if a mark, present or absent, decides whether this claim tracks the object.
    pub(crate) fn depends_on_marks(&self, object: &Presence) -> bool {
        let labels = Marks::SELECTED | Marks::NOT_SELECTED;
        self.needs != Marks::NONE
            || self.dialect.denying_marks() != Marks::NOT_SELECTED
            || matches!(object, Presence::Present(object) if object.marks.meet(labels))
    }
}

/// A regular expression for names of objects in the workload's namespace. An object that matches is tracked
/// for as long as it exists.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The kind of object.
    pub kind: ConfigKind,
    /// The dialect of the annotation.
    pub(crate) dialect: Dialect,
    /// The regular expression as its author wrote it.
    pub(crate) text: Box<str>,
    regex: Arc<NameRegex>,
    /// Names that match but are not tracked.
    pub(crate) except: Arc<BTreeSet<Box<str>>>,
}

impl Pattern {
    /// Compiles `^text$`, in the syntax that RE2 and Rust share. Returns `None` if it is not a regular
    /// expression, or needs more than the remaining `work`.
    pub(crate) fn new(
        kind: ConfigKind,
        dialect: Dialect,
        text: &str,
        except: Arc<BTreeSet<Box<str>>>,
        work: &mut Work,
    ) -> Option<Self> {
        Some(Self {
            kind,
            dialect,
            text: text.into(),
            regex: Arc::new(NameRegex::compile(&format!("^{text}$"), work)?),
            except,
        })
    }

    /// Returns true if this pattern tracks the object, whose name it matches.
    pub(crate) fn tracks(&self, object: &Presence) -> bool {
        matches!(object, Presence::Present(object) if !object.marks.meet(self.dialect.denying_marks()))
    }

    /// Returns the memory used, in bytes, without the exceptions.
    pub(crate) fn size(&self) -> usize {
        self.text.len() + self.regex.size()
    }

    /// Returns true if the pattern matches the name.
    pub fn matches(&self, name: &Name) -> bool {
        self.regex.matches(name) && !self.except.contains(name.as_str())
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.dialect == other.dialect
            && self.text == other.text
            && self.except == other.except
    }
}

impl Eq for Pattern {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::reference;

    #[test]
    fn an_object_that_is_absent_is_tracked_unless_only_its_replacement_needs_a_restart() {
        let claim = |needs| Claim {
            reference: Arc::new(reference("app")),
            dialect: Dialect::PodReloader,
            needs,
            extent: Extent::All,
        };
        for (needs, counts) in [
            (Marks::NONE, true),
            (Marks::STAKATER_MATCH, true),
            (Marks::IMMUTABLE, false),
            (Marks::STAKATER_MATCH | Marks::IMMUTABLE, false),
        ] {
            assert_eq!(claim(needs).tracks(&Presence::Absent), counts, "{needs:?}");
        }
    }
}
