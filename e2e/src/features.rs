//! The optional features of the chart, one line each, and what the cluster needs before they are switched on.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    crds::crd,
    installation::{dialects, merge},
    scene::Scene,
    workload::secret,
};

/// An optional feature of the chart.
pub struct Feature {
    /// Its name, from the values that switch it on.
    pub name: &'static str,
    /// The values that switch it on.
    pub values: Value,
}

/// Returns all of them. `namespaces` are those with workloads.
#[rustfmt::skip]
pub fn features(namespaces: &[String]) -> Vec<Feature> {
    let f = |name, values| Feature { name, values };
    vec![
        f("releaseWait=0s", json!({"releaseWait": "0s"})),
        f("flux", json!({"flux": {"enabled": true}})),
        f("argoCD", json!({"argoCD": {"enabled": true, "namespaces": ["*"]}})),
        f("staged.byDefault=configmaps", json!({"staged": {"byDefault": "configmaps"}})),
        f("staged.byDefault=all", json!({"staged": {"byDefault": "all"}})),
        f("namespaceAnnotations.enabled", json!({"namespaceAnnotations": {"enabled": true}})),
        f("maxConcurrentRestarts.cluster", json!({"maxConcurrentRestarts": {"cluster": 5}})),
        f("maxConcurrentRestarts.namespace", json!({"maxConcurrentRestarts": {"namespace": 1}})),
        f("pin.enabled", json!({"pin": {"enabled": true}})),
        f("protect.enabled", json!({"protect": {"enabled": true}})),
        f("protect.templates", json!({"protect": {"enabled": true, "templates": true}})),
        f("sync.enabled", json!({"sync": {"enabled": true}})),
        f("httpReload.enabled", json!({"httpReload": {"enabled": true}})),
        f("unstick.enabled", json!({"unstick": {"enabled": true}})),
        f("fieldBindings.enabled", json!({"fieldBindings": {"enabled": true, "kinds": [kind()]}})),
        f("firstStamp=baseline", json!({"firstStamp": "baseline"})),
        f("dialects=stakater", json!({"dialects": ["pod-reloader", "stakater"]})),
        f("dialects=all", json!({"dialects": dialects()})),
        f("secretProviderClasses.enabled", json!({"secretProviderClasses": {"enabled": true}})),
        f("runCronJobsOnChange", json!({"customResources": ["cronjobs"], "runCronJobsOnChange": true})),
        f("customResources", json!({"customResources": ["argo-rollouts", "knative", "cronjobs"]})),
        f("autoReloadAll", json!({"autoReloadAll": true})),
        f("ignoreSecrets", json!({"ignoreSecrets": true})),
        f("ignoreConfigMaps", json!({"ignoreConfigMaps": true})),
        f("ignoreNamespaces", json!({"ignoreNamespaces": [LEFT_OUT]})),
        f("resourceLabelSelector", json!({"resourceLabelSelector": format!("!{GENERATED}")})),
        f("hashKeysSecret", json!({"hashKeysSecret": SHARED_KEYS})),
        f("notifications", json!({"notifications": {"enabled": true, "existingSecret": CHAT, "send": "all"}})),
        f("watch.namespaces", json!({"watch": {"namespaces": namespaces}})),
        f("webhook.failurePolicy=Fail", json!({"webhook": {"failurePolicy": "Fail"}})),
        f("webhook.certManager.enabled", json!({"webhook": {"certManager": {"enabled": true}}})),
        f("watch.workloadSelector", json!({"watch": {"workloadSelector": not_in(TIER, "batch")}})),
        f("watch.namespaceSelector", json!({"watch": {"namespaceSelector": not_in("kubernetes.io/metadata.name", LEFT_OUT)}})),
        f("policy.enabled=false", json!({"policy": {"enabled": false}})),
        f("fence.enabled", json!({"fence": {"enabled": true}})),
        f("flowControl.enabled=false", json!({"flowControl": {"enabled": false}})),
        f("networkPolicy.enabled", json!({"networkPolicy": {"enabled": true}})),
        f("metrics.byNamespace.enabled", json!({"metrics": {"byNamespace": {"enabled": true}}})),
        f("podMonitor.enabled", json!({"podMonitor": {"enabled": true}})),
        f("serviceMonitor.enabled", json!({"serviceMonitor": {"enabled": true}})),
        f("prometheusRule.enabled", json!({"podMonitor": {"enabled": true}, "prometheusRule": {"enabled": true}})),
        f("grafanaDashboard.enabled", json!({"grafanaDashboard": {"enabled": true}})),
        f("pdb.enabled=false", json!({"pdb": {"enabled": false}})),
    ]
}

/// Returns the values that switch on all of these features that fit together. Where two set the same value, the later one
/// wins.
pub fn everything(features: &[Feature]) -> Value {
    let mut values = json!({});
    let fit = |feature: &&Feature| !APART.contains(&feature.name);
    for feature in features.iter().filter(fit) {
        merge(&mut values, &feature.values);
    }
    values
}

fn kind() -> Value {
    json!({"group": "goharbor.io", "version": "v1beta1", "resource": "harbors", "kind": "Harbor"})
}

fn not_in(key: &str, value: &str) -> Value {
    json!({"matchExpressions": [{"key": key, "operator": "NotIn", "values": [value]}]})
}

impl Scene {
    /// Creates what the features need: definitions of custom resources, and Secrets in the operator's namespace.
    ///
    /// # Errors
    /// When the apiserver refuses, or there are no hash keys yet.
    pub async fn prepare_features(&self) -> Result<()> {
        let definitions: Vec<_> = DEFINITIONS.iter().map(|name| crd(name)).collect();
        self.apply(&definitions).await?;
        let established = "--for=condition=Established";
        self.tool()
            .run(&["wait", "crd", "--all", established])
            .await?;
        let keys = self.installation.hash_keys();
        let keys = ["get", "secret", &keys, "--output=json"];
        let keys: Value = serde_json::from_str(&self.operators_kubectl(&keys).await?)?;
        let mut shared = secret(SHARED_KEYS, "");
        shared["stringData"] = Value::Null;
        shared["data"] = keys["data"].clone();
        let mut chat = secret(CHAT, "");
        // Nobody listens there.
        chat["stringData"] = json!({"url": "http://127.0.0.1:9/"});
        let operators = &self.installation.namespace;
        self.put_all_in(operators, &[shared, chat]).await
    }
}

/// Definitions of custom resources without which some features cannot be switched on, or have nothing to do.
const DEFINITIONS: [&str; 8] = [
    "applications",
    "harbors",
    "kustomizations",
    "podmonitors",
    "prometheusrules",
    "rollouts",
    "secretproviderclasspodstatuses",
    "servicemonitors",
];
/// Features that the chart refuses beside others, or that switch something off.
const APART: [&str; 8] = [
    "releaseWait=0s",
    "ignoreSecrets",
    "ignoreConfigMaps",
    "watch.namespaces",
    "policy.enabled=false",
    "flowControl.enabled=false",
    "serviceMonitor.enabled",
    "pdb.enabled=false",
];
/// Namespace that some features leave out.
pub const LEFT_OUT: &str = "upgrade-9";
/// Label of config objects that some features leave out.
pub const GENERATED: &str = "generated";
/// Label of workloads that some features leave out if it is `batch`.
pub const TIER: &str = "tier";
/// Secret with a copy of the hash keys, in the operator's namespace.
const SHARED_KEYS: &str = "shared-hash-keys";
/// Secret with a URL for notifications, in the operator's namespace.
const CHAT: &str = "chat";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::version::chart;

    /// What changes the operator's pods alone, adds to a feature, or says something to the chart that every installation
    /// of the tests says.
    const EXEMPT: [&str; 4] = [
        "/hostNetwork",
        "/prometheusRule/apiserver",
        "/securityContext/allowPrivilegeEscalation",
        "/webhook/restrictedOtherwise",
    ];

    #[test]
    fn every_value_of_the_chart_that_is_false_by_default_is_switched_on() {
        let values = fs::read_to_string(chart().join("values.yaml")).expect("the chart has values");
        let values: Value = serde_saphyr::from_str(&values).expect("they are YAML");
        let features = features(&[]);
        let is_on = |path: &String| {
            let value = |feature: &Feature| feature.values.pointer(path) == Some(&json!(true));
            EXEMPT.contains(&&**path) || features.iter().any(value)
        };
        let missing: Vec<_> = false_in("", &values)
            .into_iter()
            .filter(|it| !is_on(it))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn each_feature_that_does_not_fit_with_others_exists() {
        let features = features(&[]);
        for name in APART {
            let exists = features.iter().any(|feature| feature.name == name);
            assert!(exists, "{name}");
        }
    }

    /// Returns the JSON pointers of all values that are false.
    fn false_in(path: &str, values: &Value) -> Vec<String> {
        match values {
            Value::Bool(false) => vec![path.to_owned()],
            Value::Object(members) => members
                .iter()
                .flat_map(|(name, value)| false_in(&format!("{path}/{name}"), value))
                .collect(),
            _ => Vec::new(),
        }
    }
}
