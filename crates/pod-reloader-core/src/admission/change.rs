//! Reads what a request changes.

use super::answer::Stored;
use super::settings::{Filled, Forgotten};
use super::unsettled::Question;
use super::{field_manager, required};
use crate::annotations;
use crate::kind::WorkloadKind;
use crate::review::{InvalidReview, RawWorkload, Request};
use crate::scope::Scope;

/// What a request changes, and what follows from that for what it leaves out.
pub(super) struct Change {
    /// `None` for a create.
    pub(super) update: Option<Update>,
    /// The question to the revisions of the workload, if there is one.
    pub(super) question: Option<Question>,
    /// Everything that stays although the request does not say it.
    pub(super) filled: Filled,
}

impl Change {
    pub(super) fn create() -> Self {
        Self {
            update: None,
            question: Some(Question::TakesOver { last: None }),
            filled: Filled::default(),
        }
    }

    pub(super) fn update(
        request: &Request<'_>,
        kind: WorkloadKind,
        scope: &Scope,
        ourselves: &str,
    ) -> Result<Self, InvalidReview> {
        let sender = field_manager(request);
        let raw_of =
            |part, name| RawWorkload::of(required(part, name)?, kind).map_err(InvalidReview::at);
        let new = raw_of(request.object, "object")?;
        let old = raw_of(request.old_object, "oldObject")?;
        let update = Update::of(&old, &new, request, kind, scope, ourselves);
        let forgotten = Forgotten::all(&old, &new, scope.reading());
        let may_be_undo = kind == WorkloadKind::DEPLOYMENT
            && sender.is_none()
            && new.has_uid
            && !update.has_same_template
            && !forgotten.is_empty();
        let filled = match new.has_uid {
            true => Filled::default(),
            false => {
                let outlives = |it: &&Forgotten| it.outlives_manifest(&old, sender);
                Filled::with(forgotten.iter().filter(outlives))
            }
        };
        Ok(Self {
            update: Some(update),
            question: may_be_undo.then(|| Question::Undoes {
                forgotten,
                stay: Vec::new(),
            }),
            filled,
        })
    }
}

/// What an update changes, and what it says of itself.
#[derive(Debug)]
pub(super) struct Update {
    pub(super) stored: Stored,
    /// True if the pod templates are the same, apart from our annotations.
    pub(super) has_same_template: bool,
    /// True if the request set the config hash annotation itself.
    pub(super) claims_hash: bool,
    /// True if pins stand in the manifest that was applied.
    pub(super) applies_pins: bool,
    /// True if the request comes from our loop.
    pub(super) is_ours: bool,
}

impl Update {
    fn of(
        old: &RawWorkload<'_>,
        new: &RawWorkload<'_>,
        request: &Request<'_>,
        kind: WorkloadKind,
        scope: &Scope,
        ourselves: &str,
    ) -> Self {
        let sender = field_manager(request);
        let stored = Stored {
            stamps: old.stamps(),
            baseline: old.baseline.as_deref().map(Into::into),
            undone: old.undone.as_deref().map(Into::into),
        };
        let is_claimed = |manager: &str| new.claims_config_hash(kind, manager);
        Self {
            has_same_template: new.same_templates_but_for_ours(old),
            // Whoever has undone something has brought an earlier hash along.
            claims_hash: stored.undone.is_none() && sender.is_some_and(is_claimed),
            applies_pins: scope.pins() && new.applies_pins(kind),
            is_ours: request.user_info.username.as_deref() == Some(ourselves)
                && sender == Some(annotations::FIELD_MANAGER),
            stored,
        }
    }
}
