//! The workload of a review.

use serde_json::value::RawValue;

use super::{CustomObject, Metadata, Object as _, WorkloadObject, pod_selector};
use crate::annotations::Inherited;
use crate::kind::WorkloadKind;
use crate::name::InvalidName;
use crate::workload::{Reading, Workload};

/// A workload of a review.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of them at a time, on the stack"
)]
pub(crate) enum Reviewed {
    /// One of a kind that every cluster has.
    BuiltIn(WorkloadObject),
    /// One of any other kind.
    Custom(CustomObject),
}

impl Reviewed {
    /// Parses it.
    pub(crate) fn of(object: &RawValue, kind: WorkloadKind) -> Result<Self, serde_json::Error> {
        let mut reviewed = match kind.is_built_in() {
            true => Self::BuiltIn(serde_json::from_str(object.get())?),
            false => Self::Custom(serde_json::from_str(object.get())?),
        };
        // Reviews are held while others are read, and who has set something is read from the request itself.
        reviewed.metadata_mut().managed_fields = None;
        Ok(reviewed)
    }

    pub(super) fn metadata(&self) -> &Metadata {
        match self {
            Self::BuiltIn(object) => &object.metadata,
            Self::Custom(object) => &object.metadata,
        }
    }

    fn metadata_mut(&mut self) -> &mut Metadata {
        match self {
            Self::BuiltIn(object) => &mut object.metadata,
            Self::Custom(object) => &mut object.metadata,
        }
    }

    /// Returns the namespace, empty if it has none.
    pub(crate) fn namespace(&self) -> &str {
        let identity = &self.metadata().identity;
        identity.namespace.as_deref().unwrap_or_default()
    }

    /// Returns an annotation.
    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata().annotations.as_ref()?.get(key)
    }

    /// Sets the namespace.
    pub(crate) fn put_in(&mut self, namespace: &str) {
        self.metadata_mut().identity.namespace = Some(namespace.to_owned());
    }

    /// Adds annotations and labels, or replaces them.
    pub(crate) fn give(&mut self, annotations: &[(&str, &str)], labels: &[(&str, &str)]) {
        let metadata = self.metadata_mut();
        for (own, given) in [
            (&mut metadata.annotations, annotations),
            (&mut metadata.labels, labels),
        ] {
            if !given.is_empty() {
                *own = Some(own.take().unwrap_or_default().with(given));
            }
        }
    }

    /// Gives the pod template of a built-in kind these annotations of ours, and no others.
    pub(crate) fn give_template(&mut self, ours: &[(&str, &str)]) {
        if let Self::BuiltIn(object) = self {
            object.spec.template.give(ours);
        }
    }

    /// Returns the label selector of the pods of a built-in kind, as lists take it.
    pub(crate) fn pod_selector(&self) -> Option<String> {
        match self {
            Self::BuiltIn(object) => pod_selector::text(object.spec.selector.as_deref()?),
            Self::Custom(_) => None,
        }
    }

    /// Converts it into what the rules need.
    ///
    /// # Errors
    ///
    /// The namespace is not a valid name, which the apiserver never sends.
    pub(crate) fn read(
        self,
        kind: WorkloadKind,
        reading: &Reading,
    ) -> Result<Workload, InvalidName> {
        let nothing = Inherited::default();
        match self {
            Self::BuiltIn(object) => object.into_workload(kind, reading, &nothing),
            Self::Custom(object) => object.into_workload(kind, reading, &nothing),
        }
    }
}
