//! Tests every way in which somebody can revert the loop's writes: none of them makes it spin.

use proptest::prelude::*;

use super::*;

const TEN_MINUTES: Duration = WINDOW;
const A_MINUTE: Duration = Duration::from_secs(60);

/// Plays ten minutes of a webhook that does this to each patch, and the minute after the webhook is gone.
async fn webhook(operator: Operator, reaction: Reaction) {
    operator.apiserver.reacts([reaction]);
    operator.changes("app", "2").await;
    watch(&operator, TEN_MINUTES, |_| {}).await;
    let patches = operator.patches();
    println!("{} patches in ten minutes: {reaction:?}", patches.len());
    assert!(patches.len() > 10, "it goes on trying: {}", patches.len());
    assert_bounded(&patches);
    assert_eq!(operator.metrics.held_up.refused.get(), 1);
    let events = operator.events("PatchRefused");
    assert!((1..=2).contains(&events), "{events}");
    operator.apiserver.reacts([]);
    watch(&operator, A_MINUTE, |_| {}).await;
}

/// Does the same to a Deployment, which must end on the hash of the current content.
async fn webhook_that_ends(reaction: Reaction) {
    let operator = Operator::with([deployment("web")]).await;
    let apiserver = operator.apiserver.clone();
    let expected = operator.hash_of_value("app", "2");
    webhook(operator, reaction).await;
    assert_eq!(config_hash(&apiserver.deployment("web")), expected);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_reverts_each_patch_sees_twenty_in_ten_minutes_at_most() {
    webhook_that_ends(Reaction::TakenBack).await;
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_replaces_our_annotations_sees_twenty_patches_at_most() {
    webhook_that_ends(Reaction::Replaced).await;
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_changes_the_template_in_other_ways_sees_twenty_patches_at_most() {
    webhook_that_ends(Reaction::Rebuilt).await;
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_drops_the_baseline_sees_twenty_patches_at_most() {
    let operator = Operator::start(Apiserver::default());
    let web = hashed(deployment("web"), "foreign");
    operator.apiserver.write_config_map("app", "1");
    operator.apiserver.write_deployment(web);
    let apiserver = operator.apiserver.clone();
    let expected = operator.hash_of_value("app", "2");
    webhook(operator, Reaction::WithoutBaseline).await;
    let web = apiserver.deployment("web");
    let baseline = &web["metadata"]["annotations"][BASELINE];
    assert_eq!(*baseline, format!("foreign={expected}"));
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_drops_the_hash_sees_twenty_patches_in_ten_minutes_at_most() {
    let operator = Operator::with([deployment("web")]).await;
    operator.changes("app", "2").await;
    watch(&operator, TEN_MINUTES, drop_hash).await;
    let patches = operator.patches();
    println!("{} patches in ten minutes", patches.len());
    assert!(patches.len() > 10, "it goes on trying: {}", patches.len());
    assert_bounded(&patches);
    assert_eq!(operator.metrics.held_up.reverted.get(), 1);
    assert!((1..=2).contains(&operator.events("ConfigHashReverted")));
    watch(&operator, A_MINUTE, |_| {}).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    watch(&operator, A_MINUTE, |_| {}).await;
    assert_eq!(operator.metrics.held_up.reverted.get(), 0);
}

fn drop_hash(operator: &Operator) {
    let mut web = operator.apiserver.deployment("web");
    if !config_hash(&web).is_empty() {
        web["spec"]["template"]["metadata"]["annotations"] = json!({});
        operator.apiserver.write_deployment(web);
    }
}

fn config_hash(deployment: &Value) -> &str {
    let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
    annotations[CONFIG_HASH].as_str().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_reverted_is_bounded_even_without_a_limit_to_restarts() {
    let operator = Operator::without_limit(RecentWrites::default()).await;
    webhook(operator, Reaction::Replaced).await;
}

#[tokio::test(start_paused = true)]
async fn each_change_restarts_without_a_limit_to_restarts() {
    let operator = Operator::without_limit(RecentWrites::default()).await;
    for value in 2..=60 {
        operator.changes("app", &value.to_string()).await;
        watch(&operator, Duration::from_secs(5), |_| {}).await;
        assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    }
    assert_eq!(operator.patches().len(), 59);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_of_the_same_process_goes_on_counting() {
    let recent_writes = RecentWrites::default();
    let operator = Operator::without_limit(recent_writes.clone()).await;
    operator.apiserver.reacts([Reaction::Replaced]);
    operator.changes("app", "2").await;
    let mut patches = Vec::new();
    let mut leader = operator;
    for _ in 0..20 {
        watch(&leader, Duration::from_secs(30), |_| {}).await;
        patches.extend(leader.patches());
        let apiserver = leader.ends();
        leader = start(apiserver, 0, recent_writes.clone());
        leader.hears("app").await;
    }
    assert!(patches.len() > 10, "{}", patches.len());
    assert_bounded(&patches);
}

/// An action that somebody takes in the cluster on their own.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Nothing,
    DropHash,
    OverwriteHash,
    DropBaseline,
    ListAnother,
    ChangeImage,
    ChangeConfig,
}

impl Deed {
    fn is_done(self, operator: &Operator, round: usize) {
        let mut web = operator.apiserver.deployment("web");
        let annotations = &mut web["metadata"]["annotations"];
        match self {
            Self::Nothing => return,
            Self::DropHash => return drop_hash(operator),
            Self::OverwriteHash => {
                web["spec"]["template"]["metadata"]["annotations"] =
                    json!({CONFIG_HASH: round.to_string()});
            }
            Self::DropBaseline => drop(annotations.as_object_mut().unwrap().remove(BASELINE)),
            Self::ListAnother => {
                let list = if round.is_multiple_of(2) {
                    "app,other"
                } else {
                    "app"
                };
                annotations[CONFIG_MAPS] = json!(list);
            }
            Self::ChangeImage => {
                let image = round.to_string();
                web["spec"]["template"]["spec"]["containers"] =
                    json!([{"name": "main", "image": image}]);
            }
            Self::ChangeConfig => {
                operator
                    .apiserver
                    .write_config_map("app", &round.to_string());
                operator.sees_config("app");
                return;
            }
        }
        web["metadata"]["generation"] = json!(web["metadata"]["generation"].as_i64().unwrap() + 1);
        operator.apiserver.write_deployment(web);
    }
}

fn reactions() -> impl Strategy<Value = Vec<Reaction>> {
    let reaction = prop_oneof![
        Just(Reaction::Stands),
        Just(Reaction::TakenBack),
        Just(Reaction::Replaced),
        Just(Reaction::Rebuilt),
        Just(Reaction::WithoutBaseline),
        Just(Reaction::Moved),
        Just(Reaction::Unanswered),
        prop::sample::select(vec![403, 409, 422, 500]).prop_map(Reaction::Refused),
    ];
    prop::collection::vec(reaction, 1..5)
}

fn deeds() -> impl Strategy<Value = Vec<(Deed, usize)>> {
    let deed = prop::sample::select(vec![
        Deed::Nothing,
        Deed::DropHash,
        Deed::OverwriteHash,
        Deed::DropBaseline,
        Deed::ListAnother,
        Deed::ChangeImage,
        Deed::ChangeConfig,
    ]);
    // The numbers are the waits before each deed, in tenths of a second.
    prop::collection::vec((deed, prop_oneof![0..5_usize, 0..600_usize]), 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whoever_reverts_whatever_sees_twenty_patches_in_ten_minutes_at_most(
        reactions in reactions(),
        deeds in deeds(),
        has_limit: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(play(reactions, deeds, has_limit));
    }
}

/// Plays a quarter of an hour in which these reactions and deeds repeat, and the minute after it.
async fn play(reactions: Vec<Reaction>, deeds: Vec<(Deed, usize)>, has_limit: bool) {
    let is_change = |deed: &Deed| matches!(deed, Deed::ChangeConfig);
    let changes = deeds.iter().any(|(deed, _)| is_change(deed));
    let limit = if has_limit || changes { 5 } else { 0 };
    let apiserver = Apiserver::default();
    apiserver.write_config_map("app", "1");
    apiserver.write_config_map("other", "1");
    apiserver.write_deployment(deployment("web"));
    apiserver.reacts(reactions.iter().copied());
    let operator = start(apiserver, limit, RecentWrites::default());
    let mut due = deeds.iter().cycle().enumerate().peekable();
    let mut wait = due.peek().map_or(0, |(_, (_, wait))| *wait);
    watch(&operator, TEN_MINUTES * 3 / 2, |operator| {
        if wait > 0 {
            wait -= 1;
        } else if let Some((round, (deed, _))) = due.next() {
            deed.is_done(operator, round);
            wait = due.peek().map_or(0, |(_, (_, wait))| *wait);
        }
    })
    .await;
    let patches = operator.patches();
    assert_bounded(&patches);

    operator.apiserver.reacts([]);
    // The brake delays restarts after changes of content or of what is tracked, and refused patches are
    // retried after longer pauses.
    let lists = deeds
        .iter()
        .any(|(deed, _)| matches!(deed, Deed::ListAnother));
    let is_braked = changes || (lists && limit > 0);
    let refuses = reactions.contains(&Reaction::Refused(403));
    if !is_braked && !refuses {
        watch(&operator, A_MINUTE + Duration::from_secs(2), |_| {}).await;
        let settled = operator.patches().len();
        watch(&operator, TEN_MINUTES, |_| {}).await;
        assert_eq!(
            operator.patches().len(),
            settled,
            "all was right within a minute"
        );
    }
}

fn start(apiserver: Apiserver, max_restarts: usize, recent_writes: RecentWrites) -> Operator {
    let settings = Settings {
        max_restarts,
        ..settings()
    };
    Operator::start_with(
        apiserver,
        settings,
        Labels::default(),
        Dialects::default(),
        recent_writes,
    )
}

impl Operator {
    /// Starts a loop with a Deployment `web`, and no limit to its restarts.
    async fn without_limit(recent_writes: RecentWrites) -> Self {
        let operator = start(Apiserver::default(), 0, recent_writes);
        operator.apiserver.write_config_map("app", "1");
        operator.apiserver.write_deployment(deployment("web"));
        watch(&operator, Duration::from_secs(120), |_| {}).await;
        assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
        operator.apiserver.forget_calls();
        operator
    }
}
