//! Answers reviews of protected ConfigMaps and Secrets that somebody deletes: those that pods use are not deleted.

use std::time::Duration;

use pod_reloader_core::protect::{Deletion, PROTECT, Protection, denial, warning};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::review::{self, Request};
use tokio::time::timeout_at;
use tracing::{info, warn};

use super::body::Received;
use super::error::Trouble;
use crate::live::covered::Covered;
use crate::live::protected::ProtectedReads;
use crate::live::users::{Needing, Users};
use crate::runtime::error::CallError;

/// The time that is left for the answer.
pub(super) const MARGIN: Duration = Duration::from_millis(200);

/// The cause if the time was over before.
pub(super) const LATE: &str = "no answer of the apiserver in time";

/// The protection of what is in use.
#[derive(Clone)]
pub(crate) struct InUse {
    pub(crate) covered: Covered,
    pub(crate) reads: ProtectedReads,
    pub(crate) users: Users,
    /// True if pod templates protect, too.
    pub(crate) templates_protect: bool,
}

impl InUse {
    /// Answers a review. What cannot be found out counts as in use.
    pub(super) async fn answer(self, review: Received) -> Result<Vec<u8>, Trouble> {
        let parse = |body: &[u8]| parse(body, Protection::InUse);
        let Parsed { uid, deletion, .. } = review.in_turn(parse).await??;
        // The lists need the memory.
        drop(review.body);
        let Some(deletion) = deletion else {
            return Ok(review::response(&uid, &[], &[]));
        };
        let object = &deletion.object;
        let verdict = match timeout_at(review.deadline - MARGIN, self.verdict(&deletion)).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(error)) => Verdict::Refused(unknown(object, error.reason())),
            Err(_) => Verdict::Refused(unknown(object, LATE)),
        };
        match verdict {
            Verdict::Allowed(warning) => {
                let warnings: Vec<_> = warning.into_iter().collect();
                Ok(review::response(&uid, &[], &warnings))
            }
            Verdict::Refused(reason) => {
                info!(%object, reason, "refused to delete a protected object");
                Ok(review::denial(&uid, &reason))
            }
        }
    }

    /// Returns the verdict on the deletion of an object. Users are named only if the object itself says that it is
    /// protected: anybody may have made the review.
    async fn verdict(&self, deletion: &Deletion) -> Result<Verdict, CallError> {
        let object = &deletion.object;
        match self.covered.contain(&object.namespace).await {
            Ok(true) => {}
            Ok(false) => return Ok(Verdict::Allowed(None)),
            // With `reconcile: none`, we have no right to read the labels of namespaces.
            Err(error) if error.reason() == "forbidden" => {}
            Err(error) => return Err(error),
        }
        let are_named = match self.reads.protected(deletion, Protection::InUse).await {
            Ok(Some(_)) => true,
            Ok(None) => return Ok(Verdict::Allowed(None)),
            // With `ignoreSecrets` or `ignoreConfigMaps`, we have no right to read it.
            Err(error) if error.reason() == "forbidden" => false,
            Err(error) => return Err(error),
        };
        let Needing { now, later } = self.users.needing(object).await?;
        let shown = |users: &[String]| match are_named {
            true => denial(object, users),
            false => denial(object, &[]),
        };
        Ok(if !now.is_empty() {
            Verdict::Refused(shown(&now))
        } else if later.is_empty() {
            Verdict::Allowed(None)
        } else if self.templates_protect {
            Verdict::Refused(shown(&later))
        } else {
            Verdict::Allowed(are_named.then(|| warning(object, &later)))
        })
    }
}

/// The verdict on a deletion.
enum Verdict {
    /// The object may be deleted, perhaps with this warning.
    Allowed(Option<String>),
    /// It may not, for this reason.
    Refused(String),
}

/// The review of a deletion.
pub(super) struct Parsed {
    pub(super) uid: String,
    /// The deletion, if the review says that the object has the protection that is asked about.
    pub(super) deletion: Option<Deletion>,
    pub(super) is_dry_run: bool,
}

pub(super) fn parse(body: &[u8], how: Protection) -> Result<Parsed, Trouble> {
    let request = Request::parse(body)?;
    Ok(Parsed {
        deletion: Deletion::of(&request, how)?,
        is_dry_run: request.dry_run == Some(true),
        uid: request.uid.into_owned(),
    })
}

pub(super) fn unknown(object: &Reference, cause: &str) -> String {
    warn!(%object, cause, "cannot tell who uses a protected object");
    format!(
        "pod-reloader cannot tell who uses {object}, so it is not deleted: try again, or remove its label {PROTECT}"
    )
}
