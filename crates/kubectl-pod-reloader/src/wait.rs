//! `wait`: waits until nothing is pending for workloads and their rollouts are done.

mod dues;

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use pod_reloader_core::name::Name;
use pod_reloader_core::sync_status::{Report, SyncStatus};
use pod_reloader_settings::Reconcile;
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout_at};

use self::dues::{Dues, is_of_this_content};
use crate::args::{Chosen, Target};
use crate::cluster::{Cluster, Unseen};
use crate::due::{self, Wait};
use crate::operators::{NONE_FOUND, Operators};
use crate::print::{self, Answer, Text, Verdict, by};
use crate::rollout::Rollout;
use crate::selection::{self, Selected};
use crate::workloads::{self, Reply, Seen};

/// Least pause between two rounds of looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Number of workloads that are looked at in parallel.
const CHECKS_AT_ONCE: usize = 4;
/// State of a selected workload that was deleted meanwhile.
const GONE: &str = "gone";
/// State of a workload of which no look ever finished.
const UNANSWERED: &str = "nobody answered";
/// Time limit that is longer than anybody waits.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The outcome of waiting.
#[derive(Debug, Serialize)]
pub(crate) struct Waited {
    workloads: Vec<Outcome>,
    /// Reason why there are no workloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Debug, Serialize)]
struct Outcome {
    /// Type and name as typed: `deployment/web`.
    workload: String,
    /// Its namespace, if workloads of all are chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// Type and name, with that namespace.
    #[serde(skip)]
    shown: String,
    /// True if nothing is pending and the rollout is done.
    done: bool,
    /// State of the workload, in words.
    state: String,
    #[serde(skip)]
    verdict: Verdict,
}

/// The state of a workload at one look.
enum State {
    /// Nothing is pending.
    Done(String),
    /// Something is pending that may get done by itself.
    Pending(String),
    /// Nothing more will get done by itself, or nobody can tell.
    Over(Verdict, String),
}

/// Waits for the chosen workloads, and for `timeout` at most. A `timeout` of zero means one look, however long that
/// takes.
///
/// Reports progress on standard error.
pub(crate) async fn wait(
    cluster: &Cluster,
    operators: &Operators,
    chosen: &Chosen,
    timeout: Duration,
) -> (Waited, Verdict) {
    let deadline = (!timeout.is_zero()).then(|| Instant::now() + timeout.min(MAX_TIMEOUT));
    let namespace = selection::namespace(cluster, chosen);
    let (targets, all) = match chosen {
        Chosen::Named(targets) => (&**targets, None),
        Chosen::Selected { kind, selector, .. } => {
            let (kind, selector) = (kind.as_deref(), selector.as_deref());
            let selected = selection::workloads(cluster, operators, namespace, kind, selector);
            (&[][..], Some(all(deadline, selected).await))
        }
    };
    let unlisted = all.iter().flat_map(|all| &all.unlisted);
    for error in operators.unseen.iter().chain(unlisted) {
        print::note(&format!("not seen: {error}"));
    }
    if let Some(left_out) = all.as_ref().and_then(|all| all.left_out.as_ref()) {
        print::note(left_out);
    }
    let targets = all.as_ref().map_or(targets, |all| &all.targets);
    let dues = Dues::default();
    let look = |target| state(cluster, operators, chosen, target, &dues);
    let workloads = until_over(targets, deadline, look).await;
    let (note, of_list) = match &all {
        None => (None, Verdict::Good),
        Some(all) => {
            let found = match &*all.targets {
                [] => cluster.check_namespace(namespace).await,
                _ => Ok(()),
            };
            match found {
                Err(lacking) => (Some(lacking.to_string()), Verdict::Bad),
                Ok(()) => all.judged(operators, namespace),
            }
        }
    };
    let verdicts = workloads.iter().map(|outcome| outcome.verdict);
    let verdict = verdicts.fold(of_list, Verdict::max);
    (Waited { workloads, note }, verdict)
}

impl Selected {
    /// Returns the reason for not waiting at all, if there is one, and the best verdict that waiting for all
    /// can give.
    fn judged(&self, operators: &Operators, namespace: Option<&Name>) -> (Option<String>, Verdict) {
        let is_whole = self.unlisted.is_empty();
        if self.targets.is_empty() {
            let none = format!("no workload is managed {}", selection::place(namespace));
            let (note, verdict) = match operators.verdict(is_whole) {
                Verdict::Bad => (NONE_FOUND.to_owned(), Verdict::Bad),
                Verdict::Unknown => (format!("{none}, as far as can be seen"), Verdict::Unknown),
                Verdict::Good => (none, Verdict::Bad),
            };
            return (Some(note), verdict);
        }
        let verdict = match is_whole {
            true => Verdict::Good,
            false => Verdict::Unknown,
        };
        (None, verdict)
    }
}

/// Returns the selected workloads, or why they could not be listed before the deadline.
async fn all(
    deadline: Option<Instant>,
    selected: impl Future<Output = Result<Selected, Unseen>>,
) -> Selected {
    let why = match before(deadline, selected).await {
        Some(Ok(selected)) => return selected,
        Some(Err(error)) => error.to_string(),
        None => "the workloads: no answer in time".to_owned(),
    };
    Selected {
        unlisted: vec![why],
        ..Selected::default()
    }
}

/// Looks at the targets again and again, until all are done in the same round (one may become due while another is
/// waited for), one never will be, or the deadline has passed. Each look costs the apiserver several requests, so once
/// something is pending, it looks only there until nothing is, and pauses as long as a round takes.
async fn until_over<'a, L, F>(
    targets: &'a [Target],
    deadline: Option<Instant>,
    look: L,
) -> Vec<Outcome>
where
    L: Fn(&'a Target) -> F,
    F: Future<Output = State>,
{
    let mut told = BTreeMap::new();
    let mut states = Vec::new();
    states.resize_with(targets.len(), || State::Pending(UNANSWERED.to_owned()));
    let mut round = pending_of(&states);
    loop {
        let began = Instant::now();
        let looks = round.iter().map(|at| before(deadline, look(&targets[*at])));
        let looks: Vec<_> = stream::iter(looks).buffered(CHECKS_AT_ONCE).collect().await;
        for (at, state) in round.iter().zip(looks) {
            let name = targets[*at].shown();
            if let Some(State::Pending(text)) = &state
                && told.get(&name) != Some(text)
            {
                print::note(&format!("{name}: {text}"));
                told.insert(name.clone(), text.clone());
            }
            let last = || told.get(&name).cloned();
            let unanswered = || State::Pending(last().unwrap_or_else(|| UNANSWERED.to_owned()));
            states[*at] = state.unwrap_or_else(unanswered);
        }
        let pending = pending_of(&states);
        let is_hopeless = states
            .iter()
            .any(|state| matches!(state, State::Over(Verdict::Bad, _)));
        let is_full = round.len() == targets.len();
        if pending.is_empty() && !is_hopeless && !is_full {
            round = (0..targets.len()).collect();
            continue;
        }
        let now = Instant::now();
        let left = deadline.map_or(Duration::ZERO, |it| it.saturating_duration_since(now));
        let is_late = left <= INTERVAL;
        if is_late || is_hopeless || pending.is_empty() {
            let why = match is_late {
                true => "not in time",
                false => "not waited for",
            };
            let outcome = |(target, state)| Outcome::of(target, state, why);
            return targets.iter().zip(states).map(outcome).collect();
        }
        // The last round needs time, too.
        sleep(INTERVAL.max(now - began).min(left / 2)).await;
        round = pending;
    }
}

/// Returns the positions of the targets for which something is pending.
fn pending_of(states: &[State]) -> Vec<usize> {
    let is_pending = |at: &usize| matches!(states[*at], State::Pending(_));
    (0..states.len()).filter(is_pending).collect()
}

/// Runs `what` until the deadline, if there is one. After the deadline it is not even begun.
async fn before<T>(deadline: Option<Instant>, what: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) if deadline <= Instant::now() => None,
        Some(deadline) => timeout_at(deadline, what).await.ok(),
        None => Some(what.await),
    }
}

impl Outcome {
    /// Returns the outcome of the last look. `why_last` explains why there was no other look.
    fn of(target: &Target, state: State, why_last: &str) -> Self {
        let (verdict, state) = match state {
            State::Done(state) => (Verdict::Good, state),
            State::Over(verdict, state) => (verdict, state),
            State::Pending(state) => (Verdict::Bad, format!("{why_last}: {state}")),
        };
        Self {
            workload: target.typed(),
            namespace: target.namespace.as_ref().map(ToString::to_string),
            shown: target.shown(),
            done: verdict == Verdict::Good,
            state,
            verdict,
        }
    }
}

async fn state(
    cluster: &Cluster,
    operators: &Operators,
    chosen: &Chosen,
    target: &Target,
    dues: &Dues,
) -> State {
    let cluster = &cluster.of(target);
    let seen = match workloads::get(cluster, operators, target).await {
        Ok(seen) => seen,
        Err(error) => return State::of(error, chosen),
    };
    if let Some(obstacle) = &seen.obstacle {
        return State::Over(Verdict::Bad, format!("it is not managed: {obstacle}"));
    }
    let report = match seen.query_status(cluster).await {
        Reply::Answered(report) => report,
        Reply::Unanswered => return unanswered(&seen),
        Reply::Impossible(error) if error.is_forbidden() => {
            let text = format!("{}: only such a dry run shows it", error.words());
            return State::Over(Verdict::Unknown, text);
        }
        Reply::Impossible(error) => return State::of(error, chosen),
    };
    let due_for = dues.due_for(target, &report);
    if let Some(state) = unless_current(cluster, operators, &seen, &report, due_for).await {
        return state;
    }
    // Reads it again: the operator's answer may have been about a newer template.
    match workloads::get(cluster, operators, target).await {
        Ok(seen) => State::of_rollout(Rollout::of(&seen.workload, &seen.object)),
        Err(error) => State::of(error, chosen),
    }
}

/// Returns the state of a workload for which no webhook of ours was called.
fn unanswered(seen: &Seen<'_>) -> State {
    let text = "the webhook of pod-reloader does not answer";
    match &seen.doubt {
        None => State::Pending(text.to_owned()),
        // If the webhook is not called for this workload, it never will answer.
        Some(doubt) => State::Over(
            Verdict::Unknown,
            format!("{text}, and by its defaults {doubt}"),
        ),
    }
}

/// Returns the state of a workload about which the operator says this, unless nothing is pending. Its content has been seen
/// to be due for so long.
async fn unless_current(
    cluster: &Cluster,
    operators: &Operators,
    seen: &Seen<'_>,
    report: &Report,
    due_for: Duration,
) -> Option<State> {
    let pending = match report.sync_status {
        SyncStatus::Current => return None,
        SyncStatus::NotManaged => {
            let text = "it is not managed: it is outside the operator's scope";
            return Some(State::Over(Verdict::Bad, text.to_owned()));
        }
        SyncStatus::Due(_) => "a restart is due".to_owned(),
        SyncStatus::MissingConfig => due::lacking(cluster, seen).await,
        SyncStatus::BaselineDue => "a baseline is due".to_owned(),
        SyncStatus::Unknown => "pod-reloader cannot read its objects".to_owned(),
    };
    let reconcile = seen.operator.map(|it| it.args.reconcile);
    let is_idle = reconcile.is_some_and(|it| it != Reconcile::Restart);
    if is_idle {
        let text = format!("{pending}, but the operator does not restart anything");
        return Some(State::Over(Verdict::Bad, text));
    }
    let is_due = matches!(report.sync_status, SyncStatus::Due(_));
    let wait = match is_due {
        true => due::wait(cluster, operators, seen, report).await,
        false => Wait::ForNothing,
    };
    Some(match wait {
        Wait::ForNothing => State::Pending(pending),
        Wait::For(what) => State::Pending(format!("{pending}; {what}")),
        Wait::Halted(why) => State::Over(Verdict::Bad, why),
        Wait::PerhapsHalted(why) if is_of_this_content(seen, due_for) => {
            State::Over(Verdict::Bad, why)
        }
        Wait::PerhapsHalted(why) => State::Pending(format!("{pending}; {why}")),
    })
}

impl State {
    /// Maps an error: what does not exist will not appear, and what fails now may work next time. Of a workload that was
    /// selected, nothing is pending once it is gone.
    fn of(error: Unseen, chosen: &Chosen) -> Self {
        match error {
            _ if error.is_absent() && chosen.is_selected() => Self::Done(GONE.to_owned()),
            Unseen::Absent(_) | Unseen::NotFound { .. } => Self::Over(Verdict::Bad, error.words()),
            Unseen::Forbidden { .. } => Self::Over(Verdict::Unknown, error.words()),
            Unseen::Refused { .. } | Unseen::Unreachable(..) => Self::Pending(error.to_string()),
        }
    }

    /// Maps the rollout of a workload for which nothing is pending.
    fn of_rollout(rollout: Rollout) -> Self {
        match rollout {
            Rollout::Done(text) => Self::Done(text),
            Rollout::Running(text) => Self::Pending(text),
            Rollout::Stopped(text) => Self::Over(Verdict::Bad, text),
            Rollout::Unknown(text) => {
                let text = format!("nothing is pending; its rollout is {text}");
                Self::Over(Verdict::Unknown, text)
            }
        }
    }
}

impl Answer for Waited {
    fn text(&self) -> Text {
        let mut text = Text::default();
        if let Some(note) = &self.note {
            text.line([note.as_str().into()]);
        }
        for outcome in &self.workloads {
            let state = by(outcome.verdict, &*outcome.state);
            text.line([format!("{}: ", outcome.shown).into(), state]);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{Canned, config_map, deployment, operator};
    use pod_reloader_core::sync_status::{NamedObject, Waiting};
    use serde_json::json;

    const MINUTE: Duration = Duration::from_secs(60);

    fn targets<const N: usize>(names: [&str; N]) -> [Target; N] {
        names.map(|name| Target::here("deploy", name))
    }

    fn done() -> State {
        State::Done("rolled out".to_owned())
    }

    fn pending() -> State {
        State::Pending("a restart is due".to_owned())
    }

    fn in_a_minute() -> Option<Instant> {
        Some(Instant::now() + MINUTE)
    }

    fn states(outcomes: &[Outcome]) -> Vec<&str> {
        outcomes.iter().map(|it| &*it.state).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_hopeless_workload_ends_the_wait_for_the_others() {
        let start = Instant::now();
        let targets = targets(["held", "paused"]);
        let look = async |target: &Target| match &*target.name {
            "paused" => State::Over(Verdict::Bad, "paused".to_owned()),
            _ => pending(),
        };
        let outcomes = until_over(&targets, in_a_minute(), look).await;
        assert_eq!(
            states(&outcomes),
            ["not waited for: a restart is due", "paused"]
        );
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_workload_whose_status_is_unknown_does_not_end_the_wait_for_the_others() {
        let start = Instant::now();
        let targets = targets(["due", "dark"]);
        let look = async |target: &Target| match &*target.name {
            "dark" => State::Over(Verdict::Unknown, "dark".to_owned()),
            _ if start.elapsed() < 5 * INTERVAL => pending(),
            _ => done(),
        };
        let outcomes = until_over(&targets, in_a_minute(), look).await;
        assert_eq!(states(&outcomes), ["rolled out", "dark"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_that_hangs_ends_at_the_deadline() {
        let start = Instant::now();
        let targets = targets(["a", "b", "c", "d", "e", "f"]);
        let look = async |target: &Target| match &*target.name {
            "a" => done(),
            "b" if start.elapsed().is_zero() => pending(),
            _ => std::future::pending().await,
        };
        let outcomes = until_over(&targets, in_a_minute(), look).await;
        assert_eq!(start.elapsed(), MINUTE);
        let states = states(&outcomes);
        assert_eq!(
            states[..3],
            [
                "rolled out",
                "not in time: a restart is due",
                "not in time: nobody answered"
            ]
        );
        assert!(outcomes.iter().skip(1).all(|it| !it.done));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pending_workload_is_waited_for_as_long_as_asked() {
        let start = Instant::now();
        let targets = targets(["due"]);
        let outcomes = until_over(&targets, in_a_minute(), async |_: &Target| pending()).await;
        assert_eq!(states(&outcomes), ["not in time: a restart is due"]);
        let waited = start.elapsed();
        assert!(
            waited <= MINUTE && waited + INTERVAL >= MINUTE,
            "{waited:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_timeout_each_workload_is_checked_once() {
        let targets = targets(["due"]);
        let looked = std::cell::Cell::new(0);
        let look = async |_: &Target| {
            looked.set(looked.get() + 1);
            sleep(INTERVAL).await;
            pending()
        };
        let outcomes = until_over(&targets, None, look).await;
        assert_eq!(states(&outcomes), ["not in time: a restart is due"]);
        assert_eq!(looked.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn meanwhile_only_pending_workloads_are_checked_and_at_the_end_all() {
        let start = Instant::now();
        let targets = targets(["a", "b", "c", "due"]);
        let looked = std::cell::RefCell::new(Vec::new());
        let look = async |target: &Target| {
            looked.borrow_mut().push(target.name.clone());
            match &*target.name {
                "due" if start.elapsed() < 2 * INTERVAL => pending(),
                _ => done(),
            }
        };
        let outcomes = until_over(&targets, in_a_minute(), look).await;
        assert!(outcomes.iter().all(|it| it.done));
        let looked = looked.into_inner();
        let times = |name: &str| looked.iter().filter(|it| *it == name).count();
        assert_eq!(["a", "b", "c", "due"].map(times), [2, 2, 2, 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_workload_that_becomes_due_while_another_is_waited_for_is_waited_for() {
        let start = Instant::now();
        let targets = targets(["due", "later"]);
        let look = async |target: &Target| match (&*target.name, start.elapsed()) {
            ("due", waited) if waited < 3 * INTERVAL => pending(),
            ("later", waited) if waited > INTERVAL && waited < 9 * INTERVAL => pending(),
            _ => done(),
        };
        let outcomes = until_over(&targets, in_a_minute(), look).await;
        assert_eq!(states(&outcomes), ["rolled out", "rolled out"]);
        assert!(start.elapsed() >= 9 * INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_is_as_long_as_a_round() {
        let start = Instant::now();
        let targets = targets(["slow"]);
        let looked = std::cell::Cell::new(0);
        let look = async |_: &Target| {
            looked.set(looked.get() + 1);
            sleep(5 * INTERVAL).await;
            match looked.get() {
                3 => done(),
                _ => pending(),
            }
        };
        let outcomes = until_over(&targets, in_a_minute(), look).await;
        assert!(outcomes.iter().all(|it| it.done));
        assert_eq!(start.elapsed(), 25 * INTERVAL);
    }

    #[tokio::test]
    async fn a_selected_workload_that_is_gone_is_not_waited_for() {
        let canned =
            Canned::shop().with("/apis/apps/v1/deployments", json!({"items": [operator()]}));
        let cluster = canned.cluster();
        let operators = Operators::find(&cluster, None).await;
        let [gone] = targets(["gone"]);
        let dues = Dues::default();
        let selected = Chosen::Selected {
            kind: None,
            selector: None,
            all_namespaces: false,
        };
        let selected = state(&cluster, &operators, &selected, &gone, &dues).await;
        assert!(matches!(selected, State::Done(text) if text == GONE));
        let named = Chosen::Named(vec![gone.clone()]);
        let named = state(&cluster, &operators, &named, &gone, &dues).await;
        assert!(matches!(named, State::Over(Verdict::Bad, _)));
    }

    #[tokio::test(start_paused = true)]
    async fn several_workloads_are_checked_at_once() {
        let start = Instant::now();
        let targets = targets(["a", "b", "c", "d", "e", "f", "g", "h"]);
        let look = async |_: &Target| {
            sleep(INTERVAL).await;
            done()
        };
        let outcomes = until_over(&targets, in_a_minute(), look).await;
        assert!(outcomes.iter().all(|it| it.done));
        assert_eq!(start.elapsed(), 2 * INTERVAL);
    }

    #[test]
    fn waiting_for_no_workload_is_not_a_success() {
        let namespace = Name::parse("shop").unwrap();
        let judged = |targets: &[Target], unlisted: &[&str], operators: &Operators| {
            let all = Selected {
                targets: targets.to_vec(),
                left_out: None,
                unlisted: unlisted.iter().map(|it| (*it).to_owned()).collect(),
            };
            all.judged(operators, Some(&namespace))
        };
        let (note, verdict) = judged(&[], &[], &Operators::without_any(true));
        assert_eq!(note.as_deref(), Some(NONE_FOUND));
        assert_eq!(verdict, Verdict::Bad);
        let dark = Operators::without_any(false);
        let (note, verdict) = judged(&[], &[], &dark);
        assert_eq!(
            note.as_deref(),
            Some("no workload is managed in namespace shop, as far as can be seen")
        );
        assert_eq!(verdict, Verdict::Unknown);
        let web = targets(["web"]);
        assert_eq!(judged(&web, &[], &dark), (None, Verdict::Good));
        let unlisted = ["you may not list statefulsets"];
        assert_eq!(judged(&web, &unlisted, &dark), (None, Verdict::Unknown));
    }

    #[tokio::test]
    async fn workloads_of_all_namespaces_are_waited_for_in_their_own() {
        let web = |namespace: &str| {
            let mut web = deployment("web");
            web["metadata"]["namespace"] = json!(namespace);
            web["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/configmaps": "app"});
            web
        };
        let of = |namespace: &str| format!("/apis/apps/v1/namespaces/{namespace}/deployments");
        let mut rolling = web("blog");
        rolling["status"]["availableReplicas"] = json!(0);
        let all = json!({"items": [operator(), web("shop"), rolling.clone()]});
        let canned = Canned::shop()
            .with("/apis/apps/v1/deployments", all)
            .with_all(&of("shop"), &[web("shop")])
            .with_all(&of("blog"), &[rolling])
            .reporting("current");
        let cluster = canned.cluster();
        let operators = Operators::find(&cluster, None).await;
        let chosen = Chosen::Selected {
            kind: None,
            selector: None,
            all_namespaces: true,
        };
        let (waited, verdict) = wait(&cluster, &operators, &chosen, Duration::ZERO).await;
        let text = waited.text().without_styles();
        let lines: Vec<_> = text.lines().collect();
        let [blog, shop] = &*lines else {
            panic!("{text}")
        };
        let late = "deployments.apps/web in namespace blog: not in time: ";
        assert!(blog.starts_with(late), "{text}");
        let done = "deployments.apps/web in namespace shop: 1 of 1 ";
        assert!(shop.starts_with(done), "{text}");
        assert_eq!(verdict, Verdict::Bad);
        let json = serde_json::to_value(&waited).unwrap();
        assert_eq!(json["workloads"][0]["namespace"], "blog");
    }

    #[tokio::test]
    async fn missing_config_is_named() {
        let mut web = deployment("web");
        web["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/auto": "true"});
        let source = json!({"name": "app", "key": "size"});
        web["spec"]["template"]["spec"]["containers"][0]["env"] =
            json!([{"name": "A", "valueFrom": {"configMapKeyRef": source}}]);
        web["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
            json!([{"secretRef": {"name": "creds"}}]);
        let shop = Canned::shop()
            .with("/apis/apps/v1/deployments", json!({"items": [operator()]}))
            .with_all("/apis/apps/v1/namespaces/shop/deployments", &[web])
            .with_all(
                "/api/v1/namespaces/shop/configmaps",
                &[config_map("app", "color")],
            )
            .reporting("missing config");
        let waited = async |canned: Canned| {
            let cluster = canned.cluster();
            let operators = Operators::find(&cluster, None).await;
            let chosen = Chosen::Named(targets(["web"]).into());
            let (waited, _) = wait(&cluster, &operators, &chosen, Duration::ZERO).await;
            waited.text().without_styles()
        };
        assert_eq!(
            waited(shop.clone()).await,
            "deploy/web: not in time: its pods could not start without key size of ConfigMap app, Secret creds\n"
        );
        let shop = shop
            .with(
                "/api/v1/namespaces/shop/configmaps/app",
                config_map("app", "size"),
            )
            .forbids("/api/v1/namespaces/shop/secrets/creds");
        assert_eq!(
            waited(shop).await,
            "deploy/web: not in time: its pods could not start: what is missing cannot be seen, as you may not get secrets in namespace shop\n"
        );
    }

    /// Returns a cluster with two workloads that are due and not healthy, and with Events about `web`, newest
    /// first.
    fn halted(web: &[(&str, &str)], events: &[(&str, &str)]) -> Canned {
        let hash = json!({"pod-reloader.cs.sap.com/config-hash": "it"});
        let workload = |name: &str, annotations: &[(&str, &str)]| {
            let mut it = deployment(name);
            it["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/configmaps": "app"});
            for (key, value) in annotations {
                let key = format!("pod-reloader.cs.sap.com/{key}");
                it["metadata"]["annotations"][key] = json!(value);
            }
            it["spec"]["template"]["metadata"]["annotations"] = hash.clone();
            it["status"]["availableReplicas"] = json!(0);
            it
        };
        let event = |(number, (reason, message)): (usize, &(&str, &str))| {
            json!({
                "reportingComponent": "pod-reloader", "reason": reason, "message": message,
                "lastTimestamp": format!("2026-01-01T00:{:02}:00Z", 59 - number),
                "involvedObject": {"kind": "Deployment", "namespace": "shop", "name": "web"},
            })
        };
        let events = Vec::from_iter(events.iter().enumerate().map(event));
        let apps = "/apis/apps/v1/namespaces/shop";
        Canned::shop()
            .with("/apis/apps/v1/deployments", json!({"items": [operator()]}))
            .with_all(
                &format!("{apps}/deployments"),
                &[workload("web", web), workload("first", &[])],
            )
            .with("/api/v1/namespaces/shop/events", json!({"items": events}))
            .with_all(
                "/api/v1/namespaces/shop/configmaps",
                &[config_map("app", "a")],
            )
    }

    const DUE: &str = "restart due for a change; version 0.1.0; content 48a63946";
    const HALTED: (&str, &str) = (
        "RestartHalted",
        "not restarting pods: Deployment first got the changed config first, and has not become healthy",
    );

    async fn waited_for(canned: Canned) -> (String, Verdict) {
        let cluster = canned.cluster();
        let operators = Operators::find(&cluster, None).await;
        let timeout = Duration::from_secs(5);
        let chosen = Chosen::Named(targets(["web"]).into());
        let (waited, verdict) = wait(&cluster, &operators, &chosen, timeout).await;
        (waited.text().without_styles(), verdict)
    }

    /// Returns what the operator says of a wait with this reason.
    fn waiting(reason: &str, message: &str) -> Waiting {
        Waiting {
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..Waiting::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_workload_halted_by_a_failed_one_ends_the_wait_at_once() {
        let start = Instant::now();
        let canned = halted(&[], &[]).reporting_wait(Some(waiting(HALTED.0, HALTED.1)));
        let (text, verdict) = waited_for(canned).await;
        assert_eq!(text, format!("deploy/web: {}\n", HALTED.1));
        assert_eq!((verdict, start.elapsed()), (Verdict::Bad, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_halt_that_is_over_does_not_end_the_wait() {
        let start = Instant::now();
        let over = halted(&[], &[HALTED]).reporting_wait(None);
        let (text, _) = waited_for(over).await;
        assert_eq!(text, "deploy/web: not in time: a restart is due\n");
        assert!(start.elapsed() > 3 * INTERVAL);
    }

    /// Returns a shop with a workload that is halted by an Event which names the failed one as data.
    fn halted_by_first() -> Canned {
        let event = json!({
            "reportingComponent": "pod-reloader", "reason": HALTED.0, "message": HALTED.1,
            "lastTimestamp": "2026-01-01T00:59:00Z",
            "involvedObject": {"kind": "Deployment", "namespace": "shop", "name": "web"},
            "related": {"kind": "Deployment", "namespace": "shop", "name": "first"},
        });
        let events = json!({"items": [event]});
        let shop = halted(&[], &[]).with("/api/v1/namespaces/shop/events", events);
        shop.reporting(DUE)
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_about_a_halt_ends_the_wait_if_the_named_workload_still_fails() {
        let start = Instant::now();
        let (text, verdict) = waited_for(halted_by_first().reporting_of("first", "current")).await;
        assert_eq!(text, format!("deploy/web: {}\n", HALTED.1));
        assert_eq!((verdict, start.elapsed()), (Verdict::Bad, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_about_a_halt_that_is_over_does_not_end_the_wait() {
        let replica_set = json!({
            "metadata": {
                "name": "first-2", "creationTimestamp": "2026-01-02T00:00:00Z",
                "ownerReferences": [{"uid": "first", "controller": true}],
            },
            "spec": {"template": {"metadata": {
                "annotations": {"pod-reloader.cs.sap.com/config-hash": "it"},
            }}},
        });
        let replica_sets = "/apis/apps/v1/namespaces/shop/replicasets";
        let released = halted_by_first().with(replica_sets, json!({"items": [replica_set]}));
        let first = "/apis/apps/v1/namespaces/shop/deployments/first";
        for over in [
            // The content has changed since then.
            halted_by_first(),
            // It has got other content since then, with a release.
            released.reporting_of("first", "current"),
            // It has become healthy.
            halted_by_first()
                .with(first, deployment("first"))
                .reporting_of("first", "current"),
        ] {
            let start = Instant::now();
            let (text, _) = waited_for(over).await;
            assert_eq!(text, "deploy/web: not in time: a restart is due\n");
            assert!(start.elapsed() > 3 * INTERVAL);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_about_a_halt_counts_once_the_operator_has_had_the_time_for_another() {
        let start = Instant::now();
        let settles = [("settle-period", "1s")];
        let (text, verdict) = waited_for(halted(&settles, &[HALTED]).reporting(DUE)).await;
        assert_eq!(text, format!("deploy/web: {}\n", HALTED.1));
        assert_eq!(verdict, Verdict::Bad);
        assert!(start.elapsed() >= Duration::from_secs(1) + dues::GRACE);
        // The settle period of the operator is longer than this wait.
        let (text, _) = waited_for(halted(&[], &[HALTED]).reporting(DUE)).await;
        let late = format!("deploy/web: not in time: a restart is due; {}\n", HALTED.1);
        assert_eq!(text, late);
    }

    #[tokio::test(start_paused = true)]
    async fn other_content_is_due_for_a_time_of_its_own() {
        let (dues, [web]) = (Dues::default(), targets(["web"]));
        let report = |content: &str| -> Report {
            let text = format!("pod-reloader: status: current; version 1; content {content}");
            text.parse().unwrap()
        };
        let due_for = |content| dues.due_for(&web, &report(content));
        assert_eq!(due_for("48a63946"), Duration::ZERO);
        tokio::time::advance(INTERVAL).await;
        assert_eq!(due_for("48a63946"), INTERVAL);
        assert_eq!(due_for("00000000"), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_leader_says_of_a_wait_is_told_even_if_its_reason_is_new() {
        let held = Waiting {
            objects: vec![NamedObject {
                kind: "ConfigMap".to_owned(),
                namespace: None,
                name: "app".to_owned(),
            }],
            ..waiting("RestartPending", "not restarting pods")
        };
        for (waiting, told) in [
            (held, "ConfigMap app is on hold"),
            (waiting("WaitingForSpring", "it is cold"), "it is cold"),
            (waiting("WaitingForSpring", ""), "WaitingForSpring"),
        ] {
            let canned = halted(&[], &[HALTED]).reporting_wait(Some(waiting));
            let (text, verdict) = waited_for(canned).await;
            let line = format!("deploy/web: not in time: a restart is due; {told}\n");
            assert_eq!((text, verdict), (line, Verdict::Bad));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_else_a_restart_waits_for_is_told_and_waited_for() {
        let stage = "waiting for Deployment first, which gets the changed config first, before restarting pods";
        let pending = [(
            "RestartPending",
            "not restarting pods: ConfigMap app has the annotation",
        )];
        let mut app = config_map("app", "a");
        app["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/hold": "true"});
        let app =
            |canned: Canned| canned.with("/api/v1/namespaces/shop/configmaps/app", app.clone());
        for (canned, told) in [
            (halted(&[("hold", "true")], &[HALTED]), "; it is on hold"),
            (
                halted(&[("restart-window", "at noon")], &[]),
                "; its restart window cannot be read",
            ),
            (
                halted(&[("approval", "required")], &[]),
                "; content 48a63946 waits for approval",
            ),
            (
                halted(&[], &[("WaitingForStage", stage), HALTED]),
                &*format!("; {stage}"),
            ),
            (app(halted(&[], &pending)), "; ConfigMap app is on hold"),
            // It was released, or approved, a moment ago.
            (halted(&[], &pending), ""),
        ] {
            let start = Instant::now();
            let (text, verdict) = waited_for(canned.reporting(DUE)).await;
            let line = format!("deploy/web: not in time: a restart is due{told}\n");
            assert_eq!((text, verdict), (line, Verdict::Bad));
            assert!(start.elapsed() > 3 * INTERVAL);
        }
    }
}
