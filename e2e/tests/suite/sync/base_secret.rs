//! A protected Secret, its copies, and the workloads that use them.

use std::collections::BTreeMap;
use std::fmt::Debug;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use pod_reloader_e2e::workload::Workload;
use pod_reloader_e2e::{
    Attempt, Options, PATIENCE, Scene, THIS_NAMESPACE, Tested, done_if, full, wait_for,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Namespaces, SHARED, applied_sync, becomes, play, rests, shown, source, writes};

#[tokio::test]
async fn a_protected_base_secret_reaches_every_namespace_and_rolls_every_consumer_once()
-> Result<()> {
    // The namespaces that get a copy, and the one of the scene, which gets none.
    let here = format!("{THIS_NAMESPACE}-source");
    let selector =
        json!([{"key": "copies-of", "operator": "In", "values": [THIS_NAMESPACE, here]}]);
    let options = Options {
        tested: Tested::Writer,
        everywhere: true,
        values: json!({
            "protect": {"enabled": true},
            "sync": {"enabled": true},
            "watch": {"namespaceSelector": {"matchExpressions": selector}},
        }),
        namespace_labels: vec![format!("copies-of={here}")],
        ..Options::ignoring()
    };
    play(options, async |scene| {
        let protected =
            json!({"metadata": {"labels": {"pod-reloader.cs.sap.com/protect": "always"}}});
        let mut base = source("1");
        pod_reloader_e2e::merge(&mut base, &protected);
        scene.apply(&[base]).await?;
        let ours = applied_sync(scene, "all", json!({"spec": {"template": protected}})).await?;
        let namespaces = Namespaces::of(scene);
        let names: Vec<_> = (0..team_count()).map(|team| team.to_string()).collect();
        let teams = try_join_all(names.iter().map(|name| namespaces.create(name, true))).await?;
        has_copies(scene, "1").await?;
        becomes(scene, &ours, "Synced").await?;
        // No pods: nobody looks at them, and they are most of a rollout's cost.
        let web = Workload::deployment("web")
            .lists_secrets(SHARED)
            .labelled("scene", &scene.namespace)
            .with(&["spec", "replicas"], json!(0));
        let web: Deployment = serde_json::from_value(web.manifest())?;
        try_join_all(teams.iter().map(async |team| {
            let deployments = Api::<Deployment>::namespaced(scene.client.clone(), team);
            deployments.create(&PostParams::default(), &web).await
        }))
        .await?;
        scene.quiet().await?;
        have_revision(scene, "1").await?;

        let user = format!("{}-editor", scene.namespace);
        let editor = scene.control_plane.client_as(&user).await?;
        let sources = Api::<Secret>::namespaced(editor, &scene.namespace);
        let edit = Patch::Merge(json!({"stringData": {"value": "2"}}));
        let words = "you need the verb unprotect";
        allow(scene, &user, "edit", json!(["get", "patch"])).await?;
        wait_for("the edit to be refused", PATIENCE, async || {
            let tried = PatchParams::default().dry_run();
            Ok(match sources.patch(SHARED, &tried, &edit).await {
                Err(error) if error.to_string().contains(words) => Attempt::Done(()),
                edited => Attempt::NotYet(format!("{:?}", edited.err())),
            })
        })
        .await?;
        let mark = scene.mark().await?;
        allow(scene, &user, "unprotect", json!(["unprotect"])).await?;
        wait_for("the edit to be allowed", PATIENCE, async || {
            let edited = sources.patch(SHARED, &PatchParams::default(), &edit).await;
            Ok(edited.map(drop).into())
        })
        .await?;
        have_revision(scene, "2").await?;
        rests(scene, &ours).await?;
        scene.quiet().await?;
        has_copies(scene, "2").await?;
        have_revision(scene, "2").await?;
        let copied = writes(scene, mark).await?;
        let is_once = copied.len() == team_count() && copied.iter().all(|it| it.verb == "update");
        ensure!(is_once, "{:?}", shown(&copied));
        let mut restarts = scene
            .requests_of(scene.others_installation()?, mark)
            .await?;
        restarts
            .retain(|it| it.resource == "deployments" && it.verb == "patch" && it.name == "web");
        ensure!(restarts.len() == team_count(), "{:?}", shown(&restarts));

        // A copy is as protected as its source, and still goes with its ClusterConfigSync.
        scene.bind(&teams[0], &user, "clusterrole/edit").await?;
        delete_answers(scene, &teams[0], &user, words).await?;
        let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
        delete_answers(scene, &scene.namespace, collector, words).await?;
        delete_answers(scene, &teams[0], collector, "").await?;
        // A copy does not keep its Namespace from being deleted.
        let owner = format!("{}-owner", scene.namespace);
        let source = (&*scene.namespace, "in the namespace has the label");
        for (namespace, words) in [source, (&*teams[0], "")] {
            namespace_answers(scene, namespace, &owner, words).await?;
        }
        Ok(())
    })
    .await
}

/// Returns the number of namespaces with one workload each.
fn team_count() -> usize {
    if full() { 100 } else { 20 }
}

/// Waits until a user is refused with these words who deletes a Namespace, or is allowed to if there are none. It is not
/// deleted.
async fn namespace_answers(scene: &Scene, namespace: &str, user: &str, words: &str) -> Result<()> {
    let rules = json!([{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["delete"]}]);
    scene.grant(namespace, user, "owner", &rules).await?;
    let client = scene.control_plane.client_as(user).await?;
    deletion_answers(&Api::<Namespace>::all(client), namespace, words).await
}

/// Waits until a user is refused with these words who deletes the object of a namespace, or is allowed to if there are
/// none. It is not deleted.
async fn delete_answers(scene: &Scene, namespace: &str, user: &str, words: &str) -> Result<()> {
    let client = scene.control_plane.client_as(user).await?;
    let secrets = Api::<Secret>::namespaced(client, namespace);
    deletion_answers(&secrets, SHARED, words).await
}

async fn deletion_answers<K>(objects: &Api<K>, name: &str, words: &str) -> Result<()>
where
    K: Clone + Debug + DeserializeOwned,
{
    wait_for("the answer to a deletion", PATIENCE, async || {
        let tried = DeleteParams::default().dry_run();
        let refused = objects.delete(name, &tried).await.err();
        let told = refused.map(|error| error.to_string());
        Ok(match &told {
            None if words.is_empty() => Attempt::Done(()),
            Some(told) if !words.is_empty() && told.contains(words) => Attempt::Done(()),
            _ => Attempt::NotYet(format!("{told:?}")),
        })
    })
    .await
}

/// Waits until each team has a protected copy of this value.
async fn has_copies(scene: &Scene, value: &str) -> Result<()> {
    let ours = format!("pod-reloader.cs.sap.com/copied-from={}", scene.namespace);
    let copies = Api::<Secret>::all(scene.client.clone());
    let ours = ListParams::default().labels(&ours);
    wait_for("a copy for each team", PATIENCE, async || {
        let mut copies = copies.list(&ours).await?.items;
        copies.retain(|copy| {
            let data = copy.data.as_ref().and_then(|data| data.get("value"));
            let label = copy.labels().get("pod-reloader.cs.sap.com/protect");
            data.is_some_and(|it| it.0 == value.as_bytes())
                && label.is_some_and(|it| it == "always")
        });
        let count = copies.len();
        done_if(count == team_count(), format!("{count} copies"))
    })
    .await
}

/// Waits until the workload of each team has this revision.
async fn have_revision(scene: &Scene, expected: &str) -> Result<()> {
    let ours = ListParams::default().labels(&format!("scene={}", scene.namespace));
    let deployments = Api::<Deployment>::all(scene.client.clone());
    wait_for(
        &format!("revision {expected} of all"),
        PATIENCE,
        async || {
            let mut revisions = BTreeMap::<_, usize>::new();
            for deployment in deployments.list(&ours).await? {
                let revision = deployment
                    .annotations()
                    .get("deployment.kubernetes.io/revision");
                *revisions
                    .entry(revision.cloned().unwrap_or_default())
                    .or_default() += 1;
            }
            Ok(match revisions.get(expected) {
                Some(count) if *count == team_count() => Attempt::Done(()),
                _ => Attempt::NotYet(format!("{revisions:?}")),
            })
        },
    )
    .await
}

/// Allows a user these verbs on the source.
async fn allow(scene: &Scene, user: &str, name: &str, verbs: Value) -> Result<()> {
    let rules = json!([
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [SHARED], "verbs": verbs},
    ]);
    scene.grant(&scene.namespace, user, name, &rules).await
}
