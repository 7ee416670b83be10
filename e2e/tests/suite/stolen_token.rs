//! The powers of a stolen token, of the operator or of the writer: the table of docs/stolen-token.md, tried row by row.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use http::{Method, Request};
use kube::Client;
use pod_reloader_e2e::workload::{CONFIG_HASH, Kind, Workload, config_map, secret as secret_of};
use pod_reloader_e2e::{
    Options, PATIENCE, Scene, THIS_NAMESPACE, Tested, done_if, merge, wait_for,
};
use serde_json::{Value, json};

use self::Answer::{Policy, Rbac, Yes};
use crate::bind;

#[tokio::test]
async fn a_stolen_token_can_do_what_the_table_says_and_no_more() -> Result<()> {
    let options = Options {
        everywhere: true,
        // Leaves the workloads of other tests alone.
        values: selecting(),
        namespace_labels: vec![format!("stolen-token={THIS_NAMESPACE}")],
        released: true,
        ..Options::ignoring()
    };
    Scene::play(options.clone(), async |scene| {
        scene.operator.stop().await;
        scene.apply(&objects()).await?;
        // By default there is no namespace selector.
        answers(scene, Tested::Controller, &[(LIST_NAMESPACES, Yes)]).await?;

        let everywhere = options.values(&scene.namespace);
        let in_one = Options::ignoring();
        let in_one = in_one.values(&scene.namespace);
        let cert_manager = json!({"enabled": true});
        for (base, values, others) in [
            (
                &everywhere,
                json!({
                    "fence": {"enabled": true},
                    "pin": {"enabled": true},
                    "protect": {"enabled": true},
                    "unstick": {"enabled": true},
                    "httpReload": {"enabled": true},
                }),
                &[
                    (LIST_NAMESPACES, Yes),
                    (CHANGE_WORKLOADS, Policy),
                    (CHANGE_OWN_WORKLOADS, Policy),
                    (WRITE_CONFIG_MAPS, Policy),
                    (WRITE_COPIES, Yes),
                    (WRITE_KEPT, Yes),
                    (LIST_PODS, Yes),
                    (DELETE_PODS, Policy),
                    (DELETE_STUCK_PODS_AT_ONCE, Policy),
                    (DELETE_STUCK_PODS, Yes),
                    (SYNC_PODS, Yes),
                    (CHANGE_PODS, Policy),
                ][..],
            ),
            (
                &in_one,
                json!({
                    "customResources": ["cronjobs"],
                    "runCronJobsOnChange": true,
                    "webhook": {"certManager": cert_manager},
                    "flux": {"enabled": true},
                    "argoCD": {"enabled": true, "namespaces": ["default"]},
                }),
                &[
                    (READ_SECRETS, Rbac),
                    (READ_CONFIG_MAPS, Rbac),
                    (READ_RELEASES, Yes),
                    (CHANGE_OWN_WORKLOADS, Rbac),
                    (CREATE_JOB, Policy),
                    (CREATE_JOB_OF_CRON_JOB, Yes),
                    (ADD_ACTIVE_JOB, Yes),
                    (CHANGE_CRON_JOB_STATUS, Policy),
                    (CHANGE_OWN_WEBHOOK, Rbac),
                    (CHANGE_CA_BUNDLE, Rbac),
                    (REPLACE_CA, Rbac),
                ],
            ),
            (
                &everywhere,
                json!({"reconcile": "observe", "ignoreSecrets": true}),
                &[
                    (LIST_NAMESPACES, Yes),
                    (READ_SECRETS, Rbac),
                    (CHANGE_WORKLOADS, Rbac),
                    (CHANGE_OWN_WORKLOADS, Rbac),
                    (RESTART_WORKLOADS, Rbac),
                ],
            ),
            (
                &everywhere,
                json!({
                    "reconcile": "none",
                    "ignoreConfigMaps": true,
                    "hashKeysSecret": hash_keys(&scene.installation.namespace),
                    "webhook": {"certManager": cert_manager},
                }),
                &[
                    (READ_CONFIG_MAPS, Rbac),
                    (CHANGE_WORKLOADS, Rbac),
                    (CHANGE_OWN_WORKLOADS, Rbac),
                    (RESTART_WORKLOADS, Rbac),
                    (MINT_BY_SECRET, Rbac),
                    (CREATE_KEYS, Rbac),
                    (CREATE_SECRET, Rbac),
                    (CHANGE_OWN_WEBHOOK, Rbac),
                    (CHANGE_CA_BUNDLE, Rbac),
                    (REPLACE_CA, Rbac),
                    (TAKE_LEASE, Rbac),
                    (CREATE_LEASE, Rbac),
                    (WRITE_EVENTS, Rbac),
                ],
            ),
        ] {
            let mut all = base.clone();
            merge(&mut all, &values);
            scene.installation.clone().upgrade(&all).await?;
            let answered = answers(scene, Tested::Controller, others);
            answered.await.context(values)?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn beside_a_writer_each_of_two_stolen_tokens_can_do_what_the_table_says() -> Result<()> {
    let mut values = json!({
        "sync": {"enabled": true},
        "secretProviderClasses": {"enabled": true},
        "namespaceAnnotations": {"enabled": true},
    });
    merge(&mut values, &selecting());
    let operators = [
        (CHANGE_OWN_WORKLOADS, Policy),
        (LIST_NAMESPACES, Yes),
        (LIST_PODS, Yes),
        (LIST_MOUNTED, Yes),
        (LIST_BINDINGS, Yes),
    ];
    both_tokens(true, values, &operators, &[]).await
}

#[tokio::test]
async fn the_stolen_token_of_a_writer_that_only_fills_fields_writes_no_object_of_kubernetes()
-> Result<()> {
    let operators = [
        (READ_SECRETS, Rbac),
        (READ_CONFIG_MAPS, Rbac),
        (CHANGE_OWN_WORKLOADS, Rbac),
        (LIST_BINDINGS, Yes),
    ];
    let writers = [
        READ_SECRETS,
        READ_CONFIG_MAPS,
        CREATE_KEYS,
        MINT_BY_SECRET,
        CREATE_SECRET,
        CHANGE_SECRETS,
        WRITE_CONFIG_MAPS,
        WRITE_COPIES,
        WRITE_KEPT,
        WRITE_SYNCED,
        WRITE_SYNCED_ELSEWHERE,
        LIST_SYNCS,
        CHANGE_SYNC_STATUS,
        REPLACE_CA,
        LIST_NAMESPACES,
    ];
    let writers = writers.map(|row| (row, Rbac));
    both_tokens(false, json!({}), &operators, &writers).await
}

/// Asserts that the tokens of both processes get the answers of the table, except for those of `operators` and `writers`,
/// with bound fields and these values.
async fn both_tokens(
    everywhere: bool,
    values: Value,
    operators: &[(&str, Answer)],
    writers: &[(&str, Answer)],
) -> Result<()> {
    let options = Options {
        tested: Tested::Controller,
        everywhere,
        // What there is to copy and to fill belongs to other tests.
        args: vec!["--reconcile=none".to_owned()],
        namespace_labels: vec![format!("stolen-token={THIS_NAMESPACE}")],
        failure_policy: "Ignore",
        ..bind::binding_fields(values)
    };
    Scene::play(options, async |scene| {
        bind::with_definitions(&scene.control_plane).await?;
        scene.apply(&objects()).await?;
        scene.apply(&[bind::harbor(json!({}))]).await?;
        answers(scene, Tested::Controller, operators).await?;
        answers(scene, Tested::Writer, writers).await
    })
    .await
}

/// Returns values that leave the workloads of other tests alone.
fn selecting() -> Value {
    let labels = json!({"stolen-token": THIS_NAMESPACE});
    json!({"watch": {"namespaceSelector": {"matchLabels": labels}}})
}

/// Returns the objects that [`tries`] asks about.
fn objects() -> Vec<Value> {
    let not_ready = |name: &str, field: &str, value: &str| {
        Workload::new(Kind::StatefulSet, name)
            .with(&["spec", "template", "spec", field], json!(value))
            .manifest()
    };
    vec![
        Workload::deployment("web").manifest(),
        Workload::new(Kind::StatefulSet, "ready").manifest(),
        not_ready("stuck", "schedulerName", "nobody"),
        // Its node is nobody's, so it never becomes ready.
        not_ready("started", "nodeName", "nowhere"),
        alone(),
        config_map("theirs", "1"),
        secret_of("theirs", "1"),
        copy("copy-0123456789"),
        copy("renamed"),
        kept("kept-by-somebody-else"),
        batch(
            "Job",
            "alone",
            json!({"suspend": true, "template": never()}),
        ),
        batch(
            "CronJob",
            "nightly",
            json!({
                "schedule": "0 0 1 1 *",
                "suspend": true,
                "jobTemplate": {"spec": {"template": never()}},
            }),
        ),
    ]
}

/// The apiserver's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The request would succeed.
    Yes,
    /// The process lacks the right.
    Rbac,
    /// The process has the right, but a policy refuses this use of it.
    Policy,
}

/// Returns the table's answers for a process: for the operator with the default values, and for the writer with copies
/// and bound fields in all namespaces.
fn documented(process: Tested) -> Result<BTreeMap<String, Answer>> {
    let page = include_str!("../../../docs/stolen-token.md");
    let (_, section) = page
        .split_once("\n## What each token can do\n")
        .context("the page has the section")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let rows = rows.skip(2).map(|row| {
        let cells = row.trim_matches('|').split(" | ").map(str::trim);
        let cells: Vec<_> = cells.collect();
        let [row, of_operator, of_writer, _] = cells[..] else {
            anyhow::bail!("{row}: not four cells");
        };
        let answer = match process {
            Tested::Controller => of_operator,
            Tested::Writer => of_writer,
        };
        let answer = match answer {
            "yes" => Yes,
            "no: RBAC" => Rbac,
            "no: policy" => Policy,
            other => anyhow::bail!("{other}: no answer"),
        };
        Ok((row.to_owned(), answer))
    });
    rows.collect()
}

/// Asserts that the token of a process gets the answers of the table, except for `others`, once the policies are in
/// force.
async fn answers(scene: &Scene, process: Tested, others: &[(&str, Answer)]) -> Result<()> {
    let mut expected = documented(process)?;
    for (row, answer) in others {
        let answered = expected.get_mut(*row);
        *answered.with_context(|| format!("no row: {row}"))? = *answer;
    }
    let installation = match process {
        Tested::Controller => &scene.installation,
        Tested::Writer => scene.others_installation()?,
    };
    let client = scene.client_of(installation).await?;
    let own = &*scene.installation.namespace;
    let writer = format!("{own}-writer");
    let leases = match process {
        Tested::Controller => [own, &*writer],
        Tested::Writer => [&*writer, own],
    };
    let tries = tries(process, own, &scene.namespace, leases);
    let tried: BTreeSet<_> = tries.iter().map(|(row, _)| *row).collect();
    let documented: BTreeSet<_> = expected.keys().map(String::as_str).collect();
    ensure!(tried == documented, "{tried:#?}\n{documented:#?}");
    wait_for("the answers of the table", PATIENCE, async || {
        let mut wrong = Vec::new();
        for (row, requests) in &tries {
            for request in requests {
                let answer = answer(&client, request).await?;
                if Some(expected[*row]) != answer {
                    wrong.push(format!("{row}: {answer:?} to {request:?}"));
                }
            }
        }
        done_if(wrong.is_empty(), wrong.join("\n"))
    })
    .await
    .with_context(|| format!("{process:?}"))
}

/// Returns the answer to a request; `None` if the apiserver asks to try again later, as for the objects of a CRD that
/// another test has just changed.
async fn answer(client: &Client, (method, path, body): &Try) -> Result<Option<Answer>> {
    let content_type = match *method {
        Method::PATCH if body.is_array() => "application/json-patch+json",
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let mut request = Request::builder()
        .method(method)
        .uri(match *method {
            Method::GET => path.clone(),
            // Nothing is done, but everything is asked.
            _ => format!("{path}?dryRun=All"),
        })
        .header("content-type", content_type);
    if path == IMPERSONATED {
        request = request.header("impersonate-user", "system:admin");
    }
    let body = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    match client.request::<Value>(request.body(body)?).await {
        Ok(_) => Ok(Some(Yes)),
        Err(kube::Error::Api(status)) => match status.code {
            403 | 422 if status.message.contains("ValidatingAdmissionPolicy") => Ok(Some(Policy)),
            403 => Ok(Some(Rbac)),
            // The process has the right, but the object does not exist, or exists already.
            404 | 409 => Ok(Some(Yes)),
            429 => Ok(None),
            _ => Err(anyhow::anyhow!("{method} {path}: {}", status.message)),
        },
        Err(error) => Err(error.into()),
    }
}

/// Method, path, and body.
type Try = (Method, String, Value);

/// Returns one or more requests for each row. Both processes are in the namespace `own`, and have `leases`, first that of
/// the process whose token is tried. A Deployment `web`, the pods `ready-0`, `stuck-0` and `started-0` of StatefulSets, a
/// pod `alone`, a ConfigMap and a Secret `theirs`, and the ConfigMaps `copy-0123456789` and `renamed`, copies by their
/// labels, are in `shop`.
fn tries(
    process: Tested,
    own: &str,
    shop: &str,
    [lease, others_lease]: [&str; 2],
) -> Vec<(&'static str, Vec<Try>)> {
    let core = |namespace: &str, rest: &str| format!("/api/v1/namespaces/{namespace}/{rest}");
    let api = |group: &str, namespace: &str, rest: &str| {
        format!("/apis/{group}/v1/namespaces/{namespace}/{rest}")
    };
    let webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let web = api("apps", shop, "deployments/web");
    let get = |path: String| (Method::GET, path, Value::Null);
    let post = |path: String, body: Value| (Method::POST, path, body);
    let patch = |path: String, body: Value| (Method::PATCH, path, body);
    let put = |path: String, body: Value| (Method::PUT, path, body);
    let delete = |path: String| (Method::DELETE, path, Value::Null);
    let named = |name: &str| json!({"metadata": {"name": name}});
    let secret = |name: &str, kind: &str| {
        let account = json!({"kubernetes.io/service-account.name": "default"});
        json!({"metadata": {"name": name, "annotations": account}, "type": kind})
    };
    let token = "kubernetes.io/service-account-token";
    let template = |part: Value| json!({"spec": {"template": part}});
    let containers = json!([{"name": "evil", "image": "evil"}]);
    let pod = json!({"containers": containers, "restartPolicy": "Never"});
    let job = |owners: Value| {
        json!({
            "metadata": {"name": "evil", "ownerReferences": owners},
            "spec": {"template": {"spec": pod}},
        })
    };
    let owner = |api_version: &str, kind: &str, controller: bool| {
        json!([{
            "apiVersion": api_version, "kind": kind, "name": "nightly", "uid": "1",
            "controller": controller,
        }])
    };
    let webhook = json!({"webhooks": [{
        "name": "pod-reloader.cs.sap.com",
        "clientConfig": {"url": "https://evil.example.com"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [{
            "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["secrets"],
        }],
    }]});
    let event = json!({
        "metadata": {"name": "evil", "namespace": shop},
        "eventTime": "2026-11-22T08:00:00.000000Z",
        "reportingController": "pod-reloader",
        "reportingInstance": "evil",
        "action": "Restart", "reason": "ConfigChanged", "type": "Normal",
        "regarding": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": shop},
    });
    let jobs = api("batch", shop, "jobs");
    let cron_job_status = api("batch", shop, "cronjobs/nightly/status");
    let active_job = |namespace: &str| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "name": "evil", "namespace": namespace, "uid": "1",
        })
    };
    let leases = |rest: &str| api("coordination.k8s.io", own, rest);
    let hash = json!({"metadata": {"annotations": {CONFIG_HASH: "evil"}}});
    let bound = format!("/apis/goharbor.io/v1beta1/namespaces/{shop}/harbors/registry");
    let ours = "/apis/pod-reloader.github.io/v1alpha1";
    let marked = |namespace: &str, kind: &str, seal: Option<String>| {
        let mut marked = secret("another", kind);
        let annotations = &mut marked["metadata"]["annotations"];
        annotations[COPY_OF] = json!(format!("any/another@{namespace}"));
        if let Some(seal) = seal {
            annotations[SEAL] = json!(seal);
        }
        marked
    };
    let seal = || Some("0".repeat(32));
    let create_secret = |body: Value| post(core(own, "secrets"), body);
    let create_config_map = |body: Value| post(core(shop, "configmaps"), body);
    let change_web = |body: Value| patch(web.clone(), body);
    let change_pod = |body: Value| patch(core(shop, "pods/alone"), body);
    let change_cron_job_status = |body: Value| patch(cron_job_status.clone(), body);
    let change_bound = |body: Value| patch(bound.clone(), body);
    let change_webhook = |body: Value| patch(format!("{webhooks}/{own}"), body);
    vec![
        (READ_SECRETS, vec![get(core("kube-public", "secrets/any"))]),
        (
            READ_CONFIG_MAPS,
            vec![get(core("kube-public", "configmaps/any"))],
        ),
        (
            READ_RELEASES,
            vec![
                get(api(
                    "kustomize.toolkit.fluxcd.io",
                    "kube-public",
                    "kustomizations",
                )),
                get("/apis/argoproj.io/v1alpha1/namespaces/default/applications".to_owned()),
            ],
        ),
        (
            READ_KEYS,
            vec![get(core(own, &format!("secrets/{}", hash_keys(own))))],
        ),
        (
            CREATE_KEYS,
            vec![create_secret(secret(&hash_keys(own), "Opaque"))],
        ),
        (
            CHANGE_WORKLOADS,
            vec![
                change_web(template(json!({"spec": {"containers": containers}}))),
                change_web(json!({"spec": {"replicas": 0}})),
            ],
        ),
        (
            CHANGE_OWN_WORKLOADS,
            vec![patch(
                api("apps", own, &format!("deployments/{own}")),
                json!({"spec": {"replicas": 1}}),
            )],
        ),
        (RESTART_WORKLOADS, vec![change_web(template(hash))]),
        (
            CREATE_WORKLOADS,
            vec![
                delete(web),
                post(api("apps", shop, "deployments"), named("evil")),
                post(core(shop, "pods"), named("evil")),
                post(core(shop, "pods/any/exec"), Value::Null),
            ],
        ),
        (
            CREATE_JOB,
            vec![
                post(jobs.clone(), job(json!([]))),
                post(jobs.clone(), job(owner("batch/v1", "CronJob", false))),
                post(jobs.clone(), job(owner("v1", "ConfigMap", true))),
                delete(format!("{jobs}/alone")),
            ],
        ),
        (
            CREATE_JOB_OF_CRON_JOB,
            vec![
                post(jobs.clone(), job(owner("batch/v1", "CronJob", true))),
                // There is none, but it would be deleted.
                delete(format!("{jobs}/any")),
            ],
        ),
        (
            ADD_ACTIVE_JOB,
            vec![change_cron_job_status(
                json!({"status": {"active": [active_job(shop)]}}),
            )],
        ),
        (
            CHANGE_CRON_JOB_STATUS,
            vec![
                change_cron_job_status(json!({"status": {"active": [active_job("kube-system")]}})),
                change_cron_job_status(
                    json!({"status": {"lastScheduleTime": "2026-11-22T08:00:00Z"}}),
                ),
            ],
        ),
        (
            MINT_BY_REQUEST,
            vec![
                post(
                    core(own, "serviceaccounts/default/token"),
                    json!({"spec": {}}),
                ),
                post(
                    core(shop, "serviceaccounts/default/token"),
                    json!({"spec": {}}),
                ),
            ],
        ),
        (
            MINT_BY_SECRET,
            vec![
                create_secret(secret("evil", token)),
                create_secret(secret(&hash_keys(own), token)),
                create_secret(secret(&format!("{own}-tls"), token)),
            ],
        ),
        (CREATE_SECRET, vec![create_secret(secret("evil", "Opaque"))]),
        (
            CHANGE_SECRETS,
            vec![
                post(core(shop, "secrets"), secret("evil", "Opaque")),
                put(core(shop, "secrets/theirs"), named("theirs")),
                delete(core(shop, "secrets/theirs")),
                put(core(shop, "configmaps/theirs"), named("theirs")),
                delete(core(own, &format!("secrets/{}", hash_keys(own)))),
            ],
        ),
        (
            WRITE_CONFIG_MAPS,
            vec![
                create_config_map(named("evil")),
                create_config_map({
                    let mut mutable = copy("evil-0123456789");
                    mutable["immutable"] = json!(false);
                    mutable
                }),
                post(
                    core(own, "configmaps"),
                    json!({"metadata": {"name": "evil"}, "immutable": true}),
                ),
                delete(core(shop, "configmaps/kube-root-ca.crt")),
                // Somebody has renamed a copy.
                delete(core(shop, "configmaps/renamed")),
                delete(core(shop, "configmaps/kept-by-somebody-else")),
                create_config_map({
                    let mut tracked = kept("evil");
                    tracked["metadata"]["labels"]["grafana_dashboard"] = json!("1");
                    tracked
                }),
                create_config_map({
                    let mut mutable = stored("evil-kept-0123456789");
                    mutable["immutable"] = json!(false);
                    mutable
                }),
                create_config_map(stored("evil")),
            ],
        ),
        (
            WRITE_KEPT,
            vec![
                create_config_map(kept("another")),
                create_config_map(stored("another-kept-0123456789")),
            ],
        ),
        (
            WRITE_COPIES,
            vec![
                create_config_map(copy("another-0123456789")),
                delete(core(shop, "configmaps/copy-0123456789")),
            ],
        ),
        (
            WRITE_SYNCED,
            vec![post(core(shop, "secrets"), marked(shop, "Opaque", seal()))],
        ),
        (
            WRITE_SYNCED_ELSEWHERE,
            vec![
                post(
                    core("kube-public", "secrets"),
                    marked("kube-public", "Opaque", seal()),
                ),
                post(core(shop, "secrets"), marked(shop, "Opaque", None)),
                post(core(shop, "secrets"), marked(shop, token, seal())),
            ],
        ),
        (LIST_SYNCS, vec![get(format!("{ours}/clusterconfigsyncs"))]),
        (
            CHANGE_SYNC_STATUS,
            vec![patch(
                format!("{ours}/clusterconfigsyncs/any/status"),
                json!({"status": {}}),
            )],
        ),
        (
            SYNC_PODS,
            vec![change_pod(
                json!({"metadata": {"annotations": {CONFIG_SYNC: "now"}}}),
            )],
        ),
        (
            CHANGE_PODS,
            vec![
                change_pod(
                    json!({"metadata": {"annotations": {CONFIG_SYNC: "now", "evil": "yes"}}}),
                ),
                change_pod(json!({"metadata": {"labels": {"app": "web"}}})),
                change_pod(
                    json!({"metadata": {"ownerReferences": owner("v1", "ConfigMap", true)}}),
                ),
                change_pod(
                    json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]),
                ),
            ],
        ),
        (
            DELETE_PODS,
            vec![
                delete(core(shop, "pods/ready-0")),
                delete(core(shop, "pods/alone")),
            ],
        ),
        (
            DELETE_STUCK_PODS,
            vec![
                delete(core(shop, "pods/stuck-0")),
                delete(core(shop, "pods/started-0")),
            ],
        ),
        (
            DELETE_STUCK_PODS_AT_ONCE,
            vec![(
                Method::DELETE,
                core(shop, "pods/started-0"),
                // With a body, the apiserver does not look at the query.
                json!({"gracePeriodSeconds": 0, "dryRun": ["All"]}),
            )],
        ),
        (READ_BOUND, vec![get(bound.clone())]),
        (
            CHANGE_BOUND,
            vec![change_bound(
                json!({"spec": {"externalURL": "https://evil"}}),
            )],
        ),
        (
            CHANGE_BOUND_METADATA,
            vec![
                change_bound(json!({"metadata": {"annotations": {"evil": "yes"}}})),
                change_bound(
                    json!({"metadata": {"ownerReferences": owner("v1", "ConfigMap", true)}}),
                ),
            ],
        ),
        (
            LIST_BINDINGS,
            vec![get(format!("{ours}/namespaces/{shop}/fieldbindings"))],
        ),
        (
            CHANGE_BINDING_STATUS,
            vec![patch(
                format!("{ours}/namespaces/{shop}/fieldbindings/any/status"),
                json!({"status": {}}),
            )],
        ),
        (LIST_PODS, vec![get(core(shop, "pods"))]),
        (
            LIST_REVISIONS,
            vec![
                get(api("apps", shop, "replicasets")),
                get(api("apps", shop, "controllerrevisions")),
            ],
        ),
        (
            LIST_MOUNTED,
            vec![get(api(
                "secrets-store.csi.x-k8s.io",
                shop,
                "secretproviderclasspodstatuses",
            ))],
        ),
        (
            REPLACE_CA,
            vec![
                // As far as they go, the operator may patch it, and the writer may replace it.
                match process {
                    Tested::Controller => patch(
                        core(own, &format!("secrets/{own}-tls")),
                        json!({"data": {"tls.crt": "", "tls.key": ""}}),
                    ),
                    Tested::Writer => put(
                        core(own, &format!("secrets/{own}-tls")),
                        json!({
                            "metadata": {"name": format!("{own}-tls")},
                            "type": "kubernetes.io/tls",
                            "data": {"tls.crt": "", "tls.key": ""},
                        }),
                    ),
                },
            ],
        ),
        (
            CHANGE_OWN_WEBHOOK,
            vec![
                change_webhook(webhook.clone()),
                change_webhook(
                    json!([{"op": "replace", "path": "/webhooks/0/rules/0/resources", "value": ["*"]}]),
                ),
                change_webhook(
                    json!({"metadata": {"ownerReferences": owner("v1", "ConfigMap", true)}}),
                ),
            ],
        ),
        (
            CHANGE_CA_BUNDLE,
            vec![change_webhook(
                json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]),
            )],
        ),
        (
            CHANGE_OTHER_WEBHOOK,
            vec![
                patch(format!("{webhooks}/any"), webhook),
                post(webhooks.to_owned(), named("evil")),
                delete(format!("{webhooks}/{own}")),
            ],
        ),
        (
            TAKE_LEASE,
            vec![patch(
                leases(&format!("leases/{lease}")),
                json!({"spec": {"holderIdentity": "evil"}}),
            )],
        ),
        (
            TAKE_OTHERS_LEASE,
            vec![patch(
                leases(&format!("leases/{others_lease}")),
                json!({"spec": {"holderIdentity": "evil"}}),
            )],
        ),
        (
            CREATE_LEASE,
            vec![
                post(leases("leases"), named("evil")),
                post(leases("leases"), named(others_lease)),
            ],
        ),
        (
            WRITE_EVENTS,
            vec![post(api("events.k8s.io", shop, "events"), event)],
        ),
        (
            GAIN_RIGHTS,
            vec![
                patch(format!("{rbac}/clusterroles/{own}"), json!({"rules": []})),
                post(format!("{rbac}/clusterrolebindings"), named("evil")),
                post(
                    api("rbac.authorization.k8s.io", own, "rolebindings"),
                    named("evil"),
                ),
                get(IMPERSONATED.to_owned()),
                delete(format!("{POLICIES}/{own}-guard")),
                delete(format!("{POLICIES}/{own}-writer-guard")),
            ],
        ),
        (LIST_NAMESPACES, vec![get("/api/v1/namespaces".to_owned())]),
    ]
}

fn batch(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Returns the pod template of a Job.
fn never() -> Value {
    let containers = json!([{"name": "main", "image": "app:1"}]);
    json!({"spec": {"restartPolicy": "Never", "containers": containers}})
}

/// Returns a pod of nobody that is never ready.
fn alone() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "alone"},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "app:1"}]},
    })
}

/// Returns a ConfigMap like those that pods are pinned to.
fn copy(name: &str) -> Value {
    let labels = json!({"pod-reloader.cs.sap.com/copy": "true"});
    let annotations = json!({"pod-reloader.cs.sap.com/copy-of": "any"});
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "immutable": true,
    })
}

/// Returns a ConfigMap like those that come back while they are in use.
fn kept(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"pod-reloader.cs.sap.com/kept": "true"}},
    })
}

/// Returns a ConfigMap like those in which they are stored.
fn stored(name: &str) -> Value {
    let mut object = kept(name);
    object["metadata"]["labels"] = json!({"pod-reloader.cs.sap.com/kept": "stored"});
    // The policy cannot tell whether a seal holds.
    object["metadata"]["annotations"] = json!({
        "pod-reloader.cs.sap.com/kept-object": "any/1/2",
        "pod-reloader.cs.sap.com/seal": "0".repeat(32),
    });
    object["immutable"] = json!(true);
    object
}

fn hash_keys(own: &str) -> String {
    format!("{own}-hash-keys")
}

// The rows of the table.
const READ_SECRETS: &str = "read any Secret, also the token of a ServiceAccount that is in one";
const READ_RELEASES: &str =
    "read the Kustomizations of Flux or the Applications of Argo CD, and the values that they hold";
const READ_CONFIG_MAPS: &str = "read any ConfigMap";
const READ_KEYS: &str = "read the keys of the hash, try guesses of what a hash covers, and make [seals](copy.md#marks-and-seals)";
const CREATE_KEYS: &str = "create the Secret with these keys, if it is missing";
const CHANGE_WORKLOADS: &str = "change a workload in any way: run any image, as any ServiceAccount";
const CHANGE_OWN_WORKLOADS: &str =
    "change a workload of its own namespace, such as the Deployment of the writer";
const RESTART_WORKLOADS: &str = "restart a workload, by the annotations of pod-reloader";
const CREATE_WORKLOADS: &str = "create or delete workloads, create pods, or run a command in one";
const DELETE_STUCK_PODS: &str = "delete a pod that is not ready and belongs to a StatefulSet";
const DELETE_STUCK_PODS_AT_ONCE: &str = "delete such a pod without the time that it gets to end";
const SYNC_PODS: &str = "change the annotation `pod-reloader.cs.sap.com/config-sync` of a pod";
const CHANGE_PODS: &str = "change anything else of a pod, such as its image or its labels";
const DELETE_PODS: &str = "delete any other pod";
const CREATE_JOB: &str = "create a Job, or delete one";
const CREATE_JOB_OF_CRON_JOB: &str = "create a Job that says it is of a CronJob, or delete one";
const ADD_ACTIVE_JOB: &str =
    "add a Job of the same namespace to the active Jobs in the status of a CronJob";
const CHANGE_CRON_JOB_STATUS: &str = "change anything else in the status of a CronJob";
const MINT_BY_REQUEST: &str = "have a token made for a ServiceAccount by a TokenRequest";
const MINT_BY_SECRET: &str = "have a token made for a ServiceAccount by a Secret of type `kubernetes.io/service-account-token`";
const CREATE_SECRET: &str = "create a Secret with another name in its own namespace";
const CHANGE_SECRETS: &str =
    "change ConfigMaps, change or delete Secrets, or create Secrets elsewhere";
const WRITE_CONFIG_MAPS: &str = "create a ConfigMap, or delete one";
const WRITE_COPIES: &str = "create an immutable ConfigMap with the label, annotation and name of a copy, or delete one that has them";
const WRITE_KEPT: &str = "create a ConfigMap with the label `pod-reloader.cs.sap.com/kept` and no other, or delete one that nobody else has written";
const WRITE_SYNCED: &str = "write a ConfigMap or Secret that is marked as the copy of a ClusterConfigSync in its namespace";
const WRITE_SYNCED_ELSEWHERE: &str =
    "write such an object in `kube-*`, without a seal, or of a type that is never copied";
const LIST_SYNCS: &str = "read ClusterConfigSyncs";
const CHANGE_SYNC_STATUS: &str = "change the status of a ClusterConfigSync";
const READ_BOUND: &str =
    "read custom resources whose fields may be bound, and the values that they hold";
const CHANGE_BOUND: &str = "change the spec of a custom resource whose fields may be bound";
const CHANGE_BOUND_METADATA: &str = "change anything else of it";
const LIST_BINDINGS: &str = "read FieldBindings";
const CHANGE_BINDING_STATUS: &str = "change the status of a FieldBinding";
const LIST_PODS: &str = "list pods, with the variables that are written there";
const LIST_REVISIONS: &str = "list ReplicaSets and ControllerRevisions, with the same";
const LIST_MOUNTED: &str =
    "list SecretProviderClassPodStatuses, with the IDs and versions of what is mounted";
const REPLACE_CA: &str = "replace the CA and the certificate of the webhook";
const CHANGE_OWN_WEBHOOK: &str = "change the webhook configuration of the release: read and change what others write, of any kind";
const CHANGE_CA_BUNDLE: &str =
    "change the `caBundle` of that webhook configuration, so that the webhook cannot be called";
const CHANGE_OTHER_WEBHOOK: &str = "change another webhook configuration, or create or delete one";
const TAKE_LEASE: &str = "take its own Lease, so that its controllers stop";
const TAKE_OTHERS_LEASE: &str = "take the Lease of the other process";
const CREATE_LEASE: &str = "create another Lease in its own namespace";
const WRITE_EVENTS: &str = "write Events";
const GAIN_RIGHTS: &str = "change roles, bindings or policies, or impersonate somebody";
const LIST_NAMESPACES: &str = "list namespaces with their labels";

const COPY_OF: &str = "pod-reloader.cs.sap.com/copy-of";
const SEAL: &str = "pod-reloader.cs.sap.com/seal";
const CONFIG_SYNC: &str = "pod-reloader.cs.sap.com/config-sync";
const IMPERSONATED: &str = "/api/v1/nodes";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
