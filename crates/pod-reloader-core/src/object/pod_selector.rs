//! The label selector of a workload's pods, as lists take it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::Selector;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::raw::read_as;

/// The maximum size of a selector, in bytes. Lists take it in their URL, and reading it takes many times its size.
const MAX_SIZE: usize = 16 << 10;

/// Returns a selector as text. `None` if it cannot be understood, is too large, or selects everything, which no workload
/// does.
pub(super) fn text(selector: &RawValue) -> Option<String> {
    /// A mere map of labels is what OpenShift's DeploymentConfigs have.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum PodSelector {
        Labels(BTreeMap<String, String>),
        Selector(LabelSelector),
    }
    if selector.get().len() > MAX_SIZE {
        return None;
    }
    let selector: Selector = match read_as(selector)? {
        PodSelector::Labels(labels) => labels.into_iter().collect(),
        PodSelector::Selector(selector) => selector.try_into().ok()?,
    };
    Some(selector.to_string()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, value::to_raw_value};

    #[test]
    fn a_selector_is_a_label_selector_or_a_map_of_labels() {
        let text = |selector: serde_json::Value| text(&to_raw_value(&selector).unwrap());
        let of = |text: &str| Some(text.to_owned());
        assert_eq!(text(json!({"matchLabels": {"app": "web"}})), of("app=web"));
        assert_eq!(text(json!({"app": "web"})), of("app=web"));
        let expression = json!({"key": "app", "operator": "In", "values": ["a", "b"]});
        let both = json!({"matchLabels": {"tier": "x"}, "matchExpressions": [expression]});
        assert!(text(both).unwrap().contains("app in (a,b)"));
        for none in [
            json!({}),
            json!(null),
            json!("app"),
            json!({"matchLabels": {}}),
        ] {
            assert_eq!(text(none.clone()), None, "{none}");
        }
    }

    #[test]
    fn a_selector_of_more_labels_than_a_url_takes_is_not_read() {
        let of = |count: usize| {
            let labels = (0..count).map(|number| (format!("label-{number:04}"), json!("x")));
            let labels: serde_json::Map<String, serde_json::Value> = labels.collect();
            text(&to_raw_value(&json!({"matchLabels": labels})).unwrap())
        };
        assert!(of(800).is_some());
        assert_eq!(of(1000), None);
    }
}
