//! Asks the cluster what it serves of some API groups.

use std::time::Duration;

use http::header::ACCEPT;
use kube::Client;
use kube::core::discovery::v2::{
    ACCEPT_AGGREGATED_DISCOVERY_V2, APIGroupDiscovery, APIGroupDiscoveryList,
};

use crate::runtime::budget::Budget;
use crate::runtime::error::CallError;
use crate::runtime::objects::page;

/// The time between two questions to the cluster about what it serves. One call covers all kinds.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);

/// Returns what the cluster serves of the API groups with these names.
pub(crate) async fn groups(
    client: &Client,
    budget: &Budget,
    names: &[&str],
) -> Result<APIGroupDiscoveryList, CallError> {
    let request = http::Request::get("/apis").header(ACCEPT, ACCEPT_AGGREGATED_DISCOVERY_V2);
    let request = request.body(Vec::new()).expect("the header is valid");
    let is_ours = |group: &APIGroupDiscovery| {
        let name = group.metadata.as_ref().and_then(|it| it.name.as_deref());
        name.is_some_and(|name| names.contains(&name))
    };
    let mut groups = APIGroupDiscoveryList::default();
    let mut unreadable = None;
    let listed = page(client, request, budget, |item| match item {
        Ok(group) if is_ours(&group) => groups.items.push(group),
        Ok(_) => {}
        Err(error) => unreadable = Some(error),
    });
    listed.await?;
    unreadable.map_or(Ok(groups), Err)
}
