//! Checks how lists become references, against a second, slower reading of the contract.

use std::collections::BTreeSet;

use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::ConfigKind;
use pod_reloader_core::references::{MAX_REFERENCES, References};

use pod_reloader_core::object::{Object, WorkloadObject};
use pod_reloader_core::workload::Reading;
use serde_json::json;

/// Checks two lists, given as bytes with a `|` between them.
pub(crate) fn hold(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (config_maps, secrets) = text.split_once('|').unwrap_or((&text, ""));
    let read = read(config_maps, secrets);

    let lists = [
        (ConfigKind::ConfigMap, config_maps),
        (ConfigKind::Secret, secrets),
    ];
    let valid: BTreeSet<_> = lists
        .iter()
        .flat_map(|(kind, list)| items(list).into_iter().map(|item| (*kind, item)))
        .filter_map(|(kind, item)| Some((kind, name_of(&item)?)))
        .filter(|(_, name)| is_subdomain(name))
        .collect();
    let accepted: Vec<_> = read
        .named()
        .map(|reference| (reference.kind, reference.name.to_string()))
        .collect();
    let expected: Vec<_> = valid.into_iter().take(MAX_REFERENCES).collect();
    assert_eq!(accepted, expected);

    let is_elsewhere = |namespace: &Name| namespace.as_str() != NAMESPACE;
    assert!(
        !read
            .named()
            .any(|reference| is_elsewhere(&reference.namespace))
    );
    assert!(
        read.rejected.len() <= 23,
        "{} rejected",
        read.rejected.len()
    );
    for rejected in read.rejected.iter().map(ToString::to_string) {
        assert!(rejected.len() < 1024, "{} bytes", rejected.len());
        assert!(!rejected.contains(char::is_control), "{rejected:?}");
    }

    let twice = |list: &str| format!("{list}, ,{list}");
    if text.contains(['[', ']']) {
        return;
    }
    assert_eq!(read, self::read(&twice(config_maps), &twice(secrets)));
    let reversed = |list: &str| list.rsplit(',').collect::<Vec<_>>().join(",");
    assert_eq!(read, self::read(&reversed(config_maps), &reversed(secrets)));
}

fn read(config_maps: &str, secrets: &str) -> References {
    let lists = json!({
        "pod-reloader.cs.sap.com/configmaps": config_maps,
        "pod-reloader.cs.sap.com/secrets": secrets,
    });
    let object = json!({
        "metadata": {"name": "web", "namespace": NAMESPACE, "annotations": lists},
        "spec": {"template": {}},
    });
    let object: WorkloadObject = serde_json::from_value(object).expect("it is a workload");
    let workload = object.into_workload(
        WorkloadKind::DEPLOYMENT,
        &Reading::default(),
        &pod_reloader_core::annotations::Inherited::default(),
    );
    workload.expect("its namespace is a name").references
}

/// Returns the items of a list. A comma between an opening and the next closing bracket is part of an item.
pub(crate) fn items(list: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut is_open = false;
    for character in list.chars() {
        match character {
            ',' if !is_open => items.push(String::new()),
            other => {
                is_open = other == '[' || is_open && other != ']';
                items.last_mut().expect("there is one").push(other);
            }
        }
    }
    items
}

/// Returns the name in `name` or `name[key,key]`.
pub(crate) fn name_of(item: &str) -> Option<String> {
    let item = item.trim();
    let Some(start) = item.find('[') else {
        return Some(item.to_owned());
    };
    let keys = item[start + 1..].strip_suffix(']')?;
    let mut keys: Vec<_> = keys.split(',').map(str::trim).collect();
    keys.retain(|key| !key.is_empty());
    let is_key = |key: &&str| {
        key.len() <= 253
            && key
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
    };
    (!keys.is_empty() && keys.iter().all(is_key)).then(|| item[..start].trim_end().to_owned())
}

/// Returns true for a DNS-1123 subdomain, by the rules of apimachinery's regular expression.
pub(crate) fn is_subdomain(text: &str) -> bool {
    let is_inner = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-');
    let is_label = |label: &str| {
        !label.is_empty()
            && label.chars().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

const NAMESPACE: &str = "ns";
