//! Copies while releases of the chart come and go.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, Request};
use pod_reloader_e2e::{
    ControlPlane, Options, PATIENCE, Scene, Version, chart, done_if, merge, wait_for,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    Namespaces, SHARED, SYNCS, applied_sync, copying, has_copy, name_of, read_sync, secrets, source,
};

/// Asserts that an upgrade updates the definition, and that an uninstall leaves all copies. All other tests share one
/// definition.
pub(crate) async fn an_upgrade_updates_the_definition_and_an_uninstall_leaves_all_copies(
    control_plane: ControlPlane,
) -> Result<()> {
    let earlier = earlier_chart()?;
    let mut version = Version::present();
    version.chart = earlier.path().join("chart");
    let options = Options {
        released: true,
        version,
        ..copying(Value::Null)
    };
    Scene::play_on(control_plane, options.clone(), async |scene| {
        let here = Namespaces::of(scene).create("a", true).await?;
        let copies = secrets(scene, &here);
        scene.apply(&[source("1")]).await?;
        let ours = applied_sync(scene, "all", json!({})).await?;
        has_copy(scene, &here, "1").await?;
        let uid = copies.get(SHARED).await?.uid();
        let labels = json!({"metadata": {"labels": {"team": "x"}}});
        let unknown = set_template(scene, &ours, &labels).await?;
        ensure!(unknown.is_null(), "{unknown}");

        let mut installation = scene.installation.clone();
        installation.version = Version::present();
        let values = options.values(&scene.namespace);
        installation.upgrade(&values).await?;
        // An upgrade brings other processes along: what the earlier ones watch is still read by the earlier definition.
        scene.operator.stop().await;
        scene.other()?.stop().await;
        let directory = scene.directory().join("upgraded");
        let operator = scene.start_replica(&installation, &directory, &[]).await?;
        wait_for("a copy with the new field", PATIENCE, async || {
            // The apiserver may not know the new definition yet.
            let stored = set_template(scene, &ours, &labels).await?;
            let copy = copies.get(SHARED).await?;
            done_if(
                copy.labels().contains_key("team"),
                format!("{stored} is stored, {:?}", copy.labels()),
            )
        })
        .await?;
        set_template(scene, &ours, &Value::Null).await?;
        has_copy(scene, &here, "1").await?;
        let copy = copies.get(SHARED).await?;
        ensure!(copy.uid() == uid, "the upgrade made it again");

        operator.stop().await;
        let owner = read_sync(scene, name_of(&ours)?).await?;
        scene.installation.uninstall().await?;
        ensure!(read_sync(scene, name_of(&ours)?).await? == owner);
        ensure!(copies.get(SHARED).await? == copy);

        definition_belongs_to_its_release(scene, &values).await?;
        // The next release of the same name takes them up.
        installation.upgrade(&values).await?;
        let directory = scene.directory().join("again");
        let operator = scene.start_replica(&installation, &directory, &[]).await?;
        scene.apply(&[source("2")]).await?;
        has_copy(scene, &here, "2").await?;
        ensure!(copies.get(SHARED).await?.uid() == uid, "it was made again");
        operator.stop().await;
        Ok(())
    })
    .await
}

/// Asserts that Helm refuses the definition to a release with another name or namespace that does not ask for it.
async fn definition_belongs_to_its_release(scene: &Scene, values: &Value) -> Result<()> {
    let helm = &scene.installation.helm;
    let own = &*scene.installation.namespace;
    let mut others = scene.installation.values(values);
    // The policy about authors stays, too. With this value, it has another name there.
    merge(&mut others, &json!({"fullnameOverride": "other"}));
    let (chart, others) = (chart().display().to_string(), others.to_string());
    for (release, namespace) in [("other", own), (own, &*scene.namespace)] {
        let install = ["install", release, &chart, "--namespace", namespace];
        let install = [&install[..], &["--dry-run=server", "--values=-"]].concat();
        let refused = helm.output(&install, &others).await?;
        for words in [
            "clusterconfigsyncs.pod-reloader.github.io",
            "invalid ownership metadata",
        ] {
            let says_so = refused.code != Some(0) && refused.stderr.contains(words);
            ensure!(says_so, "{release} in {namespace}: {words}: {refused:?}");
        }
        let taken = [&install[..], &["--take-ownership"]].concat();
        helm.run_with_input(&taken, &others).await?;
    }
    Ok(())
}

/// Sets the template of a ClusterConfigSync, and returns what is stored of it.
async fn set_template(scene: &Scene, sync: &Value, template: &Value) -> Result<Value> {
    let patch = Patch::Merge(json!({"spec": {"template": template}}));
    let patch = Request::new(SYNCS).patch(name_of(sync)?, &PatchParams::default(), &patch)?;
    let stored: Value = scene.client.request(patch).await?;
    Ok(stored["spec"]["template"].clone())
}

/// Returns a folder with the chart as an earlier version could have it: its ClusterConfigSyncs have no template.
fn earlier_chart() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let copied = Command::new("cp")
        .arg("-r")
        .arg(chart())
        .arg(folder.path().join("chart"))
        .status()?;
    ensure!(copied.success(), "the chart cannot be copied");
    let file = folder.path().join("chart/files/clusterconfigsyncs.json");
    let mut definition: Value = serde_json::from_slice(&fs::read(&file)?)?;
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let spec = definition.pointer_mut(spec).context("it has a spec")?;
    let fields = spec.as_object_mut().context("it has fields")?;
    fields.remove("template").context("it has a template")?;
    fs::write(&file, definition.to_string())?;
    Ok(folder)
}
