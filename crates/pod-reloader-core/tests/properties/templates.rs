//! Checks which differences of pod templates count, against templates that are built: in reviews and in revisions.

use std::sync::LazyLock;

use pod_reloader_core::annotations::{CONFIG_HASH, PINS};
use pod_reloader_core::kind::{CustomResource, WorkloadKind};
use pod_reloader_core::plan::changes_template;
use pod_reloader_core::revision::{NamesCopies, ReplicaSet, Revision};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::choices::Choices;
use crate::pod_spec::pod_spec;
use crate::written::{deep, long, spoil, written};

/// Makes two similar pod templates, and compares them in both ways.
pub(crate) fn hold(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let first = template(&mut choices);
    let mut second = first.clone();
    for _ in 0..choices.number() % 4 {
        change(&mut second, &mut choices);
    }
    hold_of_reviews([&first, &second], &mut choices);
    hold_of_revisions([&first, &second], &mut choices);
}

/// A kind with two pod templates.
static CUSTOM: LazyLock<WorkloadKind> = LazyLock::new(|| {
    let resource: CustomResource = serde_json::from_value(json!({
        "group": "x.io", "resource": "xs", "kind": "X",
        "podTemplates": ["spec.one", "spec.some.other"],
    }))
    .expect("it is a custom resource");
    resource.into_kind().expect("its paths are paths")
});

/// A pod template, and one of its texts.
struct Written {
    value: Value,
    text: String,
}

impl Written {
    fn new(value: &Value, choices: &mut Choices<'_>) -> Self {
        Self {
            text: written(value, &|_| true, choices),
            value: value.clone(),
        }
    }
}

/// Checks whether a review finds a difference between two templates, in objects of both forms.
fn hold_of_reviews(templates: [&Value; 2], choices: &mut Choices<'_>) {
    let [now, after] = templates.map(|it| Written::new(it, choices));
    let (now, after) = (
        Some(&now),
        Some(&after).filter(|_| choices.number() % 8 < 7),
    );
    let metadata = [(); 2].map(|()| match choices.number() % 16 {
        15 => *choices.one(&UNREADABLE),
        _ => *choices.one(&METADATA),
    });
    let are_read = !metadata.iter().any(|it| UNREADABLE.contains(it));
    let changes = |kind: WorkloadKind, [now, after]: [String; 2]| {
        let read = |text: String| RawValue::from_string(text).expect("it is JSON");
        let (now, after) = (read(now), read(after));
        let changes = changes_template(kind, &now, &after);
        assert_eq!(
            changes,
            changes_template(kind, &after, &now),
            "the order counts"
        );
        changes
    };

    let texts = [(metadata[0], now), (metadata[1], after)];
    let built_in = texts.map(|(metadata, template)| match template {
        Some(it) => format!(
            r#"{{"metadata":{metadata},"spec":{{"template":{}}}}}"#,
            it.text
        ),
        None => format!(r#"{{"metadata":{metadata}}}"#),
    });
    let is_same = are_read && are_same(now, after);
    let message = built_in.join("\n");
    assert_eq!(
        changes(WorkloadKind::DEPLOYMENT, built_in),
        !is_same,
        "{message}"
    );

    let custom = texts.map(|(metadata, template)| match template {
        Some(it) => format!(
            r#"{{"metadata":{metadata},"spec":{{"one":{{}},"some":{{"other":{}}}}}}}"#,
            it.text
        ),
        None => format!(r#"{{"metadata":{metadata},"spec":{{"some":null}}}}"#),
    });
    let [now, after] = [now, after].map(|it| it.filter(|it| !it.value.is_null()));
    // The first template is there in the one and not in the other, but it is empty.
    let is_same = are_read && are_same(now, after);
    let message = custom.join("\n");
    assert_eq!(changes(*CUSTOM, custom), !is_same, "{message}");
}

/// Metadata that does not count.
const METADATA: [&str; 4] = [
    "{}",
    "{ }",
    r#"{"annotations":null,"managedFields":[null]}"#,
    r#"{"annotations":{"a":"b","a":"c"},"labels":1}"#,
];

/// Metadata that cannot be read: then everything counts as changed.
const UNREADABLE: [&str; 4] = [
    "null",
    r#"{"annotations":{"a":1}}"#,
    r#"{"annotations":{"a":null}}"#,
    r#"{"annotations":{},"annotations":{}}"#,
];

fn are_same(one: Option<&Written>, other: Option<&Written>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            let parts = bare(&one.value);
            one.text == other.text || parts.is_some() && parts == bare(&other.value)
        }
        (Some(one), None) | (None, Some(one)) => bare(&one.value) == Some(json!({})),
    }
}

/// Returns a template without nulls, without what is ours, and without what controllers add to one that they keep. `None` if one of the parts that are looked into is not an
/// object: then any other text of the template is a difference.
fn bare(template: &Value) -> Option<Value> {
    let mut bare = without_nulls(template);
    let members = bare.as_object_mut()?;
    members.remove("$patch");
    if let Some(metadata) = members.get_mut("metadata") {
        let metadata = metadata.as_object_mut()?;
        for (part, apart) in [("annotations", OURS), ("labels", HASHES)] {
            if let Some(texts) = metadata.get_mut(part) {
                let texts = texts.as_object_mut()?;
                texts.retain(|name, _| !apart.contains(&name.as_str()));
                if texts.is_empty() {
                    metadata.remove(part);
                }
            }
        }
        if metadata.is_empty() {
            members.remove("metadata");
        }
    }
    Some(bare)
}

const OURS: [&str; 2] = [CONFIG_HASH, PINS];
const HASHES: [&str; 2] = ["pod-template-hash", "rollouts-pod-template-hash"];

/// Returns a value without members that are `null`. Elements that are `null` stay.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, it)| !it.is_null());
            members
                .map(|(name, it)| (name.clone(), without_nulls(it)))
                .collect()
        }
        Value::Array(elements) => elements.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// Checks whether two revisions with these templates differ in more than what is ours.
fn hold_of_revisions(templates: [&Value; 2], choices: &mut Choices<'_>) {
    let revisions = templates.map(|it| revision(it, choices));
    let [one, other] = &revisions;
    let is_same = one.differs_in_config_alone(other);
    let [first, second] = templates;
    assert_eq!(is_same, parts(first) == parts(second), "{first}\n{second}");
    for (revision, template) in revisions.iter().zip(templates) {
        let own = |key: &str| template["metadata"]["annotations"][key].as_str();
        assert_eq!(revision.config_hash.as_deref(), own(CONFIG_HASH));
        assert_eq!(revision.pins.as_deref(), own(PINS));
        assert_eq!((revision.number, &*revision.owner), (3, "u"));
    }
}

/// Reads a ReplicaSet. The apiserver writes the members of what is in a template in the same order each time, so only
/// those of the parts that are looked into come in any order.
fn revision(template: &Value, choices: &mut Choices<'_>) -> Revision {
    let own = reordered(template, &["metadata"], choices, |metadata, choices| {
        reordered(
            metadata,
            &["annotations", "labels"],
            choices,
            |it, choices| reordered(it, &[], choices, |it, _| it.to_string()),
        )
    });
    let text = format!(
        r#"{{"metadata":{{"annotations":{{"deployment.kubernetes.io/revision":"3"}},"ownerReferences":[{{"uid":"other"}},{{"uid":"u","controller":true}}]}},"spec":{{"template":{own}}}}}"#
    );
    let object: ReplicaSet = serde_json::from_str(&text).expect("it is a ReplicaSet");
    object.revision().expect("somebody owns it")
}

/// Writes the members of an object in any order, and those of the members in `parts` by `write`.
fn reordered<'a>(
    value: &Value,
    parts: &[&str],
    choices: &mut Choices<'a>,
    write: impl Fn(&Value, &mut Choices<'a>) -> String,
) -> String {
    let Value::Object(members) = value else {
        return value.to_string();
    };
    let mut texts = Vec::new();
    for (name, member) in members {
        let text = match parts.contains(&name.as_str()) {
            true => write(member, choices),
            false => member.to_string(),
        };
        if choices.number() % 8 == 7 {
            texts.push(format!("{}:[]", json!(name)));
        }
        texts.push(format!("{} : {text}", json!(name)));
    }
    let are_distinct = texts.len() == members.len();
    if are_distinct && choices.flag() {
        texts.reverse();
    }
    format!("{{{}}}", texts.join(","))
}

/// Returns the parts of a template without what is ours. An absent part is an empty one.
fn parts(template: &Value) -> [Value; 4] {
    let metadata = &template["metadata"];
    let hashes = ["pod-template-hash", "rollouts-pod-template-hash"];
    [
        part(template, &["metadata"]),
        part(metadata, &["annotations", "labels"]),
        part(&metadata["annotations"], &OURS),
        part(&metadata["labels"], &hashes),
    ]
}

fn part(value: &Value, apart: &[&str]) -> Value {
    match value {
        Value::Null => json!({}),
        Value::Object(members) => {
            let counts = |(name, value): &(&String, &Value)| {
                !value.is_null() && !apart.contains(&name.as_str())
            };
            let members = members.iter().filter(counts);
            let members: Map<_, _> = members
                .map(|(name, it)| (name.clone(), it.clone()))
                .collect();
            Value::Object(members)
        }
        other => other.clone(),
    }
}

/// Returns a pod template.
fn template(choices: &mut Choices<'_>) -> Value {
    let mut template = json!({"spec": pod_spec(choices), "replicas": 1.5});
    if choices.flag() {
        template["spec"]["future"] = json!([deep(), long(), null, {"a": null, "b": {"c": []}}]);
    }
    template["metadata"] = choices
        .one(&[
            json!({"annotations": {CONFIG_HASH: "old", "other": "x"}, "labels": {"app": "web"}}),
            json!({"annotations": {PINS: "a=a-0123456789"}}),
            json!({"labels": {"app": "web", "pod-template-hash": "1"}, "name": null}),
            json!({"annotations": {}}),
            json!({}),
            json!(null),
        ])
        .clone();
    template
}

/// Makes a change, which may be one that does not count.
fn change(template: &mut Value, choices: &mut Choices<'_>) {
    let others = [
        json!(null),
        json!(1),
        json!("a"),
        json!({}),
        json!([]),
        json!([null]),
        json!({"a": null}),
        deep(),
        long(),
    ];
    if choices.number() % 4 == 3 {
        return spoil(template, &others, choices);
    }
    let (path, names) = choices.one(&MEMBERS);
    let name = *choices.one(names);
    let value = choices.one(&others).clone();
    let place = template.pointer_mut(path).and_then(Value::as_object_mut);
    let Some(members) = place else {
        return;
    };
    if choices.flag() {
        members.remove(name);
    } else {
        members.insert(name.to_owned(), value);
    }
}

/// Members by which templates differ, most of them in ways that do not count.
const MEMBERS: [(&str, &[&str]); 4] = [
    ("", &["metadata", "future"]),
    ("/metadata", &["annotations", "labels", "name"]),
    ("/metadata/annotations", &[CONFIG_HASH, PINS, "other"]),
    ("/metadata/labels", &["pod-template-hash", "app"]),
];
