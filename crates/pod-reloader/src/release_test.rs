//! Checks that an installation works, as `helm test` asks: the webhook sets the hash of a new Deployment, and a change of
//! the ConfigMap that it tracks changes the hash. The check runs in the operator's own image, so it needs no other.

use std::process::ExitCode;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use pod_reloader_core::annotations::Inherited;
use pod_reloader_core::dialects::Dialects;
use pod_reloader_core::error::chain;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::{InvalidName, Name};
use pod_reloader_core::object::{Object, Served, WorkloadObject};
use pod_reloader_core::workload::{Reading, Workload};
use serde_json::json;
use tokio::runtime::{Builder, Handle};
use tokio::time::{Instant, sleep};

use crate::metrics::Metrics;
use crate::runtime::budget::Budget;
use crate::runtime::client::{Clients, DEADLINE, within};
use crate::runtime::error::{CallError, StartError};
use crate::runtime::resources::Resources;

/// The argument that asks for the check. A namespace follows, and the name of the Deployment and of the ConfigMap.
const COMMAND: &str = "test-release";
/// The time within which the Deployment has a hash.
const UNTIL_SET: Duration = Duration::from_secs(15);
/// The time within which it has another one.
const UNTIL_CHANGED: Duration = Duration::from_secs(30);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// A check of an installation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReleaseTest {
    namespace: Name,
    name: Name,
}

/// The reason why a check fails.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("starting")]
    Start(#[from] StartError),
    #[error("asking the apiserver")]
    Call(#[from] CallError),
    #[error(
        "the Deployment has got no hash within {:?}: does pod-reloader manage its namespace?",
        UNTIL_SET
    )]
    NotSet,
    #[error("the loop has set the hash, and not the webhook: can the apiserver call the webhook?")]
    NotByWebhook,
    #[error(
        "the hash has not changed within {:?} after the ConfigMap has: does the operator reconcile?",
        UNTIL_CHANGED
    )]
    NotChanged,
}

impl ReleaseTest {
    /// Returns the check that the arguments of the process ask for. `None` if they are those of an operator.
    ///
    /// # Errors
    ///
    /// A name is not valid.
    pub(crate) fn of(
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Option<Self>, InvalidName> {
        let arguments: Vec<_> = arguments.into_iter().take(4).collect();
        match &arguments[..] {
            [command, namespace, name] if command == COMMAND => Ok(Some(Self {
                namespace: Name::parse(namespace)?,
                name: Name::parse(name)?,
            })),
            _ => Ok(None),
        }
    }

    /// Makes the check, and says how it went.
    pub(crate) fn main(self) -> ExitCode {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime needs threads, which this process may not have");
        match runtime.block_on(self.run()) {
            Ok(()) => {
                println!(
                    "pod-reloader works: the webhook has set a hash, and a change has changed it"
                );
                ExitCode::SUCCESS
            }
            Err(failure) => {
                eprintln!("pod-reloader does not work: {}", chain(&failure));
                ExitCode::FAILURE
            }
        }
    }

    async fn run(&self) -> Result<(), Failure> {
        let clients = Clients::infer(&Handle::current(), &Metrics::new().watches).await?;
        self.check(&clients.admission).await
    }

    async fn check(&self, client: &Client) -> Result<(), Failure> {
        let has_hash = |deployment: &Workload| deployment.config_hash().is_some();
        let before = self.wait(client, UNTIL_SET, has_hash).await?;
        let before = before.ok_or(Failure::NotSet)?;
        // A write of the loop is another generation.
        if before.generation != 1 {
            return Err(Failure::NotByWebhook);
        }
        self.change_config(client).await?;
        let is_other = |deployment: &Workload| {
            has_hash(deployment) && deployment.config_hash() != before.config_hash()
        };
        let after = self.wait(client, UNTIL_CHANGED, is_other).await?;
        after.map(drop).ok_or(Failure::NotChanged)
    }

    async fn change_config(&self, client: &Client) -> Result<(), CallError> {
        let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), self.namespace.as_str());
        let patch = Patch::Merge(json!({"data": {"color": "green"}}));
        let params = PatchParams::default();
        let patched = config_maps.patch(self.name.as_str(), &params, &patch);
        within(DEADLINE, patched).await.map(drop)
    }

    /// Waits until the Deployment is as it should be. `None` if it is not in time. A look that fails is made again.
    async fn wait(
        &self,
        client: &Client,
        limit: Duration,
        is_right: impl Fn(&Workload) -> bool,
    ) -> Result<Option<Workload>, CallError> {
        let until = Instant::now() + limit;
        loop {
            let seen = self.deployment(client).await;
            if let Ok(deployment) = &seen
                && is_right(deployment)
            {
                return seen.map(Some);
            }
            if Instant::now() >= until {
                return seen.map(|_| None);
            }
            sleep(PAUSE).await;
        }
    }

    async fn deployment(&self, client: &Client) -> Result<Workload, CallError> {
        let served = Served::built_in(WorkloadKind::DEPLOYMENT);
        let api = Api::namespaced_with(client.clone(), self.namespace.as_str(), &served);
        let deployments: Resources<WorkloadObject> =
            Resources::new(api, "Deployment", &Budget::new());
        let object = within(DEADLINE, deployments.get(self.name.as_str())).await?;
        let reading = Reading::new(Dialects::default(), []);
        let workload =
            object.into_workload(WorkloadKind::DEPLOYMENT, &reading, &Inherited::default());
        workload.map_err(|_| CallError::Unreadable)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::mock;
    use parking_lot::Mutex;
    use pod_reloader_core::annotations::{CONFIG_HASH, CONFIG_MAPS};

    /// Runs the check where a Deployment has this generation and this hash, and then, once the ConfigMap has changed,
    /// that one.
    async fn checked(
        before: (i64, Option<&'static str>),
        after: &'static str,
    ) -> Result<(), Failure> {
        let is_changed = Arc::new(Mutex::new(false));
        let client = mock::client(move |head, _| {
            let is_changed = is_changed.clone();
            async move {
                if head.method == "PATCH" {
                    *is_changed.lock() = true;
                    return Ok(json!({"metadata": {"name": "test"}}));
                }
                let (generation, hash) = match *is_changed.lock() {
                    true => (2, Some(after)),
                    false => before,
                };
                let annotations = hash.map_or(json!({}), |hash| json!({CONFIG_HASH: hash}));
                Ok(json!({
                    "metadata": {
                        "name": "test", "namespace": "ns", "uid": "u", "generation": generation,
                        "annotations": {CONFIG_MAPS: "test"},
                    },
                    "spec": {"template": {"metadata": {"annotations": annotations}, "spec": {"containers": []}}},
                }))
            }
        });
        let test = ReleaseTest::of(["test-release", "ns", "test"].map(str::to_owned));
        test.unwrap().unwrap().check(&client).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_webhook_sets_a_hash_and_a_change_changes_it() {
        let began = Instant::now();
        assert!(checked((1, Some("a")), "b").await.is_ok());
        assert!(matches!(
            checked((1, None), "b").await,
            Err(Failure::NotSet)
        ));
        assert!(matches!(
            checked((2, Some("a")), "b").await,
            Err(Failure::NotByWebhook)
        ));
        let same = checked((1, Some("a")), "a").await;
        assert!(matches!(same, Err(Failure::NotChanged)));
        assert!(began.elapsed() < Duration::from_secs(60), "within a minute");
    }

    #[test]
    fn only_its_own_arguments_ask_for_the_check() {
        let of = |arguments: &[&str]| ReleaseTest::of(arguments.iter().map(|it| (*it).to_owned()));
        assert!(of(&["test-release", "ns", "test"]).unwrap().is_some());
        for others in [
            &["--leader-elect"][..],
            &[],
            &["test-release"],
            &["test-release", "a", "b", "c"],
        ] {
            assert!(of(others).unwrap().is_none(), "{others:?}");
        }
        assert!(of(&["test-release", "a/b", "c"]).is_err());
    }
}
