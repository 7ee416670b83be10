//! Trials: a configuration that a workload has got is put back if it does not become healthy with it.

use std::time::Instant;

use crate::pins::Pins;
use crate::staging::Health;
use crate::workload::Workload;

/// The configuration with which a workload has to become healthy, and what was put back.
#[derive(Default)]
pub struct Trials {
    trial: Option<Trial>,
    /// The content that was put back last. It is put back once.
    put_back: Option<Pins>,
}

/// A configuration that a workload has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The time from which on the workload has failed, unless it is healthy.
    pub deadline: Instant,
    /// True if it was healthy before.
    pub was_healthy: bool,
}

impl Trial {
    /// Returns the trial of a workload that is restarted with another configuration. `None` if it does not ask for one.
    pub fn of(before: &Workload, now: Instant) -> Option<Self> {
        let reverts = before
            .rare()
            .pinning
            .as_deref()
            .is_some_and(|it| it.reverts);
        let staging = before.staging.as_deref().filter(|_| reverts)?;
        Some(Self {
            deadline: now + staging.deadline,
            was_healthy: staging.health == Health::Healthy,
        })
    }
}

impl Trials {
    /// Begins a trial.
    pub fn begin(&mut self, trial: Trial) {
        self.trial = Some(trial);
    }

    /// Returns the trial of a workload that is not healthy. One that is healthy has passed.
    pub fn open(&mut self, workload: &Workload) -> Option<Trial> {
        let health = workload.staging.as_deref().map(|it| it.health);
        if health != Some(Health::Rolling) && health != Some(Health::Unavailable) {
            self.trial = None;
        }
        self.trial
    }

    /// Ends the trial.
    pub fn end(&mut self) {
        self.trial = None;
    }

    /// Notes that this content was put back, which ends the trial.
    pub fn put_back(&mut self, undone: &Pins) {
        self.put_back = Some(undone.clone());
        self.trial = None;
    }

    /// Returns true if this content was put back last time.
    pub fn has_put_back(&self, undone: &Pins) -> bool {
        self.put_back.as_ref() == Some(undone)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::fixtures::name;
    use crate::kind::WorkloadKind;
    use crate::object::WorkloadObject;
    use crate::scope::Scope;
    use crate::staging::Defaults;

    /// Returns a Deployment whose one pod is available or not, and which gets its configuration back if it fails.
    fn deployment(is_healthy: bool) -> Workload {
        let object = json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "1", "generation": 1,
                "annotations": {"pod-reloader.cs.sap.com/pin": "all", "pod-reloader.cs.sap.com/on-failure": "revert"},
            },
            "spec": {"template": {"metadata": {}, "spec": {"containers": []}}},
            "status": {
                "observedGeneration": 1,
                "replicas": 1, "updatedReplicas": 1, "availableReplicas": u64::from(is_healthy),
            },
        });
        let object: WorkloadObject = serde_json::from_value(object).unwrap();
        let scope = Scope::new([], name("operator"));
        let scope = scope.and_stages(Defaults {
            judges_all: true,
            ..Defaults::default()
        });
        scope
            .and_pins(true)
            .read(WorkloadKind::DEPLOYMENT, object)
            .unwrap()
    }

    #[test]
    fn a_trial_knows_whether_the_workload_was_healthy_before_and_ends_when_it_is() {
        let now = Instant::now();
        for was_healthy in [true, false] {
            let mut trials = Trials::default();
            trials.begin(Trial::of(&deployment(was_healthy), now).unwrap());
            let trial = Trial {
                deadline: now + Duration::from_secs(600),
                was_healthy,
            };
            assert_eq!(trials.open(&deployment(false)), Some(trial));
            assert_eq!(trials.open(&deployment(true)), None);
            assert_eq!(trials.open(&deployment(false)), None);
        }
    }

    #[test]
    fn a_workload_that_does_not_ask_for_it_gets_no_trial() {
        let mut before = deployment(true);
        before.rare = None;
        assert_eq!(Trial::of(&before, Instant::now()), None);
    }

    #[test]
    fn content_that_was_put_back_is_known_and_ends_the_trial() {
        let undone = |copy: &str| Pins::from_iter([(name("app"), name(copy))]);
        let mut trials = Trials::default();
        trials.begin(Trial::of(&deployment(true), Instant::now()).unwrap());
        assert!(!trials.has_put_back(&undone("app-1")));
        trials.put_back(&undone("app-1"));
        assert!(trials.has_put_back(&undone("app-1")));
        assert!(!trials.has_put_back(&undone("app-2")));
        assert_eq!(trials.open(&deployment(false)), None);
        trials.begin(Trial::of(&deployment(true), Instant::now()).unwrap());
        assert!(trials.has_put_back(&undone("app-1")));
    }
}
