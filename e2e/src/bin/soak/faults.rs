//! The faults that strike once a minute.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use http::StatusCode;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::DeleteParams};
use pod_reloader_e2e::proxy::{Answer, Fault as Break, Requests, Rule, error_event};
use pod_reloader_e2e::{Attempt, Component, Replica, Scene, wait_for};
use tokio::time::sleep;

use crate::{outage::Outage, random::Random};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    KillReplica,
    RollingRestart,
    FreezeLeader,
    HoldWatches,
    DuplicateWatches,
    Errors,
    Hangs,
    Resets,
    TooManyRequests,
    Gone,
    Lease,
    Apiserver,
    Etcd,
    Certificate,
    HashKeys,
}

/// All faults in random order, again and again.
pub(crate) struct Faults {
    random: Random,
    outage: Arc<Outage>,
    deck: Vec<Fault>,
}

impl Faults {
    pub(crate) fn new(random: Random, outage: Arc<Outage>) -> Self {
        Self {
            random,
            outage,
            deck: Vec::new(),
        }
    }

    /// Brings on the next fault, waits until it is over, and says what it was.
    ///
    /// # Errors
    /// When something does not recover.
    pub(crate) async fn strike(&mut self, scene: &Scene) -> Result<String> {
        if self.deck.is_empty() {
            self.deck = ALL.to_vec();
            self.random.shuffle(&mut self.deck);
        }
        let fault = self.deck.pop().expect("it was filled");
        let (what, random) = (fault.name(), &mut self.random);
        match fault {
            Fault::KillReplica => kill(&one_of(scene, random)).await,
            Fault::RollingRestart => restart(scene).await,
            Fault::FreezeLeader => {
                let time = Duration::from_secs(20 + random.below(21) as u64);
                freeze_leader(scene, time).await
            }
            Fault::Apiserver => {
                self.outage.begins();
                let restarted = scene.control_plane.restart(Component::Apiserver).await;
                self.outage.ends();
                restarted
            }
            Fault::Etcd => {
                self.outage.begins();
                let frozen = freeze_etcd(scene).await;
                self.outage.ends();
                frozen
            }
            Fault::Certificate => {
                renewed(
                    scene,
                    &format!("{}-tls-managed", scene.installation.namespace),
                )
                .await
            }
            Fault::HashKeys => restored(scene, &scene.installation.hash_keys()).await,
            Fault::HoldWatches => {
                let watches = [Rule::new(Requests::any().watches(), Break::HoldWatch)];
                broken(&[scene.leader().await?], &watches).await
            }
            Fault::Gone => {
                // No other replica has watches.
                let leader = scene.leader().await?;
                let gone = error_event(StatusCode::GONE);
                leader
                    .proxy()?
                    .inject_once_open(&Requests::any(), gone)
                    .await
            }
            Fault::Lease => {
                let answer = Break::Answer(Answer::error(StatusCode::SERVICE_UNAVAILABLE));
                let leases = Rule::new(Requests::containing("/leases"), answer);
                broken(&[scene.leader().await?], &[leases]).await
            }
            fault => broken(&scene.replicas(), &fault.rules()).await,
        }
        .with_context(|| what.to_owned())?;
        Ok(what.to_owned())
    }
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::KillReplica => "a replica was killed",
            Self::RollingRestart => "the replicas were restarted one by one",
            Self::FreezeLeader => "the leader was stopped for 20 to 40 s",
            Self::HoldWatches => "the watches of the leader were held for 30 s",
            Self::DuplicateWatches => "all watch events came twice",
            Self::Errors => "a tenth of the operator's calls was answered 500 or 503",
            Self::Hangs => "a tenth of the operator's calls was not answered",
            Self::Resets => "a tenth of the operator's calls was reset",
            Self::TooManyRequests => "a quarter of the operator's calls was answered 429",
            Self::Gone => "all watches were told 410",
            Self::Lease => "the leader could not renew its Lease for 30 s",
            Self::Apiserver => "the apiserver was restarted",
            Self::Etcd => "etcd was stopped for 10 s",
            Self::Certificate => "the webhook's certificate was replaced",
            Self::HashKeys => "the Secret with the hash keys was deleted",
        }
    }

    /// Returns the rules of the proxies while the fault lasts.
    fn rules(self) -> Vec<Rule> {
        let calls = Requests::any().except_watches();
        let answer = |code| Break::Answer(Answer::error(code));
        match self {
            Self::DuplicateWatches => {
                vec![Rule::new(Requests::any().watches(), Break::DuplicateWatch)]
            }
            // Different rates, so that they hit different calls.
            Self::Errors => vec![
                Rule::new(Requests::any(), answer(StatusCode::INTERNAL_SERVER_ERROR)).every_nth(20),
                Rule::new(Requests::any(), answer(StatusCode::SERVICE_UNAVAILABLE)).every_nth(19),
            ],
            Self::Hangs => vec![Rule::new(calls, Break::Hang).every_nth(10)],
            Self::Resets => vec![Rule::new(calls, Break::Reset).every_nth(10)],
            Self::TooManyRequests => {
                let answer =
                    Answer::error(StatusCode::TOO_MANY_REQUESTS).header("retry-after", "5");
                vec![Rule::new(calls, Break::Answer(answer)).every_nth(4)]
            }
            _ => Vec::new(),
        }
    }
}

fn one_of(scene: &Scene, random: &mut Random) -> Replica {
    random.one(&scene.replicas()).clone()
}

async fn kill(replica: &Replica) -> Result<()> {
    replica.operator.process().kill().await;
    sleep(Duration::from_secs(2)).await;
    replica.operator.start_again().await
}

async fn restart(scene: &Scene) -> Result<()> {
    for replica in scene.replicas() {
        let process = replica.operator.process();
        process.terminate()?;
        process.exited(Duration::from_secs(60)).await?;
        replica.operator.start_again().await?;
    }
    Ok(())
}

async fn freeze_leader(scene: &Scene, time: Duration) -> Result<()> {
    let leader = scene.leader().await?;
    leader.operator.process().pause()?;
    sleep(time).await;
    leader.operator.process().resume()
}

async fn freeze_etcd(scene: &Scene) -> Result<()> {
    let etcd = scene.control_plane.process(Component::Etcd)?;
    etcd.pause()?;
    sleep(Duration::from_secs(10)).await;
    etcd.resume()?;
    scene.control_plane.ready(Component::Etcd).await?;
    scene.control_plane.ready(Component::Apiserver).await
}

async fn broken(replicas: &[Replica], rules: &[Rule]) -> Result<()> {
    let mut in_force = Vec::new();
    for replica in replicas {
        let proxy = replica.proxy()?;
        in_force.extend(rules.iter().map(|rule| proxy.add(rule.clone())));
    }
    sleep(Duration::from_secs(30)).await;
    in_force.iter().for_each(|rule| rule.remove());
    Ok(())
}

/// Deletes a Secret of the operator, and waits until somebody has created it again.
async fn renewed(scene: &Scene, name: &str) -> Result<()> {
    let secrets = secrets(scene);
    secrets.delete(name, &DeleteParams::default()).await?;
    there_again(&secrets, name).await.map(|_| ())
}

/// Like [`renewed`], and the Secret must have the same content as before.
async fn restored(scene: &Scene, name: &str) -> Result<()> {
    let secrets = secrets(scene);
    let before = secrets.get(name).await?.data;
    secrets.delete(name, &DeleteParams::default()).await?;
    let after = there_again(&secrets, name).await?.data;
    ensure!(after == before, "the operator has forgotten its keys");
    Ok(())
}

async fn there_again(secrets: &Api<Secret>, name: &str) -> Result<Secret> {
    let what = format!("the Secret {name} to be made again");
    // The operator checks once a minute.
    wait_for(&what, Duration::from_secs(90), async || {
        Ok(match secrets.get_opt(name).await? {
            Some(secret) => Attempt::Done(secret),
            None => Attempt::NotYet("it was not".to_owned()),
        })
    })
    .await
}

fn secrets(scene: &Scene) -> Api<Secret> {
    Api::namespaced(scene.client.clone(), &scene.installation.namespace)
}

const ALL: [Fault; 15] = [
    Fault::KillReplica,
    Fault::RollingRestart,
    Fault::FreezeLeader,
    Fault::HoldWatches,
    Fault::DuplicateWatches,
    Fault::Errors,
    Fault::Hangs,
    Fault::Resets,
    Fault::TooManyRequests,
    Fault::Gone,
    Fault::Lease,
    Fault::Apiserver,
    Fault::Etcd,
    Fault::Certificate,
    Fault::HashKeys,
];
