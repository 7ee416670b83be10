//! A user and its password that change minutes apart, by a clock that is played.

use super::*;
use crate::digest::Objects;
use crate::fixtures::{deployment, holding, objects};

const MINUTE: Duration = Duration::from_secs(60);

/// The objects of one workload, and the clock.
struct Play {
    round: Round,
    together: Together,
    values: BTreeMap<&'static str, u32>,
    /// The values that the pods have.
    loaded: BTreeMap<&'static str, u32>,
    now: Instant,
}

impl Play {
    /// Begins with pods that have the content.
    fn new() -> Self {
        let mut play = Self::of_a_new_leader();
        play.loaded = play.values.clone();
        play.look();
        play
    }

    /// Begins with pods that have other content. Nothing is known of what has changed.
    fn of_a_new_leader() -> Self {
        let values = BTreeMap::from([("app", 1), ("password", 1), ("user", 1)]);
        Self {
            round: Round::default(),
            together: *deployment("web")
                .annotation("together", "user, password")
                .build()
                .rare()
                .together
                .clone()
                .unwrap(),
            values,
            loaded: BTreeMap::new(),
            now: Instant::now(),
        }
    }

    fn minutes(&mut self, minutes: u32) -> &mut Self {
        self.now += minutes * MINUTE;
        self
    }

    fn changes(&mut self, name: &'static str) -> &mut Self {
        *self.values.get_mut(name).unwrap() += 1;
        self
    }

    /// The pods get the content, by a restart or by an edit of their template.
    fn rolls(&mut self) -> &mut Self {
        self.loaded = self.values.clone();
        self.look();
        self
    }

    fn look(&mut self) {
        let objects: Objects = self
            .values
            .iter()
            .flat_map(|(name, value)| objects(&[(name, holding(&value.to_string()))]))
            .collect();
        let contents = Contents::whole(&objects);
        let is_due = self.loaded != self.values;
        self.round.look(&self.together, &contents, is_due, self.now);
    }

    /// Returns what a pass decides.
    fn verdict(&mut self) -> String {
        self.look();
        let names = |missing: Missing| {
            let names = missing.objects.iter().map(|it| it.name.as_str());
            let names = Vec::from_iter(names).join(" ");
            if missing.is_blind {
                format!("{names}?")
            } else {
                names
            }
        };
        match self.round.verdict(&self.together, self.now) {
            Verdict::Go => "go".to_owned(),
            Verdict::Complete => "complete".to_owned(),
            Verdict::Wait(missing, until) => {
                let minutes = (until - self.now).as_secs() / 60;
                format!("wait for {} for {minutes} min", names(missing))
            }
            Verdict::TimedOut(missing) => format!("no {}", names(missing)),
        }
    }
}

#[test]
fn a_password_that_comes_eight_minutes_after_its_user_ends_the_wait() {
    let mut play = Play::new();
    play.changes("user");
    assert_eq!(play.verdict(), "wait for password for 15 min");
    assert_eq!(play.minutes(8).verdict(), "wait for password for 7 min");
    assert_eq!(play.changes("password").verdict(), "complete");
    assert_eq!(play.verdict(), "go");
    // The next round begins anew, with whichever comes first.
    play.rolls().minutes(1).changes("password");
    assert_eq!(play.verdict(), "wait for user for 15 min");
}

#[test]
fn what_never_comes_is_waited_for_until_the_time_out_and_goes_at_once_if_it_comes_late() {
    let mut play = Play::new();
    play.changes("user");
    assert_eq!(play.verdict(), "wait for password for 15 min");
    assert_eq!(play.minutes(15).verdict(), "no password");
    assert_eq!(play.verdict(), "go");
    assert_eq!(play.rolls().minutes(1).changes("password").verdict(), "go");
    play.rolls().changes("user");
    assert_eq!(play.verdict(), "wait for password for 15 min");
}

#[test]
fn what_comes_long_after_the_time_out_begins_another_round() {
    let mut play = Play::new();
    play.changes("user").verdict();
    play.minutes(15).rolls();
    play.minutes(16).changes("password");
    assert_eq!(play.verdict(), "wait for user for 15 min");
}

#[test]
fn an_edit_of_the_template_in_between_takes_the_first_and_lets_the_second_go_at_once() {
    let mut play = Play::new();
    play.changes("user").verdict();
    play.minutes(2).rolls();
    play.minutes(6).changes("password");
    assert_eq!(play.verdict(), "go");
}

#[test]
fn other_objects_wait_for_nothing_but_are_held_back_by_an_open_round() {
    let mut play = Play::new();
    assert_eq!(play.changes("app").verdict(), "go");
    play.rolls().changes("user").verdict();
    play.minutes(5).changes("app");
    assert_eq!(play.verdict(), "wait for password for 10 min");
}

#[test]
fn a_change_that_is_taken_back_begins_no_round() {
    let mut play = Play::new();
    play.changes("user").verdict();
    play.values.insert("user", 1);
    play.minutes(1).look();
    play.minutes(20).changes("password");
    assert_eq!(play.verdict(), "wait for user for 15 min");
}

#[test]
fn both_at_once_are_not_waited_for() {
    let mut play = Play::new();
    assert_eq!(play.changes("user").changes("password").verdict(), "go");
}

#[test]
fn a_new_leader_does_not_know_who_has_changed_and_waits_for_both_until_the_time_out() {
    let mut play = Play::of_a_new_leader();
    assert_eq!(play.verdict(), "wait for password user? for 15 min");
    play.minutes(4).changes("password");
    assert_eq!(play.verdict(), "wait for user? for 11 min");
    assert_eq!(play.minutes(11).verdict(), "no user?");
    play.rolls().minutes(1).changes("user");
    assert_eq!(play.verdict(), "wait for password for 15 min");

    let mut play = Play::of_a_new_leader();
    play.verdict();
    assert_eq!(
        play.changes("user").changes("password").verdict(),
        "complete"
    );
}

#[test]
fn objects_that_are_not_tracked_are_not_waited_for() {
    let mut play = Play::new();
    play.values.remove("password");
    play.rolls().changes("user");
    assert_eq!(play.verdict(), "go");
    let mut play = Play::of_a_new_leader();
    play.values.remove("password");
    assert_eq!(play.verdict(), "go");
}

#[test]
fn items_are_names_with_or_without_a_kind() {
    let together = |list: &str, timeout: &str| {
        let web = deployment("web").annotation("together", list);
        let web = web.annotation("together-timeout", timeout).build();
        let together = web.rare().together.as_deref()?;
        Some((together.to_string(), together.timeout.as_secs()))
    };
    let read = |list: &str| together(list, "").map(|(items, _)| items);
    let both = Some("user, secret/app, configmap/app".to_owned());
    assert_eq!(read(" user,secret/app,configmap/app ,user"), both);
    for wrong in [
        "",
        "user",
        "user,user",
        "user,pod/app",
        "user,Bad_Name",
        "user,app[key]",
    ] {
        assert_eq!(read(wrong), None, "{wrong}");
    }
    let timeout = |text| together("user,password", text).unwrap().1;
    assert_eq!(["", "90s", "soon", "2h"].map(timeout), [900, 90, 900, 3600]);
}

#[test]
fn the_documented_number_of_names_is_the_largest() {
    let page = include_str!("../../../../docs/together.md");
    assert!(page.contains(&format!("The annotation takes 2 to {MAX_ITEMS} names")));
}
