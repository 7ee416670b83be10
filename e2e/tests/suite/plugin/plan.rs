//! `plan`: what it says would restart is what then restarts.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::workload::{Kind, Workload, config_map, secret};
use pod_reloader_e2e::{Attempt, CANARY, Options, Output, PATIENCE, Scene, mentions, wait_for};
use serde_json::{Value, json};

use crate::held_up::{RESTART_WINDOW, closed_window};

/// A workload with objects of its own, before and after an application.
struct Case {
    name: &'static str,
    /// What the plan says of it.
    restarts: &'static str,
    /// A part of the reason that the plan gives.
    reason: &'static str,
    now: Vec<Value>,
    after: Vec<Value>,
}

#[tokio::test]
async fn what_a_plan_says_is_what_then_happens() -> Result<()> {
    let options = Options {
        settle_period: "2s",
        values: json!({"dialects": ["pod-reloader", "stakater"]}),
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let cases = cases();
        let now = cases.iter().flat_map(|it| it.now.clone()).collect();
        apply(scene, now).await?;
        let workloads: Vec<_> = cases.iter().map(Case::workload).collect();
        let available = [
            "wait",
            "deployment",
            "--all",
            "--for=condition=Available",
            "--timeout=60s",
        ];
        scene.kubectl(&available).await?;
        // Restarts that wait, for a release that opens their gates.
        apply(
            scene,
            vec![config_map("opens", "2"), on_hold("lets-go", "2")],
        )
        .await?;
        scene.quiet().await?;
        let mut snapshots = BTreeMap::new();
        for case in cases.iter().filter(|it| it.restarts != "new") {
            snapshots.insert(case.name, scene.snapshot(&case.workload()).await?);
        }

        let after: Vec<Value> = cases.iter().flat_map(|it| it.after.clone()).collect();
        let mark = scene.mark().await?;
        let told = planned(scene, &after, &["--output=json"]).await?;
        ensure!(told.code == Some(10), "{told:?}");
        let plan: Value = serde_json::from_str(&told.stdout)?;
        ensure!(plan["unseen"] == json!([]), "{plan:#}");
        let rows = plan["workloads"].as_array().context("there are rows")?;
        let differs = |case: &&Case| {
            let row = rows.iter().find(|row| row["name"] == case.name);
            !row.is_some_and(|row| {
                let reason = row["reason"].as_str().unwrap_or_default();
                row["restarts"] == case.restarts && reason.contains(case.reason)
            })
        };
        let wrong = cases.iter().filter(differs);
        let wrong: Vec<_> = wrong.map(|it| (it.name, it.restarts, it.reason)).collect();
        ensure!(wrong.is_empty(), "{wrong:?}: {plan:#}");
        let steps = json!([{
            "object": format!("ConfigMap {}/canary", scene.namespace),
            "atOnce": [],
            "steps": [["Deployment canary"], ["Deployment follower"]],
        }]);
        ensure!(plan["staged"] == steps, "{plan:#}");
        let text = planned(scene, &after, &[]).await?;
        for output in [&told, &text] {
            let all = format!("{}{}", output.stdout, output.stderr);
            ensure!(!all.contains(CANARY), "{all}");
        }
        for request in scene.requests_of_plugin(mark).await? {
            let reads = ["get", "list"].contains(&&*request.verb);
            ensure!(reads || request.uri.contains("dryRun=All"), "{request:?}");
        }

        apply(scene, after).await?;
        for (case, workload) in cases.iter().zip(&workloads) {
            let Some(before) = snapshots.get(case.name) else {
                continue;
            };
            if case.rolls() {
                let what = format!("{} to be rolled out", case.name);
                wait_for(&what, PATIENCE, async || {
                    let now = scene.snapshot(workload).await?;
                    Ok(match now.new_revisions(before) {
                        0 => Attempt::NotYet("no new revision".to_owned()),
                        _ => Attempt::Done(()),
                    })
                })
                .await?;
            }
        }
        scene.quiet().await?;
        let mut wrong = Vec::new();
        for (case, workload) in cases.iter().zip(&workloads) {
            if let Some(before) = snapshots.get(case.name) {
                let now = scene.snapshot(workload).await?;
                if now.new_revisions(before) != usize::from(case.rolls()) {
                    wrong.push((case.name, before, now));
                }
            }
        }
        ensure!(wrong.is_empty(), "{wrong:?}");

        failures(scene).await
    })
    .await
}

/// ConfigMaps whose keys are texts only after kubectl has read them.
const ODD_KEYS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: locales}
data: {en: English, no: Norsk}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: axes}
data: {x: left, y: up}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: versions}
data: {1.9: old, 1.10: new}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ports}
data: {22: 'shop/shell:22', 0x50: 'shop/web:80', 1.50: half, 017: octal}
";

#[tokio::test]
async fn keys_that_are_no_texts_are_read_as_kubectl_reads_them() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let apply = ["apply", "--filename=-"];
        scene.kubectl_with_input(&apply, ODD_KEYS).await?;
        let web = Workload::deployment("web").lists("locales,axes,versions,ports");
        scene.create(&web).await?;
        let ports = scene.object("configmap/ports").await?;
        let keys = ports["data"].as_object().context("its data")?.keys();
        let keys: Vec<_> = keys.map(String::as_str).collect();
        ensure!(keys == ["1.5", "15", "22", "80"], "{keys:?}");

        let namespace = format!("--namespace={}", scene.namespace);
        let plan = ["plan", "--filename=-", &namespace];
        let plugin = scene.tool().plugin()?;
        let told = plugin.output(&plan, ODD_KEYS).await?;
        ensure!(told.stdout == "Nothing restarts.\n", "{told:?}");
        Ok(())
    })
    .await
}

/// Of a chart, the manifests are those that `helm template` prints, and a key that the next release leaves out goes.
#[tokio::test]
async fn what_a_plan_says_of_keys_that_go_is_what_helm_and_a_server_side_apply_do() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let control_plane = &scene.control_plane;
        let namespace = format!("--namespace={}", scene.namespace);
        let mut planned = Vec::new();
        for (name, other, helm) in [
            ("helm-3", "helm-3-other", control_plane.helm3()),
            ("helm-4", "helm-4-other", control_plane.helm()),
        ] {
            let whole = Workload::deployment(name).lists(name);
            let one_key = Workload::deployment(other).lists(&format!("{name}[key]"));
            let chart = chart_of(scene, name, &[&whole, &one_key])?;
            let release = [name, &chart, &namespace];
            helm.run(&[&["install"], &release[..]].concat()).await?;
            let mut before = Vec::new();
            for workload in [&whole, &one_key] {
                before.push(scene.snapshot(workload).await?);
            }

            let args = ["--is-upgrade", "--no-hooks", "--set=more=false"];
            let template = [&["template"], &release[..], &args].concat();
            let manifests = helm.run(&template).await?;
            let arguments = ["plan", "--filename=-", "--output=json", &namespace];
            let plugin = scene.tool().plugin()?;
            let told = plugin.output(&arguments, &manifests).await?;
            let removed = format!("ConfigMap {name}: more");
            let rows = [(name, "yes", &*removed), (other, "no", "stays the same")];
            says(&told, &rows)?;
            helm.run(&[&["upgrade"], &release[..], &["--set=more=false"]].concat())
                .await?;
            planned.push((whole, one_key, before));
        }
        for (whole, one_key, before) in &planned {
            scene.rolls_once(whole, &before[0]).await?;
            scene.rolls_not(one_key, &before[1]).await?;
        }
        applied_on_the_servers_side(scene).await
    })
    .await
}

/// Of a server-side apply, those keys go that its manager has applied before and applies no more.
async fn applied_on_the_servers_side(scene: &Scene) -> Result<()> {
    let name = "server-side";
    let apply = async |manager: &str, data: Value| -> Result<()> {
        let metadata = json!({"name": name});
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        let manager = format!("--field-manager={manager}");
        let apply = ["apply", "--server-side", &manager, "--filename=-"];
        scene
            .kubectl_with_input(&apply, &object.to_string())
            .await
            .map(drop)
    };
    apply("ci", json!({"key": "1", "more": "1"})).await?;
    apply("somebody", json!({"theirs": "1"})).await?;
    let whole = Workload::deployment(name).lists(name);
    let theirs = Workload::deployment("theirs").lists(&format!("{name}[theirs]"));
    let before = [scene.create(&whole).await?, scene.create(&theirs).await?];

    let less = [config_map(name, "1")];
    let newcomer = planned(scene, &less, &["--field-manager=newcomer"]).await?;
    ensure!(newcomer.code == Some(0), "{newcomer:?}");
    let told = planned(scene, &less, &["--output=json"]).await?;
    let removed = (name, "yes", "ConfigMap server-side: more");
    says(&told, &[removed, ("theirs", "no", "stays the same")])?;
    apply("ci", json!({"key": "1"})).await?;
    scene.rolls_once(&whole, &before[0]).await?;
    scene.rolls_not(&theirs, &before[1]).await
}

/// Asserts that a plan in JSON tells of a restart, and has these rows: the name of a workload, what it says of that, and
/// a part of the reason.
fn says(told: &Output, expected: &[(&str, &str, &str)]) -> Result<()> {
    ensure!(told.code == Some(10), "{told:?}");
    let plan: Value = serde_json::from_str(&told.stdout)?;
    let rows = plan["workloads"].as_array().context("there are rows")?;
    for (workload, restarts, reason) in expected {
        let is_it = |row: &Value| {
            let told = row["reason"].as_str().unwrap_or_default();
            row["name"] == *workload && row["restarts"] == *restarts && told.contains(reason)
        };
        ensure!(rows.iter().any(is_it), "{workload}: {plan:#}");
    }
    Ok(())
}

/// Writes the chart of a release, and returns its folder. It has a ConfigMap of the same name with one key, and another
/// one unless `more` is false, these workloads, and what is of no interest to a plan.
fn chart_of(scene: &Scene, name: &str, workloads: &[&Workload]) -> Result<String> {
    let folder = scene.directory().join(name);
    let templates = folder.join("templates");
    std::fs::create_dir_all(&templates)?;
    let chart = json!({"name": name, "version": "1.0.0", "apiVersion": "v2"});
    std::fs::write(folder.join("Chart.yaml"), chart.to_string())?;
    std::fs::write(folder.join("values.yaml"), "more: true\n")?;
    std::fs::write(templates.join("config.yaml"), CONFIG)?;
    std::fs::write(templates.join("NOTES.txt"), "Enjoy {{ .Release.Name }}\n")?;
    for workload in workloads {
        let file = templates.join(format!("{}.yaml", workload.name));
        std::fs::write(file, workload.manifest().to_string())?;
    }
    Ok(folder.display().to_string())
}

/// The ConfigMap of a chart, and a template that renders nothing.
const CONFIG: &str = "
{{- if .Values.never }}
this: is not rendered
{{- end }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data:
  key: same
  {{- if .Values.more }}
  more: {{ .Release.Name | quote }}
  {{- end }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .Release.Name }}
";

/// Checks what the plan says if there is nothing to do, and if it cannot tell.
async fn failures(scene: &Scene) -> Result<()> {
    let same = planned(scene, &[config_map("changes", "2")], &[]).await?;
    ensure!(same.code == Some(0), "{same:?}");
    ensure!(same.stdout == "Nothing restarts.\n", "{same:?}");
    let held = planned(scene, &[config_map("held", "3")], &[]).await?;
    ensure!(held.code == Some(11), "{held:?}");
    let mut frozen = config_map("frozen", "1");
    frozen["immutable"] = json!(true);
    apply(scene, vec![frozen.clone()]).await?;
    frozen["data"]["key"] = json!("2");
    let refused = planned(scene, &[frozen], &[]).await?;
    ensure!(refused.code == Some(1), "{refused:?}");
    mentions(&refused.stdout, "frozen: Invalid: data")?;
    let bad = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bad"}, "data": {"a": CANARY}});
    let refused = planned(scene, &[bad], &[]).await?;
    ensure!(refused.code != Some(0), "{refused:?}");
    ensure!(!format!("{refused:?}").contains(CANARY), "{refused:?}");
    let nobody = planned(scene, &[config_map("changes", "3")], &["--as=nobody"]).await?;
    ensure!(nobody.code == Some(3), "{nobody:?}");
    mentions(&nobody.stdout, "you may not get configmaps")?;
    // Of a kind that the cluster does not serve, and in a namespace that it does not have.
    let unknown =
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}});
    let mut elsewhere = config_map("changes", "3");
    elsewhere["metadata"]["namespace"] = json!(format!("{}-not-there", scene.namespace));
    let told = planned(scene, &[unknown, elsewhere], &[]).await?;
    ensure!(told.code == Some(0), "{told:?}");
    let overlay = scene.directory().join("overlay");
    std::fs::create_dir(&overlay)?;
    let kustomization = "configMapGenerator: [{name: changes, literals: [key=3], options: {disableNameSuffixHash: true}}]";
    std::fs::write(overlay.join("kustomization.yaml"), kustomization)?;
    let overlay = format!("--kustomize={}", overlay.display());
    let namespace = format!("--namespace={}", scene.namespace);
    let arguments = ["pod-reloader", "plan", &overlay, &namespace];
    let built = scene.tool().with_plugin()?.output(&arguments, "").await?;
    ensure!(built.code == Some(10), "{built:?}");
    mentions(&built.stdout, "yes        ConfigMap changes: key")?;
    let arguments = ["plan", "--filename=-"];
    let plugin = scene.tool().plugin()?;
    let broken = plugin.output(&arguments, "a: [").await?;
    ensure!(broken.code == Some(1), "{broken:?}");
    mentions(&broken.stderr, "standard input is not valid YAML")?;
    Ok(())
}

impl Case {
    fn workload(&self) -> Workload {
        let kind = match self.name {
            "secret" => Kind::StatefulSet,
            _ => Kind::Deployment,
        };
        Workload::new(kind, self.name)
    }

    fn rolls(&self) -> bool {
        ["yes", "by-itself"].contains(&self.restarts)
    }
}

/// Applies manifests as `kubectl apply` does by default.
async fn apply(scene: &Scene, manifests: Vec<Value>) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests}).to_string();
    scene
        .kubectl_with_input(&["apply", "--filename=-"], &list)
        .await?;
    Ok(())
}

async fn planned(scene: &Scene, manifests: &[Value], flags: &[&str]) -> Result<Output> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests}).to_string();
    let namespace = format!("--namespace={}", scene.namespace);
    let plan = ["plan", "--filename=-", &*namespace];
    let arguments = [&plan, flags].concat();
    scene.tool().plugin()?.output(&arguments, &list).await
}

fn ours(key: &str) -> String {
    format!("pod-reloader.cs.sap.com/{key}")
}

/// Returns a Deployment that lists the ConfigMap of its own name, with one more annotation of ours.
fn web(name: &str, key: &str, value: &str) -> Workload {
    let web = Workload::deployment(name).lists(name);
    web.annotated(&ours(key), value)
}

/// Returns a Deployment whose pods have one key of the ConfigMap of its own name in their environment.
fn with_env(name: &str) -> Workload {
    let of = json!({"configMapKeyRef": {"name": name, "key": "key"}});
    let variable = json!([{"name": "A", "valueFrom": of}]);
    let container = json!([{"name": "main", "image": "app:1", "env": variable}]);
    let containers = ["spec", "template", "spec", "containers"];
    Workload::deployment(name).with(&containers, container)
}

fn on_hold(name: &str, key: &str) -> Value {
    let mut object = config_map(name, key);
    object["metadata"]["annotations"] = json!({ours("hold"): "true"});
    object
}

fn two_keys(name: &str, key: &str, other: &str) -> Value {
    let mut object = config_map(name, key);
    object["data"]["other"] = json!(other);
    object
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // A change of the ConfigMap of the same name, with which the workload stays the same.
    let mut change = |workload: Workload, restarts: &'static str, reason: &'static str| {
        let name: &'static str = workload.name.clone().leak();
        let objects = |value: &str| vec![config_map(name, value), workload.manifest()];
        cases.push(Case {
            name,
            restarts,
            reason,
            now: objects("1"),
            after: objects("2"),
        });
    };
    change(
        Workload::deployment("changes").lists("changes"),
        "yes",
        "ConfigMap changes: key",
    );
    change(
        with_env("auto").annotated(&ours("auto"), "true"),
        "yes",
        "ConfigMap auto: key",
    );
    change(with_env("nobody"), "no", "no annotation that opts it in");
    change(web("held", "hold", "true"), "waits", "it is on hold");
    change(
        web("approval", "approval", "required"),
        "waits",
        "waits for approval",
    );
    let windowed = Workload::deployment("window").lists("window");
    let windowed = windowed.annotated(RESTART_WINDOW, &closed_window());
    change(windowed, "waits", "its restart window opens at");
    let stakater = Workload::deployment("dialect");
    let stakater = stakater.annotated("configmap.reloader.stakater.com/reload", "dialect");
    change(stakater, "yes", "ConfigMap dialect: key");
    let mounted = json!([{"name": "v", "configMap": {"name": "mounted"}}]);
    let mount = json!([{"name": "v", "mountPath": "/v"}]);
    let container = json!([{"name": "main", "image": "app:1", "volumeMounts": mount}]);
    let in_pod = |field| ["spec", "template", "spec", field];
    let sees = Workload::deployment("mounted").annotated(&ours("auto"), "true");
    let sees = sees.annotated(&ours("restart-on"), "needed");
    let sees = sees.with(&in_pod("volumes"), mounted);
    let sees = sees.with(&in_pod("containers"), container);
    change(sees, "no", "stays the same");
    let ignored = Workload::deployment("ignored").lists("ignored");
    change(
        ignored.labelled(&ours("ignored"), "true"),
        "no",
        "its label",
    );

    let canary = web("canary", "staged", "all").annotated(&ours("stage"), "0");
    let canary = canary.annotated(&ours("soak"), "1s");
    let follower = web("follower", "staged", "all").lists("canary");
    let follower = follower.annotated(&ours("soak"), "1s");
    change(canary, "yes", "ConfigMap canary: key");
    cases.push(Case {
        name: "follower",
        restarts: "yes",
        reason: "ConfigMap canary: key",
        now: vec![follower.manifest()],
        after: vec![follower.manifest()],
    });

    let mut case = |name, restarts, reason, now: &[Value], after: &[Value]| {
        let (now, after) = (now.to_vec(), after.to_vec());
        cases.push(Case {
            name,
            restarts,
            reason,
            now,
            after,
        });
    };
    let lists = |name: &str| Workload::deployment(name).lists(name).manifest();
    let plain = |name: &str| Workload::deployment(name).manifest();
    let mut relabelled = config_map("same", "1");
    relabelled["metadata"]["labels"] = json!({"a": "b"});
    case(
        "same",
        "no",
        "stays the same",
        &[config_map("same", "1"), lists("same")],
        &[relabelled, lists("same")],
    );
    let database = Workload::new(Kind::StatefulSet, "secret")
        .lists_secrets("secret")
        .manifest();
    let rotated = secret("secret", &format!("{CANARY}2"));
    case(
        "secret",
        "yes",
        "Secret secret: key",
        &[secret("secret", CANARY), database.clone()],
        &[rotated, database],
    );
    let one = Workload::deployment("one-key")
        .lists("one-key[key]")
        .manifest();
    case(
        "one-key",
        "no",
        "stays the same",
        &[two_keys("one-key", "1", "1"), one.clone()],
        &[two_keys("one-key", "1", "2"), one],
    );
    case(
        "removed",
        "yes",
        "ConfigMap removed: other",
        &[two_keys("removed", "1", "1"), lists("removed")],
        &[config_map("removed", "1"), lists("removed")],
    );
    case(
        "opts-out",
        "no",
        "no annotation that opts it in",
        &[config_map("opts-out", "1"), lists("opts-out")],
        &[config_map("opts-out", "2"), plain("opts-out")],
    );
    case(
        "opts-in",
        "yes",
        "it opts in",
        &[config_map("opts-in", "1"), plain("opts-in")],
        &[lists("opts-in")],
    );
    let by_others = Workload::deployment("taken-over")
        .annotated("configmap.reloader.stakater.com/reload", "taken-over");
    case(
        "taken-over",
        "no",
        "is recorded",
        &[config_map("taken-over", "1"), plain("taken-over")],
        &[by_others.manifest()],
    );
    case(
        "tracks-more",
        "yes",
        "other objects",
        &[config_map("tracks-more", "1"), lists("tracks-more")],
        &[Workload::deployment("tracks-more")
            .lists("tracks-more,same")
            .manifest()],
    );
    case(
        "new",
        "new",
        "it is new",
        &[],
        &[config_map("new", "1"), lists("new")],
    );
    case(
        "comes",
        "yes",
        "ConfigMap comes: created",
        &[config_map("unrelated", "1"), lists("comes")],
        &[config_map("comes", "1")],
    );
    case(
        "opens",
        "yes",
        "a restart is due already",
        &[
            config_map("opens", "1"),
            web("opens", "hold", "true").manifest(),
        ],
        &[config_map("opens", "2"), lists("opens")],
    );
    case(
        "lets-go",
        "yes",
        "a restart is due already",
        &[on_hold("lets-go", "1"), lists("lets-go")],
        &[config_map("lets-go", "2"), lists("lets-go")],
    );
    let needs = with_env("needs").lists("needs").manifest();
    let mut other = config_map("needs", "1");
    other["data"] = json!({"other": "1"});
    case(
        "needs",
        "waits",
        "key key of ConfigMap needs",
        &[config_map("needs", "1"), needs.clone()],
        &[other, needs],
    );
    let image = Workload::deployment("image").lists("image").image("app:2");
    case(
        "image",
        "by-itself",
        "its pod template changes",
        &[config_map("image", "1"), lists("image")],
        &[config_map("image", "2"), image.manifest()],
    );
    case(
        "no-env",
        "by-itself",
        "its pod template changes",
        &[config_map("no-env", "1"), with_env("no-env").manifest()],
        &[plain("no-env")],
    );
    cases
}
