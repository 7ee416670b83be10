//! The custom resources of pod-reloader itself, and what their condition Ready says.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Place, Unseen};

const GROUP: &str = "pod-reloader.github.io";

/// An object as it is stored, as far as it is shown. Later versions may have more values.
#[derive(Deserialize)]
pub(crate) struct Object<Spec, Status> {
    pub(crate) metadata: Metadata,
    pub(crate) spec: Spec,
    pub(crate) status: Option<Status>,
}

#[derive(Deserialize)]
pub(crate) struct Metadata {
    /// Empty for an object of the cluster.
    #[serde(default)]
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) generation: Option<i64>,
}

/// What the condition Ready of an object says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Ready {
    /// `None` if the operator has not said it, or not about the present spec.
    #[serde(rename = "ready")]
    pub(crate) is_ready: Option<bool>,
    /// The reason in one word, and in a sentence.
    pub(crate) reason: String,
    pub(crate) message: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

impl Ready {
    /// Returns what the conditions of an object say, which are about the generation `observed`.
    pub(crate) fn of(conditions: Vec<Condition>, observed: i64, generation: Option<i64>) -> Self {
        let is_current = generation == Some(observed);
        let ready = conditions.into_iter().find(|it| it.kind == "Ready");
        let is_ready = ready.as_ref().map(|it| it.status == "True");
        let ready = ready.unwrap_or_default();
        Self {
            is_ready: is_ready.filter(|_| is_current),
            reason: ready.reason,
            message: ready.message,
        }
    }
}

/// Lists the objects with this resource name of a namespace, or of the cluster. There is none in a cluster without
/// their CRD.
pub(crate) async fn list<T: DeserializeOwned>(
    cluster: &Cluster,
    plural: &str,
    namespace: Option<&str>,
) -> Result<Vec<T>, Unseen> {
    let version = match cluster.version_of(GROUP, plural).await {
        Ok(version) => version,
        Err(error) if error.is_absent() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let api_version = format!("{GROUP}/{version}");
    let place = Place::new(&api_version, plural, namespace);
    cluster.list(place, "").await
}
