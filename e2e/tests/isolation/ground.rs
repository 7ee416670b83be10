//! The place of one test: a temporary directory for its clusters, and the machine as it was before them.

use std::{collections::BTreeSet, env, fs, path::PathBuf};

use anyhow::{Result, ensure};
use pod_reloader_e2e::{Attempt, PATIENCE, real_scene::NEEDED_VARIABLE, wait_for};
use tempfile::TempDir;

use crate::{
    machine::{cgroups_of, facts, names_in, processes_of},
    run::Run,
};

/// The place of one test.
pub(crate) struct Ground {
    folder: TempDir,
    /// Facts of the machine before the first cluster.
    before: BTreeSet<String>,
}

impl Ground {
    /// Runs one test. Where no real node is needed, it does nothing.
    pub(crate) async fn play(test: impl AsyncFnOnce(&Self) -> Result<()>) -> Result<()> {
        if env::var_os(NEEDED_VARIABLE).is_none() {
            eprintln!("this test does nothing here: `make test-real` runs it");
            return Ok(());
        }
        let ground = Self {
            folder: tempfile::tempdir()?,
            before: facts()?,
        };
        fs::create_dir(ground.temporary())?;
        test(&ground).await
    }

    /// Starts a cluster that runs a command, or runs until Ctrl-C if that is empty.
    pub(crate) fn start(&self, name: &str, command: &[&str]) -> Result<Run> {
        self.start_with(name, &[], command)
    }

    /// Starts a cluster like [`Ground::start`], with environment variables that are set, or removed if they are `None`.
    pub(crate) fn start_with(
        &self,
        name: &str,
        variables: &[(&str, Option<&str>)],
        command: &[&str],
    ) -> Result<Run> {
        let log = self.folder.path().join(format!("{name}.log"));
        Run::start(log, self.temporary(), variables, command)
    }

    /// Starts a cluster that runs `script` once a pod runs there. In the script, `$1` is `name`, and `$2` is the folder of
    /// the test.
    pub(crate) fn start_script(&self, name: &str, script: &str) -> Result<Run> {
        let script = format!("{WITH_POD}\n{script}");
        let folder = self.folder.path().display().to_string();
        self.start(name, &["sh", "-c", &script, "sh", name, &folder])
    }

    /// Returns the path of a file in the folder of the test.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until no process of a cluster is left, and the machine is as it was before.
    pub(crate) async fn is_quiet(&self, cluster: &str) -> Result<()> {
        let what = format!("the end of all processes and mounts of {cluster}");
        wait_for(&what, PATIENCE, async || {
            let mut left = processes_of(cluster)?;
            left.extend(self.new_facts()?);
            Ok(nothing(&left))
        })
        .await
    }

    /// Waits until nothing of a cluster is left. Others may run.
    pub(crate) async fn is_without(&self, cluster: &str) -> Result<()> {
        let what = format!("nothing to be left of {cluster}");
        wait_for(&what, PATIENCE, async || {
            let mut left = processes_of(cluster)?;
            left.extend(cgroups_of(cluster)?);
            left.extend(self.entries()?.into_iter().filter(|it| it == cluster));
            left.extend(self.new_facts()?);
            Ok(nothing(&left))
        })
        .await
    }

    /// Waits until nothing of clusters is left, nor anything else in the temporary directory.
    pub(crate) async fn is_clean(&self, clusters: &[&str]) -> Result<()> {
        for cluster in clusters {
            self.is_without(cluster).await?;
        }
        let left = self.entries()?;
        ensure!(left.is_empty(), "left in the temporary directory: {left:?}");
        Ok(())
    }

    /// Fails unless a cluster has a directory and cgroups, and processes if it `runs`, or none if it does not. Without
    /// this, a test that looks in the wrong place would find that nothing is left.
    pub(crate) fn is_seen(&self, cluster: &str, runs: bool) -> Result<()> {
        let processes = processes_of(cluster)?;
        let of = |program: &str| processes.iter().any(|it| it.contains(program));
        for program in ["etcd", "kube-apiserver", "containerd", "kubelet"] {
            ensure!(of(program) == runs, "{program} of {cluster}: {processes:?}");
        }
        ensure!(!cgroups_of(cluster)?.is_empty(), "no cgroup {cluster}");
        let entries = self.entries()?;
        ensure!(entries.iter().any(|it| it == cluster), "{entries:?}");
        Ok(())
    }

    /// Returns the names of everything in the temporary directory.
    pub(crate) fn entries(&self) -> Result<Vec<String>> {
        names_in(&self.temporary())
    }

    /// Returns the temporary directory of the clusters.
    fn temporary(&self) -> PathBuf {
        self.folder.path().join("temporary")
    }

    /// Returns the facts of the machine that were not there before. Something else that mounts a folder meanwhile counts,
    /// too.
    fn new_facts(&self) -> Result<Vec<String>> {
        Ok(facts()?.difference(&self.before).cloned().collect())
    }
}

fn nothing(left: &[String]) -> Attempt<()> {
    match left.is_empty() {
        true => Attempt::Done(()),
        false => Attempt::NotYet(left.join("\n")),
    }
}

/// Creates a ConfigMap `$1` and a pod, and writes the names of all ConfigMaps to `$1.objects` and then `$1.ready`. The home
/// is in the folder of the test, because kubectl keeps there what it knows of an address, which all clusters share.
const WITH_POD: &str = r#"
set -eu
HOME=$2/home-$1
export HOME
mkdir "$HOME"
described=$POD_RELOADER_E2E_CONTROL_PLANE/control-plane.json
image=$(sed -n 's/.*"answersImage": *"\([^"]*\)".*/\1/p' "$described")
kubectl create configmap "$1"
kubectl create deployment web --image="$image"
kubectl rollout status deployment web --timeout=5m
kubectl get configmaps --output=name >"$2/$1.objects"
: >"$2/$1.ready"
"#;
