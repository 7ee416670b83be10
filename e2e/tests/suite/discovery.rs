//! The tracked parts of a pod template, their keys, and the workloads that are left alone: `auto` and related
//! annotations.

mod cases;
mod pod_specs;

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use pod_reloader_e2e::oracle::Truth;
use pod_reloader_e2e::workload::Workload;
use pod_reloader_e2e::{Attempt, Options, PATIENCE, Scene, dialects, wait_for};
use serde_json::{Value, json};

use self::cases::{
    Case, Config, ConfigKind, NOTHING, OTHER_ENTRY, Part, USED, USED_ENTRY, become_these, patched,
    read,
};
use self::pod_specs::{
    DRIVERS, FORMS, IMAGE_PULL, SEEN_BY_PODS, Source, container, foreign_references, references,
    uses_both, with_spec,
};

#[tokio::test]
async fn every_reference_of_a_pod_template_is_tracked_and_nothing_else_is() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let cases = references("", false, |workload| workload.annotated(AUTO, "true"));
        exactly_what_counts_rolls(scene, &cases).await?;
        another_image_keeps_the_hash(scene, &cases).await
    })
    .await
}

#[tokio::test]
async fn restart_on_needed_tracks_only_what_pods_cannot_see() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let asks = |workload: Workload| workload.annotated(AUTO, "true");
        let needed = |workload: Workload| asks(workload).annotated(RESTART_ON, "needed");
        let mut cases = references("", false, needed);
        for case in &mut cases {
            if SEEN_BY_PODS.contains(&case.form) {
                let parts = case.counts.iter_mut();
                for part in parts.filter(|part| **part != Part::Nothing) {
                    *part = Part::OfImmutable;
                }
            }
        }
        let both = |name: &str| {
            let source = Source::new(ConfigKind::ConfigMap, name);
            let mut spec = source.volume();
            spec["containers"][0]["env"] = source.variables();
            with_spec(Workload::deployment(name), spec)
        };
        let counts = |part| [part, Part::Nothing];
        cases.push(Case::new(asks(both("any")), counts(Part::Whole)));
        cases.push(Case::new(needed(both("needed")), counts(Part::Key)));
        let listed = needed(Workload::deployment("unused")).lists("unused");
        cases.push(Case::new(listed, counts(Part::Whole)));
        exactly_what_counts_rolls(scene, &cases).await
    })
    .await
}

#[tokio::test]
async fn only_named_data_keys_are_tracked_unless_the_workload_says_otherwise() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let named = |name: &str| format!("{name}[{USED}]");
        let from_env = |name: &str| {
            let source = Source::new(ConfigKind::ConfigMap, name);
            with_spec(Workload::deployment(name), source.env())
        };
        let bare = |name: &str| Workload::deployment(name).lists(&named(name));
        let whole = |workload: Workload| workload.annotated(PER_KEY, "false");
        let secrets = |name: &str| Workload::deployment(name).lists_secrets(&named(name));
        let envs_from = |name: &str| {
            let source = Source::new(ConfigKind::ConfigMap, name);
            with_spec(Workload::deployment(name), source.env_from())
        };
        let auto = |workload: Workload| workload.annotated(AUTO, "true");
        let config_map = |part| [part, Part::Nothing];
        let mut cases = vec![
            Case::new(bare("listed"), config_map(Part::Key)),
            Case::new(secrets("listed-secret"), [Part::Nothing, Part::Key]),
            Case::new(
                auto(from_env("listed-and-used")).lists(&named("listed-and-used")),
                config_map(Part::Key),
            ),
            Case::new(
                auto(envs_from("used-whole")).lists(&named("used-whole")),
                config_map(Part::Whole),
            ),
            Case::new(
                auto(from_env("listed-whole")).lists("listed-whole"),
                config_map(Part::Whole),
            ),
            Case::new(whole(bare("listed-per-object")), config_map(Part::Whole)),
        ];
        for (form, build, _) in FORMS.iter().filter(|(.., part)| *part == Part::Key) {
            let name = format!("{form}-per-object");
            let spec = build(&Source::new(ConfigKind::ConfigMap, &name));
            let workload = whole(auto(with_spec(Workload::deployment(&name), spec)));
            cases.push(Case::new(workload, config_map(Part::Whole)));
        }
        exactly_what_counts_rolls(scene, &cases).await
    })
    .await
}

#[tokio::test]
async fn auto_tracks_the_kinds_and_names_that_its_annotations_select() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let auto = |name: &str, value: &str| uses_both(name).annotated(AUTO, value);
        let all = |name: &str| auto(name, "true");
        let (cm, secret) = ([Part::Whole, Part::Nothing], [Part::Nothing, Part::Whole]);
        let cases = [
            Case::new(auto("config-maps", "configmaps"), cm),
            Case::new(auto("secrets", "secrets"), secret),
            Case::new(auto("nothing", "false"), NOTHING),
            Case::new(auto("misspelt", "yes"), NOTHING),
            Case::new(auto("false-and-list", "false").lists("false-and-list"), cm),
            Case::new(
                auto("config-maps-and-list", "configmaps").lists_secrets("config-maps-and-list"),
                [Part::Whole, Part::Whole],
            ),
            Case::new(
                all("no-config-map").annotated(EXCLUDE_CONFIG_MAPS, "x, no-config-map"),
                secret,
            ),
            Case::new(all("no-secret").annotated(EXCLUDE_SECRETS, "no-secret"), cm),
            Case::new(
                all("listed-and-excluded")
                    .lists("listed-and-excluded")
                    .annotated(EXCLUDE_CONFIG_MAPS, "listed-and-excluded"),
                secret,
            ),
            Case::new(all("ignored").labelled(IGNORED, "true"), NOTHING),
        ];
        exactly_what_counts_rolls(scene, &cases).await
    })
    .await
}

#[tokio::test]
async fn auto_reload_all_tracks_everything_for_workloads_that_do_not_opt_out() -> Result<()> {
    Scene::play(auto_reload_all(), async |scene| {
        let config_map = [Part::Whole, Part::Nothing];
        let mut cases = under_auto_reload_all();
        // Workloads that also opt in with our own annotations.
        let one_kind = uses_both("one-kind").annotated(AUTO, "configmaps");
        cases.push(Case::new(one_kind, config_map));
        let lists = uses_both("lists").annotated(AUTO, "false").lists("lists");
        cases.push(Case::new(lists, config_map));
        exactly_what_counts_rolls(scene, &cases).await
    })
    .await
}

#[tokio::test]
async fn a_workload_from_before_auto_reload_all_gets_a_baseline_and_rolls_at_a_change() -> Result<()>
{
    let options = Options {
        // ConfigMaps and Secrets change one after the other.
        settle_period: "3s",
        running: false,
        failure_policy: "Ignore",
        ..auto_reload_all()
    };
    Scene::play(options, async |scene| {
        let mut config = Config::of(under_auto_reload_all());
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        scene.create_all(&config.workloads()).await?;
        let before = scene.snapshots(&config.workloads()).await?;
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
        config.renew();
        scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
        config.each_rolls(scene, &before).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn an_optional_object_may_be_absent_and_rolls_when_it_comes_and_goes() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let auto = |workload: Workload| workload.annotated(AUTO, "true");
        let mut config = Config::of(references("", true, auto));
        config.cases.retain(|case| !DRIVERS.contains(&case.form));
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
        let auto = |workload: Workload| workload.annotated(AUTO, "true");
        let mut config = Config::of(references("", false, auto));
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
        let bare = uses_both("web").annotated(AUTO, "true");
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
            .push(Case::new(Workload::deployment("late"), NOTHING));
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
        let auto = |workload: Workload| workload.annotated(AUTO, "true");
        let mut config = Config::of(references("", false, auto));
        let needed = |workload: Workload| auto(workload).annotated(RESTART_ON, "needed");
        config.cases.extend(references("-needed", false, needed));
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
        let web = with_spec(Workload::deployment("web"), source.volume());
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
            let workload = with_spec(Workload::deployment(name), spec);
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
    let of_others: [&[Mark]; 8] = [
        &[(Annotation, "reloader.stakater.com/auto", "true")],
        &[(Annotation, "reloader.stakater.com/search", "true")],
        &[(
            Annotation,
            "wave.pusher.com/update-on-config-change",
            "true",
        )],
        &[(Annotation, "trigger.k8s.io/triggering-secrets", LAST)],
        &[(Annotation, "configmap.fabric8.io/update-on-change", LAST)],
        &[(Label, "restarter.stackable.tech/enabled", "true")],
        &[(Annotation, "secrets.infisical.com/auto-reload", "true")],
        &[(Annotation, "operator.1password.io/auto-restart", "true")],
    ];
    nothing_is_read_for_who_does_not_ask(json!({}), &of_others).await
}

#[tokio::test]
async fn nothing_is_read_for_workloads_that_did_not_opt_in_by_any_dialect() -> Result<()> {
    use Place::{Annotation, Label};
    let values = json!({"dialects": dialects()});
    let of_others: [&[Mark]; 8] = [
        &[(Annotation, "reloader.stakater.com/auto", "false")],
        &[(Annotation, "reloader.stakater.com/search", "false")],
        &[(Annotation, "reloader.stakater.com/match", "true")],
        &[(
            Annotation,
            "wave.pusher.com/update-on-config-change",
            "false",
        )],
        &[(Annotation, "wave.pusher.com/extra-configmaps", LAST)],
        &[(Annotation, "trigger.k8s.io/note", LAST)],
        &[
            (Annotation, "reloader.stakater.com/auto", "true"),
            (Label, IGNORED, "true"),
        ],
        // The dialect applies to StatefulSets only.
        &[(Label, "restarter.stackable.tech/enabled", "true")],
    ];
    nothing_is_read_for_who_does_not_ask(values, &of_others).await
}

#[tokio::test]
async fn a_change_of_the_template_sets_the_hash_that_the_loop_leaves_unchanged() -> Result<()> {
    let without_loop = Options {
        args: vec!["--reconcile=off".to_owned()],
        ..Options::default()
    };
    Scene::play(without_loop, async |scene| {
        let auto = |workload: Workload| workload.annotated(AUTO, "true");
        let mut config = Config::of(references("", false, auto));
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
        let with_loop = scene.start_operator(&["--reconcile=on"]).await?;
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
    let options = Options {
        settle_period: "8s",
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let web = with_spec(
            Workload::deployment("web"),
            json!({"containers": container()}),
        );
        let web = web.annotated(AUTO, "true");
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

/// Creates the cases with everything that they use, and changes one entry after the other, in all ConfigMaps
/// and in all Secrets. Asserts that each workload is restarted once for each change that is tracked for it
/// and for no other, and that nothing untracked is read.
async fn exactly_what_counts_rolls(scene: &Scene, cases: &[Case]) -> Result<()> {
    let mut config = Config::of(cases.to_vec());
    scene.put_all(&config.objects(&ConfigKind::ALL)).await?;
    scene.create_all(&config.workloads()).await?;
    config.stamped_at_once(scene).await?;
    for kind in ConfigKind::ALL {
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
    let of_ours: [&[Mark]; 6] = [
        &[(Annotation, AUTO, "false")],
        &[(Annotation, AUTO, "True")],
        &[(Annotation, PER_KEY, "true")],
        &[(Annotation, EXCLUDE_SECRETS, "x")],
        &[(Annotation, AUTO, "true"), (Label, IGNORED, "true")],
        &[(OfTemplate, AUTO, "true")],
    ];
    Scene::play(options, async |scene| {
        let mut config = Config::of(references("", false, |workload| workload));
        for case in &mut config.cases {
            case.counts = NOTHING;
        }
        for (index, marks) in of_ours.iter().chain(of_others).enumerate() {
            let workload = uses_both(&format!("marked-{index}"));
            let marked = marks
                .iter()
                .fold(workload, |workload, mark| marked(workload, *mark));
            config.cases.push(Case::new(marked, NOTHING));
        }
        let asks = uses_both(LAST).annotated(AUTO, "true");
        config.cases.push(Case::new(asks.clone(), [Part::Whole; 2]));
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
    let events = ["get", "events.events.k8s.io", "--output=json"];
    let events: Value = serde_json::from_str(&scene.kubectl(&events).await?)?;
    let events = events["items"].as_array().into_iter().flatten();
    let of_reason = events.filter(|event| event["reason"] == reason);
    let names = of_reason.filter_map(|event| event["regarding"]["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// Returns the objects that a user applies in one go.
fn edit(config: &Config, workload: &Workload) -> Vec<Value> {
    let mut objects = config.objects(&[ConfigKind::ConfigMap]);
    objects.push(workload.manifest());
    objects
}

/// Returns options of an operator that opts every workload in, by the chart's value.
fn auto_reload_all() -> Options {
    Options {
        values: json!({"autoReloadAll": true}),
        ..Options::default()
    }
}

fn under_auto_reload_all() -> Vec<Case> {
    let (both, config_map) = ([Part::Whole; 2], [Part::Whole, Part::Nothing]);
    let one = |name: &str| uses_both(name);
    let mut cases = vec![
        Case::new(one("silent"), both),
        Case::new(Workload::deployment("uses-nothing"), NOTHING),
        Case::new(one("opts-out").annotated(AUTO, "false"), NOTHING),
        Case::new(one("ignored").labelled(IGNORED, "true"), NOTHING),
        Case::new(
            one("no-secret").annotated(EXCLUDE_SECRETS, "no-secret"),
            config_map,
        ),
    ];
    let unasked = references("", false, |workload| workload);
    let few = |case: &Case| ["env", "volume", "csi"].contains(&case.form);
    cases.extend(unasked.into_iter().filter(few));
    cases
}

/// The one workload that opts in, among others that do not.
const LAST: &str = "asks";
const AUTO: &str = "pod-reloader.cs.sap.com/auto";
const EXCLUDE_CONFIG_MAPS: &str = "pod-reloader.cs.sap.com/exclude-configmaps";
const EXCLUDE_SECRETS: &str = "pod-reloader.cs.sap.com/exclude-secrets";
const PER_KEY: &str = "pod-reloader.cs.sap.com/per-key";
const RESTART_ON: &str = "pod-reloader.cs.sap.com/restart-on";
const IGNORED: &str = "pod-reloader.cs.sap.com/ignored";
