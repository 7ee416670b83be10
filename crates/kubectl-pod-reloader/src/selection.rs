//! Finds the objects that a user selects in place of naming them.

use pod_reloader_core::name::Name;
use pod_reloader_core::reference::ConfigKind;

use crate::args::{Chosen, Target, config_kind};
use crate::cluster::{Cluster, Unseen};
use crate::objects;
use crate::operators::Operators;
use crate::print::{self, Verdict};
use crate::workloads::{self, Seen};

/// The selected objects, and what is known of those that may be missing.
#[derive(Debug, Default)]
pub(crate) struct Selected {
    pub(crate) targets: Vec<Target>,
    /// A note on workloads that are left out although they may be managed.
    pub(crate) left_out: Option<String>,
    /// Everything that could not be listed.
    pub(crate) unlisted: Vec<String>,
}

/// Returns the chosen objects, and the best verdict that an answer about them can have. Notes what could not be seen on
/// standard error.
///
/// # Errors
/// When nothing is selected, or the type is unknown.
pub(crate) async fn targets(
    cluster: &Cluster,
    operators: &Operators,
    chosen: &Chosen,
) -> Result<(Vec<Target>, Verdict), Unseen> {
    let (kind, selector) = match chosen {
        Chosen::Named(targets) => return Ok((targets.clone(), Verdict::Good)),
        Chosen::Selected { kind, selector, .. } => (kind.as_deref(), selector.as_deref()),
    };
    let namespace = namespace(cluster, chosen);
    let selected = match kind.and_then(config_kind) {
        Some(kind) => config_objects(cluster, namespace, kind, selector).await?,
        None => workloads(cluster, operators, namespace, kind, selector).await?,
    };
    for error in &selected.unlisted {
        print::note(&format!("not seen: {error}"));
    }
    if let Some(left_out) = &selected.left_out {
        print::note(left_out);
    }
    let is_whole = selected.unlisted.is_empty();
    if selected.targets.is_empty() {
        cluster.check_namespace(namespace).await?;
        return Err(nothing(namespace, is_whole));
    }
    let verdict = if is_whole {
        Verdict::Good
    } else {
        Verdict::Unknown
    };
    Ok((selected.targets, verdict))
}

/// Returns the namespace of the chosen objects, or `None` if they may be in any.
pub(crate) fn namespace<'a>(cluster: &'a Cluster, chosen: &Chosen) -> Option<&'a Name> {
    match chosen {
        Chosen::Selected {
            all_namespaces: true,
            ..
        } => None,
        Chosen::Selected { .. } | Chosen::Named(_) => Some(&cluster.namespace),
    }
}

/// Returns words for the place where objects were looked for.
pub(crate) fn place(namespace: Option<&Name>) -> String {
    match namespace {
        Some(namespace) => format!("in namespace {namespace}"),
        None => "in any namespace".to_owned(),
    }
}

fn nothing(namespace: Option<&Name>, is_whole: bool) -> Unseen {
    let none = format!("nothing matches {}", place(namespace));
    if is_whole {
        Unseen::Absent(none)
    } else {
        Unseen::refused(
            "find what matches",
            format!("{none}, as far as can be seen"),
        )
    }
}

/// Returns the managed workloads of a namespace, or of all, of one kind or of all.
///
/// # Errors
/// When no kind is called so.
pub(crate) async fn workloads(
    cluster: &Cluster,
    operators: &Operators,
    namespace: Option<&Name>,
    kind: Option<&str>,
    selector: Option<&str>,
) -> Result<Selected, Unseen> {
    let meant = kind.map(|kind| workloads::meant(operators, kind));
    let meant = meant.transpose()?;
    let take = |seen: Seen<'_>| {
        let id = &seen.workload.id;
        let target = Target {
            namespace: namespace.is_none().then(|| id.namespace.clone()),
            ..seen.target()
        };
        (id.kind, target)
    };
    let (managed, left_out, unlisted) =
        workloads::managed(cluster, operators, namespace, selector, take).await;
    let managed = managed.into_iter();
    let of_kind = managed.filter(|(kind, _)| meant.is_none_or(|meant| meant == *kind));
    Ok(Selected {
        targets: of_kind.map(|(_, target)| target).collect(),
        left_out,
        unlisted: unlisted.words,
    })
}

async fn config_objects(
    cluster: &Cluster,
    namespace: Option<&Name>,
    kind: ConfigKind,
    selector: Option<&str>,
) -> Result<Selected, Unseen> {
    let names = objects::names(cluster, kind, namespace, selector).await?;
    let targets = names.into_iter().map(|reference| Target {
        kind: kind.plural().to_owned(),
        name: reference.name.to_string(),
        namespace: namespace.is_none().then_some(reference.namespace),
    });
    Ok(Selected {
        targets: targets.collect(),
        ..Selected::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{Canned, config_map, deployment, operator};
    use serde_json::{Value, json};

    async fn found(chosen: Chosen) -> Result<Vec<String>, Unseen> {
        let managed = |name: &str| {
            let mut workload = deployment(name);
            workload["metadata"]["annotations"] =
                json!({"pod-reloader.cs.sap.com/configmaps": "app"});
            workload
        };
        let shop = "/apis/apps/v1/namespaces/shop";
        let workloads = [managed("api"), managed("web"), deployment("alone")];
        let canned = Canned::shop()
            .with("/apis/apps/v1/deployments", json!({"items": [operator()]}))
            .with_all(&format!("{shop}/deployments"), &workloads)
            .with_all(&format!("{shop}/statefulsets"), &[managed("db")])
            .with_all(
                "/api/v1/namespaces/shop/configmaps",
                &[config_map("app", "key")],
            );
        let cluster = canned.cluster();
        let operators = Operators::find(&cluster, None).await;
        let (targets, _) = targets(&cluster, &operators, &chosen).await?;
        let named = targets.iter().map(|it| format!("{}/{}", it.kind, it.name));
        Ok(named.collect())
    }

    fn selected(kind: Option<&str>) -> Chosen {
        Chosen::Selected {
            kind: kind.map(ToOwned::to_owned),
            selector: None,
            all_namespaces: false,
        }
    }

    #[tokio::test]
    async fn managed_workloads_or_objects_of_one_type_are_selected() {
        let all = [
            "deployments.apps/api",
            "deployments.apps/web",
            "statefulsets.apps/db",
        ];
        let of = async |kind| found(selected(kind)).await.unwrap();
        assert_eq!(of(None).await, all);
        assert_eq!(of(Some("sts")).await, all[2..]);
        assert_eq!(of(Some("cm")).await, ["configmaps/app"]);
        let none = found(selected(Some("ds"))).await.unwrap_err();
        assert_eq!(none.to_string(), "nothing matches in namespace shop");
        assert!(none.is_absent());
        let unknown = found(selected(Some("pod"))).await.unwrap_err();
        assert!(unknown.to_string().contains("no kind of workload"));
    }

    #[tokio::test]
    async fn objects_of_all_namespaces_are_selected_with_their_namespaces() {
        let of = |mut object: Value, namespace: &str| {
            object["metadata"]["namespace"] = json!(namespace);
            object["metadata"]["annotations"] =
                json!({"pod-reloader.cs.sap.com/configmaps": "app"});
            object
        };
        let web = |namespace: &str| of(deployment("web"), namespace);
        let app = |namespace: &str| of(config_map("app", "key"), namespace);
        let deployments = [operator(), web("shop"), web("blog")];
        let canned = Canned::shop()
            .with("/apis/apps/v1/deployments", json!({"items": deployments}))
            .with("/api/v1/configmaps", json!({"items": [app("blog")]}));
        let cluster = canned.cluster();
        let operators = Operators::find(&cluster, None).await;
        for (kind, expected) in [
            (
                None,
                &[
                    "deployments.apps/web in namespace blog",
                    "deployments.apps/web in namespace shop",
                ][..],
            ),
            (Some("cm"), &["configmaps/app in namespace blog"][..]),
        ] {
            let chosen = Chosen::Selected {
                kind: kind.map(str::to_owned),
                selector: Some("team=a".to_owned()),
                all_namespaces: true,
            };
            let (targets, verdict) = targets(&cluster, &operators, &chosen).await.unwrap();
            let shown: Vec<_> = targets.iter().map(Target::shown).collect();
            assert_eq!(shown, expected);
            assert_eq!(verdict, Verdict::Good);
        }
    }
}
