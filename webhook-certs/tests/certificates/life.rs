//! Ten years of an authority: two replicas that race, restarts, and accidents.
//!
//! At all times, a client that trusts what the webhook configuration holds, or held two seconds ago, accepts
//! the leaf that a replica serves.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use webhook_certs::{CurrentCertificate, Next, Publication, SETTLED_AFTER, Stored};

use crate::authority::authority;
use crate::trusting::{days, parsed, start, trusts};

#[test]
fn whatever_happens_in_ten_years_clients_trust_what_they_are_shown() {
    let mut world = World::new(7);
    while world.passed < days(10 * 365) {
        world.lives_for_a_minute();
        let absence = world.dice.below(28 * 24 * 60 * 60);
        world.passes(Duration::from_secs(absence));
        world.checked.clear();
    }
    world.lives_for_a_minute();
    assert!(world.cas.len() >= 3, "{} CAs", world.cas.len());
    assert!(world.leaves.len() >= 50, "{} leaves", world.leaves.len());
}

struct World {
    dice: Dice,
    passed: Duration,
    began: Instant,
    secret: Option<Versioned<Stored>>,
    configuration: Versioned<Vec<u8>>,
    /// Earlier contents of the configuration, and until when they held. `None` is a content that somebody
    /// else wrote.
    before: Vec<(Option<Vec<u8>>, Duration)>,
    is_ours: bool,
    version: u64,
    replicas: [Replica; 2],
    cas: BTreeSet<Vec<u8>>,
    leaves: BTreeSet<Vec<u8>>,
    /// Pairs of bundle and chain that were found to match today.
    checked: BTreeSet<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone)]
struct Versioned<T> {
    content: T,
    version: u64,
}

/// The operator's part: the calls of one round come one by one, with anything in between.
#[derive(Default)]
struct Replica {
    current: CurrentCertificate,
    chain: Vec<u8>,
    publication: Publication,
    last_bundle: Vec<u8>,
    trusted_since: Option<Duration>,
    at: Step,
}

#[derive(Clone, Default)]
enum Step {
    #[default]
    ReadsConfiguration,
    ReadsSecret(Versioned<Vec<u8>>),
    WritesSecret(Versioned<Vec<u8>>, Option<Versioned<Stored>>),
    Publishes(Versioned<Vec<u8>>, Stored),
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            dice: Dice(seed),
            passed: Duration::ZERO,
            began: Instant::now(),
            secret: None,
            configuration: Versioned {
                content: vec![],
                version: 0,
            },
            before: vec![],
            is_ours: false,
            version: 0,
            replicas: Default::default(),
            cas: BTreeSet::new(),
            leaves: BTreeSet::new(),
            checked: BTreeSet::new(),
        }
    }

    /// Takes many small steps of either replica, with at most one accident. At the end, all agree.
    fn lives_for_a_minute(&mut self) {
        let accident = self.dice.below(40);
        for step in 0..30 {
            if step == accident {
                self.accident();
            }
            let replica = self.dice.below(2) as usize;
            self.step(replica);
            let pause = self.dice.below(4_000);
            self.passes(Duration::from_millis(pause));
        }
        for _ in 0..4 {
            for replica in [0, 1] {
                (0..5).for_each(|_| self.step(replica));
            }
            self.passes(SETTLED_AFTER);
        }
        let stored = &self.secret.as_ref().unwrap().content;
        assert_eq!(self.configuration.content, stored.ca_bundle);
        for replica in &self.replicas {
            assert_eq!(replica.chain, stored.chain);
        }
    }

    fn accident(&mut self) {
        let rubbish = b"rubbish".to_vec();
        match (self.dice.below(7), &mut self.secret) {
            (0, secret) => *secret = None,
            (1, _) => {
                self.configure(vec![]);
                self.is_ours = false;
            }
            (2, _) => {
                let replica = self.dice.below(2) as usize;
                self.replicas[replica] = Replica::default();
            }
            (which, Some(secret)) => {
                self.version += 1;
                secret.version = self.version;
                match which {
                    3 => secret.content.ca_bundle = rubbish,
                    4 => secret.content.ca_key = rubbish,
                    5 => secret.content.chain = rubbish,
                    _ => secret.content.key = rubbish,
                }
            }
            (_, None) => {}
        }
    }

    fn step(&mut self, replica: usize) {
        let (wall, clock) = (self.wall(), self.clock());
        let Self {
            secret, replicas, ..
        } = self;
        let this = &mut replicas[replica];
        match std::mem::take(&mut this.at) {
            Step::ReadsConfiguration => this.at = Step::ReadsSecret(self.configuration.clone()),
            Step::ReadsSecret(configuration) => {
                this.at = Step::WritesSecret(configuration, secret.clone());
            }
            Step::WritesSecret(configuration, read) => {
                let present = read.as_ref().map(|read| read.content.clone());
                let present = present.unwrap_or_default();
                if configuration.content == present.ca_bundle {
                    this.saw(&present.ca_bundle, clock, self.passed);
                } else {
                    this.publication.lost();
                }
                let trusted = [&configuration.content[..], &this.last_bundle].concat();
                let is_published = this.publication.is_settled(&present.ca_bundle, clock);
                let next = authority().next(&present, &trusted, wall, is_published);
                let stored = match next.unwrap() {
                    Next::Keep => present,
                    Next::Write { stored, .. } => {
                        let version = |secret: &Option<Versioned<_>>| {
                            secret.as_ref().map(|secret| secret.version)
                        };
                        if version(&read) != version(secret) {
                            return;
                        }
                        self.version += 1;
                        *secret = Some(Versioned {
                            content: stored.clone(),
                            version: self.version,
                        });
                        self.cas.insert(stored.ca_key.clone());
                        self.leaves.insert(stored.chain.clone());
                        assert!(parsed(&stored.ca_bundle).len() <= 4);
                        stored
                    }
                };
                this.last_bundle.clone_from(&stored.ca_bundle);
                let is_published = this.publication.is_settled(&stored.ca_bundle, clock);
                this.serve(&stored, is_published, wall);
                this.at = Step::Publishes(configuration, stored);
            }
            Step::Publishes(read, stored) => {
                if read.content == stored.ca_bundle || read.version != self.configuration.version {
                    return;
                }
                this.saw(&stored.ca_bundle, clock, self.passed);
                self.configure(stored.ca_bundle);
                self.is_ours = true;
            }
        }
    }

    fn configure(&mut self, bundle: Vec<u8>) {
        self.version += 1;
        let new = Versioned {
            content: bundle,
            version: self.version,
        };
        let old = std::mem::replace(&mut self.configuration, new);
        let old = self.is_ours.then_some(old.content);
        self.before.push((old, self.passed));
    }

    fn passes(&mut self, time: Duration) {
        self.passed += time;
        self.check();
    }

    fn check(&mut self) {
        let (now, passed) = (self.wall(), self.passed);
        self.before
            .retain(|(_, until)| passed - *until <= Duration::from_secs(2));
        let present = self.is_ours.then_some(&self.configuration.content);
        let before = self.before.iter().filter_map(|(bundle, _)| bundle.as_ref());
        let bundles: Vec<_> = before.chain(present).collect();
        let checked = &mut self.checked;
        for replica in &self.replicas {
            // Before that, no Service sends calls to the replica.
            let is_ready = replica
                .trusted_since
                .is_some_and(|since| passed - since >= SETTLED_AFTER);
            for bundle in bundles.iter().filter(|_| is_ready) {
                if checked.insert(((*bundle).clone(), replica.chain.clone())) {
                    assert!(trusts(bundle, &replica.chain, now), "after {passed:?}");
                }
            }
        }
    }

    fn wall(&self) -> SystemTime {
        start() + self.passed
    }

    fn clock(&self) -> Instant {
        self.began + self.passed
    }
}

impl Replica {
    fn saw(&mut self, bundle: &[u8], clock: Instant, passed: Duration) {
        self.publication.saw(bundle, clock);
        self.trusted_since.get_or_insert(passed);
    }

    fn serve(&mut self, stored: &Stored, is_published: bool, now: SystemTime) {
        let leaf = stored.serving_certificate().unwrap();
        let serial = leaf.serial().to_owned();
        self.current.replace_once_trusted(leaf, is_published, now);
        if self.current.current().unwrap().serial() == serial {
            self.chain.clone_from(&stored.chain);
        }
    }
}

/// Pseudo-random numbers (xorshift), the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
