//! Reads FieldBindings and their sources live, for objects that are created.

use std::sync::Arc;

use kube::api::ListParams;
use kube::{Api, Client};
use pod_reloader_core::field_binding::listed::ListedBinding;
use pod_reloader_core::field_binding::source::Source;
use pod_reloader_core::field_binding::{Binding, Target};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use tokio::sync::Semaphore;

use crate::request;
use crate::runtime::budget::Budget;
use crate::runtime::calls::if_there;
use crate::runtime::client::{DEADLINE, within};
use crate::runtime::error::CallError;
use crate::runtime::objects::one;
use crate::runtime::resources::{PAGE, Resources, next_page};

/// The maximum number of sources that are read, and in memory, at once.
const AT_ONCE: usize = 4;

/// The maximum number of FieldBindings of a namespace that are listed for a new object.
pub const MAX_LISTED: usize = 2_000;

/// The apiserver, as the fields of new objects need it.
#[derive(Clone)]
pub struct FieldReads {
    client: Client,
    budget: Budget,
    turns: Arc<Semaphore>,
}

impl FieldReads {
    /// Returns reads by `client`, which draw memory from `budget`.
    pub fn new(client: Client, budget: Budget) -> Self {
        Self {
            client,
            budget,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Lists the `most` oldest FieldBindings of an object, the oldest first. Those that cannot be worked with are left out: their
    /// status says so. `None` if the namespace has more than [`MAX_LISTED`] FieldBindings.
    pub async fn bindings(
        &self,
        namespace: &Name,
        target: &Target,
        most: usize,
    ) -> Result<Option<Vec<Binding>>, CallError> {
        let all = Api::<ListedBinding>::namespaced(self.client.clone(), namespace.as_str());
        let all = Resources::new(all, "FieldBinding", &self.budget);
        let mut found: Vec<Binding> = Vec::new();
        let mut page = ListParams::default().limit(PAGE);
        let mut listed = 0;
        loop {
            let each = |object: Result<ListedBinding, CallError>| {
                listed += 1;
                if let Some(binding) = object.ok().and_then(|it| it.of(target)) {
                    let seniority = binding.seniority();
                    let at = found.partition_point(|it| it.seniority() < seniority);
                    found.insert(at, binding);
                    found.truncate(most);
                }
            };
            let metadata = within(DEADLINE, all.page(&page, each)).await?;
            let Some(token) = next_page(&metadata) else {
                return Ok(Some(found));
            };
            if listed >= MAX_LISTED {
                return Ok(None);
            }
            page = page.continue_token(token);
        }
    }

    /// Reads the source of FieldBindings, a GET without resourceVersion, which etcd itself answers, and returns what
    /// `take` takes of it. The next one is read once this one is dropped.
    pub async fn of_source<T>(
        &self,
        source: &Reference,
        take: impl FnOnce(Option<&Source>) -> T,
    ) -> Result<T, CallError> {
        let turn = self.turns.acquire().await;
        let _turn = turn.expect("the semaphore is never closed");
        let read = one(&self.client, request::get(source), &self.budget);
        let source = if_there(within(DEADLINE, read).await)?;
        Ok(take(source.as_ref()))
    }
}
