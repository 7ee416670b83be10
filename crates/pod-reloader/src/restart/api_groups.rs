//! Asks the cluster what it serves of some API groups.

use std::time::Duration;

use http::header::ACCEPT;
use kube::Client;
use kube::core::discovery::v2::ACCEPT_AGGREGATED_DISCOVERY_V2;
use pod_reloader_core::api_discovery::{Group, Groups, PATH};

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
) -> Result<Groups, CallError> {
    let request = http::Request::get(PATH).header(ACCEPT, ACCEPT_AGGREGATED_DISCOVERY_V2);
    let request = request.body(Vec::new()).expect("the header is valid");
    let mut groups = Ok(Vec::new());
    let listed = page(client, request, budget, |item: Result<Group, _>| {
        match (&mut groups, item) {
            (Ok(groups), Ok(group)) if names.contains(&group.name()) => groups.push(group),
            (Ok(_), Err(error)) => groups = Err(error),
            _ => {}
        }
    });
    listed.await?;
    groups.map(Groups::from_iter)
}
