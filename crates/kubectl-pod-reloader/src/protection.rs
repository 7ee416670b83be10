//! Tells what the label means that protects a config object.

use pod_reloader_core::protect::{PROTECT, Protection};
use pod_reloader_core::reference::Reference;
use pod_reloader_settings::Reconcile;

use crate::operators::Operators;

/// Returns the protection that an object has by the value of its label, or why the label protects nothing.
pub(crate) fn protection(
    value: &str,
    object: &Reference,
    operators: &Operators,
) -> Result<Protection, String> {
    let nothing = |why: &str| Err(format!("label {PROTECT}={value} protects nothing: {why}"));
    let kind = object.kind;
    let Some(protection) = Protection::parse(value).filter(|it| it.is_for(kind)) else {
        let all = Protection::ALL.into_iter().filter(|it| it.is_for(kind));
        let values: Vec<_> = all.map(Protection::as_str).collect();
        let kind = kind.as_str();
        return nothing(&format!("a {kind} takes one of {}", values.join(", ")));
    };
    let is_enforced = operators.any(|it| {
        let is_here = it.scope.covers(&object.namespace);
        it.args.protect
            && match protection {
                // By a policy, in all namespaces.
                Protection::Always => true,
                Protection::InUse => is_here,
                Protection::Keep => is_here && it.args.reconcile == Reconcile::Restart,
            }
    });
    match (is_enforced, protection) {
        (Some(true) | None, protection) => Ok(protection),
        (_, Protection::Always) => {
            nothing("no pod-reloader of the cluster protects (protect.enabled)")
        }
        (..) => nothing("no pod-reloader protects in its namespace (protect.enabled)"),
    }
}

/// Returns what a protection means for somebody who wants to change or delete the object.
pub(crate) fn meaning(protection: Protection, operators: &Operators) -> &'static str {
    let templates_protect = operators.any(|it| it.args.protect_templates) == Some(true);
    match protection {
        Protection::Always => "to change or delete it, you need the verb unprotect on it",
        Protection::InUse if templates_protect => {
            "it is not deleted while a pod or a pod template uses it"
        }
        Protection::InUse => "it is not deleted while a pod uses it",
        Protection::Keep => "if it is deleted, it comes back until nothing uses it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{Canned, operator_with};
    use pod_reloader_core::name::Name;
    use pod_reloader_core::reference::ConfigKind;
    use serde_json::json;

    /// Returns what a value means for a Secret in a cluster with an operator that has these flags.
    async fn told(value: &str, flags: &[&str]) -> Result<&'static str, String> {
        let operators = json!({"items": [operator_with(flags)]});
        let cluster = Canned::shop().with("/apis/apps/v1/deployments", operators);
        let operators = Operators::find(&cluster.cluster(), None).await;
        let object = Reference {
            kind: ConfigKind::Secret,
            ..config_map("shop")
        };
        let protection = protection(value, &object, &operators);
        protection.map(|it| meaning(it, &operators))
    }

    #[tokio::test]
    async fn a_protection_is_explained_as_far_as_it_is_one() {
        for (value, flags, expected) in [
            (
                "always",
                &["--protect"][..],
                Ok("to change or delete it, you need the verb unprotect on it"),
            ),
            (
                "in-use",
                &["--protect"],
                Ok("it is not deleted while a pod uses it"),
            ),
            (
                "in-use",
                &["--protect", "--protect-templates"],
                Ok("it is not deleted while a pod or a pod template uses it"),
            ),
            (
                "Always",
                &["--protect"],
                Err(
                    "label pod-reloader.cs.sap.com/protect=Always protects nothing: a Secret takes one of always, in-use",
                ),
            ),
            (
                "keep",
                &["--protect"],
                Err(
                    "label pod-reloader.cs.sap.com/protect=keep protects nothing: a Secret takes one of always, in-use",
                ),
            ),
            (
                "always",
                &[],
                Err(
                    "label pod-reloader.cs.sap.com/protect=always protects nothing: no pod-reloader of the cluster protects (protect.enabled)",
                ),
            ),
        ] {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(told(value, flags).await, expected, "{flags:?}");
        }
    }

    #[tokio::test]
    async fn a_label_counts_while_the_settings_of_operators_are_not_known() {
        let cluster = Canned::shop().forbids("/apis/apps/v1/deployments");
        let operators = Operators::find(&cluster.cluster(), None).await;
        let protection = protection("keep", &config_map("shop"), &operators);
        assert_eq!(protection, Ok(Protection::Keep));
    }

    #[tokio::test]
    async fn webhooks_protect_where_their_operator_looks_after_workloads_and_one_needs_its_loop() {
        for (value, namespace, flag, protects) in [
            ("in-use", "shop", "--reconcile=observe", true),
            ("keep", "shop", "--reconcile=restart", true),
            ("keep", "shop", "--reconcile=observe", false),
            ("in-use", "kube-system", "--reconcile=restart", false),
            ("keep", "kube-system", "--reconcile=restart", false),
            ("always", "kube-system", "--reconcile=restart", true),
        ] {
            let operators = json!({"items": [operator_with(&["--protect", flag])]});
            let cluster = Canned::shop().with("/apis/apps/v1/deployments", operators);
            let operators = Operators::find(&cluster.cluster(), None).await;
            let protection = protection(value, &config_map(namespace), &operators);
            assert_eq!(protection.is_ok(), protects, "{value} {namespace} {flag}");
        }
    }

    fn config_map(namespace: &str) -> Reference {
        let name = |text| Name::parse(text).unwrap();
        Reference::config_map(&name(namespace), &name("app"))
    }
}
