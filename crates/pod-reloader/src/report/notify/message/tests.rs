use super::super::batch::MAX_WORKLOADS;
use super::super::news::News;
use super::super::tests::{reference, restarted, time, workload};
use super::*;
use crate::report::notice::Notice;
use pod_reloader_core::discovery::Unmet;
use tokio::time::Instant;

/// Returns a batch with a restart of two workloads by one Secret, and a workload that waits for another
/// Secret.
fn batch() -> Batch {
    let now = Instant::now();
    let mut batch = Batch::new(now);
    batch.add(restarted("web", &["db"]), now, time());
    batch.add(restarted("api", &["db"]), now, time());
    let missing = vec![Unmet {
        reference: reference("mail"),
        key: None,
        is_binary: false,
    }];
    let waiting = News::of(&workload("mailer"), &Notice::MissingConfig(missing)).unwrap();
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
                "reason": "MissingConfig",
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
fn a_message_in_observe_mode_says_so() {
    let now = Instant::now();
    let mut batch = Batch::new(now);
    let notice = Notice::WouldRestart(
        pod_reloader_core::decision::Cause::Changed,
        vec![reference("db")],
        None,
    );
    batch.add(News::of(&workload("web"), &notice).unwrap(), now, time());
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
