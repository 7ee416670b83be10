//! Finds out whether a namespace is one that we look after, by its labels as they are now: they are seldom needed.

use kube::{Api, Client};
use pod_reloader_core::config_sync::NamespaceMetadata;
use pod_reloader_core::name::Name;
use pod_reloader_core::scope::Scope;

use crate::runtime::budget::Budget;
use crate::runtime::error::CallError;
use crate::runtime::resources::{PAGE, Resources};

/// The namespaces of a scope.
#[derive(Clone)]
pub struct Covered {
    client: Client,
    scope: Scope,
    budget: Budget,
}

impl Covered {
    /// Returns the namespaces of `scope`.
    pub fn new(client: Client, scope: Scope, budget: Budget) -> Self {
        Self {
            client,
            scope,
            budget,
        }
    }

    /// Returns true if we look after a namespace. Only if its labels decide, they are read.
    pub async fn contain(&self, namespace: &Name) -> Result<bool, CallError> {
        if !self.scope.covers(namespace) {
            return Ok(false);
        }
        let Some(selector) = self.scope.namespace_selector() else {
            return Ok(true);
        };
        let all = Api::<NamespaceMetadata>::all(self.client.clone());
        let all = Resources::new(all, "Namespace", &self.budget);
        let named = format!("metadata.name={namespace}");
        let selected = all
            .with_fields(Some(&named))
            .with_labels(selector.to_string());
        let mut is_selected = false;
        selected
            .list_all(&mut PAGE.clone(), |it| is_selected |= it.is_ok())
            .await?;
        Ok(is_selected)
    }
}
