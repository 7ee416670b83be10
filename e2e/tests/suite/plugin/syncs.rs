//! `status` and `impact` on ClusterConfigSyncs, for a test that has one with conflicts.

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::Scene;
use serde_json::{Value, json};

use super::{json_of, text, text_of};

/// Asserts that the plugin shows a ClusterConfigSync of Secret `shared` with these conflicts, the copy in a namespace,
/// and the source.
pub(crate) async fn are_shown(
    scene: &Scene,
    sync: &Value,
    copy_in: &str,
    conflicts: &[(&str, &str)],
) -> Result<()> {
    let name = sync["metadata"]["name"].as_str().unwrap_or_default();
    let source = format!("Secret {}/shared", scene.namespace);
    let own = format!("--operator-namespace={}", scene.installation.namespace);
    let told = text_of(scene, &["status", &own], 1).await?;
    // A ClusterConfigSync of another test may have a longer name, and names form a column.
    let words = |line: &str| Vec::from_iter(line.split_whitespace()).join(" ");
    let first = format!("!! {name} {source}: 1 of 3 namespaces, Conflict");
    ensure!(
        told.lines().any(|line| words(line) == first),
        "{first} is not in\n{told}"
    );
    for (namespace, reason) in conflicts {
        let line = format!("{namespace}: {reason}, an object");
        ensure!(told.contains(&line), "{line} is not in\n{told}");
    }
    let told = json_of(scene, &["status", &own]).await?;
    let mut all = told["clusterConfigSyncs"].as_array().into_iter().flatten();
    let shown = all.find(|it| it["name"] == name);
    let shown = shown.with_context(|| format!("{name} is not in {told:#}"))?;
    ensure!(shown["ready"] == false && shown["synced"] == 1, "{shown:#}");
    ensure!(
        shown["conflicts"][1]["namespace"] == json!(conflicts[1].0),
        "{shown:#}"
    );

    let told = text(scene, &["impact", "secret/shared"]).await?;
    let line = format!("ClusterConfigSync {name} copies it: 1 of 3 namespaces, Conflict.\n");
    ensure!(told.contains(&line), "{told}");
    let namespace = format!("--namespace={copy_in}");
    let impact = ["impact", "secret/shared", &namespace];
    let told = scene.tool().plugin()?.output(&impact, "").await?;
    let line = format!("It is a copy of {source}: edits are undone, so change the source.\n");
    ensure!(told.stdout.contains(&line), "{told:?}");
    Ok(())
}
