//! FieldBindings: which fields of custom resources are bound to which keys, and whether they are equal to them.

use pod_reloader_core::field_binding::kind::BoundKind;
use pod_reloader_settings::ControllerName;
use serde::{Deserialize, Serialize};

use crate::operators::Operators;
use crate::print::{Verdict, count};
use crate::ready::{Metadata, Own, Ready, Row, SHOWN};
use crate::workloads::is_called;

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

/// A field, and the key that it is bound to. The spec has the path and the key. The status has everything but the key.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Field {
    pub(crate) path: String,
    pub(crate) key: String,
    /// `None` if the operator has not said it.
    pub(crate) state: Option<String>,
    /// The state in a sentence, unless the field is equal to its key.
    pub(crate) message: String,
}

/// Returns the kind that the user means, if an operator may bind its fields.
pub(crate) fn bound_kind(operators: &Operators, typed: &str) -> Option<BoundKind> {
    let is_meant = |kind: &&BoundKind| {
        let singular = kind.kind.to_ascii_lowercase();
        is_called(typed, &[kind.resource, &singular], kind.group)
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
pub(crate) struct Spec {
    source: Source,
    target: Target,
    #[serde(default)]
    fields: Vec<Field>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    fields: Vec<Field>,
}

impl Own for Binding {
    const KIND: &str = "FieldBindings";
    const IS_NAMESPACED: bool = true;
    const CONTROLLER: ControllerName = ControllerName::Bind;
    const SERVICE: &str = "binds fields (fieldBindings.enabled)";
    type Spec = Spec;
    type Status = Status;

    fn of(metadata: Metadata, spec: Spec, status: Status, ready: Ready) -> Self {
        let fields = spec.fields.into_iter().map(|Field { path, key, .. }| {
            let state = status.fields.iter().find(|it| it.path == path).cloned();
            let state = state.unwrap_or_default();
            Field { path, key, ..state }
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

    fn ready(&self) -> &Ready {
        &self.ready
    }

    fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns a line on source and target, and one on each field that is not equal to its key.
    fn lines(&self) -> Vec<String> {
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

    /// Each that is not as it should be has a row, and all others have one together.
    fn rows(all: &[Self]) -> (Vec<Row>, usize) {
        let faulty = all.iter().filter(|it| it.verdict() != Verdict::Good);
        let mut rows: Vec<_> = faulty.map(Self::row).collect();
        let good = all.len() - rows.len();
        let more = rows.len().saturating_sub(SHOWN);
        rows.truncate(SHOWN);
        if more > 0 {
            rows.push((Verdict::Bad, format!("{more} more"), vec![String::new()]));
        }
        if good > 0 {
            let line = "each field is equal to its key".to_owned();
            rows.push((Verdict::Good, count(good, "FieldBinding"), vec![line]));
        }
        (rows, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{Canned, field_binding};
    use crate::ready;
    use serde_json::json;

    async fn read(generation: i64, status: serde_json::Value) -> Binding {
        let mut object = field_binding("harbor-s3", status);
        object["metadata"]["generation"] = json!(generation);
        let canned = Canned::shop().with_bindings(None, &[object]);
        let all: Vec<Binding> = ready::list(&canned.cluster(), None).await.unwrap();
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
