//! Lists, watches and reads the objects of one kind within bounded memory, and carries on after any
//! failure.

#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::time::Duration;

use kube::api::{GetParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::{DynamicResourceScope, ListMeta, Request, request};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;
use kube::{Api, Client, Resource};
use pod_reloader_core::error::chain;
use pod_reloader_core::foreign::Foreign;
use pod_reloader_core::name::Name;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::budget::Budget;
use crate::client::{WATCH_CALL, within};
use crate::error::CallError;
use crate::follower::Follower;
use crate::objects::cut::Lines;
use crate::objects::{Change, Next, Objects, one, page, read_event};
use crate::watch_age::{Watches, watch_id};

/// The number of objects that one call lists, as in client-go. Objects are read one by one, so this limit
/// protects the apiserver, not us.
pub const PAGE: u32 = 500;
/// The largest number of objects that one call lists, after pages that came quickly. A hundred thousand Secrets took
/// 13 to 24 s to list in pages of 500, and 4 to 8 s in pages of 2,000 or of 4,000.
const LARGEST_PAGE: u32 = 2_000;
/// The time within which a page comes that is no burden to the apiserver, so the next one may be larger. Objects that
/// are large in etcd take longer, even if the list has only their metadata.
const QUICK_PAGE: Duration = Duration::from_millis(250);
/// The smallest number of objects that one call lists, after longer answers broke off.
const SMALLEST_PAGE: u32 = 10;
/// The time limit of a page. The apiserver gives up after the same time.
const PAGE_DEADLINE: Duration = Duration::from_secs(60);
/// The minimum time between two relists that are not preceded by a pause.
const RELIST_INTERVAL: Duration = Duration::from_secs(30);
/// The duration below which a watch call is repeated only after a pause.
const SHORT_CALL: Duration = Duration::from_secs(1);

/// Returns the API of a kind of object, in one namespace or in all of them.
pub fn api<K>(client: &Client, namespace: Option<&Name>, kind: K::DynamicType) -> Api<K>
where
    K: Resource<Scope = DynamicResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace.as_str(), &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}

/// The objects of a kind, in one namespace or in all of them.
pub struct Resources<K> {
    client: Client,
    budget: Budget,
    request: Request,
    kind: &'static str,
    fields: Option<String>,
    labels: Option<String>,
    objects: PhantomData<fn() -> K>,
}

impl<K: Resource + Foreign> Resources<K> {
    /// Returns all objects of `api`. The log calls them `kind`.
    pub fn new(api: Api<K>, kind: &'static str, budget: &Budget) -> Self {
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

    /// Restricts the objects to those that match a field selector.
    #[must_use]
    pub fn with_fields(self, fields: Option<&str>) -> Self {
        let fields = fields.map(ToOwned::to_owned);
        Self { fields, ..self }
    }

    /// Restricts the objects to those that match a label selector.
    #[must_use]
    pub fn with_labels(self, labels: String) -> Self {
        let labels = Some(labels);
        Self { labels, ..self }
    }

    /// Returns the ID under which the watch of these objects is known.
    fn watch_id(&self) -> String {
        watch_id(
            &self.request.url_path,
            self.labels.as_deref(),
            self.fields.as_deref(),
        )
    }

    /// Lists the objects, and watches them from there on, for ever. Meanwhile, the watch is one of `watches`.
    ///
    /// A list that fails is begun again. An unreadable object is left out.
    pub async fn follow<F: Follower<K>>(self, watches: Watches, mut follower: F) {
        let _watching = watches.begin(&self.watch_id(), self.kind);
        // The two are separate, because a complete list says nothing about the watch that follows it.
        let (mut list_pauses, mut pauses) = (DefaultBackoff::default(), DefaultBackoff::default());
        let mut limit = LARGEST_PAGE;
        let mut listed_at_once: Option<Instant> = None;
        loop {
            let mut list = F::List::default();
            follower.listing();
            let listed = self.list(&mut limit, |object| list.extend(follower.listed(object)));
            let mut version = match listed.await {
                Ok(version) => version,
                Err(error) => {
                    self.report("listing", &error);
                    pause(&mut list_pauses).await;
                    continue;
                }
            };
            list_pauses.reset();
            limit = LARGEST_PAGE;
            follower.all_listed(list);
            let watching = self.watch_on(&mut version, &mut pauses, &mut follower);
            let error = watching.await;
            debug!(
                kind = self.kind,
                error = chain(&error),
                "watch is too old, listing again"
            );
            // An expired watch is relisted at once: relisting must not wait out the pauses that the outage
            // built up.
            if listed_at_once.is_none_or(|at| at.elapsed() >= RELIST_INTERVAL) {
                listed_at_once = Some(Instant::now());
            } else {
                pause(&mut pauses).await;
            }
        }
    }

    /// Lists the objects with a consistent read, in pages. Returns the resourceVersion of the list.
    ///
    /// The first page has up to [`PAGE`] objects. After one that comes quickly, the next one is twice as large, up to
    /// `limit`. If an answer breaks off in the middle, for example because an apiserver cannot write a page of large
    /// objects in time, `limit` becomes half of that page.
    pub async fn list(
        &self,
        limit: &mut u32,
        mut tell: impl FnMut(K),
    ) -> Result<String, CallError> {
        let mut unreadable = None;
        let version = self.list_all(limit, |item| match item {
            Ok(object) => tell(object),
            Err(error) => unreadable = Some(error),
        });
        let version = version.await?;
        if let Some(error) = unreadable {
            let (kind, error) = (self.kind, chain(&error));
            warn!(
                kind,
                error, "an object of a list cannot be read, leaving it out"
            );
        }
        Ok(version)
    }

    /// Lists the objects as [`Resources::list`] does, and passes unreadable ones on too, with the reason.
    pub async fn list_all(
        &self,
        limit: &mut u32,
        mut tell: impl FnMut(Result<K, CallError>),
    ) -> Result<String, CallError> {
        let mut page = ListParams::default();
        let mut size = PAGE.min(*limit);
        loop {
            page.limit = Some(size);
            let mut items = 0;
            let asked = Instant::now();
            let listed = self.page(&page, |item| {
                items += 1;
                tell(item);
            });
            let metadata = match within(PAGE_DEADLINE, listed).await {
                Ok(metadata) => metadata,
                Err(error) => {
                    if items > 0 {
                        *limit = (size / 2).max(SMALLEST_PAGE);
                    }
                    return Err(error);
                }
            };
            if let Some(token) = next_page(&metadata) {
                page = page.continue_token(token);
                if asked.elapsed() < QUICK_PAGE {
                    size = (size * 2).min(*limit);
                }
                continue;
            }
            let version = metadata.resource_version.filter(|it| !it.is_empty());
            return version.ok_or(CallError::Unreadable);
        }
    }

    /// Lists a page, and passes each object to `each`. Unreadable objects are passed on too, with the
    /// reason.
    pub async fn page(
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

    /// Reads one object.
    pub async fn get(&self, name: &str) -> Result<K, CallError> {
        let request = self.request.get(name, &GetParams::default());
        self.call(request).await
    }

    /// Creates an object, and reads the answer.
    pub async fn create(&self, params: &PostParams, manifest: Vec<u8>) -> Result<K, CallError> {
        let request = self.request.create(params, manifest);
        self.call(request).await
    }

    /// Patches one object, and reads the answer.
    pub async fn patch(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<()>,
    ) -> Result<K, CallError> {
        let request = self.request.patch(name, params, patch);
        self.call(request).await
    }

    /// Patches the status of one object, and reads the answer.
    pub async fn patch_status(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<()>,
    ) -> Result<K, CallError> {
        let request = self
            .request
            .patch_subresource("status", name, params, patch);
        self.call(request).await
    }

    async fn call(
        &self,
        request: Result<http::Request<Vec<u8>>, request::Error>,
    ) -> Result<K, CallError> {
        let request = request.expect("objects have names");
        one(&self.client, request, &self.budget).await
    }

    /// Watches the objects from `version` on, call after call, until `version` is too old.
    async fn watch_on(
        &self,
        version: &mut String,
        pauses: &mut DefaultBackoff,
        follower: &mut impl Follower<K>,
    ) -> CallError {
        loop {
            let began = Instant::now();
            match self.watch(version, pauses, follower).await {
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

    /// Watches the objects from `version` on until the call ends. Updates `version` with each event.
    ///
    /// # Errors
    ///
    /// Returns an error if the watch cannot be started or is too old. A watch that breaks off is not an
    /// error: the next call says more.
    async fn watch(
        &self,
        version: &mut String,
        pauses: &mut DefaultBackoff,
        follower: &mut impl Follower<K>,
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
            let (seen, change) = match event {
                Ok(event) => event,
                Err(error) if error.is_expired() => return Err(error),
                // Calling again would bring the same event, and everything after it would wait for the next
                // list.
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
            match change {
                Change::Seen(object) => follower.seen(object),
                Change::Gone(object) => follower.gone(object),
                Change::None => {}
            }
            pauses.reset();
        }
    }

    fn report(&self, cause: &'static str, error: &CallError) {
        let (kind, error) = (self.kind, chain(error));
        warn!(kind, error, "{cause} failed, trying again");
    }
}

/// Returns the token of the next page, if there is one.
pub fn next_page(metadata: &ListMeta) -> Option<&str> {
    metadata
        .continue_
        .as_deref()
        .filter(|token| !token.is_empty())
}

/// Waits a little longer each time. The times are random, so that clients do not call in step.
pub async fn pause(pauses: &mut DefaultBackoff) {
    sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
}

/// Only for the compiler: the pauses never end.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
