//! Reads and writes single annotations. Nothing else is ever written.

use std::collections::BTreeMap;

use http::Method;
use pod_reloader_core::annotations::PLUGIN;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Cluster, JSON, MERGE_PATCH, Place, Unseen, unreadable, warnings, write};

/// What becomes of the annotations that a user writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Writes {
    /// They are stored.
    #[default]
    Stored,
    /// The apiserver tries them, with every admission, and stores nothing.
    DryRun,
}

impl Writes {
    /// Returns true if nothing is stored.
    pub(crate) fn is_dry_run(self) -> bool {
        self == Self::DryRun
    }

    /// Returns what follows the outcome of a write, in kubectl's words.
    pub(crate) fn remark(self) -> &'static str {
        match self {
            Self::Stored => "",
            Self::DryRun => " (server dry run)",
        }
    }

    fn query(self) -> String {
        let dry_run = match self {
            Self::Stored => "",
            Self::DryRun => "&dryRun=All",
        };
        format!("fieldManager={PLUGIN}{dry_run}")
    }
}

/// An annotation of a pod template to write.
pub(crate) struct Rewrite<'a> {
    /// The UID of the object. Another one of the same name is left alone.
    pub(crate) uid: &'a str,
    /// The path of the pod template in the object.
    pub(crate) template: &'a [&'a str],
    pub(crate) key: &'a str,
    /// The value that it must have before.
    pub(crate) old: Option<&'a str>,
    pub(crate) new: &'a str,
}

/// Asks for the metadata of an object, so that the content of a Secret is never sent.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Returns the value of an annotation of an object.
pub(crate) async fn annotation(
    cluster: &Cluster,
    place: Place<'_>,
    name: &str,
    key: &str,
) -> Result<Option<String>, Unseen> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        annotations: Option<BTreeMap<String, String>>,
    }
    let what = format!("{} ({name})", place.words("get"));
    let body = cluster.read(&place.path_of(name), &what, METADATA).await?;
    let object: Object =
        serde_json::from_slice(&body).map_err(|error| unreadable(&what, &error))?;
    Ok(object.metadata.annotations.unwrap_or_default().remove(key))
}

/// Writes an annotation of an object, or removes it if `value` is `None`.
pub(crate) async fn annotate(
    cluster: &Cluster,
    place: Place<'_>,
    name: &str,
    key: &str,
    value: Option<&str>,
) -> Result<(), Unseen> {
    let what = format!("{} ({name})", place.words("patch"));
    let path = format!("{}?{}", place.path_of(name), cluster.writes.query());
    let patch: Value = json!({"metadata": {"annotations": {key: value}}});
    let types = [MERGE_PATCH, METADATA];
    let request = write(Method::PATCH, path, types, patch.to_string());
    cluster.call(request, &what).await?;
    Ok(())
}

impl Rewrite<'_> {
    /// Writes the annotation, if it has the old value. Returns the object as it is then, and the warnings.
    pub(crate) async fn write(
        &self,
        cluster: &Cluster,
        place: Place<'_>,
        name: &str,
    ) -> Result<(Value, Vec<String>), Unseen> {
        let what = format!("{} ({name})", place.words("patch"));
        let path = format!("{}?{}", place.path_of(name), cluster.writes.query());
        let types = ["application/json-patch+json", JSON];
        let request = write(Method::PATCH, path, types, self.patch().to_string());
        let (response, body) = cluster.call(request, &what).await?;
        let object = serde_json::from_slice(&body).map_err(|error| unreadable(&what, &error))?;
        Ok((object, warnings(&response)))
    }

    /// Returns a patch that fails if a newer value would be overwritten, but not because a status has changed.
    fn patch(&self) -> Value {
        let key = self.key.replace('~', "~0").replace('/', "~1");
        let template = self.template.join("/");
        let path = format!("/{template}/metadata/annotations/{key}");
        json!([
            {"op": "test", "path": "/metadata/uid", "value": self.uid},
            {"op": "test", "path": path, "value": self.old},
            {"op": "add", "path": path, "value": self.new},
        ])
    }
}
