use super::*;
use crate::cluster::canned::{Canned, copy_of, deployment, replica_set};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/shop/configmaps";

fn pins(copy: &Value) -> String {
    format!("app={}", copy["metadata"]["name"].as_str().unwrap())
}

/// Returns a cluster with Deployment `web`, whose revisions used these copies in turn.
fn shop(copies: &[Value]) -> Canned {
    let apps = "/apis/apps/v1/namespaces/shop";
    let number = |at: usize| i64::try_from(at).unwrap() + 1;
    let replica_sets = copies.iter().enumerate();
    let replica_sets = replica_sets.map(|(at, copy)| {
        let pins = pins(copy);
        replica_set("web", number(at), Some(&pins))
    });
    let replica_sets: Vec<_> = replica_sets.collect();
    let mut web = deployment("web");
    if let Some(newest) = replica_sets.last() {
        web["spec"]["template"] = newest["spec"]["template"].clone();
    }
    Canned::shop()
        .with_all(&format!("{apps}/deployments"), &[web])
        .with_all(&format!("{apps}/replicasets"), &replica_sets)
        .with_all(CONFIG_MAPS, copies)
}

/// Returns a cluster whose configuration changed twice.
fn changed_twice() -> Canned {
    let copy = |data: Value| copy_of("app", data);
    shop(&[
        copy(json!({"color": "blue", "old": "x"})),
        copy(json!({"color": "green", "new": "a\nb"})),
        copy(json!({"color": "green", "new": "a\nc"})),
    ])
}

async fn told(canned: Canned, compare: Compare) -> (String, Value, Verdict) {
    let cluster = canned.cluster();
    let operators = Operators::find(&cluster, None).await;
    let target = Target::here("deploy", "web");
    let told = history(&cluster, &operators, &target, compare).await;
    let (history, verdict) = told.unwrap();
    let json = serde_json::to_value(&history).unwrap();
    (history.text().without_styles(), json, verdict)
}

/// Returns the lines about changes.
fn changes(text: &str) -> Vec<&str> {
    let lines = text.lines().skip_while(|line| !line.starts_with("From"));
    lines.collect()
}

#[tokio::test]
async fn the_revisions_are_listed_with_their_copies() {
    let (text, json, verdict) = told(changed_twice(), Compare::Nothing).await;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "Deployment web in namespace shop");
    assert!(lines[2].starts_with("REVISION   CREATED"), "{text}");
    assert!(
        lines[3].starts_with("3, now     2026-01-01 00:03:00 UTC"),
        "{text}"
    );
    assert!(lines[3].contains("   32345678   app-"), "{text}");
    assert!(lines[5].starts_with("1 "), "{text}");
    assert_eq!((lines.len(), verdict), (6, Verdict::Good));
    assert_eq!(json["revisions"][0]["isPresent"], true, "{json:#}");
    assert_eq!(json["revisions"][0]["pins"]["state"], "named", "{json:#}");
    assert!(json.get("changes").is_none(), "{json:#}");
}

#[tokio::test]
async fn a_diff_names_keys_alone() {
    let (text, json, _) = told(changed_twice(), Compare::Keys).await;
    let expected = [
        "From revision 2 to 3",
        "  ConfigMap app",
        "    changed  new",
        "",
        "From revision 1 to 2",
        "  ConfigMap app",
        "    changed  color",
        "    added    new",
        "    removed  old",
    ];
    assert_eq!(changes(&text), expected);
    let key = &json["changes"][1]["configMaps"][0]["keys"][0];
    assert_eq!(*key, json!({"key": "color", "change": "changed"}));
    assert!(!json.to_string().contains("green"), "{json:#}");
}

#[tokio::test]
async fn values_are_shown_if_they_are_asked_for() {
    let (text, json, _) = told(changed_twice(), Compare::Values).await;
    let expected = [
        "From revision 2 to 3",
        "  ConfigMap app",
        "    changed  new",
        "      @@ -1,2 +1,2 @@",
        "       a",
        "      -b",
        "      +c",
        "",
        "From revision 1 to 2",
        "  ConfigMap app",
        "    changed  color",
        "      @@ -1 +1 @@",
        "      -blue",
        "      +green",
        "    added    new",
        "      @@ -0,0 +1,2 @@",
        "      +a",
        "      +b",
        "    removed  old",
        "      @@ -1 +0,0 @@",
        "      -x",
    ];
    assert_eq!(changes(&text), expected);
    let value = &json["changes"][1]["configMaps"][0]["keys"][0]["value"];
    let diff = json!({"diff": ["@@ -1 +1 @@", "-blue", "+green"], "leftOut": 0});
    assert_eq!(*value, diff);
}

#[tokio::test]
async fn a_copy_that_is_gone_is_named() {
    let lost = copy_of("app", json!({"color": "blue"}));
    let kept = copy_of("app", json!({"color": "green"}));
    let name = lost["metadata"]["name"].as_str().unwrap().to_owned();
    let gone = json!({"kind": "Status", "message": "not found"});
    let canned = shop(&[lost, kept]).answering(&format!("{CONFIG_MAPS}/{name}"), 404, gone);
    let (text, json, verdict) = told(canned, Compare::Keys).await;
    let line = format!("  ConfigMap app: not known: copy {name} is gone");
    assert_eq!(changes(&text), ["From revision 1 to 2", &line]);
    assert_eq!(verdict, Verdict::Unknown);
    let unknown = &json["changes"][0]["configMaps"][0]["unknown"];
    assert_eq!(*unknown, format!("copy {name} is gone"));
}

#[tokio::test]
async fn what_is_no_copy_is_not_shown() {
    let mut forged = copy_of("app", json!({"color": "blue"}));
    forged["data"]["color"] = json!("confidential");
    // It has other content, because nobody knew that of the copy any more.
    forged["metadata"]["labels"] = json!({"pod-reloader.cs.sap.com/copy": "stands-in"});
    let mut bare = copy_of("app", json!({"color": "red"}));
    bare["metadata"]["labels"] = json!({});
    let (text, json, _) = told(shop(&[forged, bare]), Compare::Values).await;
    assert!(text.contains("is no copy of ConfigMap app"), "{text}");
    assert!(!text.contains("confidential") && !json.to_string().contains("confidential"));
}

#[tokio::test]
async fn binary_values_are_shown_as_sizes() {
    let binary = |encoded: &str| {
        let mut copy = copy_of("app", json!({}));
        copy["binaryData"] = json!({"logo": encoded});
        crate::cluster::canned::named_as_copy(copy, "app")
    };
    let canned = shop(&[binary("YWJj"), binary("YWJjZA==")]);
    let (text, ..) = told(canned, Compare::Values).await;
    let line = "    changed  logo (binary: 3 bytes before, 4 bytes after)";
    assert_eq!(changes(&text)[2], line);
}

#[tokio::test]
async fn revisions_without_pins_are_not_compared() {
    let copy = copy_of("app", json!({"color": "blue"}));
    let apps = "/apis/apps/v1/namespaces/shop";
    let own = pins(&copy);
    let replica_sets = [Some(&*own), None, Some(""), Some(&*own), Some(&*own)];
    let replica_sets = replica_sets.iter().zip(1..);
    let replica_sets = replica_sets.map(|(pins, number)| replica_set("web", number, *pins));
    let canned = shop(&[copy]).with_all(
        &format!("{apps}/replicasets"),
        &Vec::from_iter(replica_sets),
    );
    let (text, ..) = told(canned, Compare::Keys).await;
    let expected = [
        "From revision 4 to 5",
        "  the same ConfigMaps",
        "",
        "From revision 3 to 4",
        "  not known: the copies of revision 3 could not be made",
        "",
        "From revision 2 to 3",
        "  not known: the copies of revision 3 could not be made",
        "",
        "From revision 1 to 2",
        "  not known: revision 2 has no pins",
    ];
    assert_eq!(changes(&text), expected);
}

#[tokio::test]
async fn a_workload_without_revisions_says_so() {
    let (text, ..) = told(shop(&[]), Compare::Keys).await;
    assert!(text.ends_with("There are no revisions.\n"), "{text}");
}
