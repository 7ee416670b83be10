//! Helm's releases, by the Secrets in which it stores their revisions.
//!
//! Helm says in the labels of the Secret how the revision stands. It writes the Secret when the revision
//! begins, when a hook begins, and when the revision ends. Hooks run before the first object of the release
//! is written, or after the last one. So once a hook begins after an object of the release was written, every
//! object of the release has been written.

use kube_core::DynamicResourceScope;
use serde::Deserialize;

use super::{Release, ReleaseObject, Revision, Stage, Step, Tool};
use crate::metadata::{Metadata, Wanted, resource};
use crate::name::Name;

/// The label selector of the Secrets that store the revisions that matter here. An older revision that has
/// been replaced is `superseded`.
const SELECTOR: &str = "owner=helm,status!=superseded";

/// Annotation of an object that belongs to a release: the name of the release.
pub(super) const NAME: &str = "meta.helm.sh/release-name";
/// Annotation of an object that belongs to a release: the namespace of the release.
pub(super) const NAMESPACE: &str = "meta.helm.sh/release-namespace";
/// Label of an object that belongs to a `HelmRelease` of Flux: the namespace of the `HelmRelease`. Flux
/// stores the release there, which may be elsewhere than the release itself.
const HELM_RELEASE_NAMESPACE: &str = "helm.toolkit.fluxcd.io/namespace";

/// The maximum length of the name of a release, in bytes. Helm refuses longer ones.
const LONGEST_NAME: usize = 53;

/// Returns the release that an object belongs to, in each namespace where Helm may store it.
pub(super) fn of<'a>(
    annotation: impl Fn(&str) -> Option<&'a str>,
    label: impl Fn(&str) -> Option<&'a str>,
) -> impl Iterator<Item = Release> {
    let name = annotation(NAME).filter(|name| (1..=LONGEST_NAME).contains(&name.len()));
    let own = name.and_then(|_| annotation(NAMESPACE));
    let of_flux = own.and_then(|own| label(HELM_RELEASE_NAMESPACE).filter(|it| *it != own));
    let namespaces = own.into_iter().chain(of_flux);
    namespaces.filter_map(move |namespace| {
        Some(Release {
            tool: Tool::Helm,
            namespace: Some(Name::parse(namespace).ok()?),
            name: name?.into(),
        })
    })
}

/// The metadata of a Secret in which Helm stores a revision. Its content is never read.
#[derive(Clone, Debug, Deserialize)]
pub struct ReleaseSecret {
    metadata: Metadata<Self>,
}

impl Wanted for ReleaseSecret {
    const LABELS: &'static [&'static str] = &["status", "createdAt", "name", "version"];
}

resource!(
    ReleaseSecret, DynamicResourceScope, of_metadata: true,
    group: "", version: "v1", kind: "Secret", plural: "secrets"
);

impl ReleaseObject for ReleaseSecret {
    const TOOL: Tool = Tool::Helm;
    const SELECTOR: Option<&str> = Some(SELECTOR);

    fn revision(&self) -> Option<Revision> {
        let metadata = &self.metadata;
        let label = |key: &str| metadata.label(key);
        let stage = match label("status")? {
            "failed" => Stage::Failed,
            status if status.starts_with("pending-") => Stage::UnderWay(Step::Helm {
                version: metadata.resource_version.as_deref()?.parse().ok()?,
                has_hook: label("createdAt").is_none(),
            }),
            _ => Stage::Ended,
        };
        Some(Revision {
            release: Release {
                tool: Tool::Helm,
                namespace: Some(Name::parse(metadata.namespace.as_deref()?).ok()?),
                name: label("name")?.into(),
            },
            number: label("version")?.parse().ok()?,
            stage,
        })
    }
}
