//! The values that platforms demand of every chart: each does what it says, for the writer as well.

use std::fs;

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{chart, own_kinds};
use serde_json::{Value, json};

use super::{refused_by_schema, template};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A kind of custom resource whose fields are bound.
const KINDS: &str = r#"--set-json=fieldBindings={"enabled":true,"kinds":[{"group":"example.com","version":"v1","resource":"stores","kind":"Store"}]}"#;

#[test]
fn the_image_of_every_pod_follows_registry_tag_and_digest() -> Result<()> {
    let digest = format!("image.tag=v1,image.digest={DIGEST}");
    for (value, image) in [
        ("image.tag=v1", "registry.example.com/pod-reloader:v1"),
        (
            &*digest,
            &*format!("registry.example.com/pod-reloader:v1@{DIGEST}"),
        ),
        (
            "image.tag=v1,global.imageRegistry=mirror.example.com:5000/all",
            "mirror.example.com:5000/all/pod-reloader:v1",
        ),
        (
            "image.tag=v1,global.imageRegistry=mirror.example.com/",
            "mirror.example.com/pod-reloader:v1",
        ),
        (
            "image.tag=v1,image.repository=team/app,global.imageRegistry=mirror.example.com",
            "mirror.example.com/team/app:v1",
        ),
        (
            "image.tag=v1,image.repository=localhost/team/app,global.imageRegistry=mirror.example.com",
            "mirror.example.com/team/app:v1",
        ),
    ] {
        for pod in pods(&rendered(&["--set", value])?) {
            let used = &pod["spec"]["containers"][0]["image"];
            ensure!(used == image, "{value}: {used}");
        }
    }
    Ok(())
}

#[test]
fn every_pod_has_the_global_pull_secrets_and_those_of_the_chart() -> Result<()> {
    let own = "imagePullSecrets[0].name=own,imagePullSecrets[1].name=mirror";
    for global in [
        r#"["mirror"]"#,
        r#"[{"name":"mirror","of":"another chart"}]"#,
    ] {
        let global = format!("global.imagePullSecrets={global}");
        for pod in pods(&rendered(&["--set-json", &global, "--set", own])?) {
            let secrets = &pod["spec"]["imagePullSecrets"];
            let expected = json!([{"name": "mirror"}, {"name": "own"}]);
            ensure!(*secrets == expected, "{global}: {secrets}");
        }
    }
    Ok(())
}

#[test]
fn common_labels_are_on_every_object_and_pod_and_in_no_selector() -> Result<()> {
    let own = "podLabels.team=a,pdb.labels.team=a,podMonitor.labels.team=a,serviceMonitor.labels.team=a,\
               prometheusRule.labels.team=a,grafanaDashboard.labels.team=a";
    let on = "commonLabels.team=b,commonLabels.app=c,pin.enabled=true,protect.enabled=true,\
              webhook.restrictedOtherwise=true,webhook.certManager.enabled=true,fence.enabled=true,\
              networkPolicy.enabled=true,prometheusRule.enabled=true,grafanaDashboard.enabled=true";
    let args = ["--set", on, "--set", own];
    let by_pods = rendered(&[&args[..], &["--set=podMonitor.enabled=true"]].concat())?;
    let by_services = rendered(&[&args[..], &["--set=serviceMonitor.enabled=true"]].concat())?;
    let pods_of_both = [pods(&by_pods), pods(&by_services)].concat();
    for object in by_pods.iter().chain(&by_services).chain(&pods_of_both) {
        let kind = &object["kind"];
        let metadata = &object["metadata"];
        let labels = &metadata["labels"];
        ensure!(labels["app"].is_string(), "{kind}: {metadata}");
        ensure!(labels["team"].is_string(), "{kind}: {metadata}");
        for path in [
            "/spec/selector",
            "/spec/podSelector",
            "/spec/affinity",
            "/spec/topologySpreadConstraints",
        ] {
            let selector = object.pointer(path).unwrap_or(&Value::Null);
            ensure!(!selector.to_string().contains("team"), "{kind}: {selector}");
        }
        let is_own = [
            "PodDisruptionBudget",
            "PodMonitor",
            "ServiceMonitor",
            "PrometheusRule",
        ];
        let is_own = is_own.iter().any(|own| kind == own);
        ensure!(!is_own || labels["team"] == "a", "{kind}: {labels}");
    }
    Ok(())
}

#[test]
fn labels_that_the_chart_or_kubernetes_sets_are_refused() -> Result<()> {
    refused_by_schema(&[
        (r"commonLabels.app\.kubernetes\.io/name=x", "/commonLabels"),
        (r"commonLabels.helm\.sh/chart=x", "/commonLabels"),
        ("commonLabels.pod-template-hash=x", "/commonLabels"),
        (
            r"commonLabels.pod-reloader\.github\.io/protect=x",
            "/commonLabels",
        ),
        (
            r"commonLabels.pod-reloader\.cs\.sap\.com/ignored=x",
            "/commonLabels",
        ),
        // The operator's ClusterRole would be a part of `view`, which could then read Secrets.
        (
            r"commonLabels.rbac\.authorization\.k8s\.io/aggregate-to-view=x",
            "/commonLabels",
        ),
        (r"podLabels.app\.kubernetes\.io/instance=x", "/podLabels"),
        (r"pdb.labels.app\.kubernetes\.io/instance=x", "/pdb/labels"),
        (r"podMonitor.labels.helm\.sh/chart=x", "/podMonitor/labels"),
        (
            r"serviceMonitor.labels.app\.kubernetes\.io/instance=x",
            "/serviceMonitor/labels",
        ),
        (
            r"prometheusRule.labels.app\.kubernetes\.io/version=x",
            "/prometheusRule/labels",
        ),
        (
            r"grafanaDashboard.labels.app\.kubernetes\.io/name=x",
            "/grafanaDashboard/labels",
        ),
    ])?;
    template(&[r"--set=commonLabels.app\.kubernetes\.io/part-of=platform"])?;
    // Service meshes read the version from pods.
    template(&[r"--set=podLabels.app\.kubernetes\.io/version=v1"])?;
    Ok(())
}

#[test]
fn a_label_of_one_object_can_be_empty_and_null_stands_for_unset() -> Result<()> {
    for (own, expected) in [
        (r#"{"team": ""}"#, json!("")),
        (r#"{"team": null}"#, json!("b")),
    ] {
        let own = format!("podLabels={own}");
        let common = r#"commonLabels={"team":"b","app":null}"#;
        let objects = rendered(&["--set-json", common, "--set-json", &own])?;
        for deployment in deployments(&objects) {
            let of_object = &deployment["metadata"]["labels"];
            let of_pod = &deployment["spec"]["template"]["metadata"]["labels"];
            ensure!(of_pod["team"] == expected, "{own}: {of_pod}");
            ensure!(of_object["team"] == "b", "{own}: {of_object}");
            let has_app = [of_object, of_pod].map(|labels| labels.get("app").is_some());
            ensure!(has_app == [false, false], "{own}: {of_pod}");
        }
    }
    Ok(())
}

#[test]
fn another_namespace_is_that_of_everything_but_the_test() -> Result<()> {
    let values = "namespaceOverride=tools,pin.enabled=true,protect.enabled=true,flux.enabled=true,\
                  webhook.restrictedOtherwise=true,webhook.certManager.enabled=true,fence.enabled=true,\
                  networkPolicy.enabled=true,podMonitor.enabled=true,prometheusRule.enabled=true";
    let rendered = template(&["--set=sync.enabled=true", "--set", values])?;
    for place in [
        "namespace: ",
        "system:serviceaccount:",
        "kube-system, ",
        ".svc",
        "inject-ca-from: ",
        "job=",
    ] {
        let lines = || rendered.lines().filter(|line| line.contains(place));
        ensure!(lines().any(|line| line.contains("tools")), "{place}");
        let of_release = lines().find(|line| {
            let ours = [
                "\"pod-reloader\"",
                ": pod-reloader/",
                "=\"pod-reloader/",
                ":pod-reloader:",
                "namespace: pod-reloader",
            ];
            ours.iter().any(|ours| line.contains(ours))
        });
        ensure!(of_release.is_none(), "{place}: {of_release:?}");
    }
    let own = template(&["--set=namespaceOverride=tools,watch.namespaces={tools}"]);
    ensure!(own.is_err(), "it would manage itself");
    template(&["--set=namespaceOverride=tools,watch.namespaces={pod-reloader}"])?;
    Ok(())
}

#[test]
fn a_namespace_of_digits_is_a_text_to_every_binding() -> Result<()> {
    let values = "flux.enabled=true,argoCD.enabled=true";
    let objects = rendered(&["--set-string=namespaceOverride=123", "--set", values])?;
    let subjects = objects
        .iter()
        .flat_map(|object| object["subjects"].as_array().into_iter().flatten())
        .filter(|subject| subject["name"] != "pod-reloader-test");
    let mut count = 0;
    for subject in subjects {
        ensure!(subject["namespace"] == "123", "{subject}");
        count += 1;
    }
    ensure!(count > 4, "{count}");
    Ok(())
}

/// Whatever is rendered by the namespace of the release forgets `namespaceOverride`.
#[test]
fn no_template_but_the_notes_uses_the_namespace_of_the_release() -> Result<()> {
    for entry in fs::read_dir(chart().join("templates"))? {
        let path = entry?.path();
        if path.is_dir() {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let uses = text.matches(".Release.Namespace").count();
        // Where the namespace of the operator is defined, and for `helm test`.
        let allowed = path.ends_with("_helpers.tpl") || path.ends_with("NOTES.txt");
        ensure!(uses == usize::from(allowed), "{}: {uses}", path.display());
    }
    Ok(())
}

#[test]
fn each_deployment_has_what_is_said_of_deployments() -> Result<()> {
    let fields = [
        ("/metadata/annotations", json!({"a": "b"})),
        ("/spec/revisionHistoryLimit", json!(0)),
        ("/spec/strategy", json!({"type": "Recreate"})),
    ];
    let values = "deploymentAnnotations.a=b,revisionHistoryLimit=0,strategy.type=Recreate";
    for values in [values.to_owned(), format!("hostNetwork=true,{values}")] {
        let objects = rendered(&["--set", &values])?;
        for deployment in deployments(&objects) {
            for (path, expected) in &fields {
                let found = deployment.pointer(path);
                ensure!(found == Some(expected), "{values}: {path}: {found:?}");
            }
        }
    }
    for deployment in deployments(&rendered(&[])?) {
        for (path, _) in &fields {
            let found = deployment.pointer(path);
            ensure!(found.is_none(), "by default: {path}: {found:?}");
        }
    }
    Ok(())
}

#[test]
fn both_processes_have_what_their_pods_get_in_addition() -> Result<()> {
    let at = |path: &str| format!("/spec/template/spec/{path}");
    let container = |path: &str| at(&format!("containers/0/{path}"));
    let values = [
        (
            r#"extraEnv=[{"name":"A","value":"b"}]"#,
            container("env/1"),
            json!({"name": "A", "value": "b"}),
        ),
        (
            r#"extraEnvFrom=[{"secretRef":{"name":"a"}}]"#,
            container("envFrom/0"),
            json!({"secretRef": {"name": "a"}}),
        ),
        (
            r#"extraVolumeMounts=[{"name":"a","mountPath":"/a"}]"#,
            container("volumeMounts/0"),
            json!({"name": "a", "mountPath": "/a"}),
        ),
        (
            r#"extraVolumes=[{"name":"a","emptyDir":{}}]"#,
            at("volumes/0"),
            json!({"name": "a", "emptyDir": {}}),
        ),
        (
            r#"extraContainers=[{"name":"a","image":"b"}]"#,
            at("containers/1"),
            json!({"name": "a", "image": "b"}),
        ),
    ];
    let args: Vec<_> = values
        .iter()
        .flat_map(|(value, ..)| ["--set-json", *value])
        .collect();
    let with = rendered(&args)?;
    let without = rendered(&[])?;
    for (value, path, expected) in &values {
        for deployment in deployments(&with) {
            let found = deployment.pointer(path);
            ensure!(found == Some(expected), "{value}: {found:?}");
        }
        for deployment in deployments(&without) {
            let found = deployment.pointer(path);
            ensure!(found.is_none(), "by default: {found:?}");
        }
    }
    // Beside those that the operator needs itself.
    let own =
        "webhook.existingSecret=tls,notifications.enabled=true,notifications.existingSecret=chat";
    let more = r#"extraVolumes=[{"name":"a","emptyDir":{}}]"#;
    let objects = rendered(&["--set", own, "--set-json", more])?;
    let operator = deployments(&objects)[0];
    let volumes = &operator["spec"]["template"]["spec"]["volumes"];
    let count = volumes.as_array().map_or(0, Vec::len);
    ensure!(count == 3, "{volumes}");
    Ok(())
}

#[test]
fn both_processes_have_the_settings_of_pods() -> Result<()> {
    let usual = deployments(&rendered(&[])?).map(pod_spec);
    let values = [
        (
            r#"dnsConfig={"searches":["a"]}"#,
            "/dnsConfig",
            json!({"searches": ["a"]}),
        ),
        (
            r#"hostAliases=[{"ip":"10.0.0.1","hostnames":["a"]}]"#,
            "/hostAliases",
            json!([{"ip": "10.0.0.1", "hostnames": ["a"]}]),
        ),
        (
            r#"runtimeClassName="gvisor""#,
            "/runtimeClassName",
            json!("gvisor"),
        ),
        (
            "terminationGracePeriodSeconds=60",
            "/terminationGracePeriodSeconds",
            json!(60),
        ),
        (
            r#"livenessProbe={"timeoutSeconds":5}"#,
            "/containers/0/livenessProbe",
            json!({"timeoutSeconds": 5, "httpGet": {"port": "probes", "path": "/healthz"}}),
        ),
        (
            r#"readinessProbe={"periodSeconds":9}"#,
            "/containers/0/readinessProbe",
            json!({"periodSeconds": 9, "httpGet": {"port": "probes", "path": "/readyz"}}),
        ),
    ];
    let args: Vec<_> = values
        .iter()
        .flat_map(|(value, ..)| ["--set-json", *value])
        .collect();
    let set = deployments(&rendered(&args)?).map(pod_spec);
    for (value, path, expected) in &values {
        for (pod, usual) in set.iter().zip(&usual) {
            ensure!(pod.pointer(path) == Some(expected), "{value}: {pod}");
            ensure!(usual.pointer(path) != Some(expected), "{value}: {usual}");
        }
    }
    Ok(())
}

#[test]
fn the_operator_listens_where_probes_and_prometheus_call() -> Result<()> {
    for (value, expected) in [
        ("ports.metrics=8080", "8080,8081"),
        (
            "ports.metrics=9090",
            "9090,8081 --metrics-bind-address=:9090",
        ),
        (
            "ports.probes=9091",
            "8080,9091 --health-probe-bind-address=:9091",
        ),
    ] {
        for deployment in deployments(&rendered(&["--set", value])?) {
            let found = listens(&pod_spec(deployment)["containers"][0]);
            ensure!(found == expected, "{value}: {found}");
        }
    }
    Ok(())
}

#[test]
fn a_monitor_of_either_kind_scrapes_both_processes_as_it_is_told() -> Result<()> {
    for (value, kind, endpoints) in [
        ("podMonitor", "PodMonitor", "podMetricsEndpoints"),
        ("serviceMonitor", "ServiceMonitor", "endpoints"),
    ] {
        let settings = json!({
            "enabled": true,
            "namespace": "monitoring",
            "labels": {"release": "prometheus"},
            "interval": "1m",
            "scrapeTimeout": "20s",
            "relabelings": [{"action": "labeldrop", "regex": "a"}],
            "metricRelabelings": [{"action": "drop", "regex": "b", "sourceLabels": ["c"]}],
        });
        let objects = rendered(&["--set-json", &format!("{value}={settings}")])?;
        let monitors: Vec<_> = of_kind(&objects, kind).collect();
        ensure!(monitors.len() == 2, "{monitors:?}");
        for monitor in monitors {
            let metadata = &monitor["metadata"];
            ensure!(metadata["namespace"] == "monitoring", "{metadata}");
            ensure!(metadata["labels"]["release"] == "prometheus", "{metadata}");
            let spec = &monitor["spec"];
            let names = json!({"matchNames": ["pod-reloader"]});
            ensure!(spec["namespaceSelector"] == names, "{spec}");
            let endpoint = &spec[endpoints][0];
            ensure!(endpoint["port"] == "metrics", "{endpoint}");
            for field in [
                "interval",
                "scrapeTimeout",
                "relabelings",
                "metricRelabelings",
            ] {
                ensure!(endpoint[field] == settings[field], "{field}: {endpoint}");
            }
            // It finds what it is to scrape: the pods of a Deployment, or a Service that has the port and finds them.
            let selector = &spec["selector"]["matchLabels"];
            let scraped = deployments(&objects).into_iter().filter(|deployment| {
                let pods = &deployment["spec"]["template"]["metadata"]["labels"];
                let mut services = of_kind(&objects, "Service").filter(|service| {
                    let ports = service["spec"]["ports"].as_array();
                    ports.is_some_and(|ports| ports.iter().any(|port| port["name"] == "metrics"))
                        && is_in(selector, &service["metadata"]["labels"])
                        && is_in(&service["spec"]["selector"], pods)
                        && names["matchNames"][0] == service["metadata"]["namespace"]
                });
                let of_deployment = names["matchNames"][0] == deployment["metadata"]["namespace"];
                match kind {
                    "PodMonitor" => is_in(selector, pods) && of_deployment,
                    _ => services.next().is_some() && services.next().is_none(),
                }
            });
            ensure!(scraped.count() == 1, "{kind}: {selector}");
        }
    }
    Ok(())
}

#[test]
fn the_namespaces_of_metrics_survive_a_scrape() -> Result<()> {
    for (value, kind, endpoints) in [
        ("podMonitor", "PodMonitor", "podMetricsEndpoints"),
        ("serviceMonitor", "ServiceMonitor", "endpoints"),
    ] {
        for is_on in [true, false] {
            let set = format!("{value}.enabled=true,metrics.byNamespace.enabled={is_on}");
            let objects = rendered(&["--set", &set])?;
            let monitors: Vec<_> = of_kind(&objects, kind).collect();
            ensure!(!monitors.is_empty(), "there is no {kind}");
            for monitor in monitors {
                let endpoint = &monitor["spec"][endpoints][0];
                ensure!((endpoint["honorLabels"] == true) == is_on, "{endpoint}");
            }
            let flags = objects.iter().filter(|object| {
                let arguments = &object["spec"]["template"]["spec"]["containers"][0]["args"];
                arguments.to_string().contains("--metrics-by-namespace")
            });
            ensure!(flags.count() == usize::from(is_on), "of the operator alone");
        }
    }
    Ok(())
}

#[test]
fn alerts_are_about_the_series_of_the_monitor_that_there_is() -> Result<()> {
    for (value, operator, both) in [
        (
            "podMonitor.enabled=true",
            r#"{job="pod-reloader/pod-reloader"}"#,
            r#"{job=~"pod-reloader/(pod-reloader|pod-reloader-writer)"}"#,
        ),
        (
            "podMonitor.enabled=true,podMonitor.namespace=monitoring",
            r#"{job="monitoring/pod-reloader"}"#,
            r#"{job=~"monitoring/(pod-reloader|pod-reloader-writer)"}"#,
        ),
        (
            "serviceMonitor.enabled=true,serviceMonitor.namespace=monitoring",
            r#"{job="pod-reloader-metrics",namespace="pod-reloader"}"#,
            r#"{job=~"(pod-reloader-metrics|pod-reloader-writer-metrics)",namespace="pod-reloader"}"#,
        ),
    ] {
        let objects = rendered(&["--set=prometheusRule.enabled=true", "--set", value])?;
        let rules = of_kind(&objects, "PrometheusRule").next();
        let groups = rules.and_then(|rules| rules["spec"]["groups"][0]["rules"].as_array());
        let expressions = groups.into_iter().flatten().map(|rule| &rule["expr"]);
        let expressions: Vec<_> = expressions.filter_map(Value::as_str).collect();
        for series in [operator, both] {
            let is_there = expressions.iter().any(|it| it.contains(series));
            ensure!(is_there, "{value}: {series} in {expressions:?}");
        }
    }
    Ok(())
}

#[test]
fn the_services_of_metrics_have_names_that_a_service_can_have() -> Result<()> {
    let name = format!(
        "fullnameOverride={},serviceMonitor.enabled=true",
        "x".repeat(63)
    );
    let objects = rendered(&["--set", &name])?;
    let names = of_kind(&objects, "Service").map(|service| &service["metadata"]["name"]);
    let mut names: Vec<_> = names.filter_map(Value::as_str).collect();
    names.sort_unstable();
    names.dedup();
    ensure!(names.len() == 3, "{names:?}");
    ensure!(names.iter().all(|name| name.len() <= 63), "{names:?}");
    Ok(())
}

#[test]
fn an_administrator_can_write_definitions_and_roles() -> Result<()> {
    let features = "pin.enabled=true,protect.enabled=true,webhook.restrictedOtherwise=true,flux.enabled=true,\
                    argoCD.enabled=true";
    let is_author_policy = |object: &&Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        object["kind"] == "ValidatingAdmissionPolicy" && name.ends_with("-author")
    };
    let rbac = ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
    let with = rendered(&[KINDS, "--set", features])?;
    for (value, kinds) in [
        ("crds.enabled=false", &["CustomResourceDefinition"][..]),
        ("rbac.create=false", &rbac[..]),
    ] {
        let without = rendered(&[KINDS, "--set", features, "--set", value])?;
        let mut count = with.len();
        for kind in kinds {
            let of_kind = of_kind(&with, kind).count();
            ensure!(of_kind > 1, "{kind}: {of_kind}");
            count -= of_kind;
        }
        let is_meant = |object: &Value| kinds.iter().any(|kind| object["kind"] == *kind);
        ensure!(!without.iter().any(is_meant), "{value}");
        ensure!(without.len() == count, "{value}: nothing else goes");
        let authors = without.iter().filter(is_author_policy).count();
        ensure!(authors == own_kinds().len(), "{value}: {authors}");
    }
    Ok(())
}

/// Whoever writes a ClusterConfigSync writes to all namespaces.
#[test]
fn view_reads_what_is_copied_and_bound_and_edit_writes_field_bindings_alone() -> Result<()> {
    let rules = |objects: &[Value], role: &str| {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{role}");
        let role = of_kind(objects, "ClusterRole")
            .find(|object| object["metadata"]["labels"][&label] == "true");
        role.map_or(Value::Null, |role| role["rules"].clone())
    };
    let rule = |resources: &[&str], verbs: &[&str]| json!([{"apiGroups": ["pod-reloader.github.io"], "resources": resources, "verbs": verbs}]);
    let read = ["get", "list", "watch"];
    let write = ["create", "update", "patch", "delete", "deletecollection"];
    let syncs = "clusterconfigsyncs";
    let bindings = "fieldbindings";
    let both = [KINDS];
    let only_syncs: [&str; 0] = [];
    let only_bindings = [KINDS, "--set=sync.enabled=false"];
    let neither = ["--set=sync.enabled=false"];
    let off = [KINDS, "--set=rbac.aggregateClusterRoles=false"];
    let of_namespaces = [KINDS, "--set=sync.enabled=false,watch.namespaces={shop}"];
    let of_syncs = rule(&[syncs], &read);
    let of_bindings = rule(&[bindings], &read);
    let writing = rule(&[bindings], &write);
    for (args, view, edit) in [
        (&both[..], rule(&[syncs, bindings], &read), writing.clone()),
        (&only_syncs[..], of_syncs, Value::Null),
        (&only_bindings[..], of_bindings, writing),
        (&neither[..], Value::Null, Value::Null),
        (&off[..], Value::Null, Value::Null),
        (&of_namespaces[..], Value::Null, Value::Null),
    ] {
        let objects = rendered(args)?;
        for (role, expected) in [("view", view), ("edit", edit)] {
            let found = rules(&objects, role);
            ensure!(found == expected, "{args:?}, {role}: {found}");
        }
    }
    Ok(())
}

#[test]
fn definitions_have_annotations_of_the_user_and_stay_all_the_same() -> Result<()> {
    let own = r"crds.annotations.a=b,crds.annotations.helm\.sh/resource-policy=delete,crds.annotations.argocd\.argoproj\.io/sync-options=ServerSideApply=true";
    let objects = rendered(&[KINDS, "--set", own])?;
    let definitions: Vec<_> = of_kind(&objects, "CustomResourceDefinition").collect();
    let count = definitions.len();
    ensure!(count == own_kinds().len(), "{count} are rendered");
    for definition in definitions {
        let annotations = &definition["metadata"]["annotations"];
        ensure!(annotations["a"] == "b", "{annotations}");
        let policy = &annotations["helm.sh/resource-policy"];
        ensure!(policy == "keep", "{annotations}");
        let options = &annotations["argocd.argoproj.io/sync-options"];
        let all = "Prune=false,Delete=false,ServerSideApply=true";
        ensure!(options == all, "{annotations}");
    }
    Ok(())
}

#[test]
fn the_pods_of_the_test_fit_into_quotas_and_onto_nodes_of_their_own() -> Result<()> {
    let tests = json!({
        "resources": {"limits": {"memory": "64Mi"}},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
    });
    let objects = rendered(&["--set-json", &format!("tests={tests}")])?;
    let of_test = pods(&objects)
        .into_iter()
        .filter(|pod| pod["spec"]["containers"][0]["name"] != "controller");
    let mut count = 0;
    for pod in of_test {
        let spec = &pod["spec"];
        ensure!(spec["nodeSelector"] == tests["nodeSelector"], "{spec}");
        ensure!(spec["tolerations"] == tests["tolerations"], "{spec}");
        let resources = &spec["containers"][0]["resources"];
        ensure!(*resources == tests["resources"], "{spec}");
        count += 1;
    }
    ensure!(count == 2, "{count}");
    Ok(())
}

#[test]
fn extra_objects_are_rendered_as_templates() -> Result<()> {
    // YAML would fold the first text, and escape quotes in the second.
    let long =
        "a text that is longer than the eighty characters after which YAML folds what it writes";
    let templates = [
        format!(r#"{{{{ printf "%s of %s" "{long}" .Release.Name }}}}"#),
        r#"it's "{{ .Release.Name }}": {{ quote .Chart.Name }}"#.to_owned(),
    ];
    let as_object = json!({
        "kind": "A",
        "metadata": {"name": "{{ .Release.Name }}-a"},
        "spec": {"texts": templates, "{{ .Chart.Name }}": [1_000_000, true, null, {}]},
    });
    let as_text = r#""kind: B\nmetadata:\n  name: {{ .Chart.Name }}-b""#;
    let value = format!("extraObjects=[{as_object},{as_text}]");
    let objects = rendered(&["--set-json", &value])?;
    for (kind, name) in [("A", "pod-reloader-a"), ("B", "pod-reloader-b")] {
        let object = objects.iter().find(|object| object["kind"] == kind);
        let object = object.context(kind)?;
        ensure!(object["metadata"]["name"] == name, "{object}");
    }
    let object = objects.iter().find(|object| object["kind"] == "A");
    let spec = &object.context("an object")?["spec"];
    let expected = json!({
        "texts": [
            format!("{long} of pod-reloader"),
            r#"it's "pod-reloader": "pod-reloader""#,
        ],
        "pod-reloader": [1_000_000, true, null, {}],
    });
    ensure!(*spec == expected, "{spec}");
    Ok(())
}

/// Returns the ports of a container for metrics and probes, and the flags that are about them.
fn listens(container: &Value) -> String {
    let ports = container["ports"].as_array().into_iter().flatten();
    let ports = ports.filter(|port| port["name"] != "webhook");
    let ports: Vec<_> = ports
        .map(|port| port["containerPort"].to_string())
        .collect();
    let args = container["args"].as_array().into_iter().flatten();
    let is_meant = |arg: &&str| arg.starts_with("--metrics-") || arg.starts_with("--health-");
    let flags = args.filter_map(Value::as_str).filter(is_meant);
    let words = [ports.join(",")]
        .into_iter()
        .chain(flags.map(str::to_owned));
    words.collect::<Vec<_>>().join(" ")
}

/// Returns true if labels have all that a selector asks for, which is something.
fn is_in(selector: &Value, labels: &Value) -> bool {
    let asked = selector.as_object().filter(|asked| !asked.is_empty());
    asked.is_some_and(|asked| asked.iter().all(|(key, value)| labels[key] == *value))
}

/// Returns the spec of the pods of a Deployment.
fn pod_spec(deployment: &Value) -> Value {
    deployment["spec"]["template"]["spec"].clone()
}

/// Renders the chart with a writer.
fn rendered(args: &[&str]) -> Result<Vec<Value>> {
    let rendered = template(&[&["--set=sync.enabled=true"], args].concat())?;
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&rendered).context("the chart renders YAML")?;
    Ok(objects.into_iter().filter(|it| !it.is_null()).collect())
}

/// Returns the objects of a kind.
fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

/// Returns the Deployments of the operator and of the writer.
///
/// # Panics
///
/// One of them is not there.
fn deployments(objects: &[Value]) -> [&Value; 2] {
    let is_ours = |object: &&Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        object["kind"] == "Deployment" && !name.ends_with("-test")
    };
    let deployments: Vec<_> = objects.iter().filter(is_ours).collect();
    deployments.try_into().expect("one for each process")
}

/// Returns the pods that the objects make: those of the operator and of the writer, and those of `helm test`.
///
/// # Panics
///
/// There are not as many.
fn pods(objects: &[Value]) -> Vec<Value> {
    let pods = objects.iter().filter_map(|object| match &object["kind"] {
        kind if kind == "Deployment" => Some(object["spec"]["template"].clone()),
        kind if kind == "Pod" => Some(object.clone()),
        _ => None,
    });
    let pods: Vec<_> = pods.collect();
    assert_eq!(pods.len(), 4, "two Deployments, and two pods of the test");
    pods
}
