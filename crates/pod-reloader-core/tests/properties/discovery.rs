//! Checks how a pod spec becomes uses, against a second, slower reading that looks at every member.

use std::collections::{BTreeMap, BTreeSet};

use pod_reloader_core::discovery::{Consumption, PodSpec};
use pod_reloader_core::reference::ConfigKind;
use serde_json::{Value, json};

use crate::annotations::is_subdomain;
use crate::choices::Choices;
use crate::pod_spec::{DRIVERS, pod_spec};

/// Makes a pod spec, and checks what is read from it.
pub(crate) fn hold(bytes: &[u8]) {
    let spec = pod_spec(&mut Choices::new(bytes));
    let expected = uses(&spec);
    let read: PodSpec = serde_json::from_str(&spec.to_string()).expect("it is a pod spec");
    let read: Uses = read
        .uses()
        .into_iter()
        .map(|it| {
            let keys = it.keys.into_iter().map(str::to_owned).collect();
            (it.kind, it.name.to_string(), keys, it.consumption)
        })
        .collect();
    assert_eq!(read, expected, "{spec}");

    // The API knows each name by which a use was found.
    let typed: k8s_openapi::api::core::v1::PodSpec =
        serde_json::from_value(spec.clone()).expect("it is a pod spec");
    assert_eq!(uses(&json!(typed)), expected, "{spec}");
}

pub(crate) type Uses = BTreeSet<(ConfigKind, String, BTreeSet<String>, Consumption)>;

/// A source of files in a volume.
struct Files {
    kind: ConfigKind,
    name: String,
    /// The keys and paths. If empty, every key is a file of its own name.
    items: Vec<(String, String)>,
}

pub(crate) fn uses(spec: &Value) -> Uses {
    let mut uses = Uses::new();
    let mut mounts = Vec::new();
    let mut files: BTreeMap<String, Vec<Files>> = BTreeMap::new();
    walk(spec, String::new(), &mut |path, value| {
        let place = path
            .split('/')
            .map(|step| if is_number(step) { "*" } else { step })
            .collect::<Vec<_>>()
            .join("/");
        let place = place.replace("/initContainers/", "/containers/");
        let (parent, field) = place.rsplit_once('/').unwrap_or_default();
        let kind = if field.starts_with("configMap") {
            ConfigKind::ConfigMap
        } else {
            ConfigKind::Secret
        };
        let mut add = |name: &str, key: &str, consumption| {
            let keys = [key.to_owned()].into_iter().filter(|key| !key.is_empty());
            uses.insert((kind, name.to_owned(), keys.collect(), consumption));
        };
        match (parent, field) {
            ("/containers/*/env/*/valueFrom", "configMapKeyRef" | "secretKeyRef") => {
                add(text(value, "name"), text(value, "key"), Consumption::Env);
            }
            ("/containers/*/envFrom/*", "configMapRef" | "secretRef") => {
                add(text(value, "name"), "", Consumption::EnvFrom);
            }
            ("/imagePullSecrets", "*") => add(text(value, "name"), "", Consumption::ImagePull),
            ("/volumes/*/csi", "nodePublishSecretRef") => {
                add(text(value, "name"), "", Consumption::Driver);
            }
            ("/volumes/*/azureFile", "secretName") => {
                add(value.as_str().unwrap_or_default(), "", Consumption::Driver);
            }
            (driver, "secretRef")
                if DRIVERS
                    .iter()
                    .any(|it| driver == format!("/volumes/*/{it}")) =>
            {
                add(text(value, "name"), "", Consumption::Driver);
            }
            ("/volumes/*", "configMap" | "secret")
            | ("/volumes/*/projected/sources/*", "configMap" | "secret") => {
                let name = match &*place {
                    "/volumes/*/secret" => text(value, "secretName"),
                    _ => text(value, "name"),
                };
                let volume = path.split('/').take(3).collect::<Vec<_>>().join("/");
                let items = value["items"].as_array().into_iter().flatten();
                let items =
                    items.map(|it| (text(it, "key").to_owned(), text(it, "path").to_owned()));
                if value.is_object() {
                    files.entry(volume).or_default().push(Files {
                        kind,
                        name: name.to_owned(),
                        items: items.collect(),
                    });
                }
            }
            ("/containers/*/volumeMounts", "*") => {
                let container = path.split("/volumeMounts").next().unwrap_or_default();
                mounts.push((container.to_owned(), value.clone()));
            }
            _ => (),
        }
    });
    for (volume, files) in files {
        let volume = &spec.pointer(&volume).expect("it was found there");
        let mut is_mounted = false;
        for (container, mount) in &mounts {
            if text(mount, "name") != text(volume, "name") || text(mount, "name").is_empty() {
                continue;
            }
            is_mounted = true;
            let restarts = text(
                spec.pointer(container).expect("it was found there"),
                "restartPolicy",
            );
            let ends = container.starts_with("/init") && restarts != "Always";
            let consumption = match (text(mount, "subPath"), text(mount, "subPathExpr")) {
                ("", "") if ends => Consumption::InitVolume,
                ("", "") => Consumption::Volume,
                (_, _) => Consumption::SubPath,
            };
            let is_expanded = !text(mount, "subPathExpr").is_empty();
            let path = if is_expanded {
                ""
            } else {
                text(mount, "subPath")
            };
            uses.extend(uses_at(path, &files, consumption));
        }
        if !is_mounted {
            uses.extend(uses_at("", &files, Consumption::Unmounted));
        }
    }
    uses.retain(|(_, name, _, _)| is_subdomain(name));
    uses
}

/// Returns the uses that result from mounting `path`. An empty path is the whole volume.
fn uses_at(path: &str, files: &[Files], consumption: Consumption) -> Uses {
    let path: Vec<_> = path.split('/').filter(|_| !path.is_empty()).collect();
    let mut found = Uses::new();
    let mut all = Uses::new();
    for source in files {
        let mut keys = BTreeSet::new();
        let mut all_keys = BTreeSet::new();
        for (key, own) in &source.items {
            all_keys.insert(key.clone());
            if own.split('/').collect::<Vec<_>>().starts_with(&path) {
                keys.insert(key.clone());
            }
        }
        let can_be_key = |c: char| "-._".contains(c) || c.is_ascii_alphanumeric();
        if let ([key], []) = (&*path, &*source.items)
            && key.chars().all(can_be_key)
            && !matches!(
                key.split('.').collect::<Vec<_>>()[..],
                ["", ""] | ["", "", ..]
            )
        {
            keys.insert((*key).to_owned());
        }
        let used = |keys| (source.kind, source.name.clone(), keys, consumption);
        if !keys.is_empty() {
            found.insert(used(keys));
        }
        all.insert(used(all_keys));
    }
    if path.is_empty() || found.is_empty() {
        all
    } else {
        found
    }
}

/// Calls `visit` with everything in `value`, and the path to it.
pub(crate) fn walk(value: &Value, path: String, visit: &mut impl FnMut(&str, &Value)) {
    visit(&path, value);
    let members: Vec<(String, &Value)> = match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, it)| (name.clone(), it))
            .collect(),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.map(|(n, it)| (n.to_string(), it)).collect()
        }
        _ => return,
    };
    for (step, member) in members {
        walk(member, format!("{path}/{step}"), visit);
    }
}

fn is_number(step: &str) -> bool {
    !step.is_empty() && step.chars().all(|c| c.is_ascii_digit())
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}
