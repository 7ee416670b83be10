//! The pod templates of a workload, and how pods are restarted.

use jiff::{SignedDuration, Timestamp, Unit};

use crate::annotations;
use crate::kind::Template;

/// The furthest that restart times may run ahead of the clock when restarts follow each other at once. A
/// later time was set by somebody who scheduled a restart.
const MAX_LEAD: SignedDuration = SignedDuration::from_mins(1);

/// The state of a pod template, as far as the config hash annotation is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateState {
    /// The number of fields on the path to the config hash annotation that exist, from the outermost one.
    /// `None` if one of them is not an object: such a template is left alone.
    pub depth: Option<u16>,
    /// The config hash on the template.
    pub config_hash: Option<Box<str>>,
    /// The pins on the template. Empty if it was rolled out without copies.
    pub pins: Option<Box<str>>,
    /// The total size of all annotations, measured the way Kubernetes limits it.
    pub annotations_size: u32,
}

impl TemplateState {
    /// Returns the config hash and the pins.
    pub(crate) fn ours(&self) -> [Option<&str>; 2] {
        [self.config_hash.as_deref(), self.pins.as_deref()]
    }

    /// Returns the size of the template's annotations once it carries this config hash and these pins.
    pub(crate) fn size_with(&self, config_hash: &str, pins: Option<&str>) -> usize {
        let hash = self.config_hash.as_deref();
        let size = self.annotations_size as usize;
        let size = size_with(size, annotations::CONFIG_HASH, hash, Some(config_hash));
        size_with(size, annotations::PINS, self.pins.as_deref(), pins)
    }
}

/// Returns the size of a map of `size` bytes once the value of `key` changes from `old` to `new`.
pub(super) fn size_with(size: usize, key: &str, old: Option<&str>, new: Option<&str>) -> usize {
    let of = |value: Option<&str>| value.map_or(0, |value| key.len() + value.len());
    size - of(old) + of(new)
}

/// The reason why pods are not restarted although their workload has a new config hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stall {
    /// The workload is paused: its pods restart when it is resumed.
    Paused,
    /// The update strategy is OnDelete: each pod restarts when somebody deletes it.
    OnDelete,
}

/// A pod template that should carry the config hash annotation.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a> {
    /// The position of the template in the object.
    pub(crate) template: Template,
    /// The number of fields on the path to the config hash annotation that exist, from the outermost one.
    pub(crate) depth: usize,
    /// The current state of the template.
    pub(crate) state: &'a TemplateState,
}

/// The way in which a workload is restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restart {
    /// By the config hash annotation on its pod templates.
    Template,
    /// By a time in a field that others write, too. Few workloads are, so the others need no room for it.
    At(Box<TimeField>),
}

/// The field with the time of the last restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeField {
    /// The number of fields on the path to the field that exist, from the outermost one.
    pub depth: usize,
    /// The current value of the field.
    pub value: Option<Box<str>>,
}

impl Restart {
    /// Returns the current value of the field with the time, if the workload is restarted by one.
    pub fn value(&self) -> Option<&str> {
        match self {
            Self::Template => None,
            Self::At(field) => field.value.as_deref(),
        }
    }

    /// Returns the time to write for a restart at `now`, in whole seconds. It is always later than a time
    /// written a moment ago: writing the same time again restarts nothing.
    pub fn time(&self, now: Timestamp) -> Timestamp {
        let now = now.round(Unit::Second).unwrap_or(now);
        match self.value().map(str::parse::<Timestamp>) {
            Some(Ok(last)) if (now..now + MAX_LEAD).contains(&last) => {
                last + SignedDuration::from_secs(1)
            }
            _ => now,
        }
    }
}
