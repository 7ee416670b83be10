//! Reads the events of a watch.

use kube::Resource;
use kube::api::WatchEvent;
use kube::core::Status;
use pod_reloader_core::foreign::Foreign;

use crate::error::CallError;
use crate::objects::parse;

/// The content of a watch event.
pub(super) enum Change<K> {
    /// The object is new, or has changed.
    Seen(K),
    /// The object is gone.
    Gone(K),
    /// Only the resourceVersion has changed.
    None,
}

/// Reads a watch event. Returns its resourceVersion, and what has changed.
///
/// # Errors
///
/// Returns an error if the event reports one, or cannot be read.
pub(super) fn read_event<K: Resource + Foreign>(
    line: &[u8],
) -> Result<(String, Change<K>), CallError> {
    let event = match parse(line) {
        Ok(event) => event,
        // The line can be a Status that is not wrapped in an event.
        Err(error) => WatchEvent::Error(parse::<Box<Status>>(line).map_err(|_| error)?),
    };
    let versioned = |object: K, change: fn(K) -> Change<K>| {
        let version = object.meta().resource_version.clone();
        let version = version.filter(|it| !it.is_empty());
        let version = version.ok_or(CallError::Unreadable)?;
        Ok((version, change(object)))
    };
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => versioned(object, Change::Seen),
        WatchEvent::Deleted(object) => versioned(object, Change::Gone),
        WatchEvent::Bookmark(bookmark) => Ok((bookmark.metadata.resource_version, Change::None)),
        WatchEvent::Error(status) => Err(kube::Error::Api(status).into()),
    }
}
