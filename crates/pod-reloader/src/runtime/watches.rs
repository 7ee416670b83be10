//! Records when each watch last heard from the apiserver, as seen by the client of the watches.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use tower::{Layer, Service};

/// The running watches, by the path that they call. This is a layer of their client.
///
/// A watch call ends after a minute and is then repeated. So a watch hears something at least once a
/// minute, even if nothing happens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watches(Arc<Mutex<HashMap<String, Heard>>>);

#[derive(Debug)]
struct Heard {
    kind: &'static str,
    at: SystemTime,
    /// The number of watches of this path. There can be two while everything is listed again.
    watching: usize,
}

/// A running watch, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watching {
    watches: Watches,
    path: String,
}

impl Watches {
    /// Notes that the objects of a kind are watched at a path. Until the first answer, a new path has the
    /// time of this call.
    pub(crate) fn begin(&self, path: &str, kind: &'static str) -> Watching {
        let mut watches = self.0.lock();
        let heard = watches.entry(path.to_owned()).or_insert_with(|| Heard {
            kind,
            at: SystemTime::now(),
            watching: 0,
        });
        heard.watching += 1;
        Watching {
            watches: self.clone(),
            path: path.to_owned(),
        }
    }

    /// Notes that the apiserver has answered a call of this path.
    fn heard(&self, path: &str, at: SystemTime) {
        if let Some(heard) = self.0.lock().get_mut(path) {
            heard.at = at;
        }
    }

    /// Returns, for each kind, the time of the last answer to the watch that has been silent longest.
    fn oldest(&self) -> BTreeMap<&'static str, SystemTime> {
        let mut oldest = BTreeMap::new();
        for Heard { kind, at, .. } in self.0.lock().values() {
            let known = oldest.entry(*kind).or_insert(*at);
            *known = (*known).min(*at);
        }
        oldest
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut watches = self.watches.0.lock();
        if let Some(heard) = watches.get_mut(&self.path) {
            heard.watching -= 1;
            if heard.watching == 0 {
                watches.remove(&self.path);
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
            "watch_heard_timestamp",
            "When the apiserver last answered a call of the watch of a kind, of several the one that is longest ago, in seconds since 1970",
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
pub(crate) struct Listening<S> {
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
        let (watches, path) = (self.watches.clone(), request.uri().path().to_owned());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            if answer.status().is_success() {
                watches.heard(&path, SystemTime::now());
            }
            Ok(answer)
        })
    }
}

/// Returns the seconds since 1970, as metrics show times.
pub(crate) fn since_1970(at: SystemTime) -> f64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const BEGINNING: SystemTime = SystemTime::UNIX_EPOCH;

    fn after(seconds: u64) -> SystemTime {
        BEGINNING + Duration::from_secs(seconds)
    }

    #[test]
    fn of_several_watches_of_a_kind_the_most_silent_one_is_shown() {
        let watches = Watches::default();
        let _watching = ["/a/configmaps", "/b/configmaps"].map(|it| watches.begin(it, "ConfigMap"));
        watches.heard("/a/configmaps", after(1));
        watches.heard("/b/configmaps", after(2));
        assert_eq!(watches.oldest(), BTreeMap::from([("ConfigMap", after(1))]));
        watches.heard("/a/configmaps", after(3));
        assert_eq!(watches.oldest(), BTreeMap::from([("ConfigMap", after(2))]));
    }

    #[test]
    fn a_watch_that_is_begun_again_has_been_silent_for_as_long() {
        let watches = Watches::default();
        let before = watches.begin("/configmaps", "ConfigMap");
        watches.heard("/configmaps", after(1));
        let again = watches.begin("/configmaps", "ConfigMap");
        drop(before);
        assert_eq!(watches.oldest()["ConfigMap"], after(1));
        drop(again);
        assert!(watches.oldest().is_empty(), "nothing is watched any more");
    }

    #[tokio::test]
    async fn only_an_answer_without_an_error_is_heard() {
        let watches = Watches::default();
        let _watching = watches.begin("/configmaps", "ConfigMap");
        watches.heard("/configmaps", BEGINNING);
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
