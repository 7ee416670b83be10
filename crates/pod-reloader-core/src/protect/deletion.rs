//! The deletion of an object that is protected.

use serde::Deserialize;

use super::{PROTECT, Protection};
use crate::metadata::{Metadata, Wanted};
use crate::reference::{ConfigKind, Reference};
use crate::review::{InvalidReview, Request};

/// The deletion that a review is about. Whoever reaches the webhook can send a review about any object, so this says
/// only which object to [read](super::ProtectedMetadata).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The object.
    pub object: Reference,
    /// The UID.
    pub uid: Box<str>,
}

impl Deletion {
    /// Returns the deletion that is reviewed, if this is how the object is protected. Its name is not in the request if
    /// it is one of many that are deleted at once, but the object itself is.
    ///
    /// # Errors
    ///
    /// Says what the review lacks.
    pub fn of(request: &Request<'_>, how: Protection) -> Result<Option<Self>, InvalidReview> {
        #[derive(Deserialize)]
        struct Deleted {
            metadata: Metadata<Self>,
        }
        impl Wanted for Deleted {
            const LABELS: &'static [&'static str] = &[PROTECT];
        }
        let kinds = ConfigKind::ALL.into_iter().filter(|kind| how.is_for(*kind));
        let mut kinds =
            kinds.filter(|_| request.kind.group.is_empty() && request.operation == "DELETE");
        let Some(kind) = kinds.find(|kind| request.kind.kind == kind.as_str()) else {
            return Ok(None);
        };
        let object = request.old_object;
        let object = object.ok_or(InvalidReview::NoObject("oldObject"))?;
        let deleted: Deleted = serde_json::from_str(object.get()).map_err(InvalidReview::at)?;
        let metadata = deleted.metadata;
        let protection = metadata.label(PROTECT).and_then(Protection::parse);
        let object = metadata.place().filter(|_| protection == Some(how));
        Ok(object.map(|(namespace, name)| Self {
            object: Reference {
                kind,
                namespace,
                name,
            },
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
        }))
    }
}
