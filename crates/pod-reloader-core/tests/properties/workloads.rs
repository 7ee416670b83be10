//! Checks what is read of a workload, against a reading of the whole object.

use std::sync::LazyLock;

use pod_reloader_core::annotations as keys;
use pod_reloader_core::kind::{CustomResource, WorkloadKind};
use pod_reloader_core::name::Name;
use pod_reloader_core::object::{CustomObject, Object, WorkloadObject};
use pod_reloader_core::scope::Scope;
use pod_reloader_core::staging::Defaults;
use pod_reloader_core::workload::{Restart, Workload};
use serde_json::{Value, json};

use crate::built_workload::{
    LABELS, READ, expected, health, is_built_in, is_custom, restart, template_of_built_in,
    template_of_custom,
};
use crate::choices::Choices;
use crate::pod_spec::pod_spec;
use crate::written::{deep, long, spoil, written};

/// Makes a workload of a built-in kind and one of another, and checks what is read of each.
pub(crate) fn hold(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    hold_of_built_in(&mut choices);
    hold_of_custom(&mut choices);
}

fn hold_of_built_in(choices: &mut Choices<'_>) {
    let mut object = object(&["spec", "template"], choices);
    for _ in 5..choices.number() % 8 {
        spoil(&mut object, &single(), choices);
    }
    let spec = put_pod_spec(&mut object, "/spec/template", choices);
    let has_repeats = choices.flag();
    let repeats = |path: &str| {
        let maps = [
            "/metadata/annotations",
            "/metadata/labels",
            "/spec/template/metadata/annotations",
            "/spec/template/metadata/labels",
        ];
        has_repeats && maps.contains(&path)
    };
    let text = written(&object, &repeats, choices);
    let read = read::<WorkloadObject>(WorkloadKind::DEPLOYMENT, &text);
    let expected = is_built_in(&object).then(|| {
        let template = template_of_built_in(&object);
        let mut expected = expected(&object, spec.as_slice(), vec![template])?;
        expected["restart"] = json!("template");
        Some(expected)
    });
    let read = read.map(|it| seen(&it, has_repeats));
    assert_eq!(
        read,
        expected.flatten().map(|it| sized(it, has_repeats)),
        "{text}"
    );
}

fn hold_of_custom(choices: &mut Choices<'_>) {
    let kind = *choices.one(&KINDS);
    let shape = kind.shape();
    let path = shape.templates.last().map_or(ANY, |it| it.path);
    let mut object = object(path, choices);
    object["status"] = status(choices);
    if shape.templates.len() > 1 && choices.flag() {
        object["spec"]["one"] = object["spec"]["some"]["two"].clone();
    }
    let others: Vec<_> = single()
        .into_iter()
        .chain([deep(), json!([]), json!([null])])
        .collect();
    for _ in 4..choices.number() % 8 {
        // These are not parsed as a whole, so anything can be in them.
        let part = *choices.one(&["/spec", "/status"]);
        let part = object.pointer_mut(part).expect("it is there");
        spoil(part, &others, choices);
    }
    if choices.number() % 8 == 7 {
        spoil(&mut object["metadata"], &single(), choices);
    }
    let mut specs = Vec::new();
    for template in shape.templates {
        let pointer = format!("/{}", template.path.join("/"));
        specs.extend(put_pod_spec(&mut object, &pointer, choices));
    }
    let has_repeats = choices.flag();
    let repeats = |path: &str| {
        let is_in_pod_spec = path.len() > 1 && path[1..].contains("/spec");
        let is_typed = path.is_empty() || path == "/metadata";
        has_repeats && !is_in_pod_spec && !is_typed
    };
    let text = written(&object, &repeats, choices);
    let read = read::<CustomObject>(kind, &text).map(|it| seen(&it, has_repeats));
    let expected = is_custom(&object).then(|| {
        let templates = shape.templates.iter();
        let templates = templates.map(|it| template_of_custom(&object, it.path));
        let mut expected = expected(&object, &specs, templates.collect())?;
        expected["restart"] = restart(&object, kind);
        let is_by_annotation = matches!(shape.restart_at, Some(["metadata", ..]));
        let status = &object["status"];
        let health = if is_by_annotation {
            "Unknown"
        } else {
            health(status, &object)
        };
        expected["health"] = json!(health);
        Some(expected)
    });
    assert_eq!(
        read,
        expected.flatten().map(|it| sized(it, has_repeats)),
        "{kind}: {text}"
    );
}

/// Reads a workload, if it can be read.
fn read<O: Object>(kind: WorkloadKind, text: &str) -> Option<Workload> {
    static SCOPE: LazyLock<Scope> = LazyLock::new(|| {
        let own = Name::parse("operator").expect("it is a name");
        Scope::new([], own).and_stages(Defaults {
            judges_all: true,
            ..Defaults::default()
        })
    });
    let object: O = serde_json::from_str(text).ok()?;
    SCOPE.read(kind, object).ok()
}

/// The kinds: one template, or the time in a field; two templates; a time in an annotation.
static KINDS: LazyLock<Vec<WorkloadKind>> = LazyLock::new(|| {
    let resources = [
        json!({"group": "x.io", "resource": "ones", "kind": "One",
            "podTemplates": ["spec.template"], "restartAt": "spec.restartAt"}),
        json!({"group": "x.io", "resource": "twos", "kind": "Two",
            "podTemplates": ["spec.one", "spec.some.two"], "makesTemplates": true}),
        json!({"group": "x.io", "resource": "nones", "kind": "None",
            "restartAt": "metadata.annotations[x.io/at]"}),
    ];
    let kind = |resource| {
        let resource: CustomResource = serde_json::from_value(resource).expect("it is one");
        resource.into_kind().expect("its paths are paths")
    };
    resources.map(kind).into()
});

/// The place of what looks like a pod template in a kind that has none.
const ANY: &[&str] = &["spec", "any"];

/// What is put in place of others where everything has a type.
fn single() -> Vec<Value> {
    vec![
        json!(null),
        json!(1),
        json!(true),
        json!("a"),
        json!({}),
        json!(1.5),
        long(),
    ]
}

/// Returns a workload with a pod template at `path`, which has no spec yet.
fn object(path: &[&str], choices: &mut Choices<'_>) -> Value {
    let mut template = json!({"metadata": {
        "labels": {"app": "web"},
        "annotations": {"other": "x"},
    }});
    let annotations = &mut template["metadata"]["annotations"];
    put(annotations, keys::CONFIG_HASH, &["v1.a", ""], choices);
    put(annotations, keys::PINS, &["a=a-0123456789"], choices);
    let mut metadata = json!({
        "name": "web",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "1",
        "generation": 7,
        "annotations": {"other": "x"},
        "labels": {"app": "web"},
        "managedFields": [null, {"manager": 1}],
        "future": deep(),
    });
    let annotations = &mut metadata["annotations"];
    let lists = ["one", "two.three, one", "a[k,l],b", "A,,b", "", "two"];
    for key in [
        keys::CONFIG_MAPS,
        keys::SECRETS,
        keys::EXCLUDE_CONFIG_MAPS,
        keys::EXCLUDE_SECRETS,
    ] {
        put(annotations, key, &lists, choices);
    }
    put(
        annotations,
        keys::AUTO,
        &["true", "configmaps", "secrets", "false", "x"],
        choices,
    );
    put(
        annotations,
        keys::RESTART,
        &["at", "template", "x"],
        choices,
    );
    put(annotations, keys::BASELINE, &["=x"], choices);
    put(
        annotations,
        "x.io/at",
        &["2026-01-01T00:00:00Z", "x"],
        choices,
    );
    let labels = &mut metadata["labels"];
    put(labels, keys::IGNORED, &["true", "no"], choices);
    put(labels, keys::DISABLED, &["true", "no"], choices);
    let mut spec = template;
    for name in path[1..].iter().rev() {
        spec = json!({(*name): spec, "replicas": 1});
    }
    put(&mut spec, "restartAt", &["2026-01-01T00:00:00Z"], choices);
    if choices.number() % 4 == 3 {
        spec["paused"] = json!(choices.flag());
        spec["updateStrategy"] = json!({"type": choices.one(&["OnDelete", "RollingUpdate"])});
    }
    json!({"apiVersion": "x.io/v1", "metadata": metadata, "spec": spec})
}

/// Puts a member into an object, or not.
fn put(object: &mut Value, name: &str, values: &[&str], choices: &mut Choices<'_>) {
    if choices.number() % 3 == 1 {
        object[name] = json!(choices.one(values));
    }
}

/// Puts a pod spec into the template at a place, if that is an object. Returns it.
fn put_pod_spec(object: &mut Value, template: &str, choices: &mut Choices<'_>) -> Option<Value> {
    let template = object.pointer_mut(template)?.as_object_mut()?;
    let spec = pod_spec(choices);
    template.insert("spec".to_owned(), spec.clone());
    Some(spec)
}

fn status(choices: &mut Choices<'_>) -> Value {
    let conditions = (0..choices.number() % 4).map(|_| {
        let name = choices.one(&["Ready", "Available", "Reconciling", "Stalled", "Other"]);
        let mut condition =
            json!({"type": name, "status": choices.one(&["True", "False", "Unknown"])});
        if choices.flag() {
            condition["observedGeneration"] = choices.one(&GENERATIONS).clone();
        }
        condition
    });
    let mut status = json!({"conditions": conditions.collect::<Vec<_>>()});
    if choices.flag() {
        status["observedGeneration"] = choices.one(&GENERATIONS).clone();
    }
    put(
        &mut status,
        "phase",
        &["Healthy", "Paused", "Progressing", "Degraded", "x"],
        choices,
    );
    status
}

static GENERATIONS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    vec![
        json!(7),
        json!("7"),
        json!(6),
        json!("6"),
        json!(7.5),
        json!(u64::MAX),
        json!("x"),
    ]
});

/// Returns what a workload says by what was read of it.
fn seen(workload: &Workload, has_repeats: bool) -> Value {
    let markers = &workload.markers;
    let templates = workload.templates.iter().map(|it| {
        json!({
            "depth": it.depth,
            "hash": it.config_hash,
            "pins": it.pins,
            "size": it.annotations_size,
        })
    });
    let named = workload.references.named();
    let named = named
        .map(|it| format!("{} {}", it.kind, it.name))
        .collect::<Vec<_>>();
    let annotations = READ.map(|key| json!([key, markers.annotations.get(key)]));
    let labels = LABELS.map(|key| json!([key, markers.labels.get(key)]));
    let restart = match &workload.restart {
        Restart::Template => json!("template"),
        Restart::At(field) => json!([field.depth, field.value]),
    };
    let mut seen = json!({
        "id": [&*workload.id.name, workload.id.namespace.as_str(), &*workload.uid],
        "generation": workload.generation,
        "optIn": format!("{:?}", workload.opt_in),
        "isOptedIn": workload.is_opted_in(),
        "named": named,
        "annotations": annotations,
        "labels": labels,
        "has": [markers.has_annotations, markers.has_labels],
        "baseline": markers.baseline,
        "size": markers.annotations_size,
        "templates": templates.collect::<Vec<_>>(),
        "stall": workload.stall.map(|it| format!("{it:?}")),
        "restart": restart,
    });
    if !workload.id.kind.is_built_in() {
        let staging = workload
            .staging
            .as_ref()
            .expect("the health of all matters");
        seen["health"] = json!(format!("{:?}", staging.health));
    }
    sized(seen, has_repeats)
}

/// Returns what was read, without the sizes if keys are repeated: each of these counts.
fn sized(mut read: Value, has_repeats: bool) -> Value {
    if has_repeats {
        read["size"] = json!(null);
        for template in read["templates"].as_array_mut().into_iter().flatten() {
            template["size"] = json!(null);
        }
    }
    read
}
