//! The tracked parts of a pod template, their keys, and the workloads that are left alone: `auto` and related
//! annotations.

mod cases;
mod pod_specs;

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use pod_reloader_e2e::oracle::Truth;
use pod_reloader_e2e::workload::{Workload, key_of};
use pod_reloader_e2e::{Attempt, Options, PATIENCE, Scene, dialects, wait_for};
use serde_json::{Value, json};

use self::cases::{
    Case, Config, ConfigKind, NOTHING, OTHER_ENTRY, Part, USED, USED_ENTRY, become_these, patched,
    read,
};
use self::pod_specs::{
    IMAGE_PULL, Source, container, few_references, foreign_references, optional_references,
    references, uses_both, with_spec,
};

#[tokio::test]
async fn every_reference_is_found_in_a_pod_template_as_the_apiserver_sends_it() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let config = Config::of(asking(references("app")));
        let objects = config.objects(&ConfigKind::ALL);
        // All cases use the same two objects.
        scene.put_all(&objects[..2]).await?;
        let expected = config.expected_keys(scene).await?;
        for (case, expected) in config.cases.iter().zip(expected) {
            let key = key_at_creation(scene, &case.workload).await?;
            let form = case.form;
            ensure!(key == expected, "{form}: {key:?}, expected {expected:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn exactly_the_changes_that_a_workload_asks_for_roll_it() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let used = |name: &str| format!("{name}[{USED}]");
        let (cm, secret) = ([Part::Whole, Part::Nothing], [Part::Nothing, Part::Whole]);
        let mut cases = asking(few_references(""));

        let source = |name| Source::new(ConfigKind::ConfigMap, name);
        let needed = |name, spec| {
            let workload = with_spec(Workload::podless(name), spec);
            let workload = workload.annotated(AUTO, "true");
            workload.annotated(RESTART_ON, "needed")
        };
        let seen = needed("seen", source("seen").volume());
        cases.push(Case::new(seen, [Part::OfImmutable, Part::Nothing]));
        let mut both = source("seen-in-part").volume();
        both["containers"][0]["env"] = source("seen-in-part").variables();
        let seen_in_part = needed("seen-in-part", both);
        cases.push(Case::new(seen_in_part, [Part::Key, Part::Nothing]));

        let listed = Workload::podless("listed").lists_secrets(&used("listed"));
        cases.push(Case::new(listed, [Part::Nothing, Part::Key]));
        let per_object = Workload::podless("per-object").lists(&used("per-object"));
        cases.push(Case::new(per_object.annotated(PER_KEY, "false"), cm));

        let auto = |name, value| uses_both(name).annotated(AUTO, value);
        cases.push(Case::new(auto("secrets", "secrets"), secret));
        let excludes = auto("excludes", "true").annotated(EXCLUDE_CONFIG_MAPS, "x, excludes");
        cases.push(Case::new(excludes, secret));
        cases.push(Case::new(auto("nothing", "false"), NOTHING));
        let ignored = auto("ignored", "true").labelled(IGNORED, "true");
        cases.push(Case::new(ignored, NOTHING));

        exactly_what_counts_rolls(scene, &cases).await?;
        another_image_keeps_the_hash(scene, &cases[..1]).await
    })
    .await
}

#[tokio::test]
async fn auto_reload_all_gives_old_workloads_a_baseline_and_new_ones_a_hash() -> Result<()> {
    let options = Options {
        // ConfigMaps and Secrets change one after the other.
        settle_period: "3s",
        running: false,
        values: json!({"autoReloadAll": true}),
        ..Options::ignoring()
    };
    Scene::play(options, async |scene| {
        let mut config = Config::of(under_auto_reload_all("old"));
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        scene.create_all(&config.workloads()).await?;
        let mut before = scene.snapshots(&config.workloads()).await?;
        ensure!(before.iter().all(|it| it.key.is_none()), "{before:?}");

        scene.operator.start_again().await?;
        let expected = config.expected_keys(scene).await?;
        for (case, expected) in config.cases.iter().zip(&expected) {
            let baseline = expected.as_ref().map(|hash| format!("={hash}"));
            scene
                .has_baseline(&case.workload, baseline.as_deref())
                .await?;
        }
        scene.quiet().await?;
        let after = scene.snapshots(&config.workloads()).await?;
        ensure!(after == before, "{before:?}, {after:?}");

        let new = Config::of(under_auto_reload_all("new"));
        scene.put_all(&new.objects(&ConfigKind::ALL)).await?;
        scene.create_all(&new.workloads()).await?;
        before.extend(new.stamped_at_once(scene).await?);
        config.cases.extend(new.cases);
        config.renew();
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        config.each_rolls(scene, &before).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn an_optional_object_may_be_absent_and_rolls_when_it_comes_and_goes() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let config = Config::of(asking(optional_references("", true)));
        let workloads = config.workloads();
        scene.create_all(&workloads).await?;
        let absent = config.stamped_at_once(scene).await?;
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        let there = config.each_rolls(scene, &absent).await?;
        config.delete_objects(scene).await?;
        let keys: Vec<_> = absent.iter().map(|snapshot| snapshot.key.clone()).collect();
        become_these(scene, &workloads, &keys).await?;
        scene.quiet().await?;
        let gone = scene.snapshots(&workloads).await?;
        for (there, gone) in there.iter().zip(&gone) {
            // The template is the same as at first, so its revision already exists.
            ensure!(gone.new_revisions(there) == 0, "{there:?}, {gone:?}");
            ensure!(gone.key != there.key, "{there:?}, {gone:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_change_waits_for_a_required_object_that_is_missing_and_says_so() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let mut config = Config::of(asking(few_references("")));
        // A kubelet goes on without this one.
        config.cases.retain(|case| case.form != IMAGE_PULL);
        let workloads = config.workloads();
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        scene.create_all(&workloads).await?;
        let before = config.stamped_at_once(scene).await?;

        config.delete_objects(scene).await?;
        wait_for("everybody to wait", PATIENCE, async || {
            let waiting = told(scene, "MissingConfig").await?;
            let mut names = workloads.iter().map(|workload| &workload.name);
            Ok(match names.find(|name| !waiting.contains(*name)) {
                Some(not) => Attempt::NotYet(format!("{not} does not")),
                None => Attempt::Done(()),
            })
        })
        .await?;
        scene.quiet().await?;
        let held = scene.snapshots(&workloads).await?;
        ensure!(held == before, "{before:?}, {held:?}");

        config.renew();
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        config.each_rolls(scene, &before).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn a_new_reference_to_a_missing_object_waits_and_says_so() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let bare = uses_both("web").annotated(AUTO, "true").without_pods();
        let mut config = Config::of([Case::new(bare.clone(), [Part::Whole; 2])]);
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        let before = scene.create(&bare).await?;
        let late = Source::new(ConfigKind::Secret, "late").driver("csi");
        let web = with_spec(bare, late);
        let edited = scene.create(&web).await?;
        ensure!(edited.key == before.key, "{before:?}, {edited:?}");
        let note = scene.event(&web, "MissingConfig").await?;
        ensure!(note.contains("Secret late"), "{note}");
        scene.rolls_not(&web, &edited).await?;

        config
            .cases
            .push(Case::new(Workload::podless("late"), NOTHING));
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        let listing = web.clone().lists("web").lists_secrets("web,late");
        let mut listing = listing.manifest();
        listing["metadata"]["namespace"] = json!(scene.namespace);
        let mut truth = Truth::read(&scene.client, &scene.installation).await?;
        let expected = [Some(truth.config_hash(&listing).await?)];
        become_these(scene, std::slice::from_ref(&web), &expected).await?;
        scene.quiet().await?;
        let after = scene.snapshot(&web).await?;
        ensure!(after.new_revisions(&edited) == 1, "{edited:?}, {after:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_immutable_object_that_is_replaced_rolls_once_however_it_is_used() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let mut config = Config::of(asking(few_references("")));
        let needed = few_references("-needed");
        let needed = annotated(needed, &[(AUTO, "true"), (RESTART_ON, "needed")]);
        config.cases.extend(needed);
        // A moment without this one would restart the pods.
        config.cases.retain(|case| case.form != IMAGE_PULL);
        config.immutable = true;
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        scene.create_all(&config.workloads()).await?;
        let before = config.stamped_at_once(scene).await?;
        config.delete_objects(scene).await?;
        config.renew();
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        config.each_rolls(scene, &before).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn an_object_that_becomes_immutable_rolls_nothing_until_it_is_replaced() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let source = Source::new(ConfigKind::ConfigMap, "web");
        let web = with_spec(Workload::deployment("web"), source.volume()).without_pods();
        let web = web.annotated(AUTO, "true").annotated(RESTART_ON, "needed");
        let mut config = Config::of([Case::new(web.clone(), [Part::Whole, Part::Nothing])]);
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        let before = scene.create(&web).await?;
        ensure!(before.key.is_none(), "{before:?}");
        config.immutable = true;
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        scene.rolls_not(&web, &before).await?;
        config.renew();
        config.delete_objects(scene).await?;
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        config.each_rolls(scene, &[before]).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn references_to_other_kinds_of_objects_are_let_through_and_not_followed() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let source = Source::new(ConfigKind::ConfigMap, "used");
        let certificates = "pod.spec.volumes.projected.sources.podCertificate";
        let explained = scene.kubectl_output(&["explain", certificates], "").await?;
        let foreign = foreign_references(explained.code == Some(0));
        let mut used = foreign.clone();
        used["containers"][0]["env"] = source.variables();
        let cases = [("foreign", foreign), ("used", used)].map(|(name, spec)| {
            let workload = with_spec(Workload::podless(name), spec);
            let part = if name == "used" {
                Part::Key
            } else {
                Part::Nothing
            };
            Case::new(workload.annotated(AUTO, "true"), [part, Part::Nothing])
        });
        for case in &cases {
            let create = ["create", "--dry-run=server", "--filename=-"];
            let manifest = case.workload.manifest().to_string();
            let output = scene.kubectl_output(&create, &manifest).await?;
            ensure!(output.code == Some(0), "{}", output.stderr);
            ensure!(!output.stderr.contains("pod-reloader"), "{}", output.stderr);
        }
        exactly_what_counts_rolls(scene, &cases).await?;
        let events = scene.events(&cases[0].workload).await?;
        ensure!(events.is_empty(), "{events:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn nothing_is_read_for_workloads_that_did_not_opt_in() -> Result<()> {
    use Place::{Annotation, Label};
    let of_others: [&[Mark]; 3] = [
        &[(Annotation, "reloader.stakater.com/auto", "true")],
        &[(Annotation, "trigger.k8s.io/triggering-secrets", LAST)],
        &[(Label, "restarter.stackable.tech/enabled", "true")],
    ];
    nothing_is_read_for_who_does_not_ask(json!({}), &of_others).await
}

#[tokio::test]
async fn nothing_is_read_for_workloads_that_did_not_opt_in_by_any_dialect() -> Result<()> {
    use Place::{Annotation, Label};
    let values = json!({"dialects": dialects()});
    let of_others: [&[Mark]; 3] = [
        &[(Annotation, "reloader.stakater.com/search", "false")],
        &[(Annotation, "wave.pusher.com/extra-configmaps", LAST)],
        // The dialect applies to StatefulSets only.
        &[(Label, "restarter.stackable.tech/enabled", "true")],
    ];
    nothing_is_read_for_who_does_not_ask(values, &of_others).await
}

#[tokio::test]
async fn a_change_of_the_template_sets_the_hash_that_the_loop_leaves_unchanged() -> Result<()> {
    let without_loop = Options {
        args: vec!["--reconcile=none".to_owned()],
        ..Options::default()
    };
    Scene::play(without_loop, async |scene| {
        let mut config = Config::of(asking(few_references("")));
        let workloads = config.workloads();
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        scene.create_all(&workloads).await?;
        let before = config.stamped_at_once(scene).await?;
        config.renew();
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        let mark = scene.mark().await?;
        set_image(scene, &workloads).await?;
        let after = scene.snapshots(&workloads).await?;
        let expected = config.expected_keys(scene).await?;
        for ((expected, before), after) in expected.iter().zip(&before).zip(&after) {
            ensure!(after.new_revisions(before) == 1, "{before:?}, {after:?}");
            ensure!(after.key == *expected, "{after:?}, expected {expected:?}");
            ensure!(after.key != before.key, "{before:?}, {after:?}");
        }
        scene.operator.stop().await;
        let with_loop = scene.start_operator(&["--reconcile=restart"]).await?;
        scene.quiet().await?;
        let later = scene.snapshots(&workloads).await?;
        ensure!(later == after, "{after:?}, {later:?}");
        let requests = scene.requests(mark).await?;
        ensure!(patched(&requests).is_empty(), "{:?}", patched(&requests));
        with_loop.stop().await;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_new_reference_and_its_object_in_one_edit_make_one_rollout() -> Result<()> {
    // kubectl may take its time between the two.
    Scene::play(Options::settling("8s"), async |scene| {
        let web = with_spec(
            Workload::deployment("web"),
            json!({"containers": container()}),
        );
        let web = web.annotated(AUTO, "true").without_pods();
        let mut config = Config::of([Case::new(web.clone(), [Part::Key, Part::Nothing])]);
        let before = scene.create(&web).await?;
        ensure!(before.key.is_none(), "{before:?}");

        let source = Source::new(ConfigKind::ConfigMap, "web");
        let first = with_spec(web, source.env());
        let mark = scene.mark().await?;
        scene.apply(&edit(&config, &first)).await?;
        let after = config.each_rolls(scene, &[before]).await?;

        // From then on, the object changes together with the workload that uses it.
        config.renew();
        let second = first.image("app:2");
        scene.apply(&edit(&config, &second)).await?;
        config.each_rolls(scene, &after).await?;
        let requests = scene.requests(mark).await?;
        ensure!(patched(&requests).is_empty(), "{:?}", patched(&requests));
        Ok(())
    })
    .await
}

/// Creates the cases with everything that they use, and changes one entry after the other, in all objects of each kind
/// that any of them tracks. Asserts that each workload is restarted once for each change that is tracked for it
/// and for no other, and that nothing untracked is read.
async fn exactly_what_counts_rolls(scene: &Scene, cases: &[Case]) -> Result<()> {
    let mut config = Config::of(cases.to_vec());
    scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
    scene.create_all(&config.workloads()).await?;
    config.stamped_at_once(scene).await?;
    let is_tracked = |kind: &ConfigKind| cases.iter().any(|it| it.part(*kind) != Part::Nothing);
    for kind in ConfigKind::ALL.into_iter().filter(is_tracked) {
        for entry in [OTHER_ENTRY, USED_ENTRY] {
            config.changes(scene, kind, entry).await?;
        }
    }
    Ok(())
}

/// Asserts that another image makes one rollout, with the same hash and without a write of the loop.
async fn another_image_keeps_the_hash(scene: &Scene, cases: &[Case]) -> Result<()> {
    let workloads: Vec<_> = cases.iter().map(|case| case.workload.clone()).collect();
    let before = scene.snapshots(&workloads).await?;
    let mark = scene.mark().await?;
    set_image(scene, &workloads).await?;
    scene.quiet().await?;
    let after = scene.snapshots(&workloads).await?;
    for (before, after) in before.iter().zip(&after) {
        ensure!(after.key == before.key, "{before:?}, {after:?}");
        ensure!(after.new_revisions(before) == 1, "{before:?}, {after:?}");
    }
    let requests = scene.requests(mark).await?;
    let patched = patched(&requests);
    ensure!(patched.is_empty(), "{patched:?}");
    Ok(())
}

async fn set_image(scene: &Scene, workloads: &[Workload]) -> Result<()> {
    for workload in workloads {
        let manifest = workload.clone().image("app:2").manifest();
        let containers = &manifest["spec"]["template"]["spec"]["containers"];
        let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        scene.patch(workload, &patch).await?;
    }
    Ok(())
}

/// Returns cases that ask for everything that they use.
fn asking(cases: Vec<Case>) -> Vec<Case> {
    annotated(cases, &[(AUTO, "true")])
}

fn annotated(cases: Vec<Case>, annotations: &[(&str, &str)]) -> Vec<Case> {
    let annotate = |workload: Workload, (key, value): &(&str, &str)| workload.annotated(key, value);
    let annotated = |case: Case| Case {
        workload: annotations.iter().fold(case.workload, annotate),
        ..case
    };
    cases.into_iter().map(annotated).collect()
}

/// Returns the config hash that a Deployment would be created with. Nothing is stored.
async fn key_at_creation(scene: &Scene, workload: &Workload) -> Result<Option<String>> {
    let deployments = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
    let api: Api<DynamicObject> =
        Api::namespaced_with(scene.client.clone(), &scene.namespace, &deployments);
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let object = serde_json::from_value(workload.manifest())?;
    let created = api.create(&dry_run, &object).await?;
    Ok(key_of(&created.data))
}

/// Asserts that no ConfigMap or Secret is read for workloads with the marks `of_others`, nor for others that
/// do not opt in with our annotations, whatever happens to them, even if the webhook is called for every
/// workload.
async fn nothing_is_read_for_who_does_not_ask(values: Value, of_others: &[&[Mark]]) -> Result<()> {
    use Place::{Annotation, Label, OfTemplate};
    let options = Options {
        match_conditions: false,
        values,
        ..Options::default()
    };
    let of_ours: [&[Mark]; 4] = [
        &[],
        &[(Annotation, AUTO, "false")],
        &[(Annotation, AUTO, "true"), (Label, IGNORED, "true")],
        &[(OfTemplate, AUTO, "true")],
    ];
    Scene::play(options, async |scene| {
        let mut cases = Vec::new();
        for (index, marks) in of_ours.iter().chain(of_others).enumerate() {
            let workload = uses_both(&format!("marked-{index}"));
            let marked = marks
                .iter()
                .fold(workload, |workload, mark| marked(workload, *mark));
            cases.push(Case::new(marked, NOTHING));
        }
        let asks = uses_both(LAST).annotated(AUTO, "true");
        cases.push(Case::new(asks, [Part::Whole; 2]));
        let mut config = Config::of(cases);
        let others: Vec<_> = config.workloads();
        let others = &others[..others.len() - 1];
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        let mark = scene.mark().await?;
        scene.create_all(&config.workloads()).await?;
        set_image(scene, others).await?;
        config.renew();
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        let snapshots = scene.snapshots(others).await?;
        ensure!(snapshots.iter().all(|it| it.key.is_none()), "{snapshots:?}");
        config.right(scene).await?;
        scene.quiet().await?;
        ensure!(scene.snapshots(others).await? == snapshots, "{snapshots:?}");
        let read = read(&scene.requests(mark).await?);
        let [config_map, secret] = ConfigKind::ALL.map(|kind| (kind.plural(), LAST));
        let expected = [
            config_map,
            secret,
            ("configmaps", "sentinel"),
            ("secrets", "sentinel"),
        ];
        let expected = expected.map(|(resource, name)| (resource.to_owned(), name.to_owned()));
        ensure!(read == expected.into(), "{read:?}");
        Ok(())
    })
    .await
}

/// A mark on a workload that makes some controller look after it: place, name and value.
type Mark = (Place, &'static str, &'static str);

#[derive(Clone, Copy)]
enum Place {
    Annotation,
    Label,
    OfTemplate,
}

fn marked(workload: Workload, (place, key, value): Mark) -> Workload {
    match place {
        Place::Annotation => workload.annotated(key, value),
        Place::Label => workload.labelled(key, value),
        Place::OfTemplate => {
            let path = ["spec", "template", "metadata", "annotations", key];
            workload.with(&path, json!(value))
        }
    }
}

/// Returns the names of Deployments about which there is an Event of this reason.
async fn told(scene: &Scene, reason: &str) -> Result<BTreeSet<String>> {
    let events = scene.events_in(&scene.namespace).await?;
    let of_reason = events.iter().filter(|event| event["reason"] == reason);
    let names = of_reason.filter_map(|event| event["regarding"]["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// Returns the objects that a user applies in one go.
fn edit(config: &Config, workload: &Workload) -> Vec<Value> {
    let mut objects = config.objects(&[ConfigKind::ConfigMap]);
    objects.push(workload.manifest());
    objects
}

/// Returns a workload that opts in by not opting out, one that does not, and one that uses nothing.
fn under_auto_reload_all(prefix: &str) -> [Case; 3] {
    let name = |name: &str| format!("{prefix}-{name}");
    let opts_out = uses_both(&name("opts-out")).annotated(AUTO, "false");
    let uses_nothing = Workload::podless(&name("uses-nothing"));
    [
        Case::new(uses_both(&name("silent")), [Part::Whole; 2]),
        Case::new(opts_out, NOTHING),
        Case::new(uses_nothing, NOTHING),
    ]
}

/// The one workload that opts in, among others that do not.
const LAST: &str = "asks";
const AUTO: &str = "pod-reloader.cs.sap.com/auto";
const EXCLUDE_CONFIG_MAPS: &str = "pod-reloader.cs.sap.com/exclude-configmaps";
const PER_KEY: &str = "pod-reloader.cs.sap.com/per-key";
const RESTART_ON: &str = "pod-reloader.cs.sap.com/restart-on";
const IGNORED: &str = "pod-reloader.cs.sap.com/ignored";
