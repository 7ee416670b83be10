//! Tests replicas against an apiserver that is a function. The clock advances only when nothing else
//! happens.

mod apiserver;

use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinHandle;

use self::apiserver::Apiserver;
use super::*;

#[tokio::test(start_paused = true)]
async fn the_first_replica_creates_everything_and_is_ready_at_once() {
    let apiserver = installed();
    let replica = Replica::start(&apiserver);
    pass(Duration::from_millis(100)).await;
    let secret = apiserver.state().secret.clone().unwrap();
    assert_eq!(secret["type"], "kubernetes.io/tls");
    assert_eq!(
        secret["metadata"]["labels"]["app.kubernetes.io/managed-by"],
        "pod-reloader"
    );
    assert_published(&apiserver);
    assert_eq!(replica.serial(), in_secret(&apiserver));
    assert!(replica.is_ready());
    let current = replica.certificate.current().unwrap();
    assert!(current.covers("webhook.operator.svc"));
}

#[tokio::test(start_paused = true)]
async fn replicas_that_race_agree_and_write_once() {
    let apiserver = installed();
    let replicas = [(); 3].map(|()| Replica::start(&apiserver));
    pass(Duration::from_secs(120)).await;
    for replica in &replicas {
        assert_eq!(replica.serial(), in_secret(&apiserver));
        assert!(replica.is_ready());
    }
    assert_published(&apiserver);
    let state = apiserver.state();
    assert!(state.conflicts > 0, "nobody raced");
    assert_eq!((state.secret_writes, state.configuration_writes), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_comes_late_makes_the_replica_ready() {
    let apiserver = Apiserver::default();
    let replica = Replica::start(&apiserver);
    pass(Duration::from_secs(30)).await;
    assert_eq!(replica.serial(), in_secret(&apiserver));
    assert!(!replica.is_ready());
    apiserver.state().put_configuration(configuration());
    pass(Duration::from_secs(2)).await;
    assert_published(&apiserver);
    assert!(replica.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_bundle_that_somebody_wipes_comes_back() {
    let apiserver = installed();
    let replica = Replica::start(&apiserver);
    pass(Duration::from_secs(30)).await;
    let serial = replica.serial();
    apiserver.state().put_configuration(configuration());
    pass(Duration::from_secs(11)).await;
    assert_published(&apiserver);
    assert_eq!(replica.serial(), serial);
    assert_eq!(apiserver.state().secret_writes, 1);
}

/// kube-apiserver can go on with an old bundle until the configuration changes once more.
#[tokio::test(start_paused = true)]
async fn while_clients_refuse_the_certificate_the_same_cas_are_written_again_ever_more_rarely() {
    let apiserver = installed();
    let replicas = [(); 2].map(|()| Replica::start(&apiserver));
    pass(Duration::from_secs(15)).await;
    let first = configured(&apiserver);
    let refused = async |time| {
        replicas.iter().for_each(|it| it.certificate.refused());
        pass(Duration::from_secs(time)).await;
        apiserver.state().configuration_writes
    };
    // They get half a minute to follow.
    assert_eq!(refused(10).await, 1);
    assert_eq!(refused(25).await, 2);
    let second = configured(&apiserver);
    assert_ne!(second, first);
    assert_published(&apiserver);
    assert!(trusts(&second, &present(&apiserver)));
    // Nobody refuses it now.
    pass(Duration::from_secs(600)).await;
    assert_eq!(apiserver.state().configuration_writes, 2);
    assert_eq!(refused(15).await, 3);
    assert_eq!(configured(&apiserver), first);
    // A client that never trusts it. The bundle is written again after 2, 4, 8, 16 and 32 minutes, and then after an hour
    // each time: the seventh time after a bit more than three hours, and the eighth after four.
    for _ in 0..200 {
        refused(60).await;
    }
    assert_eq!(apiserver.state().configuration_writes, 3 + 7);
    assert_eq!(apiserver.state().secret_writes, 1);
}

#[tokio::test(start_paused = true)]
async fn somebody_who_writes_the_configuration_meanwhile_is_waited_for() {
    let apiserver = installed();
    apiserver.state().moves = 2;
    let _replica = Replica::start(&apiserver);
    pass(Duration::from_millis(100)).await;
    assert_published(&apiserver);
    assert_eq!(apiserver.state().conflicts, 2);
}

#[tokio::test(start_paused = true)]
async fn after_the_secret_is_deleted_the_old_certificate_serves_until_the_new_ca_is_known() {
    let apiserver = installed();
    let replicas = [(); 2].map(|()| Replica::start(&apiserver));
    pass(Duration::from_secs(30)).await;
    let (old, old_bundle) = (in_secret(&apiserver), bundle(&apiserver));
    apiserver.state().secret = None;
    pass(Duration::from_secs(5)).await;
    assert!(bundle(&apiserver).ends_with(&old_bundle));
    assert_published(&apiserver);
    for replica in &replicas {
        assert_eq!(replica.serial(), old);
    }
    pass(Duration::from_secs(80)).await;
    assert_ne!(in_secret(&apiserver), old);
    for replica in &replicas {
        assert_eq!(replica.serial(), in_secret(&apiserver));
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_and_a_configuration_that_are_both_lost_leave_the_old_ca_trusted() {
    let apiserver = installed();
    let _replica = Replica::start(&apiserver);
    pass(Duration::from_secs(30)).await;
    let old_bundle = bundle(&apiserver);
    apiserver.state().secret = None;
    apiserver.state().put_configuration(configuration());
    pass(Duration::from_secs(11)).await;
    assert!(bundle(&apiserver).ends_with(&old_bundle));
    assert_published(&apiserver);
}

#[tokio::test(start_paused = true)]
async fn rubbish_in_the_secret_is_replaced_and_foreign_entries_and_fields_stay() {
    let apiserver = installed();
    let mut secret = secret(&Stored::default());
    let rubbish = json!(ByteString(b"rubbish".to_vec()));
    secret["data"] = json!({"tls.crt": rubbish, "ca.crt": rubbish, "note": rubbish});
    secret["fieldOfTheFuture"] = json!(1);
    secret["metadata"]["fieldOfTheFuture"] = json!(2);
    apiserver.state().put_secret(secret);
    let replica = Replica::start(&apiserver);
    pass(Duration::from_millis(100)).await;
    assert_published(&apiserver);
    assert_eq!(replica.serial(), in_secret(&apiserver));
    let secret = apiserver.state().secret.clone().unwrap();
    assert_eq!(secret["data"]["note"], rubbish);
    assert_eq!(secret["fieldOfTheFuture"], 1);
    assert_eq!(secret["metadata"]["fieldOfTheFuture"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_leaf_that_is_due_is_renewed_under_the_same_ca() {
    let due = issued(61);
    let apiserver = installed_with(&due);
    let replica = Replica::start(&apiserver);
    pass(Duration::from_secs(30)).await;
    assert_eq!(bundle(&apiserver), due.ca_bundle);
    assert_ne!(in_secret(&apiserver), serial(&due));
    assert_eq!(replica.serial(), in_secret(&apiserver));
    assert_eq!(apiserver.state().secret_writes, 1);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_may_not_be_renewed_is_still_served() {
    let due = issued(61);
    let apiserver = installed_with(&due);
    apiserver.state().is_secret_read_only = true;
    let replica = Replica::start(&apiserver);
    pass(Duration::from_secs(30)).await;
    assert_eq!(replica.serial(), serial(&due));
}

#[tokio::test(start_paused = true)]
async fn a_ca_that_is_due_is_renewed_before_the_certificate_is() {
    let four_years_ago = issued(4 * 365);
    let Next::Write { stored: due, .. } = authority()
        .next(&four_years_ago, b"", days_ago(1), true)
        .unwrap()
    else {
        panic!("the leaf has expired")
    };
    let apiserver = installed_with(&due);
    let replicas = [(); 2].map(|()| Replica::start(&apiserver));

    pass(Duration::from_secs(5)).await;
    assert_published(&apiserver);
    assert!(bundle(&apiserver).len() > due.ca_bundle.len());
    assert!(bundle(&apiserver).ends_with(&due.ca_bundle));
    assert_eq!(in_secret(&apiserver), serial(&due));
    for replica in &replicas {
        assert_eq!(replica.serial(), serial(&due));
    }

    pass(Duration::from_secs(90)).await;
    assert_ne!(in_secret(&apiserver), serial(&due));
    for replica in &replicas {
        assert_eq!(replica.serial(), in_secret(&apiserver));
    }
    let state = apiserver.state();
    assert_eq!((state.secret_writes, state.configuration_writes), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn another_sound_secret_in_its_place_leaves_no_replica_untrusted() {
    let apiserver = installed();
    let replicas = [(); 2].map(|()| Replica::start(&apiserver));
    pass(Duration::from_secs(33)).await;
    let before = present(&apiserver);
    apiserver.state().put_secret(secret(&issued(3)));
    always_trusted(&apiserver, &[&replicas[0], &replicas[1]], &before).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_secret_and_a_failed_read_of_the_configuration_leave_no_replica_untrusted() {
    let apiserver = installed();
    let running = Replica::start(&apiserver);
    pass(Duration::from_secs(33)).await;
    let before = present(&apiserver);
    apiserver.state().secret = None;
    apiserver.state().failing_configuration_reads = 1;
    let starting = Replica::start(&apiserver);
    always_trusted(&apiserver, &[&running, &starting], &before).await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_may_not_publish_a_new_ca_does_not_become_ready_with_it() {
    let good = issued(1);
    let apiserver = installed_with(&good);
    let broken = Stored {
        ca_key: b"rubbish".to_vec(),
        key: b"rubbish".to_vec(),
        ..good
    };
    apiserver.state().put_secret(secret(&broken));
    apiserver.state().is_configuration_read_only = true;
    let replica = Replica::start(&apiserver);
    pass(Duration::from_secs(60)).await;
    assert!(!replica.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_switch_back_from_cert_manager_goes_on_trusting_its_ca() {
    let (own, cert_managers) = (issued(1), issued(2));
    let apiserver = installed_with(&cert_managers);
    apiserver.state().put_secret(secret(&own));
    let _replica = Replica::start(&apiserver);
    pass(Duration::from_millis(500)).await;
    assert!(trusts(&configured(&apiserver), &cert_managers));
    assert!(trusts(&configured(&apiserver), &own));
}

#[test]
fn any_namespace_makes_dns_names() {
    let name = |text| Name::parse(text).unwrap();
    for namespace in ["operator", "123"] {
        let names = dns_names(&name("webhook"), &name(namespace));
        assert!(names.contains(&format!("webhook.{namespace}.svc")));
        Authority::new(COMMON_NAME, names).unwrap();
    }
}

/// A replica that runs until it is dropped.
struct Replica {
    certificate: CurrentCertificate,
    is_trusted: Arc<AtomicBool>,
    running: JoinHandle<()>,
}

impl Replica {
    fn start(apiserver: &Apiserver) -> Self {
        let certificate = CurrentCertificate::new();
        let is_trusted = Arc::new(AtomicBool::new(false));
        let name = |text| Name::parse(text).unwrap();
        let places = Places {
            namespace: name("operator"),
            secret: name("tls"),
            service: name("webhook"),
            configuration: name("webhooks"),
        };
        let authority = OwnAuthority::new(
            &apiserver.client(),
            &places,
            certificate.clone(),
            is_trusted.clone(),
            Metrics::new(),
        );
        Self {
            certificate,
            is_trusted,
            running: tokio::spawn(authority.unwrap().keep()),
        }
    }

    fn serial(&self) -> String {
        self.certificate.current().unwrap().serial().to_owned()
    }

    fn is_ready(&self) -> bool {
        self.is_trusted.load(Ordering::Relaxed)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Returns the state after an installation: a configuration without a bundle, and no Secret.
fn installed() -> Apiserver {
    let apiserver = Apiserver::default();
    apiserver.state().put_configuration(configuration());
    apiserver
}

/// Returns the state after a restart of all replicas.
fn installed_with(stored: &Stored) -> Apiserver {
    let apiserver = Apiserver::default();
    let mut configuration = configuration();
    for webhook in configuration["webhooks"].as_array_mut().unwrap() {
        webhook["clientConfig"]["caBundle"] = json!(ByteString(stored.ca_bundle.clone()));
    }
    apiserver.state().put_configuration(configuration);
    apiserver.state().put_secret(secret(stored));
    apiserver
}

fn configuration() -> Value {
    let webhook = |name| json!({"name": name, "clientConfig": {"service": {"name": "webhook", "namespace": "operator"}}, "sideEffects": "None", "admissionReviewVersions": ["v1"]});
    json!({"metadata": {"name": "webhooks"}, "webhooks": [webhook("a.example.com"), webhook("b.example.com")]})
}

fn secret(stored: &Stored) -> Value {
    let entries = stored.clone().into_entries();
    let entries = entries.map(|(name, bytes)| (name.to_owned(), json!(ByteString(bytes))));
    let data: serde_json::Map<_, _> = entries.into_iter().collect();
    json!({"metadata": {"name": "tls", "namespace": "operator"}, "type": "kubernetes.io/tls", "data": data})
}

fn authority() -> Authority {
    let name = |text| Name::parse(text).unwrap();
    Authority::new(COMMON_NAME, dns_names(&name("webhook"), &name("operator"))).unwrap()
}

/// Returns a CA and a leaf that were made so many days ago.
fn issued(days: u64) -> Stored {
    match authority().next(&Stored::default(), b"", days_ago(days), false) {
        Ok(Next::Write { stored, .. }) => stored,
        other => panic!("{other:?}"),
    }
}

fn days_ago(days: u64) -> SystemTime {
    SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60)
}

fn present(apiserver: &Apiserver) -> Stored {
    let secret = apiserver.state().secret.clone().unwrap();
    stored(&serde_json::from_value(secret).unwrap())
}

fn bundle(apiserver: &Apiserver) -> Vec<u8> {
    present(apiserver).ca_bundle
}

/// Returns the serial number of the certificate in the Secret.
fn in_secret(apiserver: &Apiserver) -> String {
    serial(&present(apiserver))
}

fn serial(stored: &Stored) -> String {
    stored.serving_certificate().unwrap().serial().to_owned()
}

/// Asserts that every webhook has the bundle of the Secret.
fn assert_published(apiserver: &Apiserver) {
    let configuration = apiserver.state().configuration.clone().unwrap();
    let configuration = serde_json::from_value(configuration).unwrap();
    assert_eq!(webhooks(&configuration).count(), 2);
    assert!(outdated(&configuration, &bundle(apiserver)).is_empty());
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Asserts that clients trust whatever a ready replica serves, for three minutes: longer than a change of
/// CA takes.
async fn always_trusted(apiserver: &Apiserver, replicas: &[&Replica], before: &Stored) {
    let mut seen = None;
    for _ in 0..1_800 {
        pass(Duration::from_millis(100)).await;
        let ready = replicas.iter().filter(|replica| replica.is_ready());
        let serials: Vec<_> = ready.map(|replica| replica.serial()).collect();
        let objects = {
            let state = apiserver.state();
            (state.secret.clone(), state.configuration.clone())
        };
        // To check certificates takes far longer than to compare what they are in.
        let now = Some((objects, serials.clone()));
        if now == seen {
            continue;
        }
        seen = now;
        let mut known = vec![before.clone()];
        if apiserver.state().secret.is_some() {
            known.push(present(apiserver));
        }
        let bundle = configured(apiserver);
        for served in serials {
            let stored = known.iter().find(|stored| serial(stored) == served);
            assert!(stored.is_some_and(|stored| trusts(&bundle, stored)));
        }
    }
}

/// Returns true if clients with this bundle trust the leaf of `served`, so that it need not be replaced.
fn trusts(bundle: &[u8], served: &Stored) -> bool {
    let stored = Stored {
        ca_bundle: bundle.to_vec(),
        ca_key: vec![],
        ..served.clone()
    };
    let next = authority().next(&stored, b"", SystemTime::now(), false);
    matches!(
        next,
        Ok(Next::Write {
            change: Change::Ca,
            ..
        })
    )
}

/// Returns the caBundle of the webhook configuration.
fn configured(apiserver: &Apiserver) -> Vec<u8> {
    let configuration = apiserver.state().configuration.clone().unwrap();
    let configuration: MutatingWebhookConfiguration =
        serde_json::from_value(configuration).unwrap();
    ca_bundle(webhooks(&configuration).next().unwrap()).to_vec()
}
