//! Answers reviews of custom resources that are created: their bound fields get the values of their keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use pod_reloader_core::error::chain;
use pod_reloader_core::field_binding::kind::BoundKind;
use pod_reloader_core::field_binding::outcome::Reason;
use pod_reloader_core::field_binding::path::Path;
use pod_reloader_core::field_binding::plan::fill;
use pod_reloader_core::field_binding::source::Source;
use pod_reloader_core::field_binding::value::Room;
use pod_reloader_core::field_binding::{Binding, Target};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::review::{self, InvalidReview, Request};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout_at;
use tracing::warn;

use super::body::Received;
use super::error::Trouble;
use super::in_use::{LATE, MARGIN};
use crate::live::fields::{FieldReads, MAX_LISTED};
use crate::runtime::error::CallError;

/// The maximum number of FieldBindings by which one object is filled.
const MAX_BINDINGS: usize = 16;

/// The fields of new objects.
#[derive(Clone)]
pub(crate) struct Fields {
    /// The kinds whose fields are filled. Whoever reaches this port can ask for their values by a forged review.
    pub(crate) kinds: Arc<[BoundKind]>,
    pub(crate) reads: FieldReads,
}

/// The values that the fields of a binding should have.
type Values = Vec<Result<Value, Reason>>;

/// The bindings of an object, the oldest first, with the values of their fields, and warnings.
#[derive(Default)]
struct Found {
    bindings: Vec<(Binding, Values)>,
    warnings: Vec<String>,
}

impl Fields {
    /// Answers a review. A field that cannot be filled stays as it is, with a warning, and the write goes on.
    pub(super) async fn answer(self, review: Received) -> Result<Vec<u8>, Trouble> {
        let kinds = self.kinds.clone();
        let parse = move |body: &[u8]| created(body, &kinds);
        let (uid, created) = review.in_turn(parse).await??;
        let Some((namespace, target)) = created.filter(|(it, _)| review.webhook.scope.covers(it))
        else {
            return Ok(review::response(&uid, &[], &[]));
        };
        let Found {
            bindings,
            mut warnings,
        } = match timeout_at(review.deadline - MARGIN, self.find(&namespace, &target)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => unknown(&namespace, &target, &chain(&error)),
            Err(_) => unknown(&namespace, &target, LATE),
        };
        if bindings.is_empty() {
            return Ok(review::response(&uid, &[], &warnings));
        }
        let fill = move |body: &[u8]| -> Result<Vec<u8>, Trouble> {
            let request = Request::parse(body)?;
            let object = request.object.ok_or(InvalidReview::NoObject("object"));
            let (patch, left) = fill(object?, &bindings);
            warnings.extend(left.iter().map(|(path, reason)| warning(path, reason)));
            Ok(review::response(&uid, &patch, &warnings))
        };
        review.in_turn(fill).await?
    }

    async fn find(&self, namespace: &Name, target: &Target) -> Result<Found, CallError> {
        let bindings = self.reads.bindings(namespace, target, MAX_BINDINGS + 1);
        let mut found = Found::default();
        let Some(mut bindings) = bindings.await? else {
            let warning = format!(
                "pod-reloader: no fields are filled when an object is created in a namespace with more than {MAX_LISTED} FieldBindings"
            );
            found.warnings.push(warning);
            return Ok(found);
        };
        if bindings.len() > MAX_BINDINGS {
            let warning = format!(
                "pod-reloader: only the {MAX_BINDINGS} oldest FieldBindings of an object fill its fields when it is created"
            );
            found.warnings.push(warning);
            bindings.truncate(MAX_BINDINGS);
        }
        let mut values = self.values(&bindings).await;
        for (at, binding) in bindings.into_iter().enumerate() {
            let values = values.remove(&at).unwrap_or_default();
            found.bindings.push((binding, values));
        }
        Ok(found)
    }

    /// Returns the values of the fields of each binding, by its position. Each source is read once, and dropped before
    /// the next one is read.
    async fn values(&self, bindings: &[Binding]) -> BTreeMap<usize, Values> {
        let mut by_source: BTreeMap<&Reference, Vec<(usize, &Binding)>> = BTreeMap::new();
        for (at, binding) in bindings.iter().enumerate() {
            by_source
                .entry(&binding.source)
                .or_default()
                .push((at, binding));
        }
        let mut room = Room::default();
        let mut all = BTreeMap::new();
        for (source, bindings) in by_source {
            let take = |source: Option<&Source>| {
                let values = bindings
                    .iter()
                    .map(|(at, it)| (*at, it.values(source, &mut room)));
                values.collect::<Vec<_>>()
            };
            match self.reads.of_source(source, take).await {
                Ok(values) => all.extend(values),
                Err(error) => {
                    let error = chain(&error);
                    warn!(%source, error, "cannot read the source of FieldBindings for a new object");
                    // Its fields are nobody else's.
                    let values = |it: &Binding| vec![Err(Reason::Failed); it.fields.len()];
                    all.extend(bindings.iter().map(|(at, it)| (*at, values(it))));
                }
            }
        }
        all
    }
}

/// Returns the id of a review, with the object that is created if its fields are to be filled, and its namespace.
fn created(body: &[u8], kinds: &[BoundKind]) -> Result<(String, Option<(Name, Target)>), Trouble> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Object {
        api_version: Box<str>,
        kind: Box<str>,
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        // An object whose name is generated has none yet, so no FieldBinding names it.
        name: Option<String>,
    }
    let request = Request::parse(body)?;
    let is_new =
        request.operation == "CREATE" && request.sub_resource.as_deref().is_none_or(str::is_empty);
    let bound = |object: &str| {
        let object: Object = serde_json::from_str(object).ok()?;
        let target = Target {
            api_version: object.api_version,
            kind: object.kind,
            name: Name::parse(&object.metadata.name?).ok()?,
        };
        kinds.iter().any(|it| it.is_of(&target)).then_some(target)
    };
    let object = request.object.filter(|_| is_new);
    let target = object.and_then(|it| bound(it.get()));
    let namespace = request.namespace.and_then(|it| Name::parse(&it).ok());
    Ok((request.uid.into_owned(), namespace.zip(target)))
}

fn unknown(namespace: &Name, target: &Target, cause: &str) -> Found {
    let Target { kind, name, .. } = target;
    warn!(%namespace, %kind, %name, cause, "cannot tell which fields of a new object are bound");
    let warning = "pod-reloader cannot tell which fields of this object are bound, so it fills none: try again, or it follows once the object is there";
    Found {
        warnings: vec![warning.to_owned()],
        ..Found::default()
    }
}

fn warning(path: &Path, reason: &Reason) -> String {
    format!(
        "pod-reloader: {path} is not filled ({}): {reason}",
        reason.as_str()
    )
}
