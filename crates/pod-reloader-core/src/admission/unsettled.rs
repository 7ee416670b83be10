//! Reviews of writes that may leave something out because their senders do not know it. What the cluster keeps of the
//! workload's revisions tells.

use serde_json::value::RawValue;

use super::settings::{Filled, Forgotten};
use super::{Begun, Step};
use crate::annotations::{BASELINE, CONFIG_HASH, KEYS, OF_TEMPLATES, Place};
use crate::hash::Keyring;
use crate::name::Name;
use crate::object::Reviewed;
use crate::review::same_template_but_for_ours;
use crate::revision::{KeptIn, Remains};
use crate::scope::Scope;
use crate::workload::Workload;

/// A review that depends on what the cluster keeps of the workload's revisions.
#[derive(Debug)]
pub struct Unsettled {
    pub(super) begun: Begun,
    /// The workload as it is in the request.
    pub(super) asked: Workload,
    pub(super) object: Reviewed,
    /// Where its revisions are.
    pub(super) kept: KeptIn,
    /// The selector of its pods, which its revisions match as well.
    pub(super) selector: String,
    /// The pod template of the request.
    pub(super) template: Box<RawValue>,
    pub(super) question: Question,
}

/// What the revisions are to tell.
#[derive(Debug)]
pub(super) enum Question {
    /// Does the new workload take over pods that run its template already?
    TakesOver,
    /// Does the request bring back an earlier revision, and with it the settings of that time?
    Undoes { forgotten: Vec<Forgotten> },
}

impl Unsettled {
    /// Returns where its revisions are kept.
    pub fn kept_in(&self) -> KeptIn {
        self.kept
    }

    /// Returns its namespace.
    pub fn namespace(&self) -> &Name {
        &self.asked.id.namespace
    }

    /// Returns the label selector that its revisions match.
    pub fn selector(&self) -> &str {
        &self.selector
    }

    /// Returns true if a revision matters: the others need not be kept.
    pub fn is_about(&self, remains: &Remains) -> bool {
        let is_one = match &self.question {
            Question::TakesOver => remains.owner.is_none(),
            Question::Undoes { .. } => remains.owner.as_deref() == Some(self.object.uid()),
        };
        let template = remains.template.as_deref();
        is_one && template.is_some_and(|it| same_template_but_for_ours(&self.template, it))
    }

    /// Goes on, given the revisions for which [`Unsettled::is_about`] holds. `None` if they cannot be read.
    pub fn settle(self, remains: Option<&[Remains]>, scope: &Scope, keys: &Keyring) -> Step {
        let Self {
            begun,
            asked,
            object,
            question,
            ..
        } = self;
        match question {
            Question::TakesOver => {
                let own = object.of_template(CONFIG_HASH);
                let last = last(remains.unwrap_or_default(), own);
                match last.map(|it| of_pods(it, &object)) {
                    Some(filled) => begun.go_on(object, &filled, true, TAKEN_OVER, scope, keys),
                    None => begun.step(asked, false, keys),
                }
            }
            Question::Undoes { forgotten } => {
                let outlives = |setting: &&Forgotten| match remains {
                    Some(remains) => {
                        let mut annotations =
                            remains.iter().filter_map(|it| it.annotations.as_ref());
                        annotations.any(|it| setting.outlives_undo(it))
                    }
                    // It may be an undo.
                    None => setting.place == Place::Annotation,
                };
                let filled = Filled::with(forgotten.iter().filter(outlives));
                begun.go_on(object, &filled, false, UNDO, scope, keys)
            }
        }
    }
}

/// Returns the revision whose pods a new workload takes over: the one with the config hash of its template, if there is
/// one, otherwise the newest.
fn last<'a>(remains: &'a [Remains], own: Option<&str>) -> Option<&'a Remains> {
    let has_same = |it: &&Remains| own.is_some() && it.of_template(CONFIG_HASH).as_deref() == own;
    let newest = || remains.iter().max_by_key(|it| it.number);
    remains.iter().find(has_same).or_else(newest)
}

/// Returns what pods have that run already, and what their workload had, as far as the new one has not. Only what says when
/// pods are restarted stays: what they are restarted for is what the new manifest says.
fn of_pods(remains: &Remains, asked: &Reviewed) -> Filled {
    let of_template = |key: &'static str| Some((key, remains.of_template(key)?));
    let timing = KEYS.iter().filter(|it| it.is_timing).map(|it| it.key);
    let annotations = timing
        .chain([BASELINE])
        .filter(|key| asked.annotation(key).is_none());
    let had = |key: &'static str| {
        let value = remains.annotations.as_ref()?.get(key)?;
        Some((key.into(), value.into()))
    };
    Filled {
        annotations: annotations.filter_map(had).collect(),
        labels: Vec::new(),
        template: OF_TEMPLATES.into_iter().filter_map(of_template).collect(),
    }
}

/// The reason why an undo leaves settings as they are.
const UNDO: &str = "an undo brings back the pod template alone; to change it, use kubectl annotate";
/// The reason why a workload that is created again has settings which its manifest lacks.
const TAKEN_OVER: &str =
    "its pods and their ReplicaSet were there already; to remove it, use kubectl annotate";
