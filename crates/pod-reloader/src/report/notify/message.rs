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
                "name": id.name,
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
    let mut runs = vec![text(format!("{}: ", change.topic.heading))];
    let workloads = change.workloads.iter().map(|(_, id)| id.to_string());
    list(&mut runs, workloads, change.workloads(), SHOWN_WORKLOADS);
    if !change.objects.is_empty() {
        runs.push(text(" ("));
        let objects = change.objects.iter().map(ToString::to_string);
        list(&mut runs, objects, change.objects.len(), SHOWN_OBJECTS);
        runs.push(text(format!(" {})", change.topic.predicate)));
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
mod tests {
    use super::super::batch::MAX_WORKLOADS;
    use super::super::news::News;
    use super::super::tests::{reference, restarted, time, workload};
    use super::*;
    use crate::report::notice::Notice;
    use pod_reloader_core::discovery::Requirement;
    use tokio::time::Instant;

    /// Returns a batch with a restart of two workloads by one Secret, and a workload that waits for another
    /// Secret.
    fn batch() -> Batch {
        let now = Instant::now();
        let mut batch = Batch::new(now);
        batch.add(restarted("web", &["db"]), now, time());
        batch.add(restarted("api", &["db"]), now, time());
        let missing = vec![Requirement {
            reference: reference("mail"),
            key: None,
        }];
        let waiting = News::of(&workload("mailer"), &Notice::Waiting(missing));
        batch.add(waiting, now, time());
        batch
    }

    #[test]
    fn programs_get_json() {
        let expected = json!({
            "version": "v1",
            "time": "2026-11-21T20:00:00Z",
            "cluster": "prod <eu>",
            "text": "pod-reloader in prod <eu>: 3 workloads",
            "changes": [
                {
                    "time": "2026-11-21T20:00:00Z",
                    "reason": "ConfigChanged",
                    "problem": false,
                    "cause": "changed",
                    "objects": [{"kind": "Secret", "namespace": "ns", "name": "db"}],
                    "moreObjects": 0,
                    "workloads": [
                        {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "ns", "name": "web"},
                        {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "ns", "name": "api"},
                    ],
                    "moreWorkloads": 0,
                },
                {
                    "time": "2026-11-21T20:00:00Z",
                    "reason": "WaitingForConfig",
                    "problem": true,
                    "objects": [{"kind": "Secret", "namespace": "ns", "name": "mail"}],
                    "moreObjects": 0,
                    "workloads": [
                        {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "ns", "name": "mailer"},
                    ],
                    "moreWorkloads": 0,
                },
            ],
            "moreWorkloads": 0,
        });
        let body = body(NotifyFormat::Webhook, &batch(), Some("prod <eu>"), time());
        assert_eq!(body, expected);
    }

    #[test]
    fn slack_gets_its_markup_escaped() {
        let expected = json!({
            "text": "pod-reloader in `prod &lt;!channel&gt; &amp; '`: 3 workloads",
            "unfurl_links": false,
            "attachments": [{
                "color": "warning",
                "text": "Restarted: `Deployment ns/web`, `Deployment ns/api` (`Secret ns/db` changed)\n\
                         Not restarted, pods could not start: `Deployment ns/mailer` (`Secret ns/mail` missing)",
                "mrkdwn_in": ["text"],
            }],
        });
        let body = body(
            NotifyFormat::Slack,
            &batch(),
            Some("prod <!channel> & `"),
            time(),
        );
        assert_eq!(body, expected);
    }

    #[test]
    fn teams_gets_a_card_without_markdown() {
        let run = |text: &str| json!({"type": "TextRun", "text": text});
        let name = |text: &str| json!({"type": "TextRun", "text": text, "fontType": "Monospace"});
        let line = |inlines: Value| json!({"type": "RichTextBlock", "inlines": inlines});
        let mut title = [
            run("pod-reloader"),
            run(" in "),
            name("*prod*"),
            run(": 3 workloads"),
        ];
        for run in &mut title {
            run["weight"] = "Bolder".into();
            run["color"] = "Warning".into();
        }
        let expected = json!({
            "type": "message",
            "attachments": [{
                "contentType": "application/vnd.microsoft.card.adaptive",
                "contentUrl": null,
                "content": {
                    "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                    "type": "AdaptiveCard",
                    "version": "1.4",
                    "msteams": {"width": "Full"},
                    "body": [
                        line(json!(title)),
                        line(json!([
                            run("Restarted: "), name("Deployment ns/web"), run(", "),
                            name("Deployment ns/api"), run(" ("), name("Secret ns/db"),
                            run(" changed)"),
                        ])),
                        line(json!([
                            run("Not restarted, pods could not start: "),
                            name("Deployment ns/mailer"), run(" ("), name("Secret ns/mail"),
                            run(" missing)"),
                        ])),
                    ],
                },
            }],
        });
        assert_eq!(
            body(NotifyFormat::Teams, &batch(), Some("*prod*"), time()),
            expected
        );
    }

    #[test]
    fn google_chat_gets_no_links_and_no_mentions() {
        let expected = json!({
            "text": "pod-reloader in `\u{2039}users/all\u{203a}`: 3 workloads\n\
                     Restarted: `Deployment ns/web`, `Deployment ns/api` (`Secret ns/db` changed)\n\
                     Not restarted, pods could not start: `Deployment ns/mailer` (`Secret ns/mail` missing)",
        });
        let body = body(
            NotifyFormat::GoogleChat,
            &batch(),
            Some("<users/all>"),
            time(),
        );
        assert_eq!(body, expected);
    }

    #[test]
    fn what_is_observed_says_so() {
        let now = Instant::now();
        let mut batch = Batch::new(now);
        let notice = Notice::WouldRestart(
            pod_reloader_core::decision::Cause::Changed,
            vec![reference("db")],
        );
        batch.add(News::of(&workload("web"), &notice), now, time());
        let body = body(NotifyFormat::GoogleChat, &batch, None, time());
        assert_eq!(
            body["text"],
            "pod-reloader: 1 workload\n\
             Would be restarted (--reconcile=observe): `Deployment ns/web` (`Secret ns/db` changed)"
        );
    }

    #[test]
    fn a_fan_out_names_a_few_and_counts_the_rest() {
        let now = Instant::now();
        let mut batch = Batch::new(now);
        for number in 0..1000 {
            batch.add(
                restarted(&format!("w{number}"), &["a", "b", "c", "d"]),
                now,
                time(),
            );
        }
        let text = body(NotifyFormat::GoogleChat, &batch, None, time())["text"].to_string();
        assert!(text.contains("`Deployment ns/w4` and 995 more ("), "{text}");
        assert!(text.contains("`Secret ns/c` and 1 more changed)"), "{text}");
        let json = body(NotifyFormat::Webhook, &batch, None, time());
        let named = json["changes"][0]["workloads"].as_array().map(Vec::len);
        assert_eq!(named, Some(MAX_WORKLOADS));
        assert_eq!(json["changes"][0]["moreWorkloads"], 1000 - MAX_WORKLOADS);
    }

    #[test]
    fn the_longest_message_is_as_long_as_receivers_take() {
        let now = Instant::now();
        let mut batch = Batch::new(now);
        let long = |number: usize| format!("{number:04}{}", "x".repeat(249));
        for number in 0..100 {
            let objects: Vec<_> = (0..50).map(|object| long(number + object)).collect();
            let objects: Vec<_> = objects.iter().map(|name| &**name).collect();
            for workload in 0..30 {
                batch.add(restarted(&long(workload), &objects), now, time());
            }
        }
        let text = body(NotifyFormat::GoogleChat, &batch, Some("c"), time());
        let text = text["text"].as_str().unwrap();
        assert!(text.len() < 4000, "{}", text.len());
        assert!(text.ends_with("\nand 2970 more"), "{text}");
        let card = body(NotifyFormat::Teams, &batch, Some("c"), time()).to_string();
        assert!(card.len() < 28_000, "{}", card.len());
    }
}
