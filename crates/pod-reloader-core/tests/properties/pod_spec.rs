//! Pod specs, as the apiserver sends them and worse.

use serde_json::{Value, json};

use crate::choices::Choices;

/// Returns a pod spec that uses ConfigMaps and Secrets in any way, valid or not.
pub(crate) fn pod_spec(choices: &mut Choices<'_>) -> Value {
    let mut spec = json!({});
    put(&mut spec, "volumes", choices, |it| list(it, 8, volume));
    put(&mut spec, "containers", choices, |it| {
        list(it, 3, container)
    });
    put(&mut spec, "initContainers", choices, |it| {
        list(it, 3, container)
    });
    put(&mut spec, "imagePullSecrets", choices, |it| {
        list(it, 3, named)
    });
    decoys(&mut spec, choices);
    if choices.number() % 8 == 7 {
        spec["ephemeralContainers"] = list(choices, 2, container);
    }
    spec
}

fn container(choices: &mut Choices<'_>) -> Value {
    let mut container = json!({});
    put(&mut container, "volumeMounts", choices, |it| {
        list(it, 8, mount)
    });
    put(&mut container, "env", choices, |it| list(it, 3, variable));
    put(&mut container, "envFrom", choices, |it| {
        list(it, 3, variables)
    });
    put(&mut container, "restartPolicy", choices, |it| {
        json!(it.one(&["Always", "Always", "OnFailure", ""]))
    });
    decoys(&mut container, choices);
    container
}

fn mount(choices: &mut Choices<'_>) -> Value {
    let mut mount = json!({"mountPath": "/config", "readOnly": true});
    put(&mut mount, "name", choices, volume_name);
    if choices.flag() {
        put(&mut mount, "subPath", choices, |it| json!(it.one(&PATHS)));
    }
    if choices.number() % 4 == 1 {
        put(&mut mount, "subPathExpr", choices, |it| {
            json!(it.one(&["$(POD)", "a", ""]))
        });
    }
    mount
}

fn variable(choices: &mut Choices<'_>) -> Value {
    let mut variable = json!({"name": "A"});
    match choices.number() % 8 {
        0 => variable["value"] = json!("1"),
        1 => variable["valueFrom"] = json!({"fieldRef": {"fieldPath": "metadata.name"}}),
        _ => put(&mut variable, "valueFrom", choices, |it| {
            one_or_both(it, ["configMapKeyRef", "secretKeyRef"], |it| {
                let mut source = named(it);
                put(&mut source, "key", it, |it| json!(it.one(&KEYS)));
                source
            })
        }),
    }
    variable
}

fn variables(choices: &mut Choices<'_>) -> Value {
    let mut variables = one_or_both(choices, ["configMapRef", "secretRef"], named);
    put(&mut variables, "prefix", choices, |_| json!("P_"));
    variables
}

fn volume(choices: &mut Choices<'_>) -> Value {
    let mut volume = json!({});
    put(&mut volume, "name", choices, volume_name);
    let (field, source) = match choices.number() % 16 {
        0..3 => ("configMap", files(choices, "name")),
        3..6 => ("secret", files(choices, "secretName")),
        6..11 => ("projected", {
            let mut projected = json!({"defaultMode": 420});
            put(&mut projected, "sources", choices, |it| {
                list(it, 4, projection)
            });
            projected
        }),
        11 => ("azureFile", {
            let mut source = named(choices);
            put(&mut source, "secretName", choices, name);
            source
        }),
        12 => ("csi", {
            let attributes = json!({"secretProviderClass": "one"});
            let mut csi = json!({"driver": "d", "volumeAttributes": attributes});
            put(&mut csi, "nodePublishSecretRef", choices, named);
            put(&mut csi, "secretRef", choices, named);
            csi
        }),
        13 | 14 => (*choices.one(&DRIVERS), {
            let mut source = json!({"path": "one"});
            put(&mut source, "secretRef", choices, named);
            put(&mut source, "nodePublishSecretRef", choices, named);
            source
        }),
        _ => choices
            .one(&[
                ("emptyDir", json!({})),
                ("persistentVolumeClaim", json!({"claimName": "one"})),
                ("downwardAPI", json!({"items": [{"path": "a"}]})),
                ("hostPath", json!({"path": "/one"})),
            ])
            .clone(),
    };
    put(&mut volume, field, choices, |_| source);
    decoys(&mut volume, choices);
    volume
}

fn projection(choices: &mut Choices<'_>) -> Value {
    match choices.number() % 8 {
        0 => json!({"serviceAccountToken": {"path": "a"}}),
        1 => json!({"clusterTrustBundle": {"name": "one", "path": "a"}}),
        _ => one_or_both(choices, ["configMap", "secret"], |it| files(it, "name")),
    }
}

/// Returns a volume's source, whose name is in `field`.
fn files(choices: &mut Choices<'_>, field: &str) -> Value {
    // Some sources also have a name in the field that other places use.
    let mut files = if choices.flag() {
        json!({})
    } else {
        named(choices)
    };
    put(&mut files, field, choices, name);
    put(&mut files, "optional", choices, |it| json!(it.flag()));
    if choices.flag() {
        put(&mut files, "items", choices, |it| {
            list(
                it,
                4,
                |it| json!({"key": it.one(&KEYS[1..]), "path": it.one(&PATHS)}),
            )
        });
    }
    files
}

fn named(choices: &mut Choices<'_>) -> Value {
    let mut named = json!({});
    put(&mut named, "name", choices, name);
    put(&mut named, "optional", choices, |it| json!(it.flag()));
    decoys(&mut named, choices);
    named
}

fn name(choices: &mut Choices<'_>) -> Value {
    let names = ["one", "two", "two.three", "one", "two", "Bad_Name", ""];
    json!(choices.one(&names))
}

fn volume_name(choices: &mut Choices<'_>) -> Value {
    json!(choices.one(&["v", "w", "v", "w", "v", "w", "x", ""]))
}

/// Returns one of two members, or sometimes both.
fn one_or_both(
    choices: &mut Choices<'_>,
    fields: [&str; 2],
    value: impl Fn(&mut Choices<'_>) -> Value,
) -> Value {
    let mut object = json!({});
    let chosen = choices.number() % 5;
    for (n, field) in fields.into_iter().enumerate() {
        if chosen == 4 || chosen % 2 == n {
            put(&mut object, field, choices, &value);
        }
    }
    object
}

/// Puts a member into `object`, unless it should be absent or `null`.
fn put(
    object: &mut Value,
    field: &str,
    choices: &mut Choices<'_>,
    value: impl FnOnce(&mut Choices<'_>) -> Value,
) {
    match choices.number() % 16 {
        14 => object[field] = Value::Null,
        15 => (),
        _ => object[field] = value(choices),
    }
}

/// Puts members into `object` that have names known to the API, but in the wrong places.
fn decoys(object: &mut Value, choices: &mut Choices<'_>) {
    if choices.number() % 8 != 7 {
        return;
    }
    let reference = json!({"name": "decoy", "key": "decoy"});
    for field in [
        "configMapKeyRef",
        "secretRef",
        "configMapRef",
        "nodePublishSecretRef",
    ] {
        if choices.flag() {
            object[field] = reference.clone();
        }
    }
    object["fieldOfTheFuture"] = json!({
        "valueFrom": {"secretKeyRef": reference},
        "volumes": [{"secret": {"secretName": "decoy"}}],
        "imagePullSecrets": [reference],
    });
}

fn list(choices: &mut Choices<'_>, most: usize, item: impl Fn(&mut Choices<'_>) -> Value) -> Value {
    (0..choices.number() % (most + 1))
        .map(|_| item(choices))
        .collect()
}

const KEYS: [&str; 6] = ["", "a", "b", "app.yaml", "d", "a"];
const PATHS: [&str; 14] = [
    "a", "b", "d", "d/a", "d/e/a", "d/e", "da", "d/", "a/b", ".", "..data/a", "..data", "",
    "app.yaml",
];

/// The volumes whose driver needs a `secretRef`.
pub(crate) const DRIVERS: [&str; 7] = [
    "cephfs",
    "cinder",
    "rbd",
    "iscsi",
    "flexVolume",
    "scaleIO",
    "storageos",
];
