use serde_json::{Value, json};

use super::*;
use crate::dialects::Dialects;
use crate::digest::{ConfigObject, Objects};
use crate::fixtures::{config_map, deployment, keyring, objects};
use crate::mark::Marks;
use crate::name_regex::steps;
use crate::references::MAX_REFERENCES;
use crate::workload::Workload;

const CONTAINERS: &str = "/spec/template/spec/containers";
const VOLUMES: &str = "/spec/template/spec/volumes";
const RELOAD: &str = "configmap.reloader.stakater.com/reload";

fn object(content: &Value, marks: Marks) -> Option<ConfigObject> {
    let mut object = config_map(content);
    object.marks = marks;
    Some(object)
}

fn named(names: impl Iterator<Item = String>, object: &Option<ConfigObject>) -> Objects {
    names
        .flat_map(|name| objects(&[(&name, object.clone())]))
        .collect()
}

/// Returns whether `hash` stood for different objects, and the number of bytes hashed to find out.
fn asked(workload: &Workload, objects: &Objects, hash: &str) -> (bool, usize) {
    let hash = keyring(&[1]).comparison(hash).unwrap();
    let candidates = objects.iter();
    let candidates =
        candidates.map(|(it, object)| Candidate::new(&workload.references, it, object));
    let mut otherwise = Otherwise::new(candidates.collect(), &hash);
    (otherwise.is_met(), MAX_HASHED - otherwise.left)
}

/// Returns a workload that mounts all the objects it lists, and is restarted only if needed.
fn mounting(names: &[String]) -> Workload {
    let volume = |name: &String| json!({"name": name, "configMap": {"name": name}});
    let mount = |name: &String| json!({"name": name, "mountPath": "/x"});
    deployment("web")
        .lists(&names.join(","))
        .annotation("restart-on", "needed")
        .with(VOLUMES, names.iter().map(volume).collect())
        .with(
            CONTAINERS,
            json!([{"volumeMounts": names.iter().map(mount).collect::<Value>()}]),
        )
        .build()
}

#[test]
fn each_mark_of_256_objects_is_tried_within_what_may_be_hashed() {
    let names: Vec<_> = (0..MAX_REFERENCES)
        .map(|n| format!("app-config-{n:03}"))
        .collect();
    let workload = mounting(&names);
    let content = json!({"data": {"key": "1"}});
    let all = named(names.iter().cloned(), &object(&content, Marks::IMMUTABLE));
    let hash = keyring(&[1])
        .hash(&workload.references.contents(&all))
        .to_string();
    let mut inverted = all;
    inverted.extend(objects(&[(
        &names[MAX_REFERENCES - 1],
        object(&content, Marks::NONE),
    )]));
    let (stood, hashed) = asked(&workload, &inverted, &hash);
    assert!(stood && hashed < MAX_HASHED, "{hashed} bytes hashed");
}

/// The search used to go over 600,000 keys in 257 passes, which took 15 seconds.
#[test]
fn the_search_finds_nothing_once_too_much_would_be_hashed() {
    let keys: Vec<_> = (0..4000).map(|n| format!("k{n}")).collect();
    let x = |n: usize| format!("x{n}");
    let list = (1..MAX_REFERENCES)
        .map(x)
        .fold(format!("big[{}]", keys.join(",")), |list, name| {
            format!("{list},{name}")
        });
    let volume = |name: String| json!({"name": name, "configMap": {"name": name}});
    let workload = deployment("web")
        .lists(&list)
        .annotation("restart-on", "needed")
        .with(VOLUMES, (1..MAX_REFERENCES).map(x).map(volume).collect())
        .with(
            CONTAINERS,
            json!([{"envFrom": [{"configMapRef": {"name": "big"}}]}]),
        )
        .build();
    let mut there = named((1..MAX_REFERENCES).map(x), &None);
    let data: Value = keys.iter().map(|key| (key.clone(), json!("1"))).collect();
    there.extend(objects(&[(
        "big",
        object(&json!({"data": data}), Marks::NONE),
    )]));
    let other = keyring(&[1])
        .hash(&workload.references.contents(&Objects::new()))
        .to_string();
    let (stood, hashed) = asked(&workload, &there, &other);
    assert!(!stood);
    assert!(hashed <= MAX_HASHED, "{hashed} bytes hashed");
}

#[test]
fn names_are_matched_once_however_many_marks_are_tried() {
    let long = |n: usize| format!("{n:03}{}", "a".repeat(250));
    let patterns: Vec<_> = (0..32)
        .map(|n| format!("[a-z0-9]*[0-9]?[a-z]*{}?", n % 10))
        .collect();
    let workload = deployment("web").annotated(RELOAD, &patterns.join(","));
    let spoken = [Dialect::PodReloader, Dialect::Stakater].into();
    let workload = workload.read_in(Dialects {
        spoken,
        ..Dialects::default()
    });
    assert_eq!(*workload.references.rejected, []);
    let content = json!({"data": {"key": "1"}});
    let ignored = named(
        (0..MAX_REFERENCES).map(long),
        &object(&content, Marks::STAKATER_IGNORE),
    );
    let other = keyring(&[2])
        .hash(&workload.references.contents(&ignored))
        .to_string();
    let other = other.replace(&keyring_id(2), &keyring_id(1));
    let ((stood, hashed), steps) = steps::counted(|| asked(&workload, &ignored, &other));
    assert!(!stood && hashed > 0);
    assert!(steps <= MAX_REFERENCES * 32 * 253, "{steps} steps");
}

fn keyring_id(seed: u8) -> String {
    crate::hash::HashKey::new([seed; 32]).id().to_string()
}
