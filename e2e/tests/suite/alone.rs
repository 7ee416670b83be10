//! What needs a cluster without operators, definitions and policies of other tests: one after the other on one control
//! plane, which takes longer to start than most of them.

use anyhow::{Context, Result};
use pod_reloader_e2e::{ControlPlane, ControlPlaneOptions};

use crate::{gitops_releases, manifests, modes, plugin, sync};

#[tokio::test]
async fn plugin_manifests_releases_and_definitions_work_in_a_cluster_of_their_own() -> Result<()> {
    let control_plane = ControlPlane::start(ControlPlaneOptions::without_running_pods()).await?;
    let outcome = each(&control_plane).await;
    control_plane.stop().await;
    outcome
}

/// Each leaves no operator behind. Scenes leave some of their objects in the namespaces of their operators, which the part
/// about manifests would take for its own.
async fn each(control_plane: &ControlPlane) -> Result<()> {
    plugin::without_an_operator_the_plugin_says_so(control_plane)
        .await
        .context("without an operator, the plugin says so")?;
    manifests::the_manifests_install_a_working_operator(control_plane)
        .await
        .context("the manifests alone install a working operator")?;
    modes::all_namespaces_are_managed_except_two(control_plane)
        .await
        .context("all namespaces are managed except kube-system and our own")?;
    plugin::custom_resources_are_explained(control_plane.joined())
        .await
        .context("the plugin explains custom resources")?;
    gitops_releases::a_release_in_another_namespace_is_one_rollout(control_plane.joined())
        .await
        .context("a Helm release that Flux stores in another namespace is one rollout")?;
    let upgraded =
        sync::lifecycle::an_upgrade_updates_the_definition_and_an_uninstall_leaves_all_copies(
            control_plane.joined(),
        );
    upgraded
        .await
        .context("an upgrade updates the definition, and an uninstall leaves all copies")
}
