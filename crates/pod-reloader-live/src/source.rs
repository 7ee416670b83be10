//! Reads config objects live, with consistent reads.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::io::AsyncBufReadExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::api::ListParams;
use kube::core::{DynamicResourceScope, ListMeta};
use kube::{Client, Resource};
use pod_reloader_core::admission::Unsettled;
use pod_reloader_core::digest::{Aspects, ConfigObject, DataKeys, Objects, Presence};
use pod_reloader_core::foreign::Foreign;
use pod_reloader_core::mark::COPY;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, ConfigMetadata, Reference};
use pod_reloader_core::revision::{ControllerRevision, KeepsRevision, KeptIn, PastReplicaSet};
use pod_reloader_core::scope::Scope;
use pod_reloader_core::workload::Workload;
use serde::Deserialize;
use tokio::sync::{Semaphore, SemaphorePermit};
use webhook_certs::first_expiry;

use crate::error::ReadError;
use crate::reads::Reads;
use crate::request;
use crate::runtime::budget::{Budget, Share};
use crate::runtime::calls::if_there;
use crate::runtime::client::within;
use crate::runtime::error::CallError;
use crate::runtime::resources::{Resources, api, next_page};
use pod_reloader_core::error::chain;

#[cfg(test)]
mod tests;

/// The number of config objects that one source reads at once. Even if all reads of the webhook and of the
/// loop are large, a quarter of the budget is left for reviews.
const READS_AT_ONCE: usize = 12;
/// The number of lists of revisions that one source makes at once. They may be long, so they take no turns from reads.
const REVISION_LISTS_AT_ONCE: usize = 8;
/// The maximum number of revisions of a workload that a review looks at. Kubernetes keeps ten by default. Anybody who can
/// write ReplicaSets can make as many as they like.
const MAX_REVISIONS: u32 = 200;
/// The size that most config objects do not exceed, in bytes.
const USUAL: usize = 256 << 10;
/// The size of one mebibyte in base64, with its metadata, in bytes. Only objects full of characters that
/// JSON escapes are larger.
const LARGE: usize = 2 << 20;

/// Returns the config objects of a kind that can be tracked, by their metadata. Copies for pins cannot.
pub fn listed(
    client: &Client,
    namespace: Option<&Name>,
    kind: ConfigKind,
    scope: &Scope,
    budget: &Budget,
) -> Resources<ConfigMetadata> {
    let api = api(client, namespace, kind);
    let listed = Resources::new(api, kind.as_str(), budget).with_fields(config_fields(kind));
    match kind == ConfigKind::ConfigMap && scope.pins() {
        true => listed.with_labels(format!("!{COPY}")),
        false => listed,
    }
}

/// Returns the field selector of watches and lists. It leaves out the Secrets in which Helm stores its
/// releases: they are large, often written, and never read by pods.
fn config_fields(kind: ConfigKind) -> Option<&'static str> {
    (kind == ConfigKind::Secret).then_some("type!=helm.sh/release.v1")
}

/// The apiserver, as a source of config objects. It remembers nothing.
#[derive(Clone)]
pub struct Source {
    client: Client,
    deadline: Duration,
    reads: Arc<Semaphore>,
    revision_lists: Arc<Semaphore>,
    budget: Budget,
    scope: Arc<Scope>,
    counted: Reads,
}

impl Source {
    /// Returns a source of what `scope` tracks. Its reads take `deadline` at most, draw memory from `budget`,
    /// and are counted.
    pub fn new(
        client: Client,
        deadline: Duration,
        budget: Budget,
        scope: &Scope,
        counted: Reads,
    ) -> Self {
        Self {
            scope: Arc::new(scope.clone()),
            client,
            deadline,
            reads: Arc::new(Semaphore::new(READS_AT_ONCE)),
            revision_lists: Arc::new(Semaphore::new(REVISION_LISTS_AT_ONCE)),
            budget,
            counted,
        }
    }

    /// Reads the current state of `reference`: a GET without resourceVersion, which etcd itself answers.
    ///
    /// The body is digested, and so is each entry of `keys` individually. Then the body is dropped.
    pub async fn read(&self, reference: &Reference, keys: DataKeys) -> Result<Presence, ReadError> {
        let _read = self.turn().await;
        let presence = match self.receive(reference).await {
            Ok(received) => self.parse(received, keys).await.map(Presence::Present),
            Err(error) if error.is_not_found() => Ok(Presence::Absent),
            Err(error) => Err(error),
        };
        self.counted.get(presence.as_ref());
        presence.map_err(|source| ReadError::Object {
            reference: reference.clone(),
            source,
        })
    }

    /// Returns the resourceVersion of a Secret, if it is there, and when the first of its certificates expires.
    pub async fn certificate_expiry(
        &self,
        secret: &Reference,
    ) -> Result<Option<(Box<str>, Option<Timestamp>)>, CallError> {
        let _read = self.turn().await;
        let received = if_there(self.receive(secret).await)?;
        Ok(received.and_then(|(body, _share)| certificate_expiry(&body)))
    }

    pub(crate) async fn turn(&self) -> SemaphorePermit<'_> {
        let turn = self.reads.acquire().await;
        turn.expect("the semaphore is never closed")
    }

    /// Returns an object as the apiserver sends it. Its bytes are taken from the budget as long as the share
    /// exists.
    pub(crate) async fn receive(
        &self,
        reference: &Reference,
    ) -> Result<(Vec<u8>, Share), CallError> {
        let request = request::get(reference);
        within(self.deadline, self.answer(request)).await
    }

    /// Sends a request whose answer says nothing new.
    pub(crate) async fn send(&self, request: http::Request<Vec<u8>>) -> Result<(), CallError> {
        within(self.deadline, self.answer(request)).await?;
        Ok(())
    }

    /// Returns the body of the answer.
    ///
    /// The body never goes through the typed calls of the client, because they log bodies that they cannot
    /// read. Nor does it go through the calls that copy it.
    async fn answer(&self, request: http::Request<Vec<u8>>) -> Result<(Vec<u8>, Share), CallError> {
        let mut share = self.budget.share();
        share.grow_in_turn(USUAL).await;
        let mut answer = pin!(self.client.request_stream(request).await?);
        let mut body = Vec::new();
        loop {
            let part = answer.fill_buf().await;
            let part = part.map_err(|error| CallError::Connection(chain(&error)))?;
            if part.is_empty() {
                return Ok((body, share));
            }
            while body.len() + part.len() > share.bytes() {
                grow(&mut share).await?;
                body.reserve_exact(share.bytes() - body.len());
            }
            body.extend_from_slice(part);
            let length = part.len();
            answer.consume_unpin(length);
        }
    }

    /// Reads the current state of all objects that `workload` may track. One unreadable object is an error
    /// for all.
    pub async fn objects(&self, workload: &Workload) -> Result<Objects, ReadError> {
        let references = &workload.references;
        let mut there = Vec::new();
        for kind in references.pattern_kinds() {
            there.extend(self.names(kind, &workload.id.namespace).await?);
        }
        let (all, _) = references.with_matches(there);
        stream::iter(all)
            .map(|reference| async move {
                let keys = workload.data_keys(&reference).map(Into::into).collect();
                let presence = self.read(&reference, keys).await?;
                Ok((reference, presence))
            })
            .buffer_unordered(READS_AT_ONCE)
            .try_collect()
            .await
    }

    /// Shows a review the revisions of its workload.
    ///
    /// # Errors
    ///
    /// They cannot be read, or there are too many of them.
    pub async fn show_revisions(&self, unsettled: &mut Unsettled) -> Result<(), CallError> {
        match unsettled.kept {
            KeptIn::ReplicaSets => self.show_those::<PastReplicaSet>(unsettled).await,
            KeptIn::ControllerRevisions => self.show_those::<ControllerRevision>(unsettled).await,
        }
    }

    async fn show_those<K>(&self, unsettled: &mut Unsettled) -> Result<(), CallError>
    where
        K: KeepsRevision + Resource<DynamicType = (), Scope = DynamicResourceScope> + Foreign,
    {
        let api = api::<K>(&self.client, Some(unsettled.namespace()), ());
        let revisions = Resources::new(api, "revision", &self.budget);
        let revisions = revisions.with_labels(unsettled.selector().to_owned());
        let page = ListParams::default().limit(MAX_REVISIONS);
        let turn = self.revision_lists.acquire().await;
        let _turn = turn.expect("the semaphore is never closed");
        let mut unreadable = None;
        let listed = revisions.page(&page, |item: Result<K, CallError>| match item {
            Ok(revision) => unsettled.look_at(revision.remains()),
            Err(error) => unreadable = Some(error),
        });
        let list = within(self.deadline, listed).await?;
        match (unreadable, next_page(&list)) {
            (Some(error), _) => Err(error),
            (None, Some(_)) => Err(CallError::TooMany(MAX_REVISIONS)),
            (None, None) => Ok(()),
        }
    }

    /// Reads the current state of the objects that the pods of `workload` need and that it does not track. One that we
    /// may not read, or cannot make sense of, is left out: it counts as there.
    pub async fn untracked_needs(&self, workload: &Workload) -> Result<Objects, ReadError> {
        let needs: Vec<_> = workload.untracked_needs().cloned().collect();
        stream::iter(needs)
            .map(|reference| async move {
                let keys = workload.data_keys(&reference).map(Into::into).collect();
                let read = self.read(&reference, keys).await;
                match read {
                    Ok(presence) => Ok(Some((reference, presence))),
                    Err(error) if matches!(error.reason(), "forbidden" | "unreadable") => Ok(None),
                    Err(error) => Err(error),
                }
            })
            .buffer_unordered(READS_AT_ONCE)
            .try_filter_map(|read| std::future::ready(Ok(read)))
            .try_collect()
            .await
    }

    /// Lists the current objects of a kind in a namespace, among those that the watches show, with
    /// consistent lists of metadata.
    pub async fn names(
        &self,
        kind: ConfigKind,
        namespace: &Name,
    ) -> Result<Vec<Reference>, ReadError> {
        let objects = listed(
            &self.client,
            Some(namespace),
            kind,
            &self.scope,
            &self.budget,
        );
        let mut page = ListParams::default();
        let mut names = Vec::new();
        loop {
            let list = self.page(&objects, &page, &mut names).await;
            self.counted.list(&list);
            let list = list.map_err(|source| ReadError::List {
                kind,
                namespace: namespace.clone(),
                source,
            })?;
            match next_page(&list) {
                Some(token) => page = page.continue_token(token),
                None => break,
            }
        }
        let references = names.iter().filter_map(|object| object.reference(kind));
        Ok(references.collect())
    }

    /// Reads a page of a list of metadata. One unreadable object is an error for all.
    async fn page(
        &self,
        objects: &Resources<ConfigMetadata>,
        page: &ListParams,
        names: &mut Vec<ConfigMetadata>,
    ) -> Result<ListMeta, CallError> {
        let _read = self.turn().await;
        let mut unreadable = None;
        let listed = objects.page(page, |item| match item {
            Ok(object) => names.push(object),
            Err(error) => unreadable = Some(error),
        });
        let list = within(self.deadline, listed).await?;
        unreadable.map_or(Ok(list), Err)
    }

    /// Digests a body. A large one does not block the runtime: a caller that waits for many must see its
    /// deadline pass.
    async fn parse(
        &self,
        (body, share): (Vec<u8>, Share),
        keys: DataKeys,
    ) -> Result<ConfigObject, CallError> {
        let scope = self.scope.clone();
        let is_usual = body.len() <= USUAL;
        let parse = move || {
            let _share = share;
            let aspects = Aspects {
                selector: scope.config_selector(),
                keys: Some(&keys),
                tools: scope.tools(),
            };
            ConfigObject::parse(&body, aspects)
        };
        if is_usual {
            return Ok(parse()?);
        }
        let parsed = tokio::task::spawn_blocking(parse).await;
        Ok(parsed.expect("nothing ends it but a panic, which goes on here")?)
    }
}

/// Returns the resourceVersion of a Secret, and when the first of the certificates in its key `tls.crt` expires.
/// Nothing of an error is reported: it might quote the Secret.
fn certificate_expiry(body: &[u8]) -> Option<(Box<str>, Option<Timestamp>)> {
    #[derive(Deserialize)]
    struct Secret {
        metadata: Metadata,
        data: Option<Data>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: Box<str>,
    }
    #[derive(Deserialize)]
    struct Data {
        #[serde(rename = "tls.crt")]
        certificates: Option<ByteString>,
    }
    let secret: Secret = serde_json::from_slice(body).ok()?;
    let certificates = secret.data.and_then(|data| data.certificates);
    let expires = certificates.and_then(|it| Timestamp::try_from(first_expiry(&it.0)?).ok());
    Some((secret.metadata.resource_version, expires))
}

/// Makes room for more of an object. A share that waits here holds no more than [`USUAL`] bytes, so it
/// never waits for others that wait here too.
async fn grow(share: &mut Share) -> Result<(), CallError> {
    if share.bytes() < LARGE {
        share.grow_in_turn(LARGE - share.bytes()).await;
        Ok(())
    } else {
        share.grow(LARGE).map_err(|_| CallError::NoRoom)
    }
}
