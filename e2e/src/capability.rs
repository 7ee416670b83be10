//! Parts of the API that not every version of Kubernetes has.

use std::{io::Write, thread};

use anyhow::Result;

use crate::control_plane::ControlPlane;

/// Tells whether the apiserver serves MutatingAdmissionPolicies.
///
/// # Errors
/// When it does not answer.
pub async fn has_mutating_policies() -> Result<bool> {
    ControlPlane::connect()?
        .serves("mutatingadmissionpolicies.admissionregistration.k8s.io")
        .await
}

/// Says that the test of this thread does not apply, if the apiserver serves no MutatingAdmissionPolicies. The
/// test then ends with success.
///
/// # Errors
/// When the apiserver does not answer.
pub async fn lacks_mutating_policies() -> Result<bool> {
    let lacks = !has_mutating_policies().await?;
    if lacks {
        let current = thread::current();
        let test = current.name().unwrap_or("a test");
        let line =
            format!("not applicable: {test}: the apiserver serves no MutatingAdmissionPolicy\n");
        // Not by a macro: what a test prints by one is hidden.
        std::io::stderr().write_all(line.as_bytes())?;
    }
    Ok(lacks)
}
