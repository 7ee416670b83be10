//! Holds and approvals: a change waits until its users let it go.

use std::time::SystemTime;

use pod_reloader_core::annotations::{APPROVAL, APPROVE, HOLD, RESTART_WINDOW, SECRETS};
use webhook_certs::testing::write_pair;

use super::*;

fn annotated(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["annotations"][key] = json!(value);
    object
}

async fn changes(operator: &Operator, value: &str) {
    operator.changes("app", value).await;
    pass(Duration::from_secs(10)).await;
}

/// Returns the digits by which users name the content of ConfigMap `app`.
fn digits(operator: &Operator) -> String {
    operator.hash_of("app").rsplit('.').next().unwrap()[..8].to_owned()
}

#[tokio::test(start_paused = true)]
async fn whatever_changes_during_a_hold_is_one_rollout_at_its_end() {
    let operator = Operator::with([deployment("web")]).await;
    operator.annotates("web", HOLD, "true");
    for value in ["2", "3", "4"] {
        changes(&operator, value).await;
    }
    pass(Duration::from_secs(3600)).await;
    assert_eq!(operator.patches().len(), 0);
    let note = "not restarting pods: the annotation pod-reloader.cs.sap.com/hold says so";
    assert_eq!(operator.notes("RestartPending"), [note]);
    assert_eq!(operator.metrics.held_up.gated.get(), 1);

    operator.takes_away("web", HOLD);
    pass(Duration::from_secs(1)).await;
    assert_eq!(operator.patches().len(), 1);
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    operator.sees("web");
    pass(Duration::from_secs(1)).await;
    assert_eq!(operator.metrics.held_up.gated.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_approval_is_of_one_content_only() {
    let gated = annotated(deployment("web"), APPROVAL, "required");
    let operator = Operator::start(Apiserver::default());
    operator.apiserver.write_config_map("app", "1");
    operator.writes(gated);
    pass(Duration::from_secs(10)).await;
    assert_eq!(
        operator.patches().len(),
        0,
        "the first hash is a restart, too"
    );
    let first = digits(&operator);
    operator.annotates("web", APPROVE, &first);
    pass(Duration::from_secs(1)).await;
    assert_eq!(operator.patches().len(), 1);
    operator.sees("web");
    operator.apiserver.forget_calls();

    changes(&operator, "2").await;
    let second = digits(&operator);
    changes(&operator, "3").await;
    let notes = operator.notes("RestartPending");
    assert!(
        notes[0].ends_with(&format!("{APPROVE}={second}")),
        "{notes:?}"
    );
    assert!(
        notes[1].ends_with(&format!("{APPROVE}={}", digits(&operator))),
        "{notes:?}"
    );
    assert_eq!(notes.len(), 2);
    operator.annotates("web", APPROVE, &second);
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.patches().len(), 0, "that content is gone");
    operator.annotates("web", APPROVE, &digits(&operator));
    pass(Duration::from_secs(1)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_only_the_fresh_read_shows_holds() {
    let operator = Operator::with([deployment("web")]).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(1)).await;
    // No watch has shown this by the end of the settle period.
    operator
        .apiserver
        .annotate_config_map("app", HOLD, Some("true"));
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 0);
    assert_eq!(operator.metrics.held_up.gated.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_reported_even_if_the_workload_was_restarted_too_often() {
    let operator = Operator::with([deployment("web")]).await;
    // With its first hash, it is restarted five times.
    for value in ["2", "3", "4", "5"] {
        changes(&operator, value).await;
    }
    operator.annotates("web", HOLD, "true");
    changes(&operator, "6").await;
    let held_up = &operator.metrics.held_up;
    assert_eq!((held_up.gated.get(), held_up.braked.get()), (1, 0));
    operator.takes_away("web", HOLD);
    pass(Duration::from_secs(1)).await;
    assert_eq!((held_up.gated.get(), held_up.braked.get()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_object_on_hold_holds_what_tracks_it() {
    let operator = Operator::with([deployment("web")]).await;
    let hold = |value: Option<&str>| {
        operator.apiserver.write_config_map("app", "2");
        operator.apiserver.annotate_config_map("app", HOLD, value);
    };
    hold(Some("true"));
    operator.hears("app").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.patches().len(), 0);
    let note = "not restarting pods: ConfigMap app has the annotation pod-reloader.cs.sap.com/hold";
    assert_eq!(operator.notes("RestartPending"), [note]);
    hold(None);
    operator.hears("app").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn whatever_changes_while_a_window_is_closed_is_one_rollout_when_it_opens() {
    let operator = Operator::with([deployment("web")]).await;
    // A Monday, 13:00 in Berlin.
    set_clock("2026-11-23T12:00:00Z");
    operator.annotates("web", RESTART_WINDOW, "Mon-Fri 02:00-04:00 Europe/Berlin");
    for value in ["2", "3"] {
        changes(&operator, value).await;
    }
    let operator = Operator::start(operator.ends());
    operator.sees("web");
    changes(&operator, "4").await;
    pass(Duration::from_secs(12 * 3600 + 58 * 60)).await;
    assert_eq!(operator.patches().len(), 0);
    let note =
        "not restarting pods until its restart window opens at 2026-11-24 02:00 Europe/Berlin";
    assert_eq!(operator.notes("RestartPending"), [note]);
    assert_eq!(operator.metrics.held_up.gated.get(), 1);

    pass(Duration::from_secs(120)).await;
    assert_eq!(operator.patches().len(), 1);
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    operator.sees("web");
    pass(Duration::from_secs(1)).await;
    assert_eq!(operator.metrics.held_up.gated.get(), 0);

    changes(&operator, "5").await;
    assert_eq!(operator.patches().len(), 2, "the window is open");
    operator.sees("web");
    operator.annotates("web", RESTART_WINDOW, "Mon-");
    changes(&operator, "6").await;
    pass(Duration::from_secs(8 * 24 * 3600)).await;
    assert_eq!(
        operator.patches().len(),
        2,
        "a window that is none never opens"
    );
    let notes = operator.notes("RestartPending");
    assert!(
        notes.last().unwrap().contains("names no window"),
        "{notes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_put_forward_opens_a_window() {
    let operator = Operator::with([deployment("web")]).await;
    set_clock("2026-11-23T12:00:00Z");
    operator.annotates("web", RESTART_WINDOW, "02:00-04:00 UTC");
    changes(&operator, "2").await;
    set_clock("2026-11-24T02:00:00Z");
    pass(Duration::from_secs(601)).await;
    assert_eq!(operator.patches().len(), 1);
}

/// Lets the Namespace have these annotations, and the watch list its workloads because of them.
fn namespace_says(operator: &Operator, annotations: &[(&str, &str)]) {
    let inherited = Inherited::of(|key| {
        let mut annotations = annotations.iter();
        Some(annotations.find(|(own, _)| *own == key)?.1)
    });
    assert!(
        operator
            .reconciler
            .namespace_selected(&name("ns"), inherited)
    );
    operator.sees_all();
}

#[tokio::test(start_paused = true)]
async fn an_annotation_of_the_namespace_is_for_its_workloads_that_do_not_say_otherwise() {
    let apiserver = Apiserver::default();
    apiserver.write_config_map("app", "1");
    let own = annotated(deployment("own"), HOLD, "false");
    let own = annotated(own, RESTART_WINDOW, "00:00-24:00 UTC");
    apiserver.write_deployment(own);
    apiserver.write_deployment(deployment("web"));
    let operator = Operator::start_in_namespaces(apiserver);
    namespace_says(&operator, &[]);
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 2);
    operator.sees_all();

    namespace_says(&operator, &[(HOLD, "true"), ("example.com/other", "x")]);
    changes(&operator, "2").await;
    pass(Duration::from_secs(600)).await;
    assert_eq!(operator.config_hash("own"), operator.hash_of("app"));
    assert_ne!(operator.config_hash("web"), operator.hash_of("app"));
    let note =
        "not restarting pods: their Namespace has the annotation pod-reloader.cs.sap.com/hold";
    assert_eq!(operator.notes("RestartPending"), [note]);

    set_clock("2026-11-23T12:00:00Z");
    namespace_says(&operator, &[(RESTART_WINDOW, "02:00-04:00 UTC")]);
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.patches().len(), 3);
    namespace_says(&operator, &[]);
    pass(Duration::from_secs(1)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    assert_eq!(operator.patches().len(), 4);
}

/// Lets the Secret have a certificate that is valid until then.
async fn issues(operator: &Operator, until: &str) {
    let until: SystemTime = until.parse::<Timestamp>().unwrap().into();
    let files = tempfile::tempdir().unwrap();
    write_pair(files.path(), "web.example", SystemTime::UNIX_EPOCH, until);
    let chain = std::fs::read_to_string(files.path().join("tls.crt")).unwrap();
    let version = operator.apiserver.write_secret("cert", "tls.crt", &chain);
    let secret = Reference {
        kind: ConfigKind::Secret,
        ..reference("cert")
    };
    operator.reconciler.config_seen(&secret, Some(&version));
    pass(Duration::from_secs(10)).await;
    operator.sees_all();
    pass(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_expires_before_the_window_opens_is_replaced_at_once() {
    let operator = Operator::start(Apiserver::default());
    operator.apiserver.write_config_map("app", "1");
    set_clock("2026-11-23T12:00:00Z");
    issues(&operator, "2026-11-24T09:00:00Z").await;
    let mut web = annotated(deployment("web"), SECRETS, "cert");
    // It opens in 14 hours.
    web = annotated(web, RESTART_WINDOW, "00:00-24:00 UTC");
    operator.writes(web);
    pass(Duration::from_secs(10)).await;
    operator.sees("web");
    pass(Duration::from_secs(1)).await;
    assert_eq!(operator.patches().len(), 1);

    // What the pods have loaded is good until after the opening.
    operator.annotates("web", RESTART_WINDOW, "02:00-04:00 UTC");
    pass(Duration::from_secs(1)).await;
    issues(&operator, "2026-11-23T15:00:00Z").await;
    assert_eq!(operator.patches().len(), 1);
    assert_eq!(operator.events("RestartPending"), 1);
    operator.annotates("web", RESTART_WINDOW, "00:00-24:00 UTC");
    pass(Duration::from_secs(1)).await;
    operator.sees("web");
    pass(Duration::from_secs(1)).await;
    assert_eq!(operator.patches().len(), 2);

    // Now they have loaded one that expires before it.
    operator.annotates("web", RESTART_WINDOW, "02:00-04:00 UTC");
    pass(Duration::from_secs(1)).await;
    // A change of something else does not replace it.
    changes(&operator, "2").await;
    assert_eq!(operator.patches().len(), 2);
    issues(&operator, "2027-11-23T15:00:00Z").await;
    assert_eq!(operator.patches().len(), 3);
    let note = "not waiting for the restart window that opens at 2026-11-24 02:00 UTC: a certificate that the pods have loaded expires at 2026-11-23 15:00 UTC";
    assert_eq!(operator.notes("OutsideWindow"), [note]);
    // Other changes wait again.
    changes(&operator, "3").await;
    assert_eq!(operator.patches().len(), 3);
}
