//! Answers of the apiserver that fail, hang, break off or refuse: everything is tried again, with pauses.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ServiceAccount};
use kube::{Api, api::DeleteParams};
use pod_reloader_e2e::proxy::{Answer, Fault, Proxy, Requests, Rule, error_event, status};
use pod_reloader_e2e::workload::{Kind, Workload, config_map};
use pod_reloader_e2e::{
    Attempt, Expected, Options, Oracles, PATIENCE, Scene, done_if, full, wait_for,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::faults::{change, counted, lists, patches, reads, so_many_workloads, workloads};

#[tokio::test]
async fn the_old_list_stays_until_a_new_list_is_whole() -> Result<()> {
    Scene::play(Options::proxied(), async |scene| {
        let workloads = workloads(scene).await?;
        let mut oracles = Oracles::begin(scene, &workloads).await?;
        let (proxy, watches) = (proxy(scene)?, Requests::any().watches());
        let gone = || Fault::Answer(Answer::error(StatusCode::GONE));
        let page = json!({
            "apiVersion": "v1",
            "kind": "List",
            "metadata": {"resourceVersion": "1", "continue": "gone"},
            "items": [],
        });
        let page = Fault::Answer(Answer::json(StatusCode::OK, &page));
        let second_page = || Requests::any().query("continue=gone");
        for (row, rules) in [
            ("410 on a watch", vec![]),
            ("410 in place of a watch", vec![(watches.clone(), gone())]),
            (
                "a list that breaks off",
                vec![(lists(), Fault::TruncateBody(99))],
            ),
            (
                "410 on the second page of a list",
                vec![(second_page(), gone()), (lists(), page)],
            ),
        ] {
            proxy.clear();
            let rules = rules.into_iter().map(|(requests, fault)| {
                let rule = Rule::new(requests, fault).times(WATCHES);
                proxy.add(rule)
            });
            let rules: Vec<_> = rules.collect();
            let relists = proxy.add(Rule::count(lists()));
            all_watched(proxy).await?;
            proxy.inject(&watches, error_event(StatusCode::GONE));
            for rule in &rules {
                rule.applied(WATCHES, PATIENCE).await?;
                let kept = counted(scene, "pod_reloader_workloads").await?;
                ensure!(kept >= workloads.len() as u64, "{row}: {kept} are kept");
            }
            relists.applied(WATCHES, PATIENCE).await?;
            change(scene, row).await?;
            oracles.check(row, Expected::revisions(1)).await?;
        }
        all_watched(proxy).await?;
        proxy.inject(&watches, error_event(StatusCode::INTERNAL_SERVER_ERROR));
        change(scene, "500 on a watch").await?;
        oracles
            .check("500 on a watch", Expected::revisions(1))
            .await
    })
    .await
}

#[tokio::test]
async fn however_long_the_apiserver_asks_us_to_wait_we_come_back_soon() -> Result<()> {
    Scene::play(Options::proxied(), async |scene| {
        let workloads = workloads(scene).await?;
        let mut oracles = Oracles::begin(scene, &workloads).await?;
        let (proxy, watches) = (proxy(scene)?, Requests::any().watches());
        let waits = ["86400", "30", "1"];
        for seconds in &waits[..if full() { 3 } else { 1 }] {
            let later = Answer::error(StatusCode::TOO_MANY_REQUESTS);
            let later = Fault::Answer(later.header("retry-after", seconds));
            for requests in [reads(scene), patches(), watches.clone()] {
                proxy.add(Rule::new(requests, later.clone()).times(2));
            }
            proxy.cut(&watches);
            change(scene, seconds).await?;
            oracles.check("429", Expected::revisions(1)).await?;

            proxy.clear();
            proxy.add(Rule::new(reads(scene), later));
            let late = Workload::podless(&format!("late-{seconds}")).lists("app");
            let began = Instant::now();
            let deployments: Api<Deployment> =
                Api::namespaced(scene.client.clone(), &scene.namespace);
            let manifest = serde_json::from_value(late.manifest())?;
            deployments.create(&Default::default(), &manifest).await?;
            let took = began.elapsed();
            ensure!(took < SOON, "created after {took:?}");
            proxy.clear();
            scene.right(&late).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_apiserver_that_often_fails_slows_us_down_and_stops_nothing() -> Result<()> {
    Scene::play(Options::proxied(), async |scene| {
        // With fewer of them, they would be restarted too often before each fault has applied.
        let workloads = so_many_workloads(scene, 4).await?;
        let mut oracles = Oracles::begin(scene, &workloads).await?;
        let proxy = proxy(scene)?;
        let calls = [
            Requests::any().method(Method::GET).except_watches(),
            Requests::any().method(Method::PATCH),
        ];
        let own = Requests::containing(format!("/namespaces/{}/", scene.namespace));
        let counted = [patches(), own.method(Method::GET).except_watches()];
        let counts = counted.map(|calls| proxy.add(Rule::count(calls)));
        let mut faults = Vec::new();
        for calls in calls {
            for (nth, fault) in [
                (30, error(StatusCode::INTERNAL_SERVER_ERROR)),
                (31, error(StatusCode::SERVICE_UNAVAILABLE)),
                (32, error(StatusCode::GATEWAY_TIMEOUT)),
                (20, Fault::Reset),
                (21, Fault::Hang),
            ] {
                faults.push(proxy.add(Rule::new(calls.clone(), fault).every_nth(nth)));
            }
        }
        let began = Instant::now();
        let times = if full() { 5 } else { 1 };
        let mut changes = 0;
        wait_for("each fault to apply", 5 * PATIENCE, async || {
            changes += 1;
            change(scene, &changes.to_string()).await?;
            // A pace, not a wait: users do not wait for the operator, so some calls that fail are for a change that is
            // over. After each of them, `wait_for` rests for twice as long.
            sleep(Duration::from_millis(300)).await;
            let missing = faults.iter().find(|fault| fault.hits().applied < times);
            Ok(match missing {
                None => Attempt::Done(()),
                Some(missing) => Attempt::NotYet(format!("{missing:?}")),
            })
        })
        .await?;
        let sum = counts.iter().map(|count| count.hits().matched).sum::<u64>();
        let took = began.elapsed();
        proxy.clear();
        println!("{changes} changes, {sum} calls in {took:?}");
        // A busy machine leaves more time for each change, and so for trying again.
        let tries = u64::try_from(took.as_millis() / PAUSE.as_millis())? + 1;
        let count = workloads.len() as u64;
        let most = changes * (count + 10) + tries * count * 3;
        ensure!(sum <= most, "{sum} calls for {changes} changes in {took:?}");
        let expected = Expected::up_to(usize::try_from(changes)?);
        oracles.check("errors, resets and hangs", expected).await
    })
    .await
}

#[tokio::test]
async fn a_refused_patch_of_one_workload_holds_up_no_other() -> Result<()> {
    Scene::play(Options::proxied(), async |scene| {
        let workloads = workloads(scene).await?;
        let mut oracles = Oracles::begin(scene, &workloads).await?;
        let proxy = proxy(scene)?;
        for (refused, (code, times)) in workloads.iter().zip([
            (StatusCode::CONFLICT, 2),
            (StatusCode::UNAUTHORIZED, u64::MAX),
            (StatusCode::FORBIDDEN, u64::MAX),
            (StatusCode::UNPROCESSABLE_ENTITY, u64::MAX),
        ]) {
            let row = code.to_string();
            let rule = Rule::new(patches_of(scene, refused), refusal(code)).times(times);
            let refusal = proxy.add(rule);
            change(scene, &row).await?;
            refusal.applied(1, PATIENCE).await?;
            for other in workloads.iter().rev().take(2) {
                scene.right(other).await?;
            }
            if code == StatusCode::FORBIDDEN || code == StatusCode::UNPROCESSABLE_ENTITY {
                let note = scene.event(refused, "PatchRefused").await?;
                ensure!(note.contains(code.as_str()), "{note}");
            }
            refusal.remove();
            // A user who repairs the workload need not wait.
            scene.label(&refused.reference(), "repaired=yes").await?;
            oracles.check(&row, Expected::revisions(1)).await?;
        }
        patch_of_a_workload_that_is_gone(scene).await?;
        oracles.check("404", Expected::up_to(2)).await
    })
    .await
}

/// Deletes a workload while the watch does not show it yet.
async fn patch_of_a_workload_that_is_gone(scene: &Scene) -> Result<()> {
    let gone = Workload::podless("gone").lists("app");
    scene.create(&gone).await?;
    scene.quiet().await?;
    let proxy = proxy(scene)?;
    let unseen = Requests::containing("/deployments").watches();
    let unseen = proxy.add(Rule::new(unseen, Fault::HoldWatch));
    let patches = proxy.add(Rule::count(patches_of(scene, &gone)));
    let deployments: Api<Deployment> = Api::namespaced(scene.client.clone(), &scene.namespace);
    deployments
        .delete(&gone.name, &DeleteParams::background())
        .await?;
    change(scene, "404").await?;
    patches.applied(1, PATIENCE).await?;
    change(scene, "404 again").await?;
    unseen.remove();
    scene.quiet().await?;
    let patches = patches.hits().applied;
    ensure!(patches == 1, "{patches} patches of what is gone");
    Ok(())
}

#[tokio::test]
async fn a_new_token_is_taken_up_without_a_restart() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let (web, before) = scene.create_listing(Workload::podless("web")).await?;
        scene.quiet().await?;
        // The account is a new one now, and its old token is worthless.
        let installation = &scene.installation;
        let (namespace, name) = (&installation.namespace, installation.service_account());
        let accounts: Api<ServiceAccount> = Api::namespaced(scene.client.clone(), namespace);
        accounts.delete(name, &DeleteParams::default()).await?;
        let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        accounts.create(&Default::default(), &account).await?;
        let control_plane = &scene.control_plane;
        let token = control_plane.service_account_token(namespace, name).await?;
        refused(scene).await?;

        std::fs::write(scene.operator.token_file(), token)?;
        let began = Instant::now();
        scene.apply(&[config_map("app", "2")]).await?;
        let what = "the new token to be used";
        wait_for(what, Duration::from_secs(150), async || {
            let (key, expected) = (scene.key(&web).await?, scene.expected_key(&web).await?);
            done_if(key == Some(expected), "the hash is the old one")
        })
        .await?;
        println!("taken up after {:?}", began.elapsed());
        let after = scene.snapshot(&web).await?;
        ensure!(after.new_revisions(&before) == 1, "{before:?}, {after:?}");
        scene.rolls_not(&web, &after).await
    })
    .await
}

/// Waits until the apiserver no longer accepts the operator's token.
async fn refused(scene: &Scene) -> Result<()> {
    let old = std::fs::read_to_string(scene.operator.token_file())?;
    let client = scene.control_plane.kubeconfig_for(old).client().await?;
    wait_for("the old token to be refused", PATIENCE, async || {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &scene.namespace);
        Ok(match deployments.get("web").await {
            Err(kube::Error::Api(status)) if status.code == 401 => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        })
    })
    .await
}

/// Waits until every watch of the operator is open.
async fn all_watched(proxy: &Proxy) -> Result<()> {
    wait_for("all watches", PATIENCE, async || {
        let open = proxy.open_watches(&Requests::any());
        done_if(open as u64 >= WATCHES, format!("{open} are open"))
    })
    .await
}

fn proxy(scene: &Scene) -> Result<&Proxy> {
    scene.proxy.as_ref().context("the scene has no proxy")
}

fn patches_of(scene: &Scene, workload: &Workload) -> Requests {
    let kind = match workload.kind {
        Kind::Deployment => "deployments",
        Kind::StatefulSet => "statefulsets",
        Kind::DaemonSet => "daemonsets",
    };
    let (namespace, name) = (&scene.namespace, &workload.name);
    Requests::exactly(format!(
        "/apis/apps/v1/namespaces/{namespace}/{kind}/{name}"
    ))
    .method(Method::PATCH)
}

/// Returns a refusal with the details that a policy gives, and that a failed `test` of a patch lacks.
fn refusal(code: StatusCode) -> Fault {
    let mut status = status(code);
    status["details"] = json!({"causes": [{"message": "no"}]});
    Fault::Answer(Answer::json(code, &status))
}

fn error(code: StatusCode) -> Fault {
    Fault::Answer(Answer::error(code))
}

/// Number of watches: three kinds of workload, two kinds of config.
const WATCHES: u64 = 5;
/// The shortest pause of a workload after a call that failed. A try takes three calls at most.
const PAUSE: Duration = Duration::from_millis(750);
/// More time than the webhook has, and less than it is asked to wait.
const SOON: Duration = Duration::from_secs(20);
