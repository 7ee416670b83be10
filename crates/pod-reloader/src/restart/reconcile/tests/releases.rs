//! Restarts that wait for a release.

use pod_reloader_core::release::{Application, Kustomization, ReleaseObject, ReleaseSecret};
use serde::de::DeserializeOwned;

use super::stages::waits_for;
use super::*;

pub(super) const ENDED: &str = "deployed";
pub(super) const UNDER_WAY: &str = "pending-upgrade";

/// Lets Helm write the Secret of a revision of the release `shop`.
pub(super) fn helm(operator: &Operator, number: u64, status: &str, is_modified: bool) {
    let mut labels = json!({
        "owner": "helm", "name": "shop", "version": number.to_string(), "status": status,
    });
    if !is_modified {
        labels["createdAt"] = json!("1790000000");
    }
    let secret: ReleaseSecret = serde_json::from_value(json!({"metadata": {
        "name": format!("sh.helm.release.v1.shop.v{number}"),
        "namespace": "ns",
        "resourceVersion": operator.apiserver.another_version().to_string(),
        "labels": labels,
    }}))
    .unwrap();
    operator
        .reconciler
        .restraints
        .releases
        .seen(secret.revision().unwrap());
}

/// Returns the Deployment as one of the release `shop`.
pub(super) fn of_shop(mut object: Value) -> Value {
    let annotations = &mut object["metadata"]["annotations"];
    annotations["meta.helm.sh/release-name"] = json!("shop");
    annotations["meta.helm.sh/release-namespace"] = json!("ns");
    object
}

/// Starts with a Deployment `web` and a ConfigMap `app` of the release `shop`, which has ended.
async fn released() -> Operator {
    let operator = Operator::with([of_shop(deployment("web"))]).await;
    operator.apiserver.write_config_map_of("shop", "app", "1");
    operator.hears("app").await;
    helm(&operator, 1, ENDED, true);
    pass(Duration::from_secs(60)).await;
    operator.apiserver.forget_calls();
    operator
}

async fn changes(operator: &Operator, value: &str) {
    operator.apiserver.write_config_map_of("shop", "app", value);
    operator.hears("app").await;
}

#[tokio::test(start_paused = true)]
async fn a_change_waits_until_its_release_has_written_the_workload() {
    let operator = released().await;
    helm(&operator, 2, UNDER_WAY, false);
    changes(&operator, "2").await;
    pass(Duration::from_secs(30)).await;
    assert_eq!(operator.patches().len(), 0);
    let note = "waiting for the Helm release ns/shop, which is in progress, before restarting pods";
    assert_eq!(operator.notes("WaitingForRelease"), [note]);
    let waits = waits_for(&operator, "web");
    assert_eq!(waits.as_deref(), Some("WaitingForRelease"));

    // Helm writes the workload, and the webhook sets the hash.
    let web = operator.apiserver.deployment("web");
    operator.writes(hashed(web, &operator.hash_of("app")));
    helm(&operator, 2, ENDED, true);
    pass(Duration::from_secs(120)).await;
    assert_eq!(operator.patches().len(), 0);
    assert_eq!(operator.metrics.release_waits.get(), 1);
    assert_eq!(operator.metrics.release_timeouts.get(), 0);
}

/// Passes an object in which a tool stores a release to the loop.
fn stores<O: ReleaseObject + DeserializeOwned>(operator: &Operator, status: &Value) {
    let namespace = match O::TOOL {
        Tool::ArgoCd => "argocd",
        _ => "deploy",
    };
    let object: O = serde_json::from_value(json!({
        "metadata": {"name": "shop", "namespace": namespace, "resourceVersion": "1"},
        "operation": {},
        "status": status,
    }))
    .unwrap();
    operator
        .reconciler
        .restraints
        .releases
        .seen(object.revision().unwrap());
}

#[tokio::test(start_paused = true)]
async fn kustomizations_and_applications_are_waited_for_like_helm_releases() {
    let applying = json!({"conditions": [
        {"type": "Reconciling", "status": "True", "reason": "Progressing", "message": "Detecting drift"},
    ]});
    let syncing = json!({"operationState": {"phase": "Running", "startedAt": "now"}});
    for (labels, store, under_way, shown) in [
        (
            json!({
                "kustomize.toolkit.fluxcd.io/name": "shop",
                "kustomize.toolkit.fluxcd.io/namespace": "deploy",
            }),
            stores::<Kustomization> as fn(&Operator, &Value),
            applying,
            "Kustomization deploy/shop",
        ),
        (
            json!({"app.kubernetes.io/instance": "shop"}),
            stores::<Application>,
            syncing,
            "Application argocd/shop",
        ),
    ] {
        let mut web = deployment("web");
        web["metadata"]["labels"] = labels;
        let operator = Operator::with([web]).await;
        operator.apiserver.forget_calls();
        store(&operator, &under_way);
        operator.changes("app", "2").await;
        pass(Duration::from_secs(40)).await;
        assert_eq!(operator.patches().len(), 0, "{shown}");
        let note = format!("waiting for the {shown}, which is in progress, before restarting pods");
        assert_eq!(operator.notes("WaitingForRelease"), [note]);

        let end = Instant::now();
        store(&operator, &json!({}));
        pass(Duration::from_secs(60)).await;
        let patches = operator.patches();
        assert_eq!(patches.len(), 1, "{shown}");
        assert_about(patches[0] - end, Duration::ZERO);

        // Its controller dies in the middle of the next release.
        operator.sees("web");
        operator.apiserver.forget_calls();
        store(&operator, &under_way);
        let began = Instant::now();
        operator.changes("app", "3").await;
        pass(Duration::from_secs(120)).await;
        let patches = operator.patches();
        assert_eq!(patches.len(), 1, "{shown}");
        assert_about(patches[0] - began, RELEASE_WAIT);
        assert_eq!(operator.events("ReleaseUnfinished"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_changes_only_config_is_one_restart_at_its_end() {
    // After a failure, Helm may roll back, which is another revision.
    for (ended, pause) in [(ENDED, 0), ("failed", 5)] {
        let operator = released().await;
        helm(&operator, 2, UNDER_WAY, false);
        changes(&operator, "2").await;
        pass(Duration::from_secs(20)).await;
        assert_eq!(operator.patches().len(), 0);
        let end = Instant::now();
        helm(&operator, 2, ended, true);
        pass(Duration::from_secs(60)).await;
        let patches = operator.patches();
        assert_eq!(patches.len(), 1, "{ended}");
        assert_about(patches[0] - end, Duration::from_secs(pause));
        assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_and_rolls_back_restarts_nothing() {
    let operator = released().await;
    helm(&operator, 2, UNDER_WAY, false);
    changes(&operator, "2").await;
    pass(Duration::from_secs(20)).await;
    helm(&operator, 2, "failed", true);
    pass(Duration::from_secs(1)).await;
    helm(&operator, 3, "pending-rollback", false);
    pass(Duration::from_secs(10)).await;
    changes(&operator, "1").await;
    helm(&operator, 3, ENDED, true);
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.patches().len(), 0);
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn a_hook_after_the_change_ends_the_wait_because_it_may_wait_for_the_restart() {
    let operator = released().await;
    helm(&operator, 2, UNDER_WAY, false);
    helm(&operator, 2, UNDER_WAY, true);
    changes(&operator, "2").await;
    pass(Duration::from_secs(30)).await;
    assert_eq!(operator.patches().len(), 0, "the hook came before");
    let hook = Instant::now();
    helm(&operator, 2, UNDER_WAY, true);
    pass(Duration::from_secs(60)).await;
    assert!(operator.only_patch() - hook < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_killed_is_waited_for_twice() {
    let operator = released().await;
    helm(&operator, 2, UNDER_WAY, false);
    let began = Instant::now();
    changes(&operator, "2").await;
    pass(Duration::from_secs(120)).await;
    assert_about(operator.only_patch() - began, RELEASE_WAIT);
    assert_eq!(operator.events("ReleaseUnfinished"), 1);
    assert_eq!(operator.metrics.release_timeouts.get(), 1);

    // The second change may be by the release, after a long hook. The third is not.
    for (value, wait) in [("3", RELEASE_WAIT), ("4", SETTLE_PERIOD_OF_ALL)] {
        operator.apiserver.forget_calls();
        operator.sees("web");
        let began = Instant::now();
        changes(&operator, value).await;
        pass(Duration::from_secs(120)).await;
        let patches = operator.patches();
        assert_eq!(patches.len(), 1, "{value}");
        assert_about(patches[0] - began, wait);
    }
    assert_eq!(operator.metrics.release_timeouts.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_workload_with_a_long_settle_period_gives_up_no_release_for_others() {
    let operator = released().await;
    let mut slow = settling(operator.apiserver.deployment("web"), "2m");
    slow["metadata"]["name"] = json!("slow");
    slow["metadata"]["uid"] = json!("slow");
    operator.writes(slow);
    changes(&operator, "2").await;
    pass(Duration::from_secs(115)).await;
    operator.sees("web");
    operator.apiserver.forget_calls();
    helm(&operator, 2, UNDER_WAY, false);
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 0, "its change has settled");
    assert_eq!(operator.metrics.release_timeouts.get(), 0);
    helm(&operator, 2, ENDED, true);
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_by_somebody_else_during_a_release_is_not_lost() {
    let operator = released().await;
    helm(&operator, 2, UNDER_WAY, false);
    changes(&operator, "2").await;
    pass(Duration::from_secs(10)).await;
    changes(&operator, "by hand").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 0);
    helm(&operator, 2, ENDED, true);
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.patches().len(), 1);
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn what_was_read_for_others_during_a_release_says_nothing_about_its_end() {
    let operator = Operator::with([of_shop(deployment("web")), deployment("api")]).await;
    helm(&operator, 2, UNDER_WAY, false);
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.config_hash("api"), operator.hash_of("app"));
    assert_ne!(operator.config_hash("web"), operator.hash_of("app"));
    // No watch shows this.
    operator.apiserver.write_config_map("app", "3");
    helm(&operator, 2, ENDED, true);
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn workloads_and_objects_of_no_release_wait_for_none() {
    let operator = Operator::with([deployment("web")]).await;
    helm(&operator, 2, UNDER_WAY, false);
    let began = Instant::now();
    operator.changes("app", "2").await;
    pass(Duration::from_secs(60)).await;
    assert_about(operator.patches()[0] - began, SETTLE_PERIOD_OF_ALL);
    assert_eq!(operator.events("WaitingForRelease"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_the_pods_have_got_makes_no_later_restart_wait_for_its_release() {
    let operator = Operator::start(Apiserver::default());
    operator.apiserver.write_config_map_of("shop", "app", "1");
    operator.apiserver.write_config_map("other", "1");
    operator.writes(listing(deployment("web"), "app,other"));
    pass(Duration::from_secs(60)).await;
    changes(&operator, "2").await;
    pass(Duration::from_secs(60)).await;
    operator.sees("web");
    operator.apiserver.forget_calls();

    helm(&operator, 1, UNDER_WAY, false);
    let began = Instant::now();
    operator.changes("other", "2").await;
    pass(Duration::from_secs(30)).await;
    assert_about(operator.only_patch() - began, SETTLE_PERIOD_OF_ALL);

    // The release may have made the next change of its object.
    operator.sees("web");
    operator.apiserver.forget_calls();
    changes(&operator, "3").await;
    pass(Duration::from_secs(30)).await;
    assert_eq!(operator.patches().len(), 0);
}
