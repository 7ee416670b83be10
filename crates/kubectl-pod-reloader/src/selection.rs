//! Finds the objects that a user selects in place of naming them.

use pod_reloader_core::name::Name;
use pod_reloader_core::reference::ConfigKind;

use crate::args::{Chosen, Target, config_kind};
use crate::cluster::{Cluster, Unseen};
use crate::objects;
use crate::operators::Operators;
use crate::print::{self, Verdict};
use crate::workloads;

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
        Chosen::Selected { kind, selector } => (kind.as_deref(), selector.as_deref()),
    };
    let selected = match kind.and_then(config_kind) {
        Some(kind) => config_objects(cluster, kind, selector).await?,
        None => workloads(cluster, operators, kind, selector).await?,
    };
    for error in &selected.unlisted {
        print::note(&format!("not seen: {error}"));
    }
    if let Some(left_out) = &selected.left_out {
        print::note(left_out);
    }
    let is_whole = selected.unlisted.is_empty();
    if selected.targets.is_empty() {
        let lacking = cluster.lacks_namespace(&cluster.namespace).await;
        return Err(lacking.unwrap_or_else(|| nothing(&cluster.namespace, is_whole)));
    }
    let verdict = if is_whole {
        Verdict::Good
    } else {
        Verdict::Unknown
    };
    Ok((selected.targets, verdict))
}

fn nothing(namespace: &Name, is_whole: bool) -> Unseen {
    let none = format!("nothing matches in namespace {namespace}");
    if is_whole {
        Unseen::Absent(none)
    } else {
        Unseen::Refused {
            what: "find what matches".to_owned(),
            message: format!("{none}, as far as can be seen"),
        }
    }
}

/// Returns the managed workloads of the namespace, of one kind or of all.
///
/// # Errors
/// When no kind is called so.
pub(crate) async fn workloads(
    cluster: &Cluster,
    operators: &Operators,
    kind: Option<&str>,
    selector: Option<&str>,
) -> Result<Selected, Unseen> {
    let meant = kind.map(|kind| workloads::meant(operators, kind));
    let meant = meant.transpose()?;
    let namespace = Some(&cluster.namespace);
    let (managed, left_out, unlisted) =
        workloads::managed_labelled(cluster, operators, namespace, selector, |seen| {
            (seen.workload.id.kind, seen.target())
        })
        .await;
    let managed = managed.into_iter();
    let of_kind = managed.filter(|(kind, _)| meant.is_none_or(|meant| meant == *kind));
    Ok(Selected {
        targets: of_kind.map(|(_, target)| target).collect(),
        left_out,
        unlisted,
    })
}

async fn config_objects(
    cluster: &Cluster,
    kind: ConfigKind,
    selector: Option<&str>,
) -> Result<Selected, Unseen> {
    let names = objects::labelled(cluster, kind, Some(&cluster.namespace), selector).await?;
    let targets = names.into_iter().map(|reference| Target {
        kind: kind.plural().to_owned(),
        name: reference.name.to_string(),
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
    use serde_json::json;

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
}
