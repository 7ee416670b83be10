//! Claims: what one annotation of a workload asks of config objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::dialect::Dialect;
use crate::digest::Presence;
use crate::extent::Extent;
use crate::mark::Marks;
use crate::name::Name;
use crate::name_regex::{NameRegex, Work};
use crate::reference::{ConfigKind, Reference};

/// What one dialect asks of one config object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Of which object.
    pub reference: Reference,
    /// In whose words.
    pub dialect: Dialect,
    /// The marks that the object must have to count.
    pub needs: Marks,
    /// How much of it is tracked.
    pub extent: Extent,
}

impl Claim {
    /// Whether the object counts by it.
    pub(crate) fn counts(&self, object: &Presence) -> bool {
        match object {
            // So an object that comes with a mark is told from one that gets it. A pod that runs already
            // sees what comes, also where that is immutable.
            Presence::Absent => !self.needs.meet(Marks::IMMUTABLE),
            Presence::Present(object) => {
                object.marks.contain(self.needs) && !object.marks.meet(self.dialect.denying_marks())
            }
        }
    }

    /// Whether a mark that the object has, or has not, decides about that.
    pub(crate) fn depends_on_marks(&self, object: &Presence) -> bool {
        let labels = Marks::SELECTED | Marks::NOT_SELECTED;
        self.needs != Marks::NONE
            || self.dialect.denying_marks() != Marks::NOT_SELECTED
            || matches!(object, Presence::Present(object) if object.marks.meet(labels))
    }
}

/// A regular expression for the names of objects, in the namespace of the workload. What it matches
/// counts as long as it is there.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// Which objects.
    pub kind: ConfigKind,
    /// In whose words.
    pub(crate) dialect: Dialect,
    text: Box<str>,
    regex: Arc<NameRegex>,
    /// Names that do not count though they match.
    except: Arc<BTreeSet<Box<str>>>,
}

impl Pattern {
    /// The pattern `^text$`, in the syntax that RE2 and Rust share. `None` where it is none, or one that
    /// takes more than what is left of `work`.
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

    /// Whether the object counts by it, which is one that it matches.
    pub(crate) fn counts(&self, object: &Presence) -> bool {
        matches!(object, Presence::Present(object) if !object.marks.meet(self.dialect.denying_marks()))
    }

    /// Names that do not count though they match.
    pub(crate) fn except(&self) -> &BTreeSet<Box<str>> {
        &self.except
    }

    /// The memory that it takes up, in bytes, without its exceptions.
    pub(crate) fn size(&self) -> usize {
        self.text.len() + self.regex.size()
    }

    /// Whether it matches a name.
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
