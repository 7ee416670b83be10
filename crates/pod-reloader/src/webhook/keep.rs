//! Answers reviews of ConfigMaps that somebody deletes and that come back while they are in use: before they go, their
//! content is stored.

use jiff::Timestamp;
use pod_reloader_core::hash::Keyring;
use pod_reloader_core::kept::{Content, KeptMetadata, Original, stored};
use pod_reloader_core::protect::{Deletion, Protected, Protection, comes_back, not_stored};
use pod_reloader_core::review;
use tokio::time::timeout_at;
use tracing::{info, warn};

use super::body::Received;
use super::error::Trouble;
use super::in_use::{LATE, MARGIN, Parsed, parse, unknown};
use crate::live::covered::Covered;
use crate::live::kept::KeptCalls;
use crate::live::protected::ProtectedReads;
use crate::live::users::Users;
use crate::runtime::error::CallError;

/// The protection of ConfigMaps that come back.
#[derive(Clone)]
pub(crate) struct Keep {
    pub(crate) covered: Covered,
    pub(crate) reads: ProtectedReads,
    pub(crate) users: Users,
    pub(crate) calls: KeptCalls,
    /// The clock that says how long a place is shared.
    pub(crate) clock: fn() -> Timestamp,
}

impl Keep {
    /// Answers a review. What is in use and cannot be stored is not deleted.
    pub(super) async fn answer(self, review: Received) -> Result<Vec<u8>, Trouble> {
        let parse = |body: &[u8]| parse(body, Protection::Keep);
        let Parsed {
            uid,
            deletion,
            is_dry_run,
        } = review.in_turn(parse).await??;
        // Lists and reads need the memory.
        drop(review.body);
        let Some(deletion) = deletion else {
            return Ok(review::response(&uid, &[], &[]));
        };
        let object = &deletion.object;
        let webhook = review.webhook;
        let deadline = review.deadline - MARGIN;
        let (protected, users) = match timeout_at(deadline, self.find(&deletion)).await {
            Ok(Ok(Some(found))) => found,
            Ok(Ok(None)) => return Ok(review::response(&uid, &[], &[])),
            Ok(Err(error)) => {
                return Ok(review::denial(&uid, &unknown(object, error.reason())));
            }
            Err(_) => return Ok(review::denial(&uid, &unknown(object, LATE))),
        };
        if users.is_empty() {
            return Ok(review::response(&uid, &[], &[]));
        }
        let warning = [comes_back(object, &users)];
        if is_dry_run {
            return Ok(review::response(&uid, &[], &warning));
        }
        let stored = async {
            let keys = webhook.keys.first_read().await;
            self.store(&protected, &keys).await
        };
        let refusal = match timeout_at(deadline, stored).await {
            Ok(Ok(Stored::Yes)) => return Ok(review::response(&uid, &[], &warning)),
            Ok(Ok(Stored::Changed)) => "it has just changed",
            Ok(Ok(Stored::Taken)) => "somebody else has an object with the name for it",
            // It goes with its namespace, or somebody else has deleted it.
            Ok(Err(error)) if error.is_of_a_namespace_that_goes() => {
                return Ok(review::response(&uid, &[], &[]));
            }
            Ok(Err(error)) => error.reason(),
            Err(_) => LATE,
        };
        warn!(%object, cause = refusal, "cannot store a ConfigMap that is deleted in use");
        Ok(review::denial(&uid, &not_stored(object)))
    }

    /// Returns the object and its users. `None` if we do not look after its namespace, or it is not there, or does not
    /// itself say that it is protected: anybody may have made the review.
    async fn find(
        &self,
        deletion: &Deletion,
    ) -> Result<Option<(Protected, Vec<String>)>, CallError> {
        let object = &deletion.object;
        // What is stored elsewhere would stay for ever.
        if !self.covered.contain(&object.namespace).await? {
            return Ok(None);
        }
        let Some(protected) = self.reads.protected(deletion, Protection::Keep).await? else {
            return Ok(None);
        };
        let objects = [object.clone()];
        let mut users = self.users.naming(&object.namespace, &objects).await?;
        let users = users.remove(object).unwrap_or_default();
        Ok(Some((protected, users)))
    }

    /// Stores the content of an object, unless an earlier review of the same version has done so.
    async fn store(&self, protected: &Protected, keys: &Keyring) -> Result<Stored, CallError> {
        let object = &protected.object;
        let original = Original::from(protected);
        let place = stored(object, &original, (self.clock)());
        let found = |found: Option<KeptMetadata>| match found {
            Some(found) if found.stores(&original, keys) => Stored::Yes,
            _ => Stored::Taken,
        };
        if let Some(earlier) = self.calls.whole(&place).await? {
            return Ok(found(Some(earlier)));
        }
        let make = |content: Content| {
            let is_right = content.is_of(&original);
            is_right.then(|| content.to_store(&place, &original, keys))
        };
        match self.calls.copy(object, &place, make).await {
            Ok(true) => {
                info!(%object, stored = %place.name, "stored a ConfigMap that is deleted in use");
                Ok(Stored::Yes)
            }
            Ok(false) => Ok(Stored::Changed),
            // Another review was faster.
            Err(error) if error.already_exists() => Ok(found(self.calls.whole(&place).await?)),
            Err(error) => Err(error),
        }
    }
}

/// What became of an object that was to be stored.
enum Stored {
    /// It is stored.
    Yes,
    /// It has other content by now.
    Changed,
    /// Somebody else's object has the name of its place.
    Taken,
}
