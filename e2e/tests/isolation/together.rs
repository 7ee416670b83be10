//! Two clusters at once do not meet, and one goes on when the other ends.

use std::fs;

use anyhow::{Result, ensure};
use pod_reloader_e2e::MachineProcess;

use crate::{ground::Ground, machine::ports, run::Run};

#[tokio::test]
async fn two_clusters_have_the_same_ports_and_only_their_own_objects_and_ends() -> Result<()> {
    Ground::play(async |ground| {
        let one = ground.start_script("one", UNTIL_TOLD)?;
        let two = ground.start_script("two", UNTIL_TOLD)?;
        let clusters = [one.name().await?, two.name().await?];
        one.makes(&ground.file("one.ready")).await?;
        two.makes(&ground.file("two.ready")).await?;

        for (run, cluster) in [&one, &two].into_iter().zip(&clusters) {
            ground.is_seen(cluster, true)?;
            has_pod(cluster)?;
            listens(run, cluster)?;
        }
        ensure!(clusters[0] != clusters[1], "{clusters:?}");
        for (own, other) in [("one", "two"), ("two", "one")] {
            let objects = fs::read_to_string(ground.file(&format!("{own}.objects")))?;
            let has = |name: &str| objects.lines().any(|it| it == format!("configmap/{name}"));
            ensure!(has(own) && !has(other), "{own} has {objects}");
        }

        let [first, second] = &clusters;
        one.interrupt()?;
        one.ends_with(130).await?;
        ground.is_without(first).await?;
        ground.is_seen(second, true)?;
        fs::write(ground.file("two.go"), "")?;
        two.ends_with(0).await?;
        ground.is_clean(&[first, second]).await
    })
    .await
}

/// Fails unless a container of a pod runs in a cluster.
fn has_pod(cluster: &str) -> Result<()> {
    let mut all = MachineProcess::all()?.into_iter();
    let is_pod = |it: &MachineProcess| it.executable.ends_with("answers");
    let has_pod = all.any(|it| is_pod(&it) && it.is_in_cgroup(cluster));
    ensure!(has_pod, "no pod of {cluster}");
    Ok(())
}

/// Fails unless a cluster listens at the ports that all of them have.
fn listens(run: &Run, cluster: &str) -> Result<()> {
    let ports = ports(&run.first_inside(cluster)?)?;
    for (of, port) in PORTS {
        ensure!(ports.contains(&port), "{of} of {cluster}: {ports:?}");
    }
    Ok(())
}

/// The ports of the registry and of the kubelet's health, which are the same in every cluster.
const PORTS: [(&str, u16); 2] = [("the registry", 5000), ("the kubelet", 10248)];

/// The end of a script that waits for a file, and then has one more pod.
const UNTIL_TOLD: &str = r#"
until [ -e "$2/$1.go" ]; do sleep 0.2; done
kubectl scale deployment web --replicas=2
kubectl rollout status deployment web --timeout=5m
"#;
