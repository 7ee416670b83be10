use super::*;
use crate::cluster::Writes;
use crate::cluster::canned::{
    Canned, copy_of, deployment, operator, pinning_operator, replica_set,
};
use pod_reloader_core::annotations::UNDONE;
use serde_json::json;

const APPS: &str = "/apis/apps/v1/namespaces/shop";
const WEB: &str = "/apis/apps/v1/namespaces/shop/deployments/web";
const CONFIG_MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const HASH: &str = "pod-reloader.cs.sap.com/config-hash";

/// Returns the copy with this colour.
fn copy(color: &str) -> Value {
    copy_of("app", json!({"color": color}))
}

/// Returns the pins for this colour.
fn pins(color: &str) -> String {
    format!("app={}", copy(color)["metadata"]["name"].as_str().unwrap())
}

/// Returns Deployment `web` with these pins.
fn web(pins: Option<&str>, undone: Option<&str>) -> Value {
    let mut web = deployment("web");
    web["metadata"]["annotations"] = json!({
        "pod-reloader.cs.sap.com/configmaps": "app", PIN: "configmaps",
    });
    if let Some(undone) = undone {
        web["metadata"]["annotations"][UNDONE] = json!(undone);
    }
    let mut annotations = json!({HASH: "it"});
    if let Some(pins) = pins {
        annotations[PINS] = json!(pins);
    }
    web["spec"]["template"]["metadata"]["annotations"] = annotations;
    web
}

/// Returns a cluster with this Deployment, whose revisions have these pins. ConfigMap `app` is green.
fn shop(web: Value, revisions: &[Option<&str>]) -> Canned {
    let number = |at: usize| i64::try_from(at).unwrap() + 1;
    let revisions = revisions.iter().enumerate();
    let revisions = revisions.map(|(at, pins)| replica_set("web", number(at), *pins));
    let mut app = copy("green");
    app["metadata"]["name"] = json!("app");
    Canned::shop()
        .with(
            "/apis/apps/v1/deployments",
            json!({"items": [pinning_operator()]}),
        )
        .with_all(&format!("{APPS}/deployments"), &[web])
        .with_all(&format!("{APPS}/replicasets"), &Vec::from_iter(revisions))
        .with_all(
            CONFIG_MAPS,
            &[app, copy("blue"), copy("red"), copy("green")],
        )
}

/// Returns a cluster whose pods became blue, red and green in turn.
fn painted() -> Canned {
    let [blue, red, green] = ["blue", "red", "green"].map(pins);
    shop(
        web(Some(&green), None),
        &[Some(&blue), Some(&red), Some(&green)],
    )
}

async fn undone(canned: Canned, to: Option<i64>) -> (Undo, Vec<(String, Value)>) {
    let writes = canned.writes();
    let cluster = canned.cluster();
    let operators = Operators::find(&cluster, None).await;
    let target = Target::here("deploy", "web");
    let (undo, _) = undo(&cluster, &operators, &target, to).await.unwrap();
    let writes = writes.lock().unwrap().clone();
    (undo, writes)
}

/// Returns why nothing was written.
async fn refused(canned: Canned, to: Option<i64>) -> String {
    let (undo, writes) = undone(canned, to).await;
    assert_eq!(writes, [], "{undo:?}");
    assert_eq!((undo.verdict, undo.undone), (Verdict::Bad, false));
    undo.state
}

#[tokio::test]
async fn an_undo_writes_the_pins_of_the_revision_before_and_nothing_else() {
    let (green, red) = (pins("green"), pins("red"));
    let after = web(Some(&red), Some(&green));
    let canned = painted().answers_writes(WEB, after, None);
    let (undo, writes) = undone(canned, None).await;
    assert_eq!(
        undo.state,
        format!("has the configuration of revision 2 again: {}", &red[4..])
    );
    assert_eq!((undo.revision, undo.changed), (Some(2), true));
    let path = "/spec/template/metadata/annotations/pod-reloader.cs.sap.com~1pins";
    let patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": "web"},
        {"op": "test", "path": path, "value": green},
        {"op": "add", "path": path, "value": red},
    ]);
    let place = format!("{WEB}?fieldManager=pod-reloader-plugin");
    assert_eq!(writes, [(place, patch)]);
}

#[tokio::test]
async fn a_revision_can_be_named() {
    let after = web(Some(&pins("blue")), Some(&pins("green")));
    let canned = painted().answers_writes(WEB, after, None);
    let (undo, writes) = undone(canned, Some(1)).await;
    assert_eq!(undo.verdict, Verdict::Good, "{}", undo.state);
    assert_eq!(writes[0].1[2]["value"], pins("blue"));
}

#[tokio::test]
async fn revisions_with_the_same_pins_or_without_are_passed_over() {
    let (blue, green) = (pins("blue"), pins("green"));
    let revisions = [Some(&*blue), None, Some(""), Some(&*green), Some(&*green)];
    let after = web(Some(&blue), Some(&green));
    let canned = shop(web(Some(&green), None), &revisions);
    let (undo, _) = undone(canned.answers_writes(WEB, after, None), None).await;
    assert_eq!((undo.revision, undo.undone), (Some(1), true));
}

#[tokio::test]
async fn a_revision_that_is_in_use_needs_no_undo() {
    let (undo, writes) = undone(painted(), Some(3)).await;
    assert_eq!(undo.state, "it has the configuration of revision 3 already");
    assert_eq!(
        (undo.verdict, undo.changed, writes),
        (Verdict::Good, false, vec![])
    );
}

#[tokio::test]
async fn what_has_no_pins_says_why() {
    let green = pins("green");
    let bare = web(Some(&green), None);
    let mut unpinned = bare.clone();
    unpinned["metadata"]["annotations"][PIN] = json!("false");
    let told = refused(shop(unpinned, &[Some(&green)]), None).await;
    assert!(
        told.starts_with("it is not pinned, so its revisions"),
        "{told}"
    );
    let off =
        shop(bare.clone(), &[]).with("/apis/apps/v1/deployments", json!({"items": [operator()]}));
    let told = refused(off, None).await;
    assert_eq!(
        told,
        "nothing is pinned, because the operator runs without --pin"
    );
    let told = refused(shop(bare.clone(), &[Some(&green)]), None).await;
    assert_eq!(
        told,
        "no earlier revision has pins of another configuration"
    );
    let told = refused(shop(bare, &[None, None]), None).await;
    assert_eq!(told, "no earlier revision has pins");
}

#[tokio::test]
async fn a_revision_that_cannot_be_brought_back_says_why() {
    let green = pins("green");
    let revisions = [None, Some(""), Some("a=b,,"), Some(&*green)];
    for (number, told) in [
        (1, "revision 1 has no pins: it was rolled out without"),
        (2, "revision 2 has no pins: its copies could not be made"),
        (3, "the pins of revision 3 cannot be read"),
        (7, "there is no revision 7, but 4, 3, 2, 1"),
    ] {
        let canned = shop(web(Some(&green), None), &revisions);
        assert_eq!(refused(canned, Some(number)).await, told);
    }
}

#[tokio::test]
async fn a_copy_that_is_gone_is_named() {
    let (green, red) = (pins("green"), pins("red"));
    let name = red.strip_prefix("app=").unwrap();
    let gone = json!({"kind": "Status", "message": "not found"});
    let canned = painted().answering(&format!("{CONFIG_MAPS}/{name}"), 404, gone);
    let told = refused(canned, None).await;
    let expected = format!(
        "copy {name} is gone, and with it the content that ConfigMap app had in revision 2"
    );
    assert_eq!(told, expected);
    let other = shop(web(Some(&green), None), &[Some("app=app"), Some(&green)]);
    let told = refused(other, None).await;
    assert_eq!(told, "ConfigMap app is no copy of ConfigMap app");
}

#[tokio::test]
async fn pins_that_do_not_stay_are_reported_with_the_warning() {
    let warning = "pod-reloader: no config was undone: it cannot be read";
    let canned = painted().answers_writes(WEB, web(Some(&pins("green")), None), Some(warning));
    let (undo, _) = undone(canned, None).await;
    assert_eq!(
        (undo.verdict, undo.undone, undo.changed),
        (Verdict::Bad, false, false)
    );
    let text = undo.text().without_styles();
    let told =
        "Deployment web in namespace shop: not undone: the pins of revision 2 did not stay\n";
    assert_eq!(text, format!("{told}Warning: {warning}\n"));
}

#[tokio::test]
async fn an_undo_that_the_webhook_did_not_see_says_so() {
    let canned = painted().answers_writes(WEB, web(Some(&pins("red")), None), None);
    let (undo, _) = undone(canned, None).await;
    assert!(
        undo.state.contains("webhook did not learn of it"),
        "{}",
        undo.state
    );
    assert_eq!((undo.verdict, undo.changed), (Verdict::Bad, true));
}

#[tokio::test]
async fn an_undo_back_to_the_present_content_is_nothing_to_note() {
    let [red, green] = ["red", "green"].map(pins);
    let before = web(Some(&red), Some(&green));
    let canned = shop(before, &[Some(&green), Some(&red)]);
    let (undo, _) = undone(
        canned.answers_writes(WEB, web(Some(&green), None), None),
        None,
    )
    .await;
    assert_eq!((undo.verdict, undo.revision), (Verdict::Good, Some(1)));
}

#[tokio::test]
async fn a_write_that_is_refused_says_why() {
    let (undo, _) = undone(painted().forbids_writes(WEB), None).await;
    assert_eq!(
        undo.state,
        r#"Error from server (Forbidden): it is forbidden: User "u" cannot patch it"#
    );
    let (undo, _) = undone(painted().refuses_writes(WEB, "a policy"), None).await;
    assert_eq!(
        undo.state,
        "cannot patch deployments in namespace shop (web): a policy"
    );
    assert_eq!((undo.verdict, undo.changed), (Verdict::Bad, false));
}

#[test]
fn only_what_is_still_pinned_is_brought_back() {
    let pins = |text: &str| Pins::parse(text).unwrap_or_default();
    for (earlier, present, brings) in [
        ("a=a-1", "a=a-2", true),
        ("a=a-1,b=b-1", "a=a-1", false),
        ("a=a-1", "a=a-1,b=b-2", false),
        ("a=a-1", "b=b-1", false),
        ("a=a-1", "", true),
    ] {
        let told = brings_back(&pins(earlier), &pins(present));
        assert_eq!(told, brings, "{earlier} {present}");
    }
}

#[tokio::test]
async fn a_dry_run_of_an_undo_stores_nothing() {
    let (green, red) = (pins("green"), pins("red"));
    let after = web(Some(&red), Some(&green));
    let canned = painted().answers_writes(WEB, after, None);
    let writes = canned.writes();
    let mut cluster = canned.cluster();
    cluster.writes = Writes::DryRun;
    let operators = Operators::find(&cluster, None).await;
    let target = Target::here("deploy", "web");
    let (undo, verdict) = undo(&cluster, &operators, &target, None).await.unwrap();
    assert!(undo.state.ends_with(" (server dry run)"), "{}", undo.state);
    assert_eq!(verdict, Verdict::Good);
    assert!(writes.lock().unwrap().is_empty());
}
