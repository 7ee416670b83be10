//! Several releases share a cluster, each with namespaces of its own.

use std::process;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use pod_reloader_e2e::proxy::{Answer, Fault, Requests, Rule};
use pod_reloader_e2e::workload::{BASELINE, Workload, config_map, key_of};
use pod_reloader_e2e::{
    AuditEvent, Mark, Options, PATIENCE, Scene, Snapshot, chart, done_if, full, oracle, wait_for,
};
use serde_json::{Value, json};
use tokio::time::Instant;

#[tokio::test]
async fn each_release_manages_only_the_namespaces_with_its_label() -> Result<()> {
    let [first, second] = names("alone");
    play(release(&first), release(&second), async |stage| {
        // The namespace begins in the first release: in this test it belongs to none.
        stage.label(None).await?;
        let web = Workload::podless("web").lists("app");
        for scene in [stage.a, stage.b] {
            scene.apply(&[config_map("app", "1")]).await?;
            let created = scene.create(&web).await?;
            let expected = scene.expected_key(&web).await?;
            ensure!(created.key == Some(expected), "the webhook: {created:?}");
            scene.quiet().await?;
        }
        stage.put("1").await?;
        let unkept = web.clone().stamped("somebody else's");
        stage.create(&unkept).await?;
        let before_unkept = stage.snapshot(&unkept).await?;

        let mark = stage.a.mark().await?;
        for (own, other) in [(stage.a, stage.b), (stage.b, stage.a)] {
            let before = own.snapshot(&web).await?;
            own.apply(&[config_map("app", "2")]).await?;
            own.rolls_once(&web, &before).await?;
            let label = json!({"metadata": {"labels": {"edited": "true"}}});
            own.patch(&web, &label).await?;
            other.quiet().await?;
        }
        stage.put("2").await?;
        stage.quiet().await?;
        ensure!(stage.snapshot(&unkept).await? == before_unkept);
        ensure!(before_unkept.key.as_deref() == Some("somebody else's"));

        for (own, other) in [(stage.a, stage.b), (stage.b, stage.a)] {
            let in_ours = |event: &&AuditEvent| event.namespace == own.namespace;
            let requests = other.requests(mark).await?;
            let strange: Vec<_> = requests.iter().filter(in_ours).collect();
            ensure!(strange.is_empty(), "the other loop: {strange:?}");
            let called = reviews(own, mark).await?;
            ensure!(!called.is_empty(), "no review is in the audit log");
            let ours = |name: &String| *name == own.installation.namespace;
            ensure!(called.iter().all(ours), "the other webhook: {called:?}");
            let log = other.operator.log()?;
            ensure!(!log.contains(&own.namespace), "the other one's log");
            // The sentinel is the second one.
            own.operator.shows("pod_reloader_workloads", "2").await?;
            own.operator
                .shows("pod_reloader_foreign_hash_workloads", "0")
                .await?;
            let alarm = "a key that is not in the Secret of the hash keys";
            ensure!(!log.contains(alarm), "for keys of the other one");
        }
        ensure!(stage.writes(stage.a, mark).await?.is_empty());
        ensure!(stage.writes(stage.b, mark).await?.is_empty());
        Ok(())
    })
    .await
}

/// Moves a namespace there and back, and there again, during edits. Each release has keys of its own, so the
/// hashes of the other release are foreign to it.
#[tokio::test]
async fn a_namespace_that_moves_between_releases_rolls_once_and_only_at_its_next_change()
-> Result<()> {
    let edits = if full() { 30 } else { 9 };
    let [first, second] = names("moves");
    play(release(&first), release(&second), async |stage| {
        let web = Workload::podless("web").lists("app");
        let api = Workload::podless("api").lists("app");
        stage.put("0").await?;
        stage.create(&web).await?;
        stage.create(&api).await?;
        for (round, (from, to, label)) in [
            (stage.a, stage.b, &second),
            (stage.b, stage.a, &first),
            (stage.a, stage.b, &second),
        ]
        .into_iter()
        .enumerate()
        {
            let before = stage.snapshot(&web).await?;
            ensure!(before.key == Some(stage.expected(from, &web).await?));
            let mark = stage.a.mark().await?;
            for edit in 0..edits {
                if edit == edits / 3 {
                    stage.label(Some(label)).await?;
                }
                // An edit that changes the template, one that does not, and one that does not call the
                // webhook.
                let labels = json!({"metadata": {"labels": {"edit": edit.to_string()}}});
                let scale = json!({"spec": {"replicas": edit % 3}});
                let image = json!([{"name": "main", "image": format!("app:{round}-{edit}")}]);
                let image = json!({"spec": {"template": {"spec": {"containers": image}}}});
                for (workload, patch) in [(&web, labels), (&web, scale), (&api, image)] {
                    stage.a.patch_in(&stage.namespace, workload, &patch).await?;
                }
            }
            stage.has_baseline(to, &web).await?;
            stage.quiet().await?;
            let moved = stage.snapshot(&web).await?;
            ensure!(moved == before, "{before:?}, {moved:?}");
            let api_moved = stage.snapshot(&api).await?;
            ensure!(api_moved.key == Some(stage.expected(to, &api).await?));
            let written = stage.writes(from, mark).await?;
            ensure!(written.is_empty(), "the one that it left: {written:?}");
            let written = stage.writes(to, mark).await?;
            println!("the one that it came to: {:?}", added(&written));
            ensure!(!written.iter().any(adds_key), "{written:?}");
            // A patch that comes between two edits of others fails, and is tried again.
            let succeeded = written.iter().filter(|event| event.code == Some(200));
            ensure!(succeeded.count() <= 2, "{written:?}");
            let mark = stage.a.mark().await?;
            stage.put(&format!("{}", round + 1)).await?;
            stage.rolls_once(to, &web, &moved).await?;
            stage.rolls_once(to, &api, &api_moved).await?;
            let written = stage.writes(from, mark).await?;
            ensure!(written.is_empty(), "the one that it left: {written:?}");
            let mut written = stage.writes(to, mark).await?;
            written.retain(|event| event.code == Some(200));
            ensure!(written.len() == 2, "{:?}", added(&written));
        }
        Ok(())
    })
    .await
}

/// The watch of namespaces is late: the release still considers a namespace its own that already belongs to
/// another.
#[tokio::test]
async fn a_release_that_does_not_know_of_a_move_changes_no_hash() -> Result<()> {
    let [first, second] = names("late");
    let late = Options {
        proxied: true,
        ..release(&first)
    };
    play(late, release(&second), async |stage| {
        let (web, before) = stage.web_at_rest().await?;
        let proxy = stage.a.proxy.as_ref().context("the scene is proxied")?;
        let namespaces = Requests::exactly("/api/v1/namespaces").watches();
        let held = proxy.add(Rule::new(namespaces, Fault::HoldWatch));
        let mark = stage.a.mark().await?;
        stage.label(Some(&second)).await?;
        held.applied(1, PATIENCE).await?;
        stage.has_baseline(stage.b, &web).await?;
        ensure!(stage.snapshot(&web).await? == before);

        let mut now = before;
        for value in ["2", "3"] {
            stage.put(value).await?;
            now = stage.rolls_once(stage.b, &web, &now).await?;
        }
        let late = stage.writes(stage.a, mark).await?;
        println!("the late one: {:?}", added(&late));
        held.remove();
        stage.quiet().await?;
        let after = stage.snapshot(&web).await?;
        ensure!(after == now, "{now:?}, {after:?}");
        let mark = stage.a.mark().await?;
        stage.put("4").await?;
        stage.rolls_once(stage.b, &web, &after).await?;
        let late = stage.writes(stage.a, mark).await?;
        ensure!(late.is_empty(), "it has heard of it: {late:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_change_between_two_releases_with_the_same_hash_keys_rolls_once() -> Result<()> {
    let [first, second] = names("shared");
    let proxied = Options {
        proxied: true,
        ..release(&second)
    };
    play(release(&first), proxied, async |stage| {
        share_keys(stage).await?;
        let (web, before) = stage.web_at_rest().await?;
        // A release lists the workloads of a namespace that joins it, and tries again if that fails.
        let lists = Requests::under(format!("/apis/apps/v1/namespaces/{}/", stage.namespace));
        let unavailable = Answer::error(StatusCode::SERVICE_UNAVAILABLE);
        let unavailable = Rule::new(lists.method(Method::GET), Fault::Answer(unavailable));
        let proxy = stage.b.proxy.as_ref().context("the scene is proxied")?;
        let unavailable = proxy.add(unavailable.times(2));
        let mark = stage.a.mark().await?;
        for (to, label, value) in [(stage.b, &second, "2"), (stage.a, &first, "3")] {
            let before = stage.snapshot(&web).await?;
            stage.left().await?;
            stage.put(value).await?;
            stage.quiet().await?;
            ensure!(stage.snapshot(&web).await? == before);
            stage.label(Some(label)).await?;
            stage.rolls_once(to, &web, &before).await?;
        }
        ensure!(unavailable.hits().applied == 2, "{:?}", unavailable.hits());
        let baseline = &stage.object(&web).await?["metadata"]["annotations"][BASELINE];
        ensure!(baseline.is_null(), "{baseline}");
        let writes = [stage.a, stage.b].map(|scene| stage.writes(scene, mark));
        let [by_a, by_b] = writes;
        ensure!((by_a.await?.len(), by_b.await?.len()) == (1, 1));
        ensure!(stage.snapshot(&web).await?.key != before.key);
        Ok(())
    })
    .await
}

/// As `docs/scale.md` says, a release takes over what it finds.
#[tokio::test]
async fn a_change_between_releases_with_different_hash_keys_is_unseen_until_the_next() -> Result<()>
{
    let [first, second] = names("unseen");
    play(release(&first), release(&second), async |stage| {
        let (web, before) = stage.web_at_rest().await?;
        stage.left().await?;
        stage.put("2").await?;
        stage.label(Some(&second)).await?;
        stage.has_baseline(stage.b, &web).await?;
        stage.quiet().await?;
        ensure!(stage.snapshot(&web).await? == before);
        stage.put("3").await?;
        stage.rolls_once(stage.b, &web, &before).await.map(drop)
    })
    .await
}

/// A mistake: both releases manage the same workload. Each reverts what the other one writes, and tries again
/// a few times, and then once every 45 seconds, until the mistake is corrected.
#[tokio::test]
async fn two_releases_that_manage_one_workload_write_less_and_less_and_roll_nothing() -> Result<()>
{
    const TRIES: usize = 3;
    let [first, second] = names("both");
    let other = "pod-reloader-other-release";
    play(release(&first), release_by(other, &second), async |stage| {
        let both = format!("{other}={second}");
        let namespace = format!("namespace/{}", stage.namespace);
        stage.b.label(&namespace, &both).await?;
        stage.has_come_to(stage.b).await?;
        let (web, before) = stage.web_at_rest().await?;
        let mark = stage.a.mark().await?;
        for edit in 1..=3 {
            let label = json!({"metadata": {"labels": {"edit": edit.to_string()}}});
            stage.a.patch_in(&stage.namespace, &web, &label).await?;
        }
        stage.quiet().await?;
        ensure!(stage.snapshot(&web).await? == before);
        let image = json!([{"name": "main", "image": "app:2"}]);
        let image = json!({"spec": {"template": {"spec": {"containers": image}}}});
        stage.a.patch_in(&stage.namespace, &web, &image).await?;
        stage.quiet().await?;
        let edited = stage.snapshot(&web).await?;
        ensure!(edited.new_revisions(&before) == 1, "{before:?}, {edited:?}");
        for scene in [stage.a, stage.b] {
            let written = stage.writes(scene, mark).await?;
            println!("{} writes in peace", written.len());
            ensure!(written.len() <= 2, "{written:?}");
        }

        let (mark, began) = (stage.a.mark().await?, Instant::now());
        // Seven at once, and one for each 45 s.
        let most = |elapsed: Duration| 7 + elapsed.as_secs().div_ceil(45) as usize;
        stage.put("2").await?;
        for scene in [stage.a, stage.b] {
            wait_for("it to have tried again and again", PATIENCE, async || {
                let tries = stage.writes(scene, mark).await?.len();
                done_if(tries >= TRIES, format!("{tries} times"))
            })
            .await?;
        }
        for scene in [stage.a, stage.b] {
            let written = stage.writes(scene, mark).await?;
            let elapsed = began.elapsed();
            println!("{} writes in {elapsed:?}", written.len());
            ensure!(written.len() <= most(elapsed), "{written:?}");
        }
        let stuck = stage.snapshot(&web).await?;
        ensure!(stuck == edited, "{edited:?}, {stuck:?}");

        let only_first = format!("{other}-");
        stage.b.label(&namespace, &only_first).await?;
        stage.rolls_once(stage.a, &web, &stuck).await.map(drop)
    })
    .await
}

/// Helm refuses names that are taken, and no other names collide.
#[tokio::test]
async fn releases_fit_into_one_namespace_and_none_takes_the_names_of_another() -> Result<()> {
    let [first, second] = names("names");
    let first = Options {
        released: true,
        ..release(&first)
    };
    Scene::play(first, async |scene| {
        let own = &scene.installation;
        let sibling = format!("{}-2", own.namespace);
        let values = |name: &str| {
            let selector = json!({"matchLabels": {LABEL: second}});
            let values = json!({
                "fullnameOverride": name,
                "watch": {"namespaceSelector": selector},
                "hashKeysSecret": own.hash_keys(),
                "fence": {"enabled": true},
            });
            own.values(&values)
        };
        let chart = chart().display().to_string();
        let install = async |name: &str, namespace: &str| {
            let args = ["install", &sibling, &chart, "--values=-", "--namespace"];
            let args = [&args[..], &[namespace, "--create-namespace"]].concat();
            own.helm
                .run_with_input(&args, &values(name).to_string())
                .await
        };
        install(&sibling, &own.namespace).await?;
        let elsewhere = format!("{sibling}-elsewhere");
        let refused = install(&sibling, &elsewhere).await.err();
        let uninstall = ["uninstall", &sibling, "--namespace", &own.namespace];
        own.helm.run(&uninstall).await?;
        let delete = ["delete", "namespace", "--wait=false", "--ignore-not-found"];
        let delete = [&delete[..], &[&*elsewhere]].concat();
        scene.tool().run(&delete).await?;
        let refused = format!("{:#}", refused.context("it took the names of the other")?);
        ensure!(refused.contains("cannot be imported"), "{refused}");
        Ok(())
    })
    .await
}

/// Two releases, and one more namespace, which begins in the first of them.
struct Stage<'a> {
    a: &'a Scene,
    b: &'a Scene,
    namespace: String,
}

/// Runs a test with two releases and one more namespace.
async fn play(
    first: Options,
    second: Options,
    test: impl AsyncFnOnce(&Stage<'_>) -> Result<()>,
) -> Result<()> {
    Scene::play(first, async |a| {
        Scene::play(second, async |b| {
            a.with_namespace("moves", async |namespace| {
                let namespace = namespace.to_owned();
                let stage = Stage { a, b, namespace };
                stage.has_come_to(a).await?;
                test(&stage).await
            })
            .await
        })
        .await
    })
    .await
}

impl Stage<'_> {
    /// Gives the namespace to a release, in one step, or to none.
    async fn label(&self, value: Option<&str>) -> Result<()> {
        let label = match value {
            Some(value) => format!("{LABEL}={value}"),
            None => format!("{LABEL}-"),
        };
        let namespace = format!("namespace/{}", self.namespace);
        self.a.label(&namespace, &label).await
    }

    /// Takes the namespace from its release, and waits until the release has noticed.
    async fn left(&self) -> Result<()> {
        self.label(None).await?;
        for scene in [self.a, self.b] {
            // Only its sentinel is left.
            scene.shows("pod_reloader_workloads", "1").await?;
        }
        Ok(())
    }

    /// Waits until the apiserver calls the webhook of a release for the namespace.
    async fn has_come_to(&self, scene: &Scene) -> Result<()> {
        let probe = Workload::podless("probe").lists("absent").manifest();
        wait_for("the webhook to be called", PATIENCE, async || {
            let mark = scene.mark().await?;
            scene.try_create(&self.namespace, &probe).await?;
            let called = reviews_in(scene, &self.namespace, mark).await?;
            done_if(
                called.contains(&scene.installation.namespace),
                format!("{called:?}"),
            )
        })
        .await
    }

    async fn put(&self, value: &str) -> Result<()> {
        let objects = [config_map("app", value)];
        self.a.put_all_in(&self.namespace, &objects).await
    }

    async fn create(&self, workload: &Workload) -> Result<()> {
        let workloads = [workload.clone()];
        self.a.create_all_in(&self.namespace, &workloads).await
    }

    /// Creates a workload that lists ConfigMap `app`, and waits until nothing is pending.
    async fn web_at_rest(&self) -> Result<(Workload, Snapshot)> {
        let web = Workload::podless("web").lists("app");
        self.put("1").await?;
        self.create(&web).await?;
        self.quiet().await?;
        let created = self.snapshot(&web).await?;
        Ok((web, created))
    }

    async fn object(&self, workload: &Workload) -> Result<Value> {
        let reference = workload.reference();
        self.a.object_in(&self.namespace, &reference).await
    }

    async fn snapshot(&self, workload: &Workload) -> Result<Snapshot> {
        self.a.snapshot_in(&self.namespace, workload).await
    }

    /// Returns the config hash that a workload must have under the key of a release.
    async fn expected(&self, scene: &Scene, workload: &Workload) -> Result<String> {
        let object = self.object(workload).await?;
        oracle::config_hash(&scene.client, &object, &scene.installation).await
    }

    /// Waits until both releases have handled everything that happened before.
    async fn quiet(&self) -> Result<()> {
        self.a.quiet().await?;
        self.b.quiet().await
    }

    /// Waits until a release records in a baseline what the other one's hash stands for.
    async fn has_baseline(&self, scene: &Scene, workload: &Workload) -> Result<()> {
        let what = format!("the baseline of {}", workload.reference());
        wait_for(&what, PATIENCE, async || {
            let object = self.object(workload).await?;
            let key = key_of(&object).context("no hash")?;
            let hash = self.expected(scene, workload).await?;
            let baseline = &object["metadata"]["annotations"][BASELINE];
            done_if(
                *baseline == json!(format!("{key}={hash}")),
                baseline.to_string(),
            )
        })
        .await
    }

    /// Asserts that the pods of a workload are restarted exactly once after `before`, with the hash of the
    /// current state under the key of a release.
    async fn rolls_once(
        &self,
        scene: &Scene,
        workload: &Workload,
        before: &Snapshot,
    ) -> Result<Snapshot> {
        let what = format!("{} to carry the hash of what is true", workload.reference());
        wait_for(&what, PATIENCE, async || {
            let key = key_of(&self.object(workload).await?);
            let expected = self.expected(scene, workload).await?;
            done_if(
                key.as_deref() == Some(&*expected),
                format!("{key:?}, expected {expected}"),
            )
        })
        .await?;
        self.quiet().await?;
        let after = self.snapshot(workload).await?;
        let new = after.new_revisions(before);
        ensure!(new == 1, "{new} new revisions: {before:?}, {after:?}");
        ensure!(after.key == Some(self.expected(scene, workload).await?));
        Ok(after)
    }

    /// Returns the writes that a release has tried in the namespace since `mark`.
    async fn writes(&self, scene: &Scene, mark: Mark) -> Result<Vec<AuditEvent>> {
        let mut requests = scene.requests(mark).await?;
        requests.retain(|event| {
            event.namespace == self.namespace
                && event.resource == "deployments"
                && event.verb == "patch"
        });
        Ok(requests)
    }
}

/// Replaces the keys of the second release by those of the first.
async fn share_keys(stage: &Stage<'_>) -> Result<()> {
    let keys = async |scene: &Scene| {
        let name = format!("secret/{}", scene.installation.hash_keys());
        let namespace = &scene.installation.namespace;
        let secret = scene.object_in(namespace, &name).await?;
        secret["data"].as_object().cloned().context("no data")
    };
    let mut data = keys(stage.b).await?;
    data.values_mut().for_each(|key| *key = Value::Null);
    // Keys made in the same second may have the same name.
    data.extend(keys(stage.a).await?);
    let installation = &stage.b.installation;
    let name = format!("secret/{}", installation.hash_keys());
    let patch = json!({"data": data});
    stage.b.operator.stop().await;
    stage
        .b
        .merge_in(&installation.namespace, &name, &patch)
        .await?;
    stage.b.operator.start_again().await
}

/// Returns the webhook configurations that were called for writes in the namespace of a scene.
pub(crate) async fn reviews(scene: &Scene, mark: Mark) -> Result<Vec<String>> {
    reviews_in(scene, &scene.namespace, mark).await
}

async fn reviews_in(scene: &Scene, namespace: &str, mark: Mark) -> Result<Vec<String>> {
    let events = scene.requests_naming(namespace, mark).await?;
    let events = events.iter().filter(|event| event.namespace == namespace);
    let notes = events.flat_map(|event| &event.annotations);
    let notes = notes.filter(|(key, _)| key.starts_with("mutation.webhook.admission.k8s.io/"));
    let configuration = |note: &str| -> Result<String> {
        let note: Value = serde_json::from_str(note)?;
        let name = note["configuration"].as_str();
        Ok(name.context("no configuration")?.to_owned())
    };
    notes.map(|(_, note)| configuration(note)).collect()
}

/// Returns what these patches add, and the status of each answer.
fn added(patches: &[AuditEvent]) -> Vec<(String, Option<u16>)> {
    let added = |event: &AuditEvent| {
        let operations = event.request_object.as_ref().and_then(Value::as_array);
        let operations = operations.map_or(&[][..], Vec::as_slice);
        let mut operations = operations.iter();
        let add = operations.rfind(|operation| operation["op"] == "add");
        add.map_or_else(String::new, |add| add["path"].to_string())
    };
    let each = patches.iter();
    each.map(|event| (added(event), event.code)).collect()
}

fn adds_key(patch: &AuditEvent) -> bool {
    let added = added(std::slice::from_ref(patch));
    added.iter().any(|(path, _)| path.contains("config-hash"))
}

/// Returns options of a release for the namespaces with its label.
fn release(name: &str) -> Options {
    release_by(LABEL, name)
}

fn release_by(label: &str, name: &str) -> Options {
    Options {
        everywhere: true,
        namespace_labels: vec![format!("{label}={name}")],
        values: json!({"watch": {"namespaceSelector": {"matchLabels": {label: name}}}}),
        ..Options::default()
    }
}

/// Returns labels that no other test has.
fn names(test: &str) -> [String; 2] {
    ["a", "b"].map(|name| format!("{test}-{name}-{}", process::id()))
}

const LABEL: &str = "pod-reloader-release";
