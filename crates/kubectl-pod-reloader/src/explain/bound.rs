//! `explain` of a custom resource: which of its fields are bound to which keys, and whether they are equal to them.

use pod_reloader_core::field_binding::kind::BoundKind;
use serde::Serialize;

use crate::bindings::Binding;
use crate::cluster::{Cluster, Unseen};
use crate::print::{Answer, Text, Verdict};
use crate::ready::{self, Own};

/// The bound fields of a custom resource.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BoundFields {
    kind: &'static str,
    namespace: String,
    name: String,
    /// At least one.
    field_bindings: Vec<Binding>,
}

/// Explains a custom resource of a kind whose fields may be bound.
///
/// # Errors
/// When no FieldBinding names it, or when they cannot be listed.
pub(crate) async fn bound_fields(
    cluster: &Cluster,
    kind: BoundKind,
    name: &str,
) -> Result<(BoundFields, Verdict), Unseen> {
    let namespace = cluster.namespace.as_str();
    let mut all: Vec<Binding> = ready::list(cluster, Some(namespace)).await?;
    all.retain(|binding| binding.is_of(kind, name));
    let kind = kind.kind;
    let Some(verdict) = all.iter().map(Binding::verdict).max() else {
        let none =
            format!("no FieldBinding in namespace {namespace} binds fields of {kind} {name}");
        return Err(Unseen::Absent(none));
    };
    let fields = BoundFields {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        field_bindings: all,
    };
    Ok((fields, verdict))
}

impl Answer for BoundFields {
    fn text(&self) -> Text {
        let mut text = Text::about(self.kind, &self.name, &self.namespace);
        let mut rows = Vec::new();
        let mut problems = Vec::new();
        for binding in &self.field_bindings {
            for field in &binding.fields {
                let source = &binding.source;
                rows.push([
                    field.path.clone(),
                    format!("{} {}, {}", source.kind, source.name, field.key),
                    binding.name.clone(),
                    field.state.clone().unwrap_or_else(|| "?".to_owned()),
                ]);
            }
            if binding.verdict() != Verdict::Good {
                let lines = binding.lines().into_iter();
                problems.extend(lines.map(|line| format!("{}: {line}", binding.name)));
            }
        }
        text.table(["FIELD", "BOUND TO", "BY FIELDBINDING", "STATE"], &rows);
        text.section("Not as it should be", &problems);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::bound_kind;
    use crate::cluster::canned::{Canned, binding_operator, field_binding};
    use crate::operators::Operators;
    use serde_json::json;

    async fn of(canned: Canned, kind: &str, name: &str) -> Result<(String, Verdict), Unseen> {
        let deployments = json!({"items": [binding_operator()]});
        let canned = canned.with("/apis/apps/v1/deployments", deployments);
        let cluster = canned.cluster();
        let operators = Operators::find(&cluster, None).await;
        let kind = bound_kind(&operators, kind).expect("its fields may be bound");
        let (fields, verdict) = bound_fields(&cluster, kind, name).await?;
        Ok((fields.text().without_styles(), verdict))
    }

    #[tokio::test]
    async fn each_field_is_shown_with_its_key_and_its_state() {
        let status = json!({
            "observedGeneration": 1,
            "fields": [
                {"path": "spec.accesskey", "state": "Applied"},
                {"path": "spec.bucket", "state": "KeyNotFound", "message": "the source has no key"},
            ],
            "conditions": [{"type": "Ready", "status": "False", "reason": "KeyNotFound"}],
        });
        let mut other = field_binding("other", json!({}));
        other["spec"]["target"]["name"] = json!("other");
        let all = [field_binding("harbor-s3", status), other];
        let canned = Canned::shop().with_bindings(Some("shop"), &all);
        let expected = "\
Harbor registry in namespace shop

FIELD            BOUND TO               BY FIELDBINDING   STATE
spec.accesskey   Secret s3, accesskey   harbor-s3         Applied
spec.bucket      Secret s3, bucket      harbor-s3         KeyNotFound

Not as it should be
  harbor-s3: Harbor registry from Secret s3: KeyNotFound
  harbor-s3: spec.bucket: KeyNotFound, the source has no key
";
        for kind in ["harbor", "harbors", "harbors.goharbor.io"] {
            let told = of(canned.clone(), kind, "registry").await;
            assert_eq!(told, Ok((expected.to_owned(), Verdict::Bad)), "{kind}");
        }
        let (_, verdict) = of(canned.clone(), "harbor", "other").await.unwrap();
        assert_eq!(verdict, Verdict::Unknown);
        let none = of(canned, "harbor", "nope").await;
        assert!(none.is_err_and(|error| error.is_absent()));
    }
}
