//! Reads the objects of one kind, each within the memory that is there for it; lists and watches them
//! whatever fails.

use std::marker::PhantomData;
use std::time::Duration;

use kube::api::{GetParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::core::{DynamicResourceScope, ListMeta, Request, Status, request};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{DefaultBackoff, Event};
use kube::{Api, Client, Resource};
use pod_reloader_core::name::Name;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::runtime::budget::Budget;
use crate::runtime::client::{WATCH_CALL, within};
use crate::runtime::error::CallError;
use crate::runtime::objects::cut::Lines;
use crate::runtime::objects::{Next, Objects, one, page, parse};
use pod_reloader_core::error::chain;

#[cfg(test)]
mod tests;

/// How many objects one call lists, as with client-go. They are read one by one, so it is the apiserver that
/// this protects.
pub(crate) const PAGE: u32 = 500;
/// How few objects one call lists where longer answers have broken off.
const SMALLEST_PAGE: u32 = 10;
/// How long a page may take: the apiserver gives up then.
const PAGE_DEADLINE: Duration = Duration::from_secs(60);
/// How often a watch may be listed again without a pause before.
const RELIST_INTERVAL: Duration = Duration::from_secs(30);
/// A watch call that has not even lasted that long is not made again without a pause.
const SHORT_CALL: Duration = Duration::from_secs(1);

/// The calls about a kind of object, in a namespace or in all of them.
pub(crate) fn api<K>(client: &Client, namespace: Option<&Name>, kind: K::DynamicType) -> Api<K>
where
    K: Resource<Scope = DynamicResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace.as_str(), &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}

/// The objects of a kind, in a namespace or in all of them.
pub(crate) struct Resources<K> {
    client: Client,
    budget: Budget,
    request: Request,
    kind: &'static str,
    fields: Option<String>,
    labels: Option<String>,
    objects: PhantomData<fn() -> K>,
}

impl<K: Resource + DeserializeOwned> Resources<K> {
    /// All objects of `api`, which is called `kind` in the log.
    pub(crate) fn new(api: Api<K>, kind: &'static str, budget: &Budget) -> Self {
        Self {
            request: Request::new(api.resource_url()),
            client: api.into_client(),
            budget: budget.clone(),
            kind,
            fields: None,
            labels: None,
            objects: PhantomData,
        }
    }

    /// The same, of which only those with these fields.
    #[must_use]
    pub(crate) fn with_fields(self, fields: Option<&str>) -> Self {
        let fields = fields.map(ToOwned::to_owned);
        Self { fields, ..self }
    }

    /// The same, of which only those with these labels.
    #[must_use]
    pub(crate) fn with_labels(self, labels: String) -> Self {
        let labels = Some(labels);
        Self { labels, ..self }
    }

    /// The path that is called.
    pub(crate) fn path(&self) -> &str {
        &self.request.url_path
    }

    /// Lists them, and watches them from there on, for ever.
    ///
    /// A list begins with [`Event::Init`] and is whole with [`Event::InitDone`]; one that fails begins anew. An
    /// object that cannot be read is left out.
    pub(crate) async fn follow(&self, mut tell: impl FnMut(Event<K>)) {
        // Apart: a list that is whole says nothing of the watch that follows it.
        let (mut list_pauses, mut pauses) = (DefaultBackoff::default(), DefaultBackoff::default());
        let mut limit = PAGE;
        let mut listed_at_once: Option<Instant> = None;
        loop {
            tell(Event::Init);
            let listed = self.list(&mut limit, |object| tell(Event::InitApply(object)));
            let mut version = match listed.await {
                Ok(version) => version,
                Err(error) => {
                    self.report("listing", &error);
                    pause(&mut list_pauses).await;
                    continue;
                }
            };
            list_pauses.reset();
            tell(Event::InitDone);
            let error = self.watch_on(&mut version, &mut pauses, &mut tell).await;
            debug!(
                kind = self.kind,
                error = chain(&error),
                "watch is too old, listing again"
            );
            // What an outage has hidden is not to wait for the pauses that the outage has made long.
            if listed_at_once.is_none_or(|at| at.elapsed() >= RELIST_INTERVAL) {
                listed_at_once = Some(Instant::now());
            } else {
                pause(&mut pauses).await;
            }
        }
    }

    /// Lists them: a consistent read, in pages. Says at which resourceVersion the list was true.
    ///
    /// A page has up to `limit` objects. That is less after an answer that broke off in the middle, as where an
    /// apiserver cannot write a page of large objects in time, until a list is whole.
    pub(crate) async fn list(
        &self,
        limit: &mut u32,
        mut tell: impl FnMut(K),
    ) -> Result<String, CallError> {
        let mut page = ListParams::default();
        let mut unreadable = None;
        loop {
            page.limit = Some(*limit);
            let mut items = 0;
            let listed = self.page(&page, |item| {
                items += 1;
                match item {
                    Ok(object) => tell(object),
                    Err(error) => unreadable = Some(error),
                }
            });
            let metadata = match within(PAGE_DEADLINE, listed).await {
                Ok(metadata) => metadata,
                Err(error) => {
                    if items > 0 {
                        *limit = (*limit / 2).max(SMALLEST_PAGE);
                    }
                    return Err(error);
                }
            };
            if let Some(token) = next_page(&metadata) {
                page = page.continue_token(token);
                continue;
            }
            if let Some(error) = unreadable {
                let (kind, error) = (self.kind, chain(&error));
                warn!(
                    kind,
                    error, "an object of a list cannot be read, leaving it out"
                );
            }
            *limit = PAGE;
            let version = metadata.resource_version.filter(|it| !it.is_empty());
            return version.ok_or(CallError::Unreadable);
        }
    }

    /// Lists a page of them, and hands each to `each`: also those that cannot be read, with the reason.
    pub(crate) async fn page(
        &self,
        which: &ListParams,
        each: impl FnMut(Result<K, CallError>),
    ) -> Result<ListMeta, CallError> {
        let parameters = ListParams {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            limit: which.limit.or(Some(PAGE)),
            ..which.clone()
        };
        let request = match K::metadata_api() {
            true => self.request.list_metadata(&parameters),
            false => self.request.list(&parameters),
        };
        let request = request.expect("the path and the parameters are valid");
        page(&self.client, request, &self.budget, each).await
    }

    /// Reads one of them.
    pub(crate) async fn get(&self, name: &str) -> Result<K, CallError> {
        let request = self.request.get(name, &GetParams::default());
        self.call(request).await
    }

    /// Patches one of them, and reads the answer.
    pub(crate) async fn patch(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<()>,
    ) -> Result<K, CallError> {
        let request = self.request.patch(name, params, patch);
        self.call(request).await
    }

    async fn call(
        &self,
        request: Result<http::Request<Vec<u8>>, request::Error>,
    ) -> Result<K, CallError> {
        let request = request.expect("objects have names");
        one(&self.client, request, &self.budget).await
    }

    /// Watches them from `version` on, call after call, until that is too old.
    async fn watch_on(
        &self,
        version: &mut String,
        pauses: &mut DefaultBackoff,
        tell: &mut impl FnMut(Event<K>),
    ) -> CallError {
        loop {
            let began = Instant::now();
            match self.watch(version, pauses, tell).await {
                Err(error) if error.is_expired() => return error,
                Err(error) => {
                    self.report("watching", &error);
                    pause(pauses).await;
                }
                Ok(()) if began.elapsed() < SHORT_CALL => pause(pauses).await,
                Ok(()) => {}
            }
        }
    }

    /// Watches them from `version` on, which goes on with what is seen, until the call ends.
    ///
    /// # Errors
    /// There is no watch, or it is too old. A watch that breaks off is none: the next call says more.
    async fn watch(
        &self,
        version: &mut String,
        pauses: &mut DefaultBackoff,
        tell: &mut impl FnMut(Event<K>),
    ) -> Result<(), CallError> {
        let parameters = WatchParams {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            timeout: Some(WATCH_CALL.as_secs() as u32),
            ..WatchParams::default()
        };
        let request = match K::metadata_api() {
            true => self.request.watch_metadata(&parameters, version),
            false => self.request.watch(&parameters, version),
        };
        let request = request.expect("the path and the parameters are valid");
        let mut events = Objects::ask(&self.client, request, &self.budget, Lines).await?;
        loop {
            let event = match events.next().await {
                Ok(Next::Object([])) => continue,
                Ok(Next::Object(line)) => read_event(line),
                Ok(Next::TooLong) => Err(CallError::TooLong),
                Ok(Next::End) => return Ok(()),
                Err(error) => {
                    debug!(kind = self.kind, error = chain(&error), "watch broke off");
                    return Ok(());
                }
            };
            let (seen, event) = match event {
                Ok(Seen::Object(version, event)) => (version, Some(event)),
                Ok(Seen::Bookmark(version)) => (version, None),
                Err(error) if error.is_expired() => return Err(error),
                // Calling again would bring the same: all that comes after it would wait for the next list.
                Err(error) => {
                    let (kind, error) = (self.kind, chain(&error));
                    warn!(
                        kind,
                        error, "an event of a watch cannot be used, leaving it out"
                    );
                    pause(pauses).await;
                    continue;
                }
            };
            *version = seen;
            event.into_iter().for_each(&mut *tell);
            pauses.reset();
        }
    }

    fn report(&self, cause: &'static str, error: &CallError) {
        let (kind, error) = (self.kind, chain(error));
        warn!(kind, error, "{cause} failed, trying again");
    }
}

/// What an event of a watch says, and at which resourceVersion.
enum Seen<K> {
    Object(String, Event<K>),
    Bookmark(String),
}

/// # Errors
/// It tells of one, or cannot be read.
fn read_event<K: Resource + DeserializeOwned>(line: &[u8]) -> Result<Seen<K>, CallError> {
    let event = match parse(line) {
        Ok(event) => event,
        // A Status may stand there without being an event.
        Err(error) => WatchEvent::Error(parse::<Box<Status>>(line).map_err(|_| error)?),
    };
    let versioned = |object: K, event: fn(K) -> Event<K>| {
        let version = object.meta().resource_version.clone();
        let version = version.filter(|it| !it.is_empty());
        let version = version.ok_or(CallError::Unreadable)?;
        Ok(Seen::Object(version, event(object)))
    };
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => versioned(object, Event::Apply),
        WatchEvent::Deleted(object) => versioned(object, Event::Delete),
        WatchEvent::Bookmark(bookmark) => Ok(Seen::Bookmark(bookmark.metadata.resource_version)),
        WatchEvent::Error(status) => Err(kube::Error::Api(status).into()),
    }
}

/// Where a list goes on, if it does.
pub(crate) fn next_page(metadata: &ListMeta) -> Option<&str> {
    metadata
        .continue_
        .as_deref()
        .filter(|token| !token.is_empty())
}

/// Waits, a little longer each time, and for a little less or more than others do.
pub(crate) async fn pause(pauses: &mut DefaultBackoff) {
    sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
}

/// The pauses never end, so this is for the compiler.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
