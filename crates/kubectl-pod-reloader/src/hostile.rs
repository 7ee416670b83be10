//! A cluster in which others have written what a terminal would obey, wherever they can write.

use std::time::Duration;

use pod_reloader_core::name::Name;
use pod_reloader_core::protect::PROTECT;
use pod_reloader_core::reference::ConfigKind;
use pod_reloader_core::seal::COPY_OF;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::args::{Chosen, Target};
use crate::cluster::canned::{Canned, cluster_config_sync, copy_of, deployment, replica_set};
use crate::cluster::encoded;
use crate::history::Compare;
use crate::operators::Operators;
use crate::print::{Answer, is_hidden};
use crate::{explain, graph, history, impact, list, picture, print, status, undo, wait};

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_others_write_gives_orders_to_a_terminal(hostile in HOSTILE) {
        let visible: String = hostile
            .chars()
            .map(|it| if is_hidden(it) { char::REPLACEMENT_CHARACTER } else { it })
            .collect();
        let lines = |told: &Told| Vec::from_iter(told.texts.iter().map(|it| it.lines().count()));
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (hostile, harmless) = (told(&runtime, &hostile), told(&runtime, &visible));
        prop_assert_eq!(lines(&hostile), lines(&harmless), "{:#?}", hostile.texts);
        for (text, harmless) in hostile.texts.iter().zip(&harmless.texts) {
            let hidden = text.chars().find(|it| is_hidden(*it) && *it != '\n');
            prop_assert_eq!(hidden, None, "{}", text);
            prop_assert!(harmless.contains(char::REPLACEMENT_CHARACTER), "{}", harmless);
        }
        for (json, value) in hostile.json {
            let hidden = json.chars().find(|it| is_hidden(*it) && *it != '\n');
            prop_assert_eq!(hidden, None, "{}", json);
            prop_assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), value);
        }
    }
}

/// Letters at both ends, so that nothing is trimmed, and two hidden characters at least.
const HOSTILE: &str = "a[a-c]{0,3}[\u{0}-\u{1f}\u{7f}-\u{9f}\u{61c}\u{200b}-\u{200f}\u{2028}-\u{202e}\u{2066}-\u{2069}\u{feff}\u{e0041}]{2}[a-c\u{1b}\n\u{9b}\u{202e}\\[;]{0,6}z";

struct Told {
    /// Answers in words, without colours.
    texts: Vec<String>,
    /// The same answers for programs, each with the value that it was made from.
    json: Vec<(String, Value)>,
}

impl Told {
    fn add(&mut self, answer: &impl Answer) {
        self.texts.push(answer.text().without_styles());
        self.json
            .push((print::json(answer), serde_json::to_value(answer).unwrap()));
    }
}

/// Returns what each command says about a cluster that is full of `hostile`.
fn told(runtime: &Runtime, hostile: &str) -> Told {
    let mut told = Told {
        texts: Vec::new(),
        json: Vec::new(),
    };
    runtime.block_on(async {
        let cluster = cluster(hostile).cluster();
        let operators = Operators::find(&cluster, None).await;
        let web = Target::here("deploy", "web");
        let (explained, _) = explain::explain(&cluster, &operators, &web).await.unwrap();
        told.add(&explained);
        let history = history::history(&cluster, &operators, &web, Compare::Values).await;
        told.add(&history.unwrap().0);
        let undone = undo::undo(&cluster, &operators, &web, None).await;
        told.add(&undone.unwrap().0);
        for key in [None, Some(hostile)] {
            for name in ["app", "used"] {
                let object = (ConfigKind::ConfigMap, Name::parse(name).unwrap());
                let impact = impact::impact(&cluster, &operators, &object, key).await;
                told.add(&impact.unwrap().0);
            }
        }
        told.add(
            &wait::wait(
                &cluster,
                &operators,
                &Chosen::Named(vec![web]),
                Duration::ZERO,
            )
            .await
            .0,
        );
        let status = status::status(&cluster, &operators, 9).await;
        told.add(&status.unwrap().0);
        let query = list::Query {
            namespace: Some(&cluster.namespace),
            selector: None,
            live: false,
            reads_events: true,
        };
        let listed = list::list(&cluster, &operators, query).await;
        told.add(&listed.unwrap().0);
        let drawn = graph::draw(&cluster, &operators, Some(&cluster.namespace)).await;
        let (drawn, _, _) = drawn.unwrap();
        let value = serde_json::to_value(&drawn).unwrap();
        told.json.push((print::json(&drawn), value));
        for picture in [picture::dot(&drawn), picture::html(&drawn, "title")] {
            told.texts.push(print::document(&picture));
        }
    });
    told
}

/// Returns a cluster with a workload that lacks a key, an operator, Events, a Lease and so on.
fn cluster(hostile: &str) -> Canned {
    let mut web = deployment("web");
    web["metadata"]["annotations"] = json!({
        "pod-reloader.cs.sap.com/auto": "true",
        "pod-reloader.cs.sap.com/configmaps": hostile,
        format!("pod-reloader.cs.sap.com/confgmaps{hostile}"): "",
        "pod-reloader.cs.sap.com/pin": "configmaps",
    });
    web["metadata"]["managedFields"] = json!([{
        "manager": hostile, "operation": "Update", "time": "2026-01-01T00:00:00Z",
        "fieldsV1": {"f:spec": {"f:template": {"f:metadata": {"f:annotations": {
            "f:pod-reloader.cs.sap.com/config-hash": {},
        }}}}},
    }]);
    web["spec"]["template"] = json!({
        "metadata": {"annotations": {"pod-reloader.cs.sap.com/config-hash": hostile}},
        "spec": {
            "containers": [{"name": "main", "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "app", "key": hostile}}},
            ]}],
            "volumes": [
                {"name": "v", "configMap": {"name": "app", "items": [{"key": hostile, "path": "x"}]}},
                {"name": "w", "secret": {"secretName": "creds"}},
            ],
        },
    });
    let app = json!({
        "metadata": {
            "name": "app", "namespace": "shop", "uid": "1", "resourceVersion": "1",
            "labels": {PROTECT: hostile}, "annotations": {COPY_OF: format!("{hostile}/app@shop")},
        },
        "data": {"other": ""},
    });
    let mut used = app.clone();
    used["metadata"]["name"] = json!("used");
    used["metadata"]["labels"] = json!({PROTECT: "in-use"});
    let pod = json!({
        "metadata": {"name": hostile},
        "spec": {"containers": [{"envFrom": [{"configMapRef": {"name": "used"}}]}]},
    });
    let job = json!({"metadata": {"name": hostile}, "spec": {"suspend": true, "template": pod}});
    let mut sync = cluster_config_sync(
        hostile,
        json!({
            "observedGeneration": 1, "selected": 9,
            "conflicts": [{"namespace": hostile, "reason": hostile, "message": hostile}],
            "conditions": [{"type": "Ready", "reason": hostile, "message": hostile}],
        }),
    );
    sync["spec"]["source"] = json!({"kind": "ConfigMap", "namespace": "shop", "name": "app"});
    let mut other_sync = sync.clone();
    other_sync["spec"]["source"] = json!({"kind": hostile, "namespace": hostile, "name": hostile});
    other_sync["status"]["conflicts"] = json!([]);
    let value = hostile.replace('\n', "");
    let [old, new] = [json!({}), json!({hostile: value})].map(|data| copy_of("app", data));
    let [before, after] = [&old, &new].map(|copy| {
        let name = copy["metadata"]["name"].as_str().unwrap();
        format!("app={name}")
    });
    web["spec"]["template"]["metadata"]["annotations"]["pod-reloader.cs.sap.com/pins"] =
        json!(after);
    let mut newest = replica_set("web", 2, None);
    newest["spec"]["template"] = web["spec"]["template"].clone();
    let replica_sets = [replica_set("web", 1, Some(&before)), newest];
    let mut operator = deployment(hostile);
    operator["metadata"]["namespace"] = json!("ops");
    operator["metadata"]["labels"] = json!({"app.kubernetes.io/version": hostile});
    operator["spec"]["template"]["spec"]["containers"][0]["args"] = json!([
        "--hash-keys-secret=keys",
        "--pin",
        "--protect",
        "--sync",
        "--leader-elect",
        "--leader-election-lease=lease"
    ]);
    let event = |reason: &str, time: &str| {
        json!({
            "reportingComponent": "pod-reloader", "reason": reason, "type": "Warning",
            "message": hostile, "eventTime": time,
            "involvedObject": {"kind": "Deployment", "namespace": "shop", "name": "web"},
        })
    };
    let events = [
        event(hostile, "2026-01-01T00:00:02Z"),
        event("PatchRefused", "2026-01-01T00:00:01Z"),
    ];
    let shop = "/apis/apps/v1/namespaces/shop";
    let lease = json!({"spec": {"holderIdentity": hostile, "renewTime": hostile}});
    let webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let webhook = json!({"webhooks": [
        {"failurePolicy": hostile, "clientConfig": {"caBundle": hostile}},
    ]});
    Canned::shop()
        .with_all(&format!("{shop}/deployments"), &[web.clone()])
        .with(
            "/apis/apps/v1/deployments",
            json!({"items": [operator, web]}),
        )
        .with_all(&format!("{shop}/replicasets"), &replica_sets)
        .with("/api/v1/namespaces/shop/pods", json!({"items": [pod]}))
        .with(
            "/apis/batch/v1/namespaces/shop/jobs",
            json!({"items": [job]}),
        )
        .with_syncs(&[sync, other_sync])
        .with_all("/api/v1/namespaces/shop/configmaps", &[app, used, old, new])
        .refuses_writes(&format!("{shop}/deployments/web"), hostile)
        .refuses("/api/v1/namespaces/shop/secrets", hostile)
        .refuses("/api/v1/namespaces/shop/secrets/creds", hostile)
        .with(
            "/apis/coordination.k8s.io/v1/namespaces/ops/leases/lease",
            lease,
        )
        .with(&format!("{webhooks}/{}", encoded(hostile)), webhook)
        .with("/api/v1/events", json!({"items": events}))
        .with("/api/v1/namespaces/shop/events", json!({"items": events}))
        .reporting("missing config")
}
