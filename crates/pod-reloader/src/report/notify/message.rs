//! Formats a batch for each kind of receiver.
//!
//! Names of objects are DNS names, in which no markup can hide, but a chat would turn names that look like
//! a host into links. So all names are formatted as code, and all text is escaped as the receiver requires.

use jiff::Timestamp;
use pod_reloader_core::reference::Reference;
use pod_reloader_settings::NotifyFormat;
use serde_json::{Value, json};

use super::batch::{Batch, Change};

/// The maximum number of workloads of a change that are named in a chat.
const SHOWN_WORKLOADS: usize = 5;
/// The maximum number of objects of a change that are named in a chat.
const SHOWN_OBJECTS: usize = 3;
/// The maximum number of objects that are named in JSON.
const MAX_OBJECTS: usize = 20;
/// The maximum length of the lines of a chat message, in bytes. Google Chat accepts 4096 characters, others
/// more.
const MAX_TEXT: usize = 3500;

/// Returns the body of the message about `batch`, in the given format.
pub(super) fn body(
    format: NotifyFormat,
    batch: &Batch,
    cluster: Option<&str>,
    now: Timestamp,
) -> Value {
    match format {
        NotifyFormat::Webhook => webhook(batch, cluster, now),
        NotifyFormat::Slack => slack(batch, cluster),
        NotifyFormat::Teams => teams(batch, cluster),
        NotifyFormat::GoogleChat => google_chat(batch, cluster),
    }
}

fn webhook(batch: &Batch, cluster: Option<&str>, now: Timestamp) -> Value {
    let change = |change: &Change| {
        let mut about = json!({
            "time": seconds(change.since),
            "reason": change.topic.reason,
            "problem": change.topic.is_problem,
            "objects": change.objects.iter().take(MAX_OBJECTS).map(object).collect::<Vec<_>>(),
            "moreObjects": change.objects.len().saturating_sub(MAX_OBJECTS),
            "workloads": change.workloads.iter().map(|(api_version, id)| json!({
                "apiVersion": api_version,
                "kind": id.kind.as_str(),
                "namespace": id.namespace.as_str(),
                "name": &*id.name,
            })).collect::<Vec<_>>(),
            "moreWorkloads": change.more,
        });
        if let Some(cause) = change.topic.cause {
            about["cause"] = cause.into();
        }
        about
    };
    let mut message = json!({
        "version": "v1",
        "time": seconds(now),
        "text": plain(&heading(batch, cluster)),
        "changes": batch.changes.iter().map(change).collect::<Vec<_>>(),
        "moreWorkloads": batch.more,
    });
    if let Some(cluster) = cluster {
        message["cluster"] = cluster.into();
    }
    message
}

fn object(reference: &Reference) -> Value {
    json!({
        "kind": reference.kind.to_string(),
        "namespace": reference.namespace.as_str(),
        "name": reference.name.as_str(),
    })
}

/// Formats a time in UTC, as `2026-11-21T20:00:00Z`.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn slack(batch: &Batch, cluster: Option<&str>) -> Value {
    let lines = lines(batch)
        .into_iter()
        .map(|line| marked(&line, slack_text));
    json!({
        "text": marked(&heading(batch, cluster), slack_text),
        "unfurl_links": false,
        "attachments": [{
            "color": if has_problem(batch) { "warning" } else { "good" },
            "text": lines.collect::<Vec<_>>().join("\n"),
            "mrkdwn_in": ["text"],
        }],
    })
}

/// Escapes text for Slack, in which three characters have a meaning. See
/// <https://docs.slack.dev/messaging/formatting-message-text>.
fn slack_text(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Formats a batch for Teams. The runs of a RichTextBlock are shown as they are, so there is no Markdown to
/// escape.
fn teams(batch: &Batch, cluster: Option<&str>) -> Value {
    let block = |line: &[Run]| {
        let runs = line.iter().map(|run| match run {
            Run::Text(text) => json!({"type": "TextRun", "text": text}),
            Run::Name(name) => json!({"type": "TextRun", "text": name, "fontType": "Monospace"}),
        });
        json!({"type": "RichTextBlock", "inlines": runs.collect::<Vec<_>>()})
    };
    let mut title = block(&heading(batch, cluster));
    for run in title["inlines"].as_array_mut().into_iter().flatten() {
        run["weight"] = "Bolder".into();
        if has_problem(batch) {
            run["color"] = "Warning".into();
        }
    }
    let lines = lines(batch);
    let body: Vec<_> = std::iter::once(title)
        .chain(lines.iter().map(|line| block(line)))
        .collect();
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "msteams": {"width": "Full"},
                "body": body,
            },
        }],
    })
}

fn google_chat(batch: &Batch, cluster: Option<&str>) -> Value {
    let mut text = marked(&heading(batch, cluster), google_chat_text);
    for line in lines(batch) {
        text.push('\n');
        text += &marked(&line, google_chat_text);
    }
    json!({"text": text})
}

/// Replaces the characters that begin a link or a mention in Google Chat, which has no escapes, by similar
/// ones.
fn google_chat_text(text: &str) -> String {
    text.replace('<', "\u{2039}").replace('>', "\u{203a}")
}

/// A part of a line.
enum Run {
    Text(String),
    /// The name of something in the cluster.
    Name(String),
}

fn text(text: impl Into<String>) -> Run {
    Run::Text(text.into())
}

fn heading(batch: &Batch, cluster: Option<&str>) -> Vec<Run> {
    let mut runs = vec![text("pod-reloader")];
    if let Some(cluster) = cluster {
        runs.extend([text(" in "), Run::Name(cluster.to_owned())]);
    }
    let workloads = batch.workloads();
    let s = if workloads == 1 { "" } else { "s" };
    runs.push(text(format!(": {workloads} workload{s}")));
    runs
}

/// Returns a line for each change, as many as fit. The last line gives the number of remaining workloads.
fn lines(batch: &Batch) -> Vec<Vec<Run>> {
    let mut lines = Vec::new();
    let (mut length, mut left) = (0, batch.workloads());
    for change in &batch.changes {
        let line = line(change);
        length += line.iter().map(Run::length).sum::<usize>();
        if length > MAX_TEXT && !lines.is_empty() {
            break;
        }
        left -= change.workloads();
        lines.push(line);
    }
    if left > 0 {
        lines.push(vec![text(format!("and {left} more"))]);
    }
    lines
}

fn line(change: &Change) -> Vec<Run> {
    let mut runs = vec![text(format!("{}: ", change.topic.headline.heading))];
    let workloads = change.workloads.iter().map(|(_, id)| id.to_string());
    list(&mut runs, workloads, change.workloads(), SHOWN_WORKLOADS);
    if !change.objects.is_empty() {
        runs.push(text(" ("));
        let objects = change.objects.iter().map(ToString::to_string);
        list(&mut runs, objects, change.objects.len(), SHOWN_OBJECTS);
        runs.push(text(format!(" {})", change.topic.headline.predicate)));
    } else if let Some(why) = change.topic.why {
        runs.push(text(format!(" ({why})")));
    }
    runs
}

/// Adds the first `shown` of `names`, and the number of the rest. `all` is the total number.
fn list(runs: &mut Vec<Run>, names: impl Iterator<Item = String>, all: usize, shown: usize) {
    for (index, name) in names.take(shown).enumerate() {
        if index > 0 {
            runs.push(text(", "));
        }
        runs.push(Run::Name(name));
    }
    if all > shown {
        runs.push(text(format!(" and {} more", all - shown)));
    }
}

impl Run {
    fn length(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            // Plus the two marks around the name.
            Self::Name(name) => name.len() + 2,
        }
    }
}

fn plain(runs: &[Run]) -> String {
    let words = runs
        .iter()
        .map(|(Run::Text(text) | Run::Name(text))| &**text);
    words.collect()
}

/// Formats names as code, and escapes all text.
fn marked(runs: &[Run], escaped: fn(&str) -> String) -> String {
    let words = runs.iter().map(|run| match run {
        Run::Text(text) => escaped(text),
        Run::Name(name) => format!("`{}`", escaped(&name.replace('`', "'"))),
    });
    words.collect()
}

fn has_problem(batch: &Batch) -> bool {
    batch.changes.iter().any(|change| change.topic.is_problem)
}

#[cfg(test)]
mod tests;
