//! Records when the apiserver last answered each watch, as seen by the client of the watches.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use http::{Request, Response, Uri};
use kube::client::Body;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use tower::{Layer, Service};

/// The running watches, by their IDs. This is a layer of their client.
///
/// A watch call ends after a minute and is then repeated. So a watch hears something at least once a
/// minute, even if nothing happens.
#[derive(Clone, Debug, Default)]
pub struct Watches(Arc<Mutex<HashMap<String, Watched>>>);

#[derive(Debug)]
struct Watched {
    kind: &'static str,
    at: SystemTime,
    /// The number of watches with this ID. There can be two while everything is listed again.
    watching: usize,
}

/// A running watch, until it is dropped.
#[derive(Debug)]
pub struct Watching {
    watches: Watches,
    id: String,
}

impl Watches {
    /// Notes that the objects of a kind are watched under an ID. Until the first answer, a new ID has the
    /// time of this call.
    pub fn begin(&self, id: &str, kind: &'static str) -> Watching {
        let mut watches = self.0.lock();
        let watched = watches.entry(id.to_owned()).or_insert_with(|| Watched {
            kind,
            at: SystemTime::now(),
            watching: 0,
        });
        watched.watching += 1;
        Watching {
            watches: self.clone(),
            id: id.to_owned(),
        }
    }

    /// Notes that the apiserver has answered a call of this watch.
    fn answered(&self, id: &str, at: SystemTime) {
        if let Some(watched) = self.0.lock().get_mut(id) {
            watched.at = at;
        }
    }

    /// Returns, for each kind, the time of the last answer to the watch that has been silent longest.
    pub(crate) fn oldest(&self) -> BTreeMap<&'static str, SystemTime> {
        let mut oldest = BTreeMap::new();
        for Watched { kind, at, .. } in self.0.lock().values() {
            let known = oldest.entry(*kind).or_insert(*at);
            *known = (*known).min(*at);
        }
        oldest
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut watches = self.watches.0.lock();
        if let Some(watched) = watches.get_mut(&self.id) {
            watched.watching -= 1;
            if watched.watching == 0 {
                watches.remove(&self.id);
            }
        }
    }
}

impl Collector for Watches {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let oldest = self.oldest();
        if oldest.is_empty() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(
            "watch_last_answer_timestamp",
            "Time of the last answer to a watch of a kind, in seconds since 1970. If there are several watches, that of the one that has been silent longest",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        for (kind, at) in oldest {
            ConstGauge::new(since_1970(at)).encode(family.encode_family(&[("kind", kind)])?)?;
        }
        Ok(())
    }
}

impl<S> Layer<S> for Watches {
    type Service = Listening<S>;

    fn layer(&self, inner: S) -> Listening<S> {
        Listening {
            inner,
            watches: self.clone(),
        }
    }
}

/// A client that notes which calls are answered.
#[derive(Debug)]
pub struct Listening<S> {
    inner: S,
    watches: Watches,
}

impl<S, B> Service<Request<Body>> for Listening<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (watches, id) = (self.watches.clone(), id(request.uri()));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            if answer.status().is_success() {
                watches.answered(&id, SystemTime::now());
            }
            Ok(answer)
        })
    }
}

/// Returns the ID of the watch that a call belongs to: its path, and its selectors if it has any. One kind can be
/// watched several times, with different selectors.
fn id(uri: &Uri) -> String {
    let query = uri.query().unwrap_or_default();
    let parameter = |wanted: &str| {
        let mut parameters = form_urlencoded::parse(query.as_bytes());
        Some(parameters.find(|(name, _)| name == wanted)?.1)
    };
    let (labels, fields) = (parameter("labelSelector"), parameter("fieldSelector"));
    watch_id(uri.path(), labels.as_deref(), fields.as_deref())
}

/// Returns the ID of the watch at a path, with these selectors of labels and of fields.
pub(crate) fn watch_id(path: &str, labels: Option<&str>, fields: Option<&str>) -> String {
    let mut id = path.to_owned();
    for selector in [labels, fields].into_iter().flatten() {
        id.push('?');
        id.push_str(selector);
    }
    id
}

/// Returns the seconds since 1970, as metrics show times.
pub fn since_1970(at: SystemTime) -> f64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use std::time::Duration;

    const BEGINNING: SystemTime = SystemTime::UNIX_EPOCH;

    fn after(seconds: u64) -> SystemTime {
        BEGINNING + Duration::from_secs(seconds)
    }

    #[test]
    fn the_most_silent_of_several_watches_of_a_kind_is_shown() {
        let watches = Watches::default();
        let _watching = ["/a/configmaps", "/b/configmaps"].map(|it| watches.begin(it, "ConfigMap"));
        watches.answered("/a/configmaps", after(1));
        watches.answered("/b/configmaps", after(2));
        assert_eq!(watches.oldest(), BTreeMap::from([("ConfigMap", after(1))]));
        watches.answered("/a/configmaps", after(3));
        assert_eq!(watches.oldest(), BTreeMap::from([("ConfigMap", after(2))]));
    }

    #[test]
    fn a_watch_that_is_begun_again_has_been_silent_as_long_as_before() {
        let watches = Watches::default();
        let before = watches.begin("/configmaps", "ConfigMap");
        watches.answered("/configmaps", after(1));
        let again = watches.begin("/configmaps", "ConfigMap");
        drop(before);
        assert_eq!(watches.oldest()["ConfigMap"], after(1));
        drop(again);
        assert!(watches.oldest().is_empty(), "nothing is watched any more");
    }

    #[test]
    fn metrics_show_the_time_of_the_last_answer_by_kind() {
        let (watches, mut registry) = (Watches::default(), Registry::default());
        registry.register_collector(Box::new(watches.clone()));
        let _watching = watches.begin("/configmaps", "ConfigMap");
        watches.answered("/configmaps", after(5));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let line = "watch_last_answer_timestamp_seconds{kind=\"ConfigMap\"} 5.0\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_watch_with_a_selector_is_another_than_that_of_all() {
        let id = |uri: &'static str| super::id(&Uri::from_static(uri));
        assert_eq!(
            id("/secrets?watch=true&limit=5"),
            watch_id("/secrets", None, None)
        );
        assert_eq!(
            id("/secrets?labelSelector=owner%3Dhelm%2Cstatus%21%3Dsuperseded&watch=true"),
            watch_id("/secrets", Some("owner=helm,status!=superseded"), None)
        );
        assert_eq!(
            id("/secrets?fieldSelector=metadata.name%3Da&watch=true"),
            watch_id("/secrets", None, Some("metadata.name=a"))
        );
    }

    #[tokio::test]
    async fn only_an_answer_without_an_error_ends_the_silence() {
        let watches = Watches::default();
        let _watching = watches.begin("/configmaps", "ConfigMap");
        watches.answered("/configmaps", BEGINNING);
        for (status, is_heard) in [(500, false), (410, false), (200, true)] {
            let answer = move |_| async move { Response::builder().status(status).body(()) };
            let mut client = watches.layer(tower::service_fn(answer));
            let request = Request::get("/configmaps?watch=true");
            let request = request.body(Body::empty()).unwrap();
            client.call(request).await.unwrap();
            assert_eq!(
                watches.oldest()["ConfigMap"] > BEGINNING,
                is_heard,
                "{status}"
            );
        }
    }
}
