use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::annotations::Inherited;
use crate::dialects::Dialects;
use crate::digest::ConfigObject;
use crate::fixtures::{Builder, deployment, holding, objects, reference};
use crate::object::{Object, WorkloadObject};
use crate::workload::{Reading, Workload};

/// A Deployment that reloads, with these volumes and containers.
fn web(volumes: Value, containers: Value) -> Builder {
    deployment("web")
        .annotation("auto", "true")
        .annotation("reload-url", "http://:8080/-/reload")
        .with("/spec/selector", json!({"matchLabels": {"app": "web"}}))
        .with("/spec/template/spec/volumes", volumes)
        .with("/spec/template/spec/containers", containers)
}

/// Such a Deployment that mounts the ConfigMap `app` as a whole.
fn mounting() -> Builder {
    let volumes = json!([{"name": "config", "configMap": {"name": "app"}}]);
    web(
        volumes,
        json!([{"name": "main", "volumeMounts": [{"name": "config"}]}]),
    )
}

fn read(workload: Builder) -> Workload {
    let object: WorkloadObject = serde_json::from_value(workload.json()).unwrap();
    let mut reading = Reading::new(Dialects::default(), []);
    (reading.pins, reading.http_reloads) = (true, true);
    object
        .into_workload(WorkloadKind::DEPLOYMENT, &reading, &Inherited::default())
        .unwrap()
}

/// Returns the ConfigMaps whose changes reach running pods.
fn reached(workload: Builder) -> Vec<String> {
    let reload = read(workload).rare().http_reload.clone();
    let files = reload.iter().flat_map(|it| it.files.iter());
    files.map(|it| it.name.to_string()).collect()
}

fn advice(workload: Builder) -> String {
    let advice = read(workload).rare().advice.clone();
    let advice: Vec<_> = advice.iter().map(ToString::to_string).collect();
    advice.join("; ")
}

#[test]
fn a_url_is_a_port_and_a_path() {
    for (value, port, path) in [
        ("http://:8080/-/reload", 8080, "/-/reload"),
        ("http://:1/", 1, "/"),
        ("http://:65535/a?b=c%20d", 65535, "/a?b=c%20d"),
    ] {
        let target = Target::parse(value).unwrap();
        assert_eq!((target.port, &*target.path), (port, path));
        assert_eq!(target.to_string(), value);
    }
    for value in [
        "",
        "http://:8080",
        "http://:/x",
        "http://:0/x",
        "http://:08080/x",
        "http://:+80/x",
        "http://:65536/x",
        "https://:8080/x",
        "HTTP://:8080/x",
        "http://web:8080/x",
        "http://10.0.0.1:8080/x",
        "http://user@:8080/x",
        "http://[::1]:8080/x",
        "http://:8080@evil/x",
        "http://:8080/x y",
        "http://:8080/x#y",
        "http://:8080/x\r\nHost: y",
        "http://:8080/\u{e4}",
        " http://:8080/x",
        "http://:8080/x\n",
    ] {
        assert_eq!(Target::parse(value), None, "{value:?}");
    }
    assert_eq!(
        Target::parse(&format!("http://:80/{}", "x".repeat(1 << 10))),
        None
    );
}

#[test]
fn only_files_of_whole_volumes_reach_running_pods() {
    let volume = |name: &str| json!({"name": name, "configMap": {"name": name}});
    let mount = |name: &str| json!({"name": name});
    assert_eq!(reached(mounting()), ["app"]);
    let projected = json!([{"name": "all", "projected": {"sources": [{"configMap": {"name": "a"}}, {"configMap": {"name": "b"}}]}}]);
    let mounts_all = json!([{"name": "main", "volumeMounts": [mount("all")]}]);
    assert_eq!(reached(web(projected, mounts_all)), ["a", "b"]);
    let ways = [
        json!({"volumeMounts": [mount("app")], "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "app", "key": "k"}}}]}),
        json!({"volumeMounts": [mount("app")], "envFrom": [{"configMapRef": {"name": "app"}}]}),
        json!({"volumeMounts": [mount("app"), {"name": "app", "subPath": "k"}]}),
        json!({"volumeMounts": [{"name": "app", "subPathExpr": "$(X)"}]}),
        json!({}),
    ];
    for way in ways {
        let workload = web(json!([volume("app")]), json!([way.clone()]));
        assert_eq!(reached(workload), [""; 0], "{way}");
    }
    let init = |restart_policy: Value| {
        let container = json!({"volumeMounts": [mount("config")], "restartPolicy": restart_policy});
        mounting().with("/spec/template/spec/initContainers", json!([container]))
    };
    assert_eq!(reached(init(json!(null))), [""; 0]);
    assert_eq!(reached(init(json!("Always"))), ["app"]);
}

#[test]
fn a_workload_says_why_its_pods_are_restarted_anyway() {
    assert_eq!(advice(mounting()), "");
    assert!(advice(web(json!([]), json!([]))).contains("as files alone"));
    assert!(advice(mounting().annotation("pin", "configmaps")).contains("pinned"));
    let unselected = mounting().with("/spec/selector", json!({}));
    assert!(advice(unselected).contains("selector"));
    let bad = mounting().annotation("reload-url", "http://web:8080/");
    assert!(advice(bad).contains("without a host"));
    let off = mounting().build();
    assert_eq!(off.rare().http_reload, None);
    assert!(
        off.rare().advice[0]
            .to_string()
            .contains("httpReload.enabled")
    );
}

#[test]
fn times_are_those_of_the_workload_as_far_as_they_are_durations() {
    let times = |delay: &str, timeout: &str| {
        let workload = mounting().annotation("reload-delay", delay);
        let reload = read(workload.annotation("reload-timeout", timeout))
            .rare()
            .http_reload
            .clone()
            .unwrap();
        (reload.delay.as_secs(), reload.timeout.as_secs())
    };
    assert_eq!(times("1m", "30s"), (60, 30));
    assert_eq!(times("soon", "-1s"), (10, 120));
    assert_eq!(times("0s", "9h"), (0, 3600));
}

/// Returns the objects that have changed from one state to another, or the one that does not reach running pods.
fn changes(
    before: &[(&str, Option<ConfigObject>)],
    after: &[(&str, Option<ConfigObject>)],
) -> Result<BTreeSet<String>, String> {
    let volumes = json!([{"name": "config", "projected": {"sources": [{"configMap": {"name": "a"}}, {"configMap": {"name": "b"}}]}}]);
    let env =
        json!([{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "key"}}}]);
    let container = json!({"volumeMounts": [{"name": "config"}], "env": env});
    let workload = read(web(volumes, json!([container])));
    let reload = workload.rare().http_reload.as_deref().unwrap();
    let (before, after) = (objects(before), objects(after));
    let before = Had::of(&Contents::whole(&before));
    let after = Had::of(&Contents::whole(&after));
    match before.obstacle(&after, reload) {
        Some(obstacle) => Err(obstacle.name.to_string()),
        None => {
            let changes = before.changes(&after).into_iter();
            Ok(changes.map(|it| it.name.to_string()).collect())
        }
    }
}

#[test]
fn only_what_has_changed_has_to_reach_running_pods() {
    let all =
        |a: &str, b: &str, env: &str| [("a", holding(a)), ("b", holding(b)), ("env", holding(env))];
    let of = |names: &[&str]| Ok(names.iter().map(|it| (*it).to_owned()).collect());
    assert_eq!(
        changes(&all("1", "1", "1"), &all("2", "1", "1")),
        of(&["a"])
    );
    assert_eq!(
        changes(&all("1", "1", "1"), &all("2", "2", "1")),
        of(&["a", "b"])
    );
    assert_eq!(changes(&all("1", "1", "1"), &all("1", "1", "1")), of(&[]));
    assert_eq!(
        changes(&all("1", "1", "1"), &all("2", "1", "2")),
        Err("env".to_owned())
    );
}

#[test]
fn an_object_that_comes_or_goes_or_is_tracked_anew_restarts_pods() {
    let (there, gone) = ([("a", holding("1"))], [("a", None)]);
    let others = [("a", holding("1")), ("b", holding("1"))];
    for (before, after, culprit) in [
        (&there[..], &gone[..], "a"),
        (&gone[..], &there[..], "a"),
        (&there[..], &others[..], "b"),
        (&others[..], &there[..], "b"),
    ] {
        assert_eq!(changes(before, after), Err(culprit.to_owned()));
    }
}

#[test]
fn if_nobody_knows_what_has_changed_everything_has_to_reach_running_pods() {
    let workload = read(mounting());
    let reload = workload.rare().http_reload.as_deref().unwrap();
    let obstacle = |of: &[(&str, Option<ConfigObject>)]| {
        let objects = objects(of);
        obstacle_among(&Contents::whole(&objects), reload)
    };
    assert_eq!(obstacle(&[("app", holding("1"))]), None);
    assert_eq!(obstacle(&[("app", None)]), Some(reference("app")));
    let both = [("app", holding("1")), ("other", holding("1"))];
    assert_eq!(obstacle(&both), Some(reference("other")));
}
