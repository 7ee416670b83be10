use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;
use crate::fixtures::name;
use crate::kind::WorkloadKind;

const PATIENCE: Duration = Duration::from_secs(60);

/// A release under test, seconds after its beginning.
struct Play {
    releases: Releases,
    began: Instant,
}

fn shop() -> &'static Name {
    static SHOP: LazyLock<Name> = LazyLock::new(|| name("shop"));
    &SHOP
}

fn release(text: &str) -> Release {
    Release {
        tool: Tool::Helm,
        namespace: Some(name("shop")),
        name: text.into(),
    }
}

fn secret(
    release: &str,
    number: u64,
    status: &str,
    version: u64,
    is_modified: bool,
) -> ReleaseSecret {
    let mut labels = json!({
        "owner": "helm", "name": release, "version": number.to_string(), "status": status,
    });
    // Helm copies it from the revision before.
    labels["modifiedAt"] = json!("1780000000");
    if !is_modified {
        labels["createdAt"] = json!("1790000000");
    }
    secret_with(&labels, release, number, version)
}

fn secret_with(labels: &Value, release: &str, number: u64, version: u64) -> ReleaseSecret {
    serde_json::from_value(json!({"metadata": {
        "name": format!("sh.helm.release.v1.{release}.v{number}"),
        "namespace": "shop",
        "resourceVersion": version.to_string(),
        "labels": labels,
        // The apiserver stores such times, which our types cannot hold.
        "creationTimestamp": "10000-01-01T00:00:00Z",
    }}))
    .unwrap()
}

/// The Deployment `web`.
fn candidate(releases: &[Release]) -> Candidate<'_> {
    Candidate {
        releases,
        kind: WorkloadKind::DEPLOYMENT,
        namespace: shop(),
        name: "web",
    }
}

impl Play {
    fn new() -> Self {
        Self {
            releases: Releases::new(&Places::new(), usize::MAX),
            began: Instant::now(),
        }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.began + Duration::from_secs(seconds)
    }

    /// Takes in a revision of the release `web`.
    fn sees(&mut self, seconds: u64, number: u64, status: &str, version: u64, is_modified: bool) {
        let revision = secret("web", number, status, version, is_modified).revision();
        let now = self.at(seconds);
        self.releases.apply(revision.unwrap(), now);
    }

    /// Returns how long, in seconds after the beginning, the workload of `web` waits after a change of an
    /// object of the release `of`, made at resourceVersion `version`.
    fn waits(&self, of: Option<&Release>, version: u64, seconds: u64) -> Option<u64> {
        let change = Change {
            releases: of.map(std::slice::from_ref).unwrap_or_default(),
            version: Some(version),
            at: self.at(seconds),
        };
        self.waits_after(&[change], seconds)
    }

    fn waits_after(&self, changes: &[Change<'_>], since: u64) -> Option<u64> {
        let web = release("web");
        let times = (self.at(since), self.at(since));
        let candidate = candidate(std::slice::from_ref(&web));
        let wait = self.releases.wait(candidate, changes, times, PATIENCE)?;
        Some(wait.until.duration_since(self.began).as_secs())
    }
}

#[test]
fn a_change_waits_while_its_release_is_under_way() {
    let web = release("web");
    let mut play = Play::new();
    assert_eq!(play.waits(Some(&web), 5, 0), None);
    play.sees(0, 2, "pending-upgrade", 10, false);
    assert_eq!(play.waits(Some(&web), 11, 1), Some(61));
    for status in ["deployed", "uninstalled"] {
        play.sees(3, 2, status, 12, true);
        assert_eq!(play.waits(Some(&web), 11, 1), None, "{status}");
    }
}

#[test]
fn a_release_that_fails_may_be_about_to_roll_back() {
    let web = release("web");
    let mut play = Play::new();
    play.sees(10, 2, "failed", 12, true);
    assert_eq!(play.waits(Some(&web), 11, 11), Some(15));
    assert_eq!(play.waits(Some(&web), 11, 15), None);
    play.sees(12, 3, "pending-rollback", 13, false);
    assert_eq!(play.waits(Some(&web), 14, 15), Some(75));
}

#[test]
fn each_kind_of_release_is_waited_for() {
    for status in ["pending-install", "pending-upgrade", "pending-rollback"] {
        let mut play = Play::new();
        play.sees(0, 1, status, 10, false);
        assert!(
            play.waits(Some(&release("web")), 11, 1).is_some(),
            "{status}"
        );
    }
}

#[test]
fn a_hook_that_begins_after_the_change_ends_the_wait() {
    let web = release("web");
    let mut play = Play::new();
    play.sees(0, 2, "pending-upgrade", 10, false);
    // A hook before the objects.
    play.sees(1, 2, "pending-upgrade", 12, true);
    assert_eq!(play.waits(Some(&web), 20, 2), Some(62));
    // A hook after them.
    play.sees(3, 2, "pending-upgrade", 30, true);
    assert_eq!(play.waits(Some(&web), 20, 2), None);
}

#[test]
fn the_beginning_of_a_release_is_no_hook() {
    let mut play = Play::new();
    // Somebody changed the object just before.
    play.sees(2, 2, "pending-upgrade", 20, false);
    assert_eq!(play.waits(Some(&release("web")), 19, 1), Some(62));
}

#[test]
fn an_object_without_a_release_waits_for_that_of_its_workload_whatever_hooks_begin() {
    let mut play = Play::new();
    play.sees(0, 2, "pending-upgrade", 10, false);
    // A ConfigMap that is a hook itself, and then a migration.
    assert_eq!(play.waits(None, 12, 1), Some(61));
    play.sees(5, 2, "pending-upgrade", 15, true);
    assert_eq!(play.waits(None, 12, 1), Some(65));
}

#[test]
fn a_late_change_waits_as_long_as_an_early_one() {
    let mut play = Play::new();
    play.sees(0, 2, "pending-upgrade", 10, false);
    play.sees(1, 2, "pending-upgrade", 11, true);
    // After a hook of ten minutes.
    assert_eq!(play.waits(Some(&release("web")), 12, 600), Some(660));
}

#[test]
fn a_wait_is_bounded_however_often_the_objects_change() {
    let web = release("web");
    let mut play = Play::new();
    play.sees(0, 2, "pending-upgrade", 10, false);
    let change = |seconds| Change {
        releases: std::slice::from_ref(&web),
        version: Some(11 + seconds),
        at: play.at(seconds),
    };
    assert_eq!(play.waits_after(&[change(1), change(50)], 1), Some(110));
    assert_eq!(play.waits_after(&[change(1), change(100)], 1), Some(121));
}

#[test]
fn nobody_waits_for_a_release_that_was_waited_for_in_vain_until_it_goes_on() {
    let web = release("web");
    let mut play = Play::new();
    play.sees(0, 2, "pending-upgrade", 10, false);
    let at = play.at(61);
    play.releases.give_up(&web, at);
    assert_eq!(play.waits(None, 11, 70), None);
    assert_eq!(play.waits(Some(&web), 11, 60), None, "an old change");
    // The same Secret, listed again.
    play.sees(80, 2, "pending-upgrade", 10, false);
    assert_eq!(play.waits(None, 11, 90), None);
    // It writes its objects, after a long hook. If it was killed, that is somebody else, once.
    assert_eq!(play.waits(Some(&web), 11, 90), Some(150));
    let at = play.at(150);
    play.releases.give_up(&web, at);
    assert_eq!(play.waits(Some(&web), 12, 160), None);
    play.sees(200, 2, "pending-upgrade", 12, true);
    assert_eq!(play.waits(Some(&web), 13, 201), Some(261));
}

#[test]
fn only_a_change_of_this_revision_is_over_when_a_hook_begins() {
    let web = release("web");
    let mut play = Play::new();
    play.sees(0, 2, "failed", 20, true);
    // A rollback begins with a hook.
    play.sees(1, 3, "pending-rollback", 30, false);
    play.sees(2, 3, "pending-rollback", 31, true);
    assert_eq!(
        play.waits(Some(&web), 15, 0),
        Some(62),
        "of the revision before"
    );
    assert_eq!(play.waits(Some(&web), 40, 3), Some(63), "after the hook");
    let change = |version| Change {
        releases: std::slice::from_ref(&web),
        version: Some(version),
        at: play.at(2),
    };
    assert_eq!(play.waits_after(&[change(30), change(40)], 2), Some(62));
    play.sees(3, 3, "pending-rollback", 41, true);
    assert_eq!(play.waits(Some(&web), 40, 3), None);
}

#[test]
fn a_hook_of_a_revision_whose_beginning_nobody_saw_ends_no_wait() {
    let mut play = Play::new();
    play.sees(0, 2, "pending-upgrade", 30, true);
    assert_eq!(play.waits(Some(&release("web")), 20, 0), Some(60));
}

#[test]
fn a_name_that_helm_refuses_is_no_release() {
    let of = |length| {
        let name = "x".repeat(length);
        let annotation = |key: &str| match key {
            helm::NAME => Some(&*name),
            helm::NAMESPACE => Some("shop"),
            _ => None,
        };
        Release::of(&[Tool::Helm], annotation, |_| None).len()
    };
    assert_eq!([of(0), of(1), of(53), of(54)], [0, 1, 1, 0]);
}

#[test]
fn a_release_that_was_killed_does_not_hold_the_next_one() {
    let web = release("web");
    let mut play = Play::new();
    play.sees(0, 3, "deployed", 31, true);
    play.sees(0, 2, "pending-upgrade", 10, false);
    assert_eq!(play.waits(Some(&web), 40, 1), None);
    play.sees(2, 4, "pending-upgrade", 40, false);
    assert_eq!(play.waits(Some(&web), 41, 3), Some(63));
    let fourth = secret("web", 4, "pending-upgrade", 40, false);
    play.releases.delete(&fourth.revision().unwrap());
    assert_eq!(play.waits(Some(&web), 41, 3), None);
}

#[test]
fn of_two_releases_the_longer_wait_counts() {
    let config = release("config");
    let mut play = Play::new();
    play.sees(0, 2, "pending-upgrade", 10, false);
    let revision = secret("config", 7, "pending-upgrade", 12, false)
        .revision()
        .unwrap();
    let now = play.at(5);
    play.releases.apply(revision, now);
    assert_eq!(play.waits(Some(&config), 13, 4), Some(65));
    // Its hook has begun, but the workload may still be written by its own release.
    let revision = secret("config", 7, "pending-upgrade", 14, true)
        .revision()
        .unwrap();
    play.releases.apply(revision, now);
    assert_eq!(play.waits(Some(&config), 13, 4), Some(64));
    let second = secret("web", 2, "pending-upgrade", 10, false);
    play.releases.delete(&second.revision().unwrap());
    assert_eq!(play.waits(Some(&config), 13, 4), None);
}

#[test]
fn what_a_list_lacks_is_forgotten_in_its_namespace_only() {
    let web = release("web");
    let mut play = Play::new();
    play.sees(0, 2, "pending-upgrade", 10, false);
    // Returns the releases that a list without any more revisions affects.
    let affected = |play: &mut Play, tool, namespace: Option<&Name>| {
        play.releases.listing(tool, namespace);
        play.releases.listed(tool, namespace)
    };
    assert_eq!(affected(&mut play, Tool::Helm, Some(&name("other"))), []);
    play.releases.listing(Tool::Helm, None);
    play.sees(1, 2, "pending-upgrade", 10, false);
    assert_eq!(play.releases.listed(Tool::Helm, None), []);
    assert_eq!(affected(&mut play, Tool::Flux, None), []);
    assert_eq!(affected(&mut play, Tool::Helm, Some(shop())), [web]);
    assert!(play.releases.is_empty());
}

#[test]
fn a_revision_that_was_deleted_unseen_leaves_the_one_before_it_to_wait_for() {
    let web = release("web");
    let mut play = Play::new();
    play.sees(0, 4, "deployed", 40, true);
    // It was uninstalled, and is being installed again.
    play.releases.listing(Tool::Helm, None);
    play.sees(1, 1, "pending-install", 50, false);
    assert_eq!(play.waits(Some(&web), 51, 2), None);
    assert_eq!(
        play.releases.listed(Tool::Helm, None),
        std::slice::from_ref(&web)
    );
    assert_eq!(play.waits(Some(&web), 51, 2), Some(62));
}

#[test]
fn ten_thousand_releases_take_two_mebibytes() {
    let mut play = Play::new();
    for at in 0..10_000 {
        let revision = secret(&format!("release-{at}"), 1, "deployed", 1, true).revision();
        let now = play.at(0);
        play.releases.apply(revision.unwrap(), now);
    }
    let weight = play.releases.weight(Tool::Helm, shop());
    assert!(weight < 2 << 20, "{weight}");
    play.releases.listing(Tool::Helm, None);
    assert_eq!(play.releases.listed(Tool::Helm, None).len(), 10_000);
    assert_eq!(play.releases.weight(Tool::Helm, shop()), 0);
}

#[test]
fn of_the_revisions_that_have_ended_one_is_remembered() {
    let mut play = Play::new();
    play.sees(0, 1, "deployed", 10, true);
    let weight = play.releases.weight(Tool::Helm, shop());
    for number in 2..100 {
        play.sees(0, number, "pending-upgrade", 10 * number, false);
        assert!(play.releases.weight(Tool::Helm, shop()) > weight);
        play.sees(0, number, "deployed", 10 * number + 1, true);
    }
    assert_eq!(play.releases.weight(Tool::Helm, shop()), weight);
    let last = secret("web", 99, "deployed", 991, true);
    assert!(play.releases.delete(&last.revision().unwrap()));
    assert!(play.releases.is_empty());
}

#[test]
fn a_namespace_with_too_many_releases_is_told_once_and_the_others_are_waited_for() {
    let web = release("web");
    let mut play = Play::new();
    play.sees(0, 2, "pending-upgrade", 10, false);
    let share = 10 * play.releases.weight(Tool::Helm, shop());
    play.releases = Releases::new(&Places::new(), share);
    play.sees(0, 2, "pending-upgrade", 10, false);
    let mut left_out = 0;
    for at in 0..100 {
        let revision = secret(&format!("r{at}"), 1, "pending-upgrade", 1, false);
        let now = play.at(0);
        let applied = play.releases.apply(revision.revision().unwrap(), now);
        left_out += usize::from(applied.is_first_left_out);
    }
    assert_eq!(left_out, 1);
    assert!(play.releases.weight(Tool::Helm, shop()) <= share);
    assert_eq!(
        play.waits(Some(&web), 11, 1),
        Some(61),
        "it was there before"
    );
    assert_eq!(
        play.waits(Some(&release("r99")), 11, 1),
        Some(61),
        "it is of web"
    );

    // Another namespace has room, and so has this one once some are gone.
    let eve = Release {
        namespace: Some(name("eve")),
        ..release("web")
    };
    let revision = secret("web", 2, "pending-upgrade", 10, false).revision();
    let revision = Revision {
        release: eve.clone(),
        ..revision.unwrap()
    };
    let (now, at) = (play.at(0), play.at(1));
    assert!(play.releases.apply(revision, now).is_news);
    let waits = |play: &Play, release: &Release| {
        let candidate = candidate(std::slice::from_ref(release));
        let wait = play.releases.wait(candidate, &[], (at, at), PATIENCE);
        wait.is_some()
    };
    assert!(waits(&play, &eve));
    let last = || {
        secret("r99", 1, "pending-upgrade", 1, false)
            .revision()
            .unwrap()
    };
    assert!(!waits(&play, &last().release));
    let first = secret("r0", 1, "pending-upgrade", 1, false).revision();
    let second = secret("r1", 1, "pending-upgrade", 1, false).revision();
    for revision in [first, second] {
        assert!(play.releases.delete(&revision.unwrap()));
    }
    assert!(play.releases.apply(last(), now).is_news);
    assert!(waits(&play, &last().release));
}

#[test]
fn only_a_secret_as_helm_writes_it_is_a_revision() {
    assert!(secret("web", 1, "deployed", 1, false).revision().is_some());
    let labels = json!({"name": "web", "version": "1", "status": "pending-upgrade"});
    assert!(secret_with(&labels, "web", 1, 1).revision().is_some());
    for missing in ["name", "version", "status"] {
        let mut labels = labels.clone();
        labels.as_object_mut().unwrap().remove(missing);
        let secret = secret_with(&labels, "web", 1, 1);
        assert_eq!(secret.revision(), None, "{missing}");
    }
    assert_eq!(secret_with(&json!(null), "web", 1, 1).revision(), None);
}

#[test]
fn a_release_of_flux_may_be_stored_in_the_namespace_of_its_helm_release() {
    let annotation = |key: &str| match key {
        helm::NAME => Some("web"),
        helm::NAMESPACE => Some("shop"),
        _ => None,
    };
    let stored_in = |namespace: &'static str| {
        let label =
            move |key: &str| (key == "helm.toolkit.fluxcd.io/namespace").then_some(namespace);
        let releases = Release::of(&[Tool::Helm], annotation, label);
        let shown = releases.iter().map(ToString::to_string);
        shown.collect::<Vec<_>>()
    };
    assert_eq!(
        stored_in("flux-system"),
        ["Helm release shop/web", "Helm release flux-system/web"]
    );
    assert_eq!(stored_in("shop"), ["Helm release shop/web"]);
    assert_eq!(stored_in("No Name"), ["Helm release shop/web"]);
}

#[test]
fn only_the_releases_of_tools_that_are_asked_for_are_read() {
    let annotation = |key: &str| match key {
        helm::NAME => Some("web"),
        helm::NAMESPACE => Some("shop"),
        argo_cd::TRACKING_ID => Some("web:apps/Deployment:shop/web"),
        _ => None,
    };
    let label = |key: &str| {
        key.starts_with("kustomize.toolkit.fluxcd.io/")
            .then_some("web")
    };
    let of = |tools: &[Tool]| Release::of(tools, annotation, label);
    assert_eq!(*of(&[]), []);
    for tool in [Tool::Helm, Tool::Flux, Tool::ArgoCd] {
        let tools: Vec<_> = of(&[tool]).iter().map(|it| it.tool).collect();
        assert_eq!(tools, [tool]);
    }
    assert_eq!(of(&[Tool::Helm, Tool::Flux, Tool::ArgoCd]).len(), 3);
}

/// Returns true if the workload and the object that changed, which name a release, wait for it.
fn waits_for(object: &impl ReleaseObject, named: &Release) -> bool {
    waits_in(&[Some("argocd")], object, named)
}

/// Does the same if Applications are watched in these namespaces.
fn waits_in(namespaces: &[Option<&str>], object: &impl ReleaseObject, named: &Release) -> bool {
    let namespaces = namespaces.iter().map(|it| it.map(name)).collect();
    let mut releases = Releases::new(&Places::from([(Tool::ArgoCd, namespaces)]), usize::MAX);
    let now = Instant::now();
    releases.apply(object.revision().unwrap(), now);
    let named = std::slice::from_ref(named);
    let change = Change {
        releases: named,
        version: Some(1),
        at: now,
    };
    let wait = releases.wait(candidate(named), &[change], (now, now), PATIENCE);
    assert_eq!(
        releases.is_empty(),
        object.revision().unwrap().stage == Stage::Ended
    );
    wait.is_some()
}

#[test]
fn a_kustomization_is_waited_for_until_everything_is_applied() {
    let of = |key: &str| match key {
        "kustomize.toolkit.fluxcd.io/name" => Some("apps"),
        "kustomize.toolkit.fluxcd.io/namespace" => Some("flux-system"),
        _ => None,
    };
    let named = &Release::of(&[Tool::Flux], |_| None, of)[0];
    assert_eq!(named.to_string(), "Kustomization flux-system/apps");
    let waits = |status: serde_json::Value| {
        let object = json!({
            "metadata": {"name": "apps", "namespace": "flux-system", "resourceVersion": "7"},
            "status": status,
        });
        waits_for(
            &serde_json::from_value::<Kustomization>(object).unwrap(),
            named,
        )
    };
    let reconciling = |status: &str, reason: &str, message: &str| {
        json!({"conditions": [
            {"type": "Ready", "status": "Unknown", "reason": "Progressing", "message": "Reconciliation in progress"},
            {"type": "Reconciling", "status": status, "reason": reason, "message": message},
        ]})
    };
    let with = "for revision main@sha1:1 with a timeout of 5m0s";
    for step in [
        "Fetching manifests",
        "Building manifests",
        "Detecting drift",
    ] {
        let status = reconciling("True", "Progressing", &format!("{step} {with}"));
        assert!(waits(status), "{step}");
    }
    let message = format!("Running health checks {with}");
    assert!(!waits(reconciling("True", "Progressing", &message)));
    assert!(!waits(reconciling(
        "True",
        "ProgressingWithRetry",
        "failed"
    )));
    assert!(!waits(reconciling("False", "Progressing", "")));
    let suspended = json!({
        "metadata": {"name": "apps", "namespace": "flux-system"},
        "spec": {"suspend": true},
        "status": reconciling("True", "Progressing", "Detecting drift"),
    });
    let suspended: Kustomization = serde_json::from_value(suspended).unwrap();
    assert!(!waits_for(&suspended, named), "nobody goes on with it");
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    for status in [ready, json!({}), json!({"conditions": null}), json!(null)] {
        assert!(!waits(status));
    }
}

fn application(phase: &str, resources: &serde_json::Value) -> serde_json::Value {
    json!({
        "metadata": {"name": "web", "namespace": "argocd", "resourceVersion": "7"},
        "operation": {"sync": {"revision": "1"}},
        "status": {"operationState": {
            "phase": phase,
            "message": "one or more tasks are running",
            "startedAt": "2026-01-01T00:00:00Z",
            "syncResult": {"revision": "1", "resources": resources},
        }},
    })
}

#[test]
fn each_step_of_a_sync_is_a_sign_of_life() {
    let stage = |message: &str, hook_phase: &str| {
        let resources = json!([{
            "group": "batch", "kind": "Job", "namespace": "shop", "name": "migrate",
            "hookPhase": hook_phase, "syncPhase": "PreSync",
        }]);
        let mut object = application("Running", &resources);
        object["status"]["operationState"]["message"] = json!(message);
        let object: Application = serde_json::from_value(object).unwrap();
        object.revision().unwrap().stage
    };
    assert_eq!(stage("waiting", "Running"), stage("waiting", "Running"));
    assert_ne!(stage("waiting", "Running"), stage("waiting", "Succeeded"));
    assert_ne!(
        stage("waiting", "Running"),
        stage("waiting for web", "Running")
    );
}

#[test]
fn an_application_is_waited_for_until_it_has_applied_the_workload() {
    let id = |key: &str| (key == argo_cd::TRACKING_ID).then_some("web:apps/Deployment:shop/web");
    let named = &Release::of(&[Tool::ArgoCd], id, |_| None)[0];
    let operation = |phase: &str, resources: serde_json::Value| {
        serde_json::from_value::<Application>(application(phase, &resources)).unwrap()
    };
    let applied = |group: &str, kind: &str, phase: &str| {
        json!({
            "group": group, "version": "v1", "kind": kind, "namespace": "shop", "name": "web",
            "status": "Synced", "hookPhase": "Running", "syncPhase": phase,
        })
    };
    let waits = |phase: &str, resources| waits_for(&operation(phase, resources), named);
    let config = applied("", "ConfigMap", "Sync");
    assert!(waits("Running", json!(null)));
    assert!(waits("Running", json!([config])));
    assert!(waits(
        "Running",
        json!([config, applied("batch", "Job", "PreSync")])
    ));
    let mut failed = applied("apps", "Deployment", "Sync");
    failed["status"] = json!("SyncFailed");
    assert!(
        waits("Running", json!([config, failed])),
        "it is tried again"
    );

    assert!(!waits(
        "Running",
        json!([config, applied("apps", "Deployment", "Sync")])
    ));
    assert!(!waits(
        "Running",
        json!([config, applied("batch", "Job", "PostSync")])
    ));
    for phase in ["Succeeded", "Failed", "Error", "Terminating"] {
        assert!(!waits(phase, json!([config])), "{phase}");
    }
    let mut stale = application("Running", &json!([config]));
    stale["operation"] = json!(null);
    assert!(!waits_for(
        &serde_json::from_value::<Application>(stale).unwrap(),
        named
    ));
    let mut at_home = application("Running", &json!([config]));
    at_home["status"]["controllerNamespace"] = json!("argocd");
    assert!(waits_for(
        &serde_json::from_value::<Application>(at_home.clone()).unwrap(),
        named
    ));
    at_home["status"]["controllerNamespace"] = json!("another");
    assert!(!waits_for(
        &serde_json::from_value::<Application>(at_home).unwrap(),
        named
    ));
    let none = json!({"metadata": {"name": "web", "namespace": "argocd"}});
    assert!(!waits_for(
        &serde_json::from_value::<Application>(none).unwrap(),
        named
    ));
}

#[test]
fn only_the_first_namespace_has_the_applications_that_objects_name_without_one() {
    let syncing = |namespace: &str| {
        let mut object = application("Running", &json!([]));
        object["metadata"]["namespace"] = json!(namespace);
        // Whoever writes an Application can write this.
        object["status"]["controllerNamespace"] = json!(namespace);
        serde_json::from_value::<Application>(object).unwrap()
    };
    let named = |id: &'static str| {
        let label = |key: &str| (key == "app.kubernetes.io/instance").then_some(id);
        Release::of(&[Tool::ArgoCd], |_| None, label)[0].clone()
    };
    let listed = [Some("argocd"), Some("eve")];
    assert!(waits_in(&listed, &syncing("argocd"), &named("web")));
    assert!(!waits_in(&listed, &syncing("eve"), &named("web")));
    assert!(waits_in(&listed, &syncing("eve"), &named("eve_web")));
    let listed = [Some("eve"), Some("argocd")];
    assert!(waits_in(&listed, &syncing("eve"), &named("web")));
    // Where all are listed, Argo CD is where it is installed by default.
    assert!(waits_in(&[None], &syncing("argocd"), &named("web")));
    assert!(!waits_in(&[None], &syncing("eve"), &named("web")));
    assert!(waits_in(&[None], &syncing("eve"), &named("eve_web")));
}

#[test]
fn an_object_names_its_application_by_annotation_or_label_with_or_without_a_namespace() {
    let of = |id: Option<&'static str>, instance: Option<&'static str>| {
        let annotation = |key: &str| id.filter(|_| key == argo_cd::TRACKING_ID);
        let label = |key: &str| instance.filter(|_| key == "app.kubernetes.io/instance");
        let releases = Release::of(&[Tool::ArgoCd], annotation, label);
        releases.first().map(ToString::to_string)
    };
    let shown = |text: &str| Some(text.to_owned());
    let id = Some("web:apps/Deployment:shop/web");
    assert_eq!(of(id, Some("chart")), shown("Application web"));
    assert_eq!(of(None, Some("web")), shown("Application web"));
    assert_eq!(
        of(Some("team-a_web:/ConfigMap:shop/app"), None),
        shown("Application team-a/web")
    );
    assert_eq!(
        of(None, Some("team-a_web")),
        shown("Application team-a/web")
    );
    let with = |label: &'static str, other: &'static str| {
        let of = |key: &str| match key {
            "app.kubernetes.io/instance" => Some("chart"),
            key if key == label => Some("web"),
            key if key == other => Some("other"),
            _ => None,
        };
        let releases = Release::of(&[Tool::ArgoCd], of, of);
        releases.first().map(ToString::to_string)
    };
    let recommended = "argocd.argoproj.io/instance";
    assert_eq!(with(recommended, helm::NAME), shown("Application web"));
    assert_eq!(with("-", "-"), shown("Application chart"));
    // Helm or Flux has made the object, and the label is that of a chart.
    assert_eq!(with("-", helm::NAME), None);
    assert_eq!(with("-", flux::NAME), None);
    assert_eq!(of(Some("no id"), None), None);
    assert_eq!(of(None, Some("No Name")), None);
    assert_eq!(of(None, None), None);
}
