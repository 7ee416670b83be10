//! Tests candidates for one Lease, whatever happens to it and to their calls.

use super::*;
use crate::mock::lease::{Cluster, Trouble};

#[tokio::test(start_paused = true)]
async fn the_first_candidate_creates_the_lease_and_keeps_it() {
    let cluster = Cluster::default();
    let mut first = candidate(&cluster);
    first.elected().await;
    let mut second = candidate(&cluster);
    let held = tokio::time::timeout(Duration::from_secs(120), async {
        tokio::select! {
            end = first.hold() => panic!("{end:?}"),
            () = second.elected() => panic!("two at once"),
        }
    });
    assert!(held.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_taken_once_it_has_not_changed_for_its_duration_whatever_its_times_say() {
    for renewed in ["2001-01-01T00:00:00.000000Z", "2101-01-01T00:00:00.000000Z"] {
        let cluster = Cluster::default();
        cluster.write(
            json!({"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": renewed}),
        );
        let began = Instant::now();
        let mut candidate = candidate(&cluster);
        candidate.elected().await;
        let took = began.elapsed();
        assert!(took > DURATION && took < DURATION + 2 * RETRY, "{took:?}");
        assert_eq!(cluster.holder(), json!(candidate.identity));
        assert_eq!(cluster.lease()["spec"]["leaseTransitions"], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_time_is_out_of_range_is_taken() {
    for renewed in ["9999-12-31T23:59:59.999999Z", "0000-01-01T00:00:00.000000Z"] {
        let times = json!({"renewTime": renewed, "acquireTime": renewed});
        let mut spec = json!({"holderIdentity": "dead", "leaseDurationSeconds": 15});
        json_patch::merge(&mut spec, &times);
        let cluster = Cluster::default();
        cluster.write(spec);
        cluster.now_lease(|stored| {
            let lease = stored.lease.as_mut().unwrap();
            lease["metadata"]["managedFields"] = json!([{"manager": "dead", "time": renewed}]);
        });
        assert_eq!(taken_after(&cluster).await, DURATION);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_claims_to_be_good_for_years_is_taken_after_a_minute() {
    for seconds in [61, i32::MAX] {
        let cluster = Cluster::default();
        cluster.write(json!({"holderIdentity": "stranger", "leaseDurationSeconds": seconds}));
        assert_eq!(taken_after(&cluster).await, LONGEST, "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_says_nothing_of_use_is_taken_after_our_own_period() {
    for seconds in [json!(null), json!(0), json!(-1), json!(1), json!("soon")] {
        let cluster = Cluster::default();
        cluster.write(json!({"holderIdentity": "dead", "leaseDurationSeconds": seconds}));
        assert_eq!(taken_after(&cluster).await, DURATION, "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_holds_is_taken_at_once() {
    let years = i32::MAX;
    for spec in [
        json!(null),
        json!({}),
        json!({"holderIdentity": null, "leaseDurationSeconds": years}),
        json!({"holderIdentity": "", "leaseDurationSeconds": years, "renewTime": "9999-12-31T23:59:59.999999Z"}),
    ] {
        let cluster = Cluster::default();
        cluster.write(json!({}));
        cluster.now_lease(|stored| {
            let lease = stored.lease.as_mut().unwrap();
            lease["spec"] = spec.clone();
        });
        assert_eq!(taken_after(&cluster).await, Duration::ZERO, "{spec}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_has_changed_hands_as_often_as_can_be_counted_is_taken() {
    let cluster = Cluster::default();
    cluster.write(json!({"leaseTransitions": i32::MAX}));
    taken_after(&cluster).await;
    assert_eq!(cluster.lease()["spec"]["leaseTransitions"], i32::MAX);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_is_left_to_its_holder_however_odd_it_is() {
    let cluster = Cluster::default();
    let mut candidate = candidate(&cluster);
    let renewed = async {
        for second in 0..60 {
            let time = format!("9999-12-31T23:59:{second:02}.999999Z");
            cluster.write(json!({"holderIdentity": "a", "renewTime": time}));
            sleep(Duration::from_secs(10)).await;
        }
    };
    tokio::select! {
        () = candidate.elected() => panic!("two at once"),
        () = renewed => {}
    }
}

/// Returns the time for which a Lease had to be unchanged before a new candidate took it.
async fn taken_after(cluster: &Cluster) -> Duration {
    let began = Instant::now();
    let mut candidate = candidate(cluster);
    candidate.elected().await;
    assert_eq!(cluster.holder(), json!(candidate.identity));
    let took = began.elapsed();
    let waits = [Duration::ZERO, DURATION, LONGEST];
    let wait = waits.into_iter().rfind(|wait| took >= *wait);
    let wait = wait.unwrap_or_default();
    assert!(took < wait + 2 * RETRY, "{took:?}");
    wait
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_released_is_taken_at_once() {
    let cluster = Cluster::default();
    let mut first = candidate(&cluster);
    first.elected().await;
    let mut second = candidate(&cluster);
    let follows = tokio::time::timeout(Duration::from_secs(5), second.elected());
    assert!(follows.await.is_err());
    first.release().await;
    assert_eq!(cluster.holder(), Value::Null);
    let began = Instant::now();
    second.elected().await;
    assert!(began.elapsed() <= RETRY, "{:?}", began.elapsed());
    first.release().await;
    assert_eq!(
        cluster.holder(),
        json!(second.identity),
        "not ours to release"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_is_given_up_before_anybody_can_take_it() {
    for trouble in [Trouble::Fails, Trouble::Hangs] {
        let cluster = Cluster::default();
        let mut candidate = candidate(&cluster);
        candidate.elected().await;
        let began = Instant::now();
        cluster.now(Some(trouble));
        assert_eq!(candidate.hold().await, End::Lost);
        let took = began.elapsed();
        assert!(took <= RENEW_DEADLINE, "{took:?}");
        // A candidate that saw the last renewal one call later cannot have taken the Lease yet.
        assert!(took + CALL < DURATION, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_passes_in_time_costs_no_term() {
    let cluster = Cluster::default();
    let mut candidate = candidate(&cluster);
    candidate.elected().await;
    cluster.now(Some(Trouble::Fails));
    let passes = async {
        sleep(Duration::from_secs(8)).await;
        cluster.now(None);
        sleep(Duration::from_secs(60)).await;
    };
    tokio::select! {
        end = candidate.hold() => panic!("{end:?}"),
        () = passes => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_lost_or_slow_costs_no_term() {
    let cluster = Cluster::default();
    let mut candidate = candidate(&cluster);
    candidate.elected().await;
    let passes = async {
        for _ in 0..20 {
            cluster.now(Some(Trouble::Hangs));
            sleep(Duration::from_secs(4)).await;
            cluster.now(None);
            sleep(Duration::from_secs(7)).await;
        }
        cluster.now(Some(Trouble::Slow));
        sleep(Duration::from_secs(120)).await;
    };
    tokio::select! {
        end = candidate.hold() => panic!("{end:?}"),
        () = passes => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_frozen_gives_up_at_once() {
    let cluster = Cluster::default();
    let mut candidate = candidate(&cluster);
    candidate.elected().await;
    tokio::time::advance(Duration::from_secs(40)).await;
    let thawed = Instant::now();
    assert_eq!(candidate.hold().await, End::Lost);
    assert_eq!(thawed.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_else_took_is_given_up_with_the_next_renewal() {
    let cluster = Cluster::default();
    let mut candidate = candidate(&cluster);
    candidate.elected().await;
    cluster.write(json!({"holderIdentity": "thief", "leaseDurationSeconds": 15}));
    assert_eq!(candidate.hold().await, End::Taken);
    assert_eq!(cluster.holder(), "thief");
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_somebody_touched_stays_leader() {
    let cluster = Cluster::default();
    let mut candidate = candidate(&cluster);
    candidate.elected().await;
    let touched = async {
        for _ in 0..20 {
            cluster.write(json!({}));
            sleep(Duration::from_secs(3)).await;
        }
    };
    tokio::select! {
        end = candidate.hold() => panic!("{end:?}"),
        () = touched => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_is_made_again() {
    let cluster = Cluster::default();
    let mut candidate = candidate(&cluster);
    candidate.elected().await;
    let deleted = async {
        cluster.now_lease(|stored| stored.lease = None);
        sleep(Duration::from_secs(20)).await;
    };
    tokio::select! {
        end = candidate.hold() => panic!("{end:?}"),
        () = deleted => {}
    }
    assert_eq!(cluster.holder(), json!(candidate.identity));
}

#[tokio::test(start_paused = true)]
async fn a_restored_cluster_is_noticed_by_the_next_renewal() {
    for restored in [None, Some("somebody"), Some("us")] {
        let cluster = Cluster::default();
        cluster.now_lease(|stored| stored.version = 1000);
        let mut candidate = candidate(&cluster);
        candidate.elected().await;
        let identity = candidate.identity.clone();
        cluster.now_lease(|stored| {
            stored.version = 500;
            stored.lease = None;
        });
        if let Some(holder) = restored {
            let holder = if holder == "us" { &identity } else { holder };
            cluster.write(json!({"holderIdentity": holder, "leaseDurationSeconds": 15}));
        }
        let began = Instant::now();
        assert_eq!(candidate.hold().await, End::Restored, "{restored:?}");
        assert!(began.elapsed() < RENEW_INTERVAL + CALL);
        candidate.elected().await;
        assert_eq!(cluster.holder(), json!(identity));
    }
}

fn candidate(cluster: &Cluster) -> Candidate {
    let name = |text| Name::parse(text).unwrap();
    Candidate::new(cluster.client(), &name("ns"), name("operator"))
}
