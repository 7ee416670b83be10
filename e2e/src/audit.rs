//! Reads the apiserver's audit log: who requested what.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
};

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{Api, Client};
use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    credentials::random_hex,
    wait::{Attempt, PATIENCE, wait_for},
};

/// The audit log of one control plane.
#[derive(Clone)]
pub struct AuditLog {
    path: PathBuf,
    client: Client,
}

/// A position in an [`AuditLog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

impl Mark {
    /// The beginning of the log.
    pub const START: Self = Self(0);
}

/// One request, at one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEvent {
    /// User who sent the request.
    pub user: String,
    /// Groups of that user.
    pub groups: Vec<String>,
    /// User agent of the client.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// Plural, such as `deployments`; empty if the URL names no resource.
    pub resource: String,
    /// Subresource, such as `status`; mostly empty.
    pub subresource: String,
    /// Namespace; empty for kinds without one, and for all namespaces.
    pub namespace: String,
    /// Name; empty for a list, a watch, and a create.
    pub name: String,
    /// Path and query of the URL.
    pub uri: String,
    /// HTTP status of the answer; `None` before it was decided.
    pub code: Option<u16>,
    /// Stage: `ResponseComplete`; `ResponseStarted` when a watch begins; `Panic`.
    pub stage: String,
    /// Time at which the apiserver got the request.
    pub received: Timestamp,
    /// Time at which this stage was reached.
    pub time: Timestamp,
    /// Body of the request, if the user is a service account.
    pub request_object: Option<Value>,
    /// Notes of admission and authorisation.
    pub annotations: BTreeMap<String, String>,
}

impl AuditLog {
    /// Opens the log at `path`, of the apiserver that `client` talks to.
    pub fn new(path: PathBuf, client: Client) -> Self {
        Self { path, client }
    }

    /// Returns the position after everything that was answered before this call.
    ///
    /// # Errors
    /// When the apiserver does not answer, or the log cannot be read.
    pub async fn mark(&self) -> Result<Mark> {
        let from = self.end()?;
        self.flush_from(from).await
    }

    /// Returns the events between `mark` and this call, except those of [`AuditLog::flush`], if their line contains `text`,
    /// for example the name of a namespace. Parsing the events of all other tests takes long.
    ///
    /// # Errors
    /// Same as [`AuditLog::mark`].
    pub async fn naming(&self, text: &str, mark: Mark) -> Result<Vec<AuditEvent>> {
        self.flush().await?;
        let (lines, _) = self.lines(mark)?;
        // These are megabytes, which the search of the standard library takes long for in a debug build.
        let text = Finder::new(text);
        let named = lines
            .lines()
            .filter(|line| text.find(line.as_bytes()).is_some());
        let mut events = events(named);
        events.retain(|event| !event.name.starts_with(MARKER));
        Ok(events)
    }

    /// Waits until everything that was answered before this call is in the log.
    ///
    /// # Errors
    /// Same as [`AuditLog::mark`].
    ///
    /// # Caveats
    /// A watch is in the log from its first answer on, as `ResponseStarted`, and once more when it ends.
    pub async fn flush(&self) -> Result<()> {
        self.mark().await.map(|_| ())
    }

    /// Sends a marker request, and waits until it is in the log.
    async fn flush_from(&self, mut position: Mark) -> Result<Mark> {
        let marker = format!("{MARKER}{}", random_hex()?);
        let config_maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        config_maps
            .get_opt(&marker)
            .await
            .context("asking the apiserver for a marker in its audit log")?;
        wait_for(
            &format!("{marker} in the audit log"),
            PATIENCE,
            async || {
                let (lines, next) = self.lines(position)?;
                position = next;
                Ok(match lines.contains(&marker) {
                    true => Attempt::Done(position),
                    false => Attempt::NotYet(format!("{} bytes without it", lines.len())),
                })
            },
        )
        .await
    }

    /// Returns the complete lines from `mark` on that are in the file now, and the position after them.
    fn lines(&self, mark: Mark) -> Result<(String, Mark)> {
        let context = || format!("reading {}", self.path.display());
        let mut file = File::open(&self.path).with_context(context)?;
        file.seek(SeekFrom::Start(mark.0)).with_context(context)?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).with_context(context)?;
        content.truncate(whole_lines(&content).len());
        let next = Mark(mark.0 + content.len() as u64);
        // A line that was cut inside a character is not an event, so replacing the character does no harm.
        Ok((String::from_utf8_lossy(&content).into_owned(), next))
    }

    /// Returns the start of the last line that may be incomplete. Everything requested from now on comes
    /// after it.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn end(&self) -> Result<Mark> {
        let context = || format!("reading {}", self.path.display());
        let mut file = File::open(&self.path).with_context(context)?;
        let mut position = file.metadata().with_context(context)?.len();
        let mut chunk = Vec::new();
        while position > 0 {
            let start = position.saturating_sub(CHUNK);
            chunk.clear();
            file.seek(SeekFrom::Start(start)).with_context(context)?;
            (&mut file)
                .take(position - start)
                .read_to_end(&mut chunk)
                .with_context(context)?;
            if let Some(newline) = chunk.iter().rposition(|byte| *byte == b'\n') {
                return Ok(Mark(start + newline as u64 + 1));
            }
            position = start;
        }
        Ok(Mark::START)
    }
}

/// Returns the complete lines: the apiserver may still be writing the last one.
fn whole_lines(content: &[u8]) -> &[u8] {
    let end = content
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |newline| newline + 1);
    &content[..end]
}

/// Parses lines. Leaves out a line that is not an event: an apiserver that was killed may have written half
/// of one.
fn events<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<AuditEvent> {
    lines
        .filter(|line| !line.is_empty())
        .filter_map(|line| {
            serde_json::from_str::<Line>(line)
                .inspect_err(|error| tracing::warn!("a line of the audit log is no event: {error}"))
                .ok()
        })
        .map(AuditEvent::from)
        .collect()
}

/// An event as the apiserver writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    response_status: Option<ResponseStatus>,
    request_object: Option<Value>,
    request_received_timestamp: MicroTime,
    stage_timestamp: MicroTime,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    code: Option<u16>,
}

impl From<Line> for AuditEvent {
    fn from(line: Line) -> Self {
        Self {
            user: line.user.username,
            groups: line.user.groups,
            user_agent: line.user_agent,
            verb: line.verb,
            resource: line.object_ref.resource,
            subresource: line.object_ref.subresource,
            namespace: line.object_ref.namespace,
            name: line.object_ref.name,
            uri: line.request_uri,
            code: line.response_status.and_then(|status| status.code),
            stage: line.stage,
            received: line.request_received_timestamp.0,
            time: line.stage_timestamp.0,
            request_object: line.request_object,
            annotations: line.annotations,
        }
    }
}

/// Name prefix of the objects that [`AuditLog::flush`] asks for.
const MARKER: &str = "audit-log-marker-";
const CHUNK: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = r#"{"kind":"Event","level":"Request","stage":"ResponseComplete",
        "requestURI":"/apis/apps/v1/namespaces/a/deployments/web?fieldManager=x","verb":"patch",
        "user":{"username":"system:serviceaccount:a:b","groups":["system:serviceaccounts"]},
        "userAgent":"x/1","objectRef":{"resource":"deployments","namespace":"a","name":"web"},
        "responseStatus":{"metadata":{},"code":200},"requestObject":[{"op":"test"}],
        "requestReceivedTimestamp":"2026-11-21T04:47:19.638670Z",
        "stageTimestamp":"2026-11-21T04:47:19.640180Z","annotations":{"a":"b"}}"#;

    fn patch() -> String {
        PATCH.replace('\n', "") + "\n"
    }

    #[test]
    fn an_event_shows_who_did_what_with_which_body() {
        let events = events(patch().lines());

        let [event] = events.as_slice() else {
            panic!("{events:?}")
        };
        assert_eq!(event.user, "system:serviceaccount:a:b");
        assert_eq!(
            (event.verb.as_str(), event.resource.as_str()),
            ("patch", "deployments")
        );
        assert_eq!(
            (event.namespace.as_str(), event.name.as_str()),
            ("a", "web")
        );
        assert_eq!(event.code, Some(200));
        assert_eq!(
            event.request_object,
            Some(serde_json::json!([{"op": "test"}]))
        );
        assert_eq!(event.time.duration_since(event.received).as_micros(), 1510);
    }

    #[test]
    fn a_half_written_last_line_waits_for_its_end() {
        let log = patch() + "{\"kind\":\"Ev";

        assert_eq!(whole_lines(log.as_bytes()), patch().as_bytes());
    }

    #[test]
    fn half_a_line_of_a_killed_apiserver_does_not_hide_the_next() {
        let log = format!("{{\"kind\":\"Ev\n{}", patch());

        assert_eq!(events(log.lines()).len(), 1);
    }

    #[test]
    fn a_request_for_no_resource_has_empty_names() {
        let log = r#"{"stage":"ResponseComplete","requestURI":"/readyz","verb":"get","user":{},
            "requestReceivedTimestamp":"2026-11-21T04:47:19.638670Z",
            "stageTimestamp":"2026-11-21T04:47:19.640180Z"}"#
            .replace('\n', "");

        let events = events(log.lines());

        assert_eq!(events[0].resource, "");
        assert_eq!(events[0].code, None);
    }
}
