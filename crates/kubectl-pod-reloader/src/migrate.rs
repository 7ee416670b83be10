//! `migrate`: patches for Git that replace the annotations of other controllers by ours.

use std::collections::BTreeMap;

use pod_reloader_core::kind::{CustomResource, WorkloadKind};
use pod_reloader_core::mark::{STACKABLE_IGNORE, STAKATER_IGNORE};
use pod_reloader_core::migration::{self, Migration, Untranslatable};
use pod_reloader_core::name::Name;
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{Chosen, Sources};
use crate::cluster::{Cluster, Unseen};
use crate::operators::Operators;
use crate::plan::{Manifests, Unreadable};
use crate::print::{self, Answer, Text, Verdict};
use crate::selection;
use crate::workloads::{self, Seen};

/// The namespace of manifests that name none. It is not printed.
const USUAL_NAMESPACE: &str = "default";

/// The patches for some workloads.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Migrations {
    patches: Vec<Patched>,
    untranslated: Vec<Untranslated>,
    /// Everything that the user may not see.
    unseen: Vec<String>,
}

/// A patch of one workload.
#[derive(Debug, Serialize)]
struct Patched {
    patch: Patch,
    notes: Vec<String>,
    /// The workload, in words.
    #[serde(skip)]
    about: String,
}

/// A strategic merge patch of metadata.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Patch {
    api_version: String,
    kind: &'static str,
    metadata: Metadata,
}

#[derive(Debug, Serialize)]
struct Metadata {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    annotations: BTreeMap<String, Option<String>>,
    /// The labels to remove.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, Option<String>>,
}

/// A workload whose annotations are left alone.
#[derive(Debug, Serialize)]
struct Untranslated {
    workload: String,
    reason: String,
}

/// What becomes of a workload.
enum Row {
    Patched(Patched),
    Untranslated(Untranslated),
}

/// A workload, and what a patch says of it.
struct Subject<'a> {
    kind: WorkloadKind,
    api_version: &'a str,
    object: &'a Value,
    /// The namespace that the patch names, if it names one.
    namespace: Option<&'a Name>,
}

/// Translates the annotations in manifests, without a cluster. Those without a namespace are in `namespace`.
///
/// # Errors
/// When the manifests cannot be read.
pub(crate) fn of_manifests(
    sources: &Sources,
    namespace: Option<&Name>,
) -> Result<(Migrations, Verdict), Unreadable> {
    let usual = Name::parse(USUAL_NAMESPACE).expect("it is a name");
    let manifests = Manifests::read(sources, namespace.unwrap_or(&usual))?;
    let mut migrations = Migrations::default();
    let kinds = known_kinds();
    for (id, manifest) in &manifests.all {
        let kind = kinds.iter().find(|kind| kind.is(&id.group, &id.kind));
        let names_namespace = manifest.names_namespace || namespace.is_some();
        let namespace = Some(&id.namespace).filter(|_| names_namespace);
        migrations.add(match kind {
            Some(kind) => row(&Subject {
                kind: *kind,
                api_version: &manifest.api_version,
                object: &manifest.object,
                namespace,
            }),
            None => of_unknown_kind(&about(&id.kind, namespace, &id.name), &manifest.object),
        });
    }
    for note in &manifests.notes {
        print::note(note);
    }
    Ok(migrations.finished())
}

/// Translates the annotations of workloads in the cluster, managed or not. Writes nothing.
///
/// # Errors
/// When a named workload or the namespace does not exist, or the type is unknown.
pub(crate) async fn of_cluster(
    cluster: &Cluster,
    operators: &Operators,
    chosen: &Chosen,
) -> Result<(Migrations, Verdict), Unseen> {
    let mut migrations = Migrations {
        unseen: operators.unseen.clone(),
        ..Migrations::default()
    };
    let (kind, selector) = match chosen {
        Chosen::Named(targets) => {
            for target in targets {
                let seen = workloads::get(&cluster.of(target), operators, target).await?;
                migrations.unseen.extend(seen.unseen.clone());
                migrations.add(of_seen(&seen));
            }
            return Ok(migrations.finished());
        }
        Chosen::Selected { kind, selector, .. } => (kind.as_deref(), selector.as_deref()),
    };
    let namespace = selection::namespace(cluster, chosen);
    let meant = kind.map(|kind| workloads::meant(operators, kind));
    let meant = meant.transpose()?;
    let take = |seen: Seen<'_>| {
        let is_meant = meant.is_none_or(|meant| meant == seen.workload.id.kind);
        is_meant.then(|| of_seen(&seen)).flatten()
    };
    let (rows, unlisted) = workloads::list(cluster, operators, namespace, selector, take).await;
    if rows.is_empty() {
        cluster.check_namespace(namespace).await?;
    }
    for row in rows {
        migrations.add(Some(row));
    }
    migrations.unseen.extend(unlisted.words);
    Ok(migrations.finished())
}

/// Returns Argo Rollouts, as `argo-rollouts` in the chart's `presets.yaml` describes them.
fn rollout() -> Value {
    json!({
        "group": "argoproj.io",
        "resource": "rollouts",
        "kind": "Rollout",
        "podTemplates": ["spec.template"],
        "restartAt": "spec.restartAt",
    })
}

/// Returns the kinds that are known without a cluster: those of Kubernetes, and Argo Rollouts.
fn known_kinds() -> Vec<WorkloadKind> {
    let rollout: CustomResource = serde_json::from_value(rollout()).expect("it has all fields");
    let rollout = rollout.into_kind().expect("its names and paths are valid");
    let mut kinds = WorkloadKind::BUILT_IN.to_vec();
    kinds.push(rollout);
    kinds
}

fn of_seen(seen: &Seen<'_>) -> Option<Row> {
    let id = &seen.workload.id;
    row(&Subject {
        kind: id.kind,
        api_version: &seen.api_version,
        object: &seen.object,
        namespace: Some(&id.namespace),
    })
}

/// Returns what becomes of an object whose kind is not known without a cluster. `None` if it seems to be no workload, or
/// has no annotations of other controllers.
fn of_unknown_kind(about: &str, object: &Value) -> Option<Row> {
    let untranslated = || {
        Row::Untranslated(Untranslated {
            workload: about.to_owned(),
            reason: Untranslatable::UnknownKind.to_string(),
        })
    };
    migration::has_keys_of_others(object).then(untranslated)
}

/// Returns a workload in words.
fn about(kind: &str, namespace: Option<&Name>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// Returns what becomes of a workload. `None` if it has no annotations of other controllers.
fn row(subject: &Subject<'_>) -> Option<Row> {
    let metadata = &subject.object["metadata"];
    let name = metadata["name"].as_str()?;
    let about = about(subject.kind.as_str(), subject.namespace, name);
    let migration = match migration::migrate(subject.kind, subject.object) {
        Ok(migration) => migration?,
        Err(reason) => {
            return Some(Row::Untranslated(Untranslated {
                workload: about,
                reason: reason.to_string(),
            }));
        }
    };
    let Migration {
        annotations,
        removed_labels,
        notes,
    } = migration;
    Some(Row::Patched(Patched {
        patch: Patch {
            api_version: subject.api_version.to_owned(),
            kind: subject.kind.as_str(),
            metadata: Metadata {
                name: name.to_owned(),
                namespace: subject.namespace.map(ToString::to_string),
                annotations,
                labels: removed_labels.into_iter().map(|key| (key, None)).collect(),
            },
        },
        notes: notes.iter().map(ToString::to_string).collect(),
        about,
    }))
}

impl Migrations {
    fn add(&mut self, row: Option<Row>) {
        match row {
            None => {}
            Some(Row::Patched(patched)) => self.patches.push(patched),
            Some(Row::Untranslated(untranslated)) => self.untranslated.push(untranslated),
        }
    }

    /// Notes what is missing on standard error, so that only patches are on standard output.
    fn finished(self) -> (Self, Verdict) {
        for error in &self.unseen {
            print::note(&format!("not seen: {error}"));
        }
        if self.patches.is_empty() && self.untranslated.is_empty() {
            print::note("no workload has annotations of other controllers");
        }
        let verdict = match (self.untranslated.is_empty(), self.unseen.is_empty()) {
            (false, _) => Verdict::Bad,
            (true, false) => Verdict::Unknown,
            (true, true) => Verdict::Good,
        };
        (self, verdict)
    }

    /// Returns true if objects with a mark may be tracked from now on.
    fn ends_marks(&self) -> bool {
        let metadata = self.patches.iter().map(|patched| &patched.patch.metadata);
        let mut keys = metadata.flat_map(|it| it.annotations.keys().chain(it.labels.keys()));
        keys.any(|key| migration::reads_marks(key))
    }
}

impl Answer for Migrations {
    /// Writes documents of YAML. Everything else is a comment.
    fn text(&self) -> Text {
        let mut text = Text::default();
        if self.ends_marks() {
            comment(
                &mut text,
                &format!(
                    "an object with the annotation {STAKATER_IGNORE} or the label {STACKABLE_IGNORE} is tracked from now on, unless the workload excludes it by name"
                ),
            );
        }
        for Untranslated { workload, reason } in &self.untranslated {
            comment(&mut text, &format!("{workload}: not translated: {reason}"));
        }
        for (number, patched) in self.patches.iter().enumerate() {
            if number > 0 {
                text.line(["---".into()]);
            }
            for note in &patched.notes {
                comment(&mut text, &format!("{}: {note}", patched.about));
            }
            for line in print::yaml(&patched.patch).lines() {
                text.line([line.into()]);
            }
        }
        text
    }
}

fn comment(text: &mut Text, words: &str) {
    text.line([format!("# {words}").into()]);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::args::Target;
    use crate::cluster::canned::{Canned, deployment};

    const RELOAD: &str = "configmap.reloader.stakater.com/reload";

    fn listing(name: &str, list: &str) -> Value {
        let mut workload = deployment(name);
        workload["metadata"]["annotations"] = json!({(RELOAD): list});
        workload
    }

    async fn migrated(canned: Canned, chosen: Chosen) -> (String, Verdict) {
        let cluster = canned.cluster();
        let operators = Operators::find(&cluster, None).await;
        let (migrations, verdict) = of_cluster(&cluster, &operators, &chosen).await.unwrap();
        (migrations.text().without_styles(), verdict)
    }

    fn all() -> Chosen {
        Chosen::Selected {
            kind: None,
            selector: None,
            all_namespaces: false,
        }
    }

    fn shop(workloads: &[Value]) -> Canned {
        Canned::shop().with_all("/apis/apps/v1/namespaces/shop/deployments", workloads)
    }

    const WEB: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  annotations:
    configmap.reloader.stakater.com/reload: null
    pod-reloader.cs.sap.com/configmaps: app
  name: web
  namespace: shop
";

    #[tokio::test]
    async fn a_workload_gets_a_patch_whether_or_not_it_is_managed() {
        let canned = shop(&[deployment("alone"), listing("web", "app")]);
        let web = Target::here("deploy", "web");
        for chosen in [all(), Chosen::Named(vec![web])] {
            let (text, verdict) = migrated(canned.clone(), chosen).await;
            let (comment, patch) = text.split_once('\n').unwrap();
            assert!(comment.starts_with("# an object with the annotation"));
            assert_eq!(patch, WEB);
            assert_eq!(verdict, Verdict::Good);
        }
    }

    #[tokio::test]
    async fn what_cannot_be_translated_is_a_comment_and_a_fault() {
        let canned = shop(&[listing("api", "a.*"), listing("web", "app")]);
        let (text, verdict) = migrated(canned, all()).await;
        let comment = "# Deployment shop/api: not translated: \"a.*\" is a regular expression for ConfigMaps, which has no counterpart: list the names\n";
        assert!(text.contains(comment), "{text}");
        assert!(text.ends_with(WEB), "{text}");
        assert_eq!(verdict, Verdict::Bad);
        let (text, verdict) = migrated(shop(&[deployment("alone")]), all()).await;
        assert_eq!((text.as_str(), verdict), ("", Verdict::Good));
    }

    #[test]
    fn manifests_are_translated_without_a_cluster_and_keep_their_namespaces() {
        let folder = tempfile::tempdir().unwrap();
        let mut web = listing("web", "app");
        web["apiVersion"] = json!("apps/v1");
        web["kind"] = json!("Deployment");
        let mut api = web.clone();
        api["metadata"]["name"] = json!("api");
        if let Some(metadata) = api["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        let both = format!("{web}\n---\n{api}\n");
        fs::write(folder.path().join("both.yaml"), both).unwrap();
        let sources = Sources::of_folder(folder.path());
        let (migrations, verdict) = of_manifests(&sources, None).unwrap();
        let text = migrations.text().without_styles();
        let (_, patches) = text.split_once('\n').unwrap();
        let api = WEB.replace("web", "api").replace("  namespace: shop\n", "");
        assert_eq!(patches, format!("{api}---\n{WEB}"));
        assert_eq!(verdict, Verdict::Good);
    }

    fn of_text(manifests: &str) -> (String, Verdict) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("all.yaml"), manifests).unwrap();
        let sources = Sources::of_folder(folder.path());
        let (migrations, verdict) = of_manifests(&sources, None).unwrap();
        (migrations.text().without_styles(), verdict)
    }

    #[test]
    fn a_manifest_of_an_unknown_kind_is_not_passed_over() {
        let mut cron_job = listing("web", "app");
        cron_job["apiVersion"] = json!("batch/v1");
        cron_job["kind"] = json!("CronJob");
        let template = cron_job["spec"]["template"].take();
        cron_job["spec"] = json!({"jobTemplate": {"spec": {"template": template}}});
        let (text, verdict) = of_text(&cron_job.to_string());
        let begin = "# CronJob shop/web: not translated: ";
        assert!(text.starts_with(begin), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!(verdict, Verdict::Bad);
    }

    #[test]
    fn no_text_of_a_manifest_becomes_a_document() {
        let hostile = "\n---\nkind: Secret";
        for field in ["/apiVersion", "/kind", "/metadata/name"] {
            let mut web = listing("web", "app");
            let text = web.pointer(field).unwrap().as_str().unwrap();
            let text = text.to_owned() + hostile;
            *web.pointer_mut(field).unwrap() = text.into();
            let (text, _) = of_text(&web.to_string());
            let lines = ["---", "kind: Secret"];
            let is_hostile = text.lines().any(|line| lines.contains(&line));
            assert!(!text.is_empty() && !is_hostile, "{text}");
        }
    }

    #[test]
    fn rollouts_are_known_without_a_cluster() {
        let kinds = known_kinds();
        assert!(kinds.iter().any(|kind| kind.is("argoproj.io", "Rollout")));
    }

    #[test]
    fn rollouts_are_described_as_in_the_chart() {
        let presets = include_str!("../../../charts/pod-reloader/presets.yaml");
        let presets: BTreeMap<String, Value> = serde_saphyr::from_str(presets).unwrap();
        assert_eq!(presets["argo-rollouts"], json!([rollout()]));
    }
}
