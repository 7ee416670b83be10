//! Reviews of writes that may leave something out because their senders do not know it. What the cluster keeps of the
//! workload's revisions tells.

use std::mem;

use serde_json::value::RawValue;

use super::settings::{Filled, Forgotten, OF_PODS, Reason};
use super::{Begun, MAX_UNSETTLED, Step};
use crate::annotations::{CONFIG_HASH, KEYS, OF_TEMPLATES, Place};
use crate::hash::Keyring;
use crate::name::Name;
use crate::object::Reviewed;
use crate::review::same_template_but_for_ours;
use crate::revision::{KeptIn, Remains};
use crate::scope::Scope;
use crate::workload::Workload;

/// A review that depends on what the cluster keeps of the workload's revisions. However many there are, little of them
/// is kept.
#[derive(Debug)]
pub struct Unsettled {
    pub(super) begun: Begun,
    /// The workload as it is in the request.
    pub(super) asked: Workload,
    /// The unparsed object of the request: parsed, it takes more than twice as much.
    pub(super) object: Box<RawValue>,
    /// The kind of object that keeps its revisions.
    pub kept: KeptIn,
    /// The selector of its pods, which its revisions match as well.
    pub(super) selector: String,
    /// The pod template of the request. `None` if revisions are not compared with it.
    pub(super) template: Option<Box<RawValue>>,
    pub(super) question: Question,
}

/// What the revisions are to tell.
#[derive(Debug)]
pub(super) enum Question {
    /// Does the new workload take over pods that run its template already?
    TakesOver {
        /// The newest revision of nobody so far. It has a template if that is the one of the request.
        last: Option<Remains>,
    },
    /// Does the request bring back an earlier revision, and with it the settings of that time?
    Undoes {
        /// The settings of which no revision so far tells that they stay.
        forgotten: Vec<Forgotten>,
        /// The settings that stay.
        stay: Vec<Forgotten>,
    },
}

/// What is known of the revisions of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revisions {
    /// The review was [shown](Unsettled::look_at) all of them.
    Seen,
    /// They cannot be read, or not all of them.
    Unknown,
}

impl Unsettled {
    /// Returns its namespace.
    pub fn namespace(&self) -> &Name {
        &self.asked.id.namespace
    }

    /// Returns the label selector that its revisions match.
    pub fn selector(&self) -> &str {
        &self.selector
    }

    /// Takes in what a revision tells.
    pub fn look_at(&mut self, remains: Remains) {
        let template = self.template.as_deref();
        let is_same = |remains: &Remains| {
            let earlier = remains.template.as_deref();
            // No larger one is the same. Taking it apart would take long.
            let earlier = earlier.filter(|it| it.get().len() <= 2 * MAX_UNSETTLED);
            let both = template.zip(earlier);
            both.is_some_and(|(own, earlier)| same_template_but_for_ours(own, earlier))
        };
        match &mut self.question {
            Question::TakesOver { last } if remains.owner.is_none() => {
                let remains = match is_same(&remains) {
                    true => remains,
                    // It matters only that there is one as new.
                    false => remains.without_content(),
                };
                let own = self.asked.config_hash();
                if last
                    .as_ref()
                    .is_none_or(|last| rank(&remains, own) > rank(last, own))
                {
                    *last = Some(remains);
                }
            }
            Question::Undoes { forgotten, stay }
                if remains.owner.as_deref() == Some(&*self.asked.uid) && is_same(&remains) =>
            {
                let Some(earlier) = &remains.annotations else {
                    return;
                };
                let all = mem::take(forgotten).into_iter();
                let (mut found, others): (Vec<_>, Vec<_>) =
                    all.partition(|it| it.outlives_undo(earlier));
                stay.append(&mut found);
                *forgotten = others;
            }
            Question::TakesOver { .. } | Question::Undoes { .. } => {}
        }
    }

    /// Goes on with what the revisions have told.
    pub fn settle(self, revisions: Revisions, scope: &Scope, keys: &Keyring) -> Step {
        let Self {
            begun,
            asked,
            object,
            question,
            ..
        } = self;
        let is_known = revisions == Revisions::Seen;
        let read = || {
            let mut object = Reviewed::of(&object, begun.kind).ok()?;
            object.put_in(asked.id.namespace.as_str());
            Some(object)
        };
        match question {
            Question::TakesOver { last } => {
                let last = last.filter(|it| is_known && it.template.is_some());
                match last.zip(read()) {
                    Some((last, object)) => {
                        let filled = of_pods(&last, &object);
                        begun.go_on(&asked, object, &filled, Reason::TakesOver, scope, keys)
                    }
                    None => begun.step(asked, false, keys),
                }
            }
            Question::Undoes { forgotten, stay } => {
                // It may be an undo if nobody knows.
                let perhaps = forgotten.iter().filter(|_| !is_known);
                let perhaps = perhaps.filter(|it| it.place == Place::Annotation);
                let filled = Filled::with(stay.iter().chain(perhaps));
                match read() {
                    Some(object) => {
                        begun.go_on(&asked, object, &filled, Reason::Undone, scope, keys)
                    }
                    None => begun.step(asked, false, keys),
                }
            }
        }
    }
}

/// Returns the rank of a revision among those of which pods may run: the newest one is the last that its workload had.
/// Where the numbers are the same, the one with the template and the config hash of the request counts.
fn rank(remains: &Remains, own: Option<&str>) -> (i64, bool, bool) {
    let has_same = own.is_some() && remains.of_template(CONFIG_HASH).as_deref() == own;
    (remains.number, remains.template.is_some(), has_same)
}

/// Returns what pods have that run already, and what their workload had, as far as the new one has not. Only what says when
/// pods are restarted stays: what they are restarted for is what the new manifest says. What we have noted of the pods
/// goes with them.
fn of_pods(remains: &Remains, asked: &Reviewed) -> Filled {
    let of_template = |key: &'static str| Some((key, remains.of_template(key)?));
    let timing = KEYS.iter().filter(|it| it.is_timing).map(|it| it.key);
    let lacking = timing.filter(|key| asked.annotation(key).is_none());
    let had = |key: &'static str| {
        let value = remains.annotations.as_ref()?.get(key)?;
        Some((key.into(), value.into()))
    };
    Filled {
        annotations: lacking.chain(OF_PODS).filter_map(had).collect(),
        labels: Vec::new(),
        template: Some(OF_TEMPLATES.into_iter().filter_map(of_template).collect()),
    }
}
