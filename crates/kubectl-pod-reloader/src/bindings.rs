//! FieldBindings: which fields of custom resources are bound to which keys, and whether they are equal to them.

use pod_reloader_core::field_binding::kind::BoundKind;
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Unseen};
use crate::operators::Operators;
use crate::print::Verdict;
use crate::ready::{self, Condition, Object, Ready};

/// State of a field that is equal to its key.
const APPLIED: &str = "Applied";

/// A FieldBinding.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Binding {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) target: Target,
    pub(crate) fields: Vec<Field>,
    #[serde(flatten)]
    ready: Ready,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Source {
    pub(crate) kind: String,
    pub(crate) name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Target {
    api_version: String,
    kind: String,
    name: String,
}

/// A field, and the key that it is bound to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Field {
    pub(crate) path: String,
    pub(crate) key: String,
    /// `None` if the operator has not said it.
    pub(crate) state: Option<String>,
    /// The state in a sentence, unless the field is equal to its key.
    pub(crate) message: String,
}

/// Lists those of a namespace, or of all. There is none in a cluster without their CRD.
pub(crate) async fn list(
    cluster: &Cluster,
    namespace: Option<&str>,
) -> Result<Vec<Binding>, Unseen> {
    let all: Vec<Object<Spec, Status>> = ready::list(cluster, "fieldbindings", namespace).await?;
    Ok(all.into_iter().map(Binding::from).collect())
}

/// Returns the kind that the user means, if an operator may bind its fields.
pub(crate) fn bound_kind(operators: &Operators, typed: &str) -> Option<BoundKind> {
    let (name, group) = match typed.split_once('.') {
        Some((name, group)) => (name, Some(group)),
        None => (typed, None),
    };
    let is_meant = |kind: &&BoundKind| {
        (name == kind.resource || name == kind.kind.to_ascii_lowercase())
            && group.is_none_or(|group| group == kind.group)
    };
    let mut kinds = operators
        .all
        .iter()
        .flat_map(|it| &it.args.field_bindings_kinds.0);
    kinds.find(is_meant).copied()
}

impl Binding {
    /// Returns true if it binds fields of an object of this kind and name.
    pub(crate) fn is_of(&self, kind: BoundKind, name: &str) -> bool {
        let group = self.target.api_version.split('/').next();
        group == Some(kind.group) && self.target.kind == kind.kind && self.target.name == name
    }

    /// Returns whether the fields are as they should be.
    pub(crate) fn verdict(&self) -> Verdict {
        match self.ready.is_ready {
            None => Verdict::Unknown,
            Some(true) => Verdict::Good,
            Some(false) => Verdict::Bad,
        }
    }

    /// Returns a line on source and target, and one on each field that is not equal to its key.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Ready {
            is_ready,
            reason,
            message,
        } = &self.ready;
        let source = &self.source;
        let Target { kind, name, .. } = &self.target;
        let bound = format!("{kind} {name} from {} {}", source.kind, source.name);
        let failing = self.fields.iter().filter(|it| !it.is_applied());
        let failing: Vec<_> = match is_ready {
            Some(_) => failing.map(Field::words).collect(),
            None => Vec::new(),
        };
        let state = match is_ready {
            None if reason.is_empty() => "nothing is known of it yet".to_owned(),
            None => format!("{reason}, before its spec was changed"),
            Some(false) if failing.is_empty() => format!("{reason}: {message}"),
            Some(_) => reason.clone(),
        };
        let first = format!("{bound}: {state}");
        [first].into_iter().chain(failing).collect()
    }
}

impl Field {
    fn is_applied(&self) -> bool {
        self.state.as_deref() == Some(APPLIED)
    }

    /// Names it with its state.
    pub(crate) fn words(&self) -> String {
        let Self {
            path,
            state,
            message,
            ..
        } = self;
        match state {
            Some(state) => format!("{path}: {state}, {message}"),
            None => format!("{path}: nothing is known of it yet"),
        }
    }
}

#[derive(Deserialize)]
struct Spec {
    source: Source,
    target: Target,
    #[serde(default)]
    fields: Vec<BoundField>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BoundField {
    key: String,
    path: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    observed_generation: i64,
    fields: Vec<FieldState>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct FieldState {
    path: String,
    state: String,
    message: String,
}

impl From<Object<Spec, Status>> for Binding {
    fn from(object: Object<Spec, Status>) -> Self {
        let metadata = object.metadata;
        let spec = object.spec;
        let status = object.status.unwrap_or_default();
        let observed = status.observed_generation;
        let ready = Ready::of(status.conditions, observed, metadata.generation);
        let states = status.fields;
        let fields = spec.fields.into_iter().map(|BoundField { key, path }| {
            let state = states.iter().find(|it| it.path == path).cloned();
            Field {
                path,
                key,
                state: state.as_ref().map(|it| it.state.clone()),
                message: state.unwrap_or_default().message,
            }
        });
        Self {
            namespace: metadata.namespace,
            name: metadata.name,
            source: spec.source,
            target: spec.target,
            fields: fields.collect(),
            ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{Canned, field_binding};
    use serde_json::json;

    async fn read(generation: i64, status: serde_json::Value) -> Binding {
        let mut object = field_binding("harbor-s3", status);
        object["metadata"]["generation"] = json!(generation);
        let canned = Canned::shop().with_bindings(None, &[object]);
        let all = list(&canned.cluster(), None).await.unwrap();
        all.into_iter().next().unwrap()
    }

    fn status(is_ready: &str, reason: &str, states: &[(&str, &str)]) -> serde_json::Value {
        let states = states
            .iter()
            .map(|(path, state)| json!({"path": path, "state": state, "message": "it is so"}));
        json!({
            "observedGeneration": 1,
            "fields": states.collect::<Vec<_>>(),
            "conditions": [{"type": "Ready", "status": is_ready, "reason": reason, "message": "as it is"}],
        })
    }

    #[tokio::test]
    async fn a_cluster_without_the_crd_has_none() {
        assert_eq!(list(&Canned::shop().cluster(), None).await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn a_field_that_is_not_equal_to_its_key_is_a_fault() {
        let both = |state| [("spec.accesskey", "Applied"), ("spec.bucket", state)];
        for (binding, verdict, lines) in [
            (
                read(1, status("True", "Applied", &both("Applied"))).await,
                Verdict::Good,
                &["Applied"][..],
            ),
            (
                read(1, status("False", "KeyNotFound", &both("KeyNotFound"))).await,
                Verdict::Bad,
                &["KeyNotFound", "spec.bucket: KeyNotFound, it is so"],
            ),
            (
                read(1, status("False", "InvalidSpec", &both("Applied"))).await,
                Verdict::Bad,
                &["InvalidSpec: as it is"],
            ),
            (
                read(2, status("True", "Applied", &both("Applied"))).await,
                Verdict::Unknown,
                &["Applied, before its spec was changed"],
            ),
            (
                read(1, json!({})).await,
                Verdict::Unknown,
                &["nothing is known of it yet"],
            ),
        ] {
            assert_eq!(binding.verdict(), verdict, "{lines:?}");
            let mut expected = lines.to_vec();
            let first = format!("Harbor registry from Secret s3: {}", lines[0]);
            expected[0] = &first;
            assert_eq!(binding.lines(), expected);
        }
    }
}
