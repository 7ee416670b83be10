//! Deletes the copies of ConfigMaps that nobody uses any more.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::revision::Origin;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::Keeper;
use super::known::Look;
use super::users::{Copy, Users};
use crate::runtime::error::CallError;

/// The time after which a namespace is looked at again in which copies were deleted. No review takes longer.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The maximum number of refused deletions in one look. The policy for our writes refuses them if copies are not what
/// they were, and the one for protected objects if somebody has protected them.
pub(super) const REFUSED_AT_ONCE: usize = 10;
/// The maximum number of objects in one look whose content is read because they have no seal.
const READ_AT_ONCE: usize = 100;

impl Keeper {
    /// Deletes the copies that are old enough, and that nobody has used at the last look, either: an undo may be
    /// about to name one. Adds those to `left_alone` that are not ours, or that we may not delete.
    pub(super) async fn delete_unused(
        &self,
        namespace: &Name,
        users: &Users,
        before: &Look,
        left_alone: &mut BTreeSet<Box<str>>,
    ) -> Result<(), CallError> {
        let unused = users.unused();
        let unused = unused.filter(|(_, copy)| before.unused.contains(&copy.uid));
        let unused = unused.filter(|(_, copy)| !before.left_alone.contains(&copy.uid));
        let unused: Vec<_> = unused.filter(|(_, copy)| self.is_old(copy)).collect();
        let (mut refused, mut read) = (0, 0);
        for (name, copy) in unused {
            if let Origin::Unsealed(source) = &copy.origin {
                read += 1;
                if read > READ_AT_ONCE {
                    continue;
                }
                match self.is_ours(namespace, name, copy, source).await {
                    Some(true) => {}
                    Some(false) => {
                        left_alone.insert(copy.uid.clone());
                        continue;
                    }
                    None => continue,
                }
            }
            let deleted = self.delete(namespace, name, &copy.uid).await;
            if let Err(error) = &deleted
                && error.is_refusal()
            {
                let reason = error.reason();
                warn!(%namespace, %name, reason, "cannot delete a copy of a ConfigMap that nobody uses, leaving it alone");
                left_alone.insert(copy.uid.clone());
                refused += 1;
                if refused == REFUSED_AT_ONCE {
                    break;
                }
                continue;
            }
            let at = Instant::now() + LOOK_AGAIN;
            self.known.lock().look_again.insert(namespace.clone(), at);
            deleted?;
        }
        Ok(())
    }

    /// Returns true if an object without a seal is a copy that an earlier version has made. `None` if it cannot be read
    /// now.
    async fn is_ours(
        &self,
        namespace: &Name,
        name: &Name,
        copy: &Copy,
        source: &Name,
    ) -> Option<bool> {
        let object = Reference::config_map(namespace, name);
        let reads = self.content.source();
        let read = reads.is_of_earlier_version(&object, &copy.uid, source);
        match read.await {
            Ok(is_ours) => Some(is_ours),
            Err(error) => {
                debug!(%object, reason = error.reason(), "cannot tell whether a ConfigMap is a copy, trying again later");
                None
            }
        }
    }

    fn is_old(&self, copy: &Copy) -> bool {
        let age = copy
            .created
            .map(|created| Timestamp::now().duration_since(created));
        let grace = SignedDuration::try_from(self.grace).unwrap_or(SignedDuration::MAX);
        age.is_some_and(|age| age >= grace)
    }

    async fn delete(&self, namespace: &Name, name: &Name, uid: &str) -> Result<(), CallError> {
        self.known.lock().deleted.insert(uid.into());
        let source = self.content.source();
        match source
            .delete(&Reference::config_map(namespace, name), uid)
            .await
        {
            Ok(()) => info!(%namespace, %name, "deleted a copy of a ConfigMap that nobody uses"),
            // Somebody was faster.
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
