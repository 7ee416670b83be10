//! Arbitrary content in the annotations: only names reach the apiserver, and users are told about the rest.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{
    CONFIG_HASH, CONFIG_MAPS, SECRETS, Workload, both_kinds, config_map, key_in,
};
use pod_reloader_e2e::{AuditEvent, Options, PATIENCE, Scene, done_if, mentions, wait_for};
use serde_json::json;

/// Returns items that are not names, as written in a list and as shown to a user.
fn bad_items() -> Vec<(String, String)> {
    let shown_alike = ["?limit=1", "../x", "a?watch=1"];
    let mut items: Vec<_> = shown_alike
        .map(|item| (item.to_owned(), item.to_owned()))
        .into();
    items.push(("x".repeat(254), "x".repeat(40) + "..."));
    items.push(("nul\u{0}".to_owned(), "nul\\0".to_owned()));
    items.push((
        "ünï\u{202e}\r\nX-Injected: 1".to_owned(),
        "X-Injected".to_owned(),
    ));
    items
}

#[tokio::test]
async fn a_workload_whose_annotations_have_no_room_for_the_hash_is_written_without() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        const LIMIT: usize = 256 << 10;
        scene.apply(&[config_map("app", "1")]).await?;
        let web = |name: &str, annotations: usize| {
            let annotations = json!({"note": "x".repeat(annotations - "note".len())});
            let web = Workload::deployment(name).lists("app").without_pods();
            web.with(
                &["spec", "template", "metadata", "annotations"],
                annotations,
            )
        };
        let entry = CONFIG_HASH.len() + "v1.01234567.".len() + 64;
        let full = web("full", LIMIT - entry + 1);
        let last = web("last", LIMIT - entry);
        let create = async |workload: &Workload| {
            // An apply would add a copy of everything to the annotations.
            let manifest = workload.manifest().to_string();
            let created = scene
                .kubectl_output(&["create", "--filename=-"], &manifest)
                .await?;
            ensure!(created.code == Some(0), "{}", created.stderr);
            anyhow::Ok(created.stderr)
        };
        let told = create(&full).await?;
        mentions(&told, "annotations of the pod template are too long")?;
        ensure!(scene.key(&full).await?.is_none(), "it has a hash");
        let note = scene.event(&full, "PatchRefused").await?;
        mentions(&note, "too long")?;
        let told = create(&last).await?;
        ensure!(!told.contains("too long"), "{told}");
        scene.right(&last).await?;

        // This is the only change of the release.
        let shortened = web("full", 1_000).manifest().to_string();
        scene
            .kubectl_with_input(&["replace", "--filename=-"], &shortened)
            .await?;
        scene.right(&full).await
    })
    .await
}

#[tokio::test]
async fn items_that_are_not_names_are_reported_and_never_requested() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&both_kinds("app", "1")).await?;
        let mark = scene.mark().await?;
        let bad_items = bad_items();
        for (index, items) in bad_items.chunks(2).enumerate() {
            let web = Workload::deployment(&format!("web-{index}"))
                .lists(&format!("{}, app", items[0].0))
                .lists_secrets(&format!("app,{}", items[1].0))
                .without_pods();
            let told = apply(scene, &web).await?.stderr;
            let note = scene.event(&web, "InvalidReference").await?;
            for (kind, (item, shown)) in ["ConfigMap", "Secret"].iter().zip(items) {
                let warning = format!("Warning: pod-reloader: {kind}");
                let is_told = told.contains(&warning) && told.contains(shown);
                ensure!(is_told, "{item:?}: {told}");
                ensure!(note.contains(shown), "{item:?}: {note}");
            }
            let expected = expected_key_without(scene, &web).await?;
            ensure!(scene.key(&web).await? == Some(expected), "{items:?}");
        }
        let web = Workload::podless("web-0");
        let before = scene.snapshot(&web).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.quiet().await?;
        let after = scene.snapshot(&web).await?;
        ensure!(after.key != before.key, "a good name is kept: {after:?}");
        ensure!(after.new_revisions(&before) == 1, "{before:?}, {after:?}");
        let names = names_asked_for(scene, &scene.requests(mark).await?)?;
        let expected = ["app", "sentinel"].map(str::to_owned);
        ensure!(names == expected.into(), "{names:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_first_256_of_ten_thousand_names_are_tracked() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("n00003", "1")]).await?;
        let names: Vec<_> = (0..10_000).map(|index| format!("n{index:05}")).collect();
        let web = Workload::podless("web").lists(&names.join(","));
        let web = web.without_pods();
        // The loop's first lists of config are no reads of names.
        scene.quiet().await?;
        let mark = scene.mark().await?;
        let applied = apply(scene, &web).await?;
        mentions(&applied.stderr, "n00256 is left out")?;
        let note = scene.event(&web, "InvalidReference").await?;
        mentions(&note, "n00256 is left out")?;
        // On a busy machine, the webhook may not read 256 objects in time. Then the loop has set the hash.
        wait_for("a hash", PATIENCE, async || {
            done_if(scene.key(&web).await?.is_some(), "none")
        })
        .await?;
        scene.quiet().await?;

        let mut asked = names_asked_for(scene, &scene.requests(mark).await?)?;
        asked.remove("sentinel");
        ensure!(asked.len() == 256, "{} names", asked.len());
        ensure!(
            asked.last().is_some_and(|last| last == "n00255"),
            "{asked:?}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_key_in_the_wrong_place_and_a_list_that_names_nothing_are_warned_of() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let annotation = ["spec", "template", "metadata", "annotations", SECRETS];
        let label = ["spec", "template", "metadata", "labels", SECRETS];
        for (web, place) in [
            (
                Workload::podless("annotated-pods").with(&annotation, json!("app")),
                "an annotation of the pod template",
            ),
            (
                Workload::podless("labelled-pods").with(&label, json!("app")),
                "a label of the pod template",
            ),
            (
                Workload::podless("label").labelled(SECRETS, "app"),
                "a label of the workload",
            ),
        ] {
            let told = apply(scene, &web).await?.stderr;
            let warning = format!(
                "Warning: pod-reloader: {SECRETS} has no effect as {place}; make it an annotation of the workload"
            );
            mentions(&told, &warning)?;
            ensure!(scene.key(&web).await?.is_none(), "it has a hash");
        }

        scene.apply(&[config_map("app", "1")]).await?;
        let absent = Workload::podless("absent").lists("prod-app,app");
        let told = apply(scene, &absent).await?.stderr;
        let warning = "Warning: pod-reloader: ConfigMap prod-app is listed and does not exist";
        mentions(&told, warning)?;
        ensure!(told.matches("Warning: ").count() == 1, "{told}");
        let used = Workload::podless("used")
            .lists("prod-app")
            .requires("prod-app");
        let told = apply(scene, &used).await?.stderr;
        ensure!(!told.contains("Warning: "), "{told}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn as_many_bad_items_as_fit_delay_nobody() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        // Annotations hold 256 KiB in all.
        let items: Vec<_> = (0..40_000).map(|index| format!("{index:X}!")).collect();
        let web = Workload::podless("web").lists(&format!("{},app", items.join(",")));
        let web = web.without_pods();
        // A webhook that exceeded its time would fail the write.
        let created = create(scene, &web, &[]).await?;
        ensure!(
            created.stderr.contains("Warning: pod-reloader"),
            "no warning"
        );
        ensure!(scene.key(&web).await?.is_some(), "no hash");
        let note = scene.event(&web, "InvalidReference").await?;
        mentions(&note, " more")?;
        scene.quiet().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_workload_of_a_megabyte_gets_its_hash() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let variable = |index| {
            let value = "<&\"> 0123456789".repeat(700);
            json!({"name": format!("E{index}"), "value": value})
        };
        let env: Vec<_> = (0..100).map(variable).collect();
        let large = Workload::deployment("large").lists("app").without_pods();
        let mut manifest = large.manifest();
        manifest["spec"]["template"]["spec"]["containers"][0]["env"] = json!(env);
        let manifest = manifest.to_string();
        ensure!(manifest.len() > 1_000_000, "{}", manifest.len());

        let dry_run = [
            "create",
            "--dry-run=server",
            "--output=json",
            "--filename=-",
        ];
        let dry = scene.kubectl_with_input(&dry_run, &manifest).await?;
        scene
            .kubectl_with_input(&["create", "--filename=-"], &manifest)
            .await?;
        let expected = Some(scene.expected_key(&large).await?);
        ensure!(scene.key(&large).await? == expected, "created without");
        ensure!(key_in(&dry)? == expected, "created without in a dry run");
        scene.label(&large.reference(), "team=blue").await?;
        ensure!(scene.key(&large).await? == expected, "updated without");
        Ok(())
    })
    .await
}

async fn apply(scene: &Scene, workload: &Workload) -> Result<pod_reloader_e2e::Output> {
    write(scene, workload, &["apply", "--filename=-"]).await
}

async fn create(
    scene: &Scene,
    workload: &Workload,
    more: &[&str],
) -> Result<pod_reloader_e2e::Output> {
    write(
        scene,
        workload,
        &[&["create", "--filename=-"], more].concat(),
    )
    .await
}

async fn write(
    scene: &Scene,
    workload: &Workload,
    args: &[&str],
) -> Result<pod_reloader_e2e::Output> {
    let manifest = workload.manifest().to_string();
    let output = scene.kubectl_output(args, &manifest).await?;
    ensure!(output.code == Some(0), "{}", output.stderr);
    Ok(output)
}

/// Returns the expected hash if only `app` of both lists is tracked.
async fn expected_key_without(scene: &Scene, workload: &Workload) -> Result<String> {
    let mut object = scene.object(&workload.reference()).await?;
    for list in [CONFIG_MAPS, SECRETS] {
        object["metadata"]["annotations"][list] = json!("app");
    }
    pod_reloader_e2e::oracle::config_hash(&scene.client, &object, &scene.installation).await
}

/// Returns the names of config objects that the operator asked for.
///
/// # Errors
/// When a request is neither a GET of one name in the namespace of the workloads, nor one of the calls that
/// the operator always makes.
fn names_asked_for(scene: &Scene, requests: &[AuditEvent]) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for request in requests {
        if !["configmaps", "secrets"].contains(&&*request.resource) {
            continue;
        }
        let AuditEvent {
            verb, name, uri, ..
        } = request;
        ensure!(request.namespace == scene.namespace, "{uri}");
        if verb == "watch" {
            continue;
        }
        let expected = format!(
            "/api/v1/namespaces/{}/{}/{name}",
            scene.namespace, request.resource
        );
        ensure!(verb == "get" && *uri == expected, "{verb} {uri}");
        names.insert(name.clone());
    }
    Ok(names)
}
