//! Calls about one object, each within the deadline.

use http::Request;
use kube::Client;
use pod_reloader_core::foreign::Foreign;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::budget::Budget;
use crate::client::{DEADLINE, within};
use crate::error::CallError;
use crate::objects::{one, take_of_one};

/// The apiserver, for calls about one object. Cloning is cheap.
#[derive(Clone)]
pub struct Calls {
    client: Client,
    budget: Budget,
}

impl Calls {
    /// Returns calls by `client`. Long answers take turns, granted by `budget`.
    pub fn new(client: Client, budget: Budget) -> Self {
        Self { client, budget }
    }

    /// Sends a request, and reads the answer.
    pub async fn call<T: Foreign>(&self, request: Request<Vec<u8>>) -> Result<T, CallError> {
        within(DEADLINE, one(&self.client, request, &self.budget)).await
    }

    /// Sends a request, and takes nothing of the answer.
    pub async fn send(&self, request: Request<Vec<u8>>) -> Result<(), CallError> {
        self.call::<IgnoredAny>(request).await?;
        Ok(())
    }

    /// Sends a request, and returns what `take` takes of the answer. The object is never built: that would take many times
    /// the memory of its text.
    pub async fn take<T>(
        &self,
        request: Request<Vec<u8>>,
        take: impl FnOnce(&RawValue) -> T,
    ) -> Result<T, CallError> {
        let take = |object: &[u8]| match serde_json::from_slice::<&RawValue>(object) {
            Ok(object) => Ok(take(object)),
            Err(_) => Err(CallError::Unreadable),
        };
        let read = take_of_one(&self.client, request, &self.budget, take);
        within(DEADLINE, read).await
    }
}

/// Returns an object that was read. `None` if there is none.
pub fn if_there<T>(read: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match read {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
