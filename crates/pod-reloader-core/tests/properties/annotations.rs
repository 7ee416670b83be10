//! Lists come to references: checked against a second, slower reading of the contract.

use std::collections::BTreeSet;

use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, MAX_REFERENCES, References, references};

/// The bytes are two lists with a `|` between them.
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
        .flat_map(|(kind, list)| list.split(',').map(|item| (*kind, item.trim())))
        .filter(|(_, item)| is_subdomain(item))
        .collect();
    let accepted: Vec<_> = read
        .accepted
        .iter()
        .map(|reference| (reference.kind, reference.name.as_str()))
        .collect();
    let expected: Vec<_> = valid.into_iter().take(MAX_REFERENCES).collect();
    assert_eq!(accepted, expected);

    let is_elsewhere = |namespace: &Name| namespace.as_str() != NAMESPACE;
    assert!(
        !read
            .accepted
            .iter()
            .any(|reference| is_elsewhere(&reference.namespace))
    );
    assert!(
        read.rejected.len() <= 22,
        "{} rejected",
        read.rejected.len()
    );
    for rejected in read.rejected.iter().map(ToString::to_string) {
        assert!(rejected.len() < 1024, "{} bytes", rejected.len());
        assert!(!rejected.contains(char::is_control), "{rejected:?}");
    }

    let reversed = |list: &str| list.rsplit(',').collect::<Vec<_>>().join(",");
    assert_eq!(read, self::read(&reversed(config_maps), &reversed(secrets)));
    let twice = |list: &str| format!("{list}, ,{list}");
    assert_eq!(read, self::read(&twice(config_maps), &twice(secrets)));
}

fn read(config_maps: &str, secrets: &str) -> References {
    let namespace = Name::parse(NAMESPACE).expect("it is a name");
    references(&namespace, Some(config_maps), Some(secrets))
}

/// A DNS-1123 subdomain, as apimachinery's regular expression has it.
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
