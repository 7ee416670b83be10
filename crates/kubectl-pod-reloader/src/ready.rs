//! The custom resources of pod-reloader itself, and what their condition Ready says.

use pod_reloader_settings::ControllerName;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Place, Unseen};
use crate::print::Verdict;

const GROUP: &str = "pod-reloader.github.io";
/// Number of objects of a kind that `status` shows.
pub(crate) const SHOWN: usize = 20;

/// A row of `status`: the verdict on an object, its name, and lines about it.
pub(crate) type Row = (Verdict, String, Vec<String>);

/// A custom resource of pod-reloader itself, as it is shown.
pub(crate) trait Own: Sized {
    /// The kind in the plural. In lower case, it is the name of the resource.
    const KIND: &str;
    /// True if its objects are in namespaces.
    const IS_NAMESPACED: bool;
    /// The controller that serves it.
    const CONTROLLER: ControllerName;
    /// What that controller does, and in brackets the chart value that switches it on.
    const SERVICE: &str;
    /// The spec, as far as it is shown.
    type Spec: DeserializeOwned;
    /// The status, as far as it is shown beside its condition.
    type Status: DeserializeOwned + Default;

    /// Returns the object with these parts.
    fn of(metadata: Metadata, spec: Self::Spec, status: Self::Status, ready: Ready) -> Self;

    /// Returns what its condition says.
    fn ready(&self) -> &Ready;

    /// Returns its name, with its namespace if it is in one.
    fn name(&self) -> String;

    /// Returns lines about it, of which there is at least one.
    fn lines(&self) -> Vec<String>;

    /// Returns whether it is as it should be.
    fn verdict(&self) -> Verdict {
        self.ready().verdict()
    }

    /// Returns its row.
    fn row(&self) -> Row {
        (self.verdict(), self.name(), self.lines())
    }

    /// Returns the rows of all objects, of which the worst come first, and the number of objects without a row.
    fn rows(all: &[Self]) -> (Vec<Row>, usize) {
        let rows: Vec<_> = all.iter().take(SHOWN).map(Self::row).collect();
        let more = all.len() - rows.len();
        (rows, more)
    }
}

#[derive(Deserialize)]
pub(crate) struct Metadata {
    /// Empty for an object of the cluster.
    #[serde(default)]
    pub(crate) namespace: String,
    pub(crate) name: String,
    generation: Option<i64>,
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

impl Ready {
    /// Returns whether the object is as it should be.
    pub(crate) fn verdict(&self) -> Verdict {
        match self.is_ready {
            None => Verdict::Unknown,
            Some(true) => Verdict::Good,
            Some(false) => Verdict::Bad,
        }
    }
}

/// Lists the objects of a namespace, or of all. There is none in a cluster without their CRD.
pub(crate) async fn list<T: Own>(
    cluster: &Cluster,
    namespace: Option<&str>,
) -> Result<Vec<T>, Unseen> {
    let plural = T::KIND.to_ascii_lowercase();
    let version = match cluster.version_of(GROUP, &plural).await {
        Ok(version) => version,
        Err(error) if error.is_absent() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let api_version = format!("{GROUP}/{version}");
    let place = Place::new(&api_version, &plural, namespace);
    let all: Vec<Object<T::Spec, T::Status>> = cluster.pages(place, "").all().await?;
    Ok(all.into_iter().map(Object::shown::<T>).collect())
}

/// An object as it is stored, as far as it is shown. Later versions may have more values.
#[derive(Deserialize)]
struct Object<Spec, Status: Default> {
    metadata: Metadata,
    spec: Spec,
    status: Option<Stored<Status>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Stored<Status> {
    observed_generation: i64,
    conditions: Vec<Condition>,
    #[serde(flatten)]
    shown: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

impl<Spec, Status: Default> Object<Spec, Status> {
    fn shown<T: Own<Spec = Spec, Status = Status>>(self) -> T {
        let status = self.status.unwrap_or_default();
        let is_current = self.metadata.generation == Some(status.observed_generation);
        let ready = status.conditions.into_iter().find(|it| it.kind == "Ready");
        let is_ready = ready.as_ref().map(|it| it.status == "True");
        let ready = ready.unwrap_or_default();
        let ready = Ready {
            is_ready: is_ready.filter(|_| is_current),
            reason: ready.reason,
            message: ready.message,
        };
        T::of(self.metadata, self.spec, status.shown, ready)
    }
}
