//! Pinning: the copies that the pods of one workload use, and the content that was undone.

use std::collections::BTreeMap;

use pod_reloader_core::annotations::UNDONE;
use pod_reloader_core::digest::{Aspects, Presence};
use pod_reloader_core::name::Name;
use pod_reloader_core::pins::Kept;
use serde::Serialize;

use crate::cluster::Cluster;
use crate::objects::{self, Found};
use crate::print::Piece;
use crate::revisions::Stamps;
use crate::workloads::Seen;

/// Pins of one workload.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pinning {
    /// The copies that new pods use, by the name of the ConfigMap. `None` if the workload pins nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pins: Option<BTreeMap<String, String>>,
    /// True if copies could not be made.
    #[serde(skip)]
    has_failed: bool,
    /// The ConfigMaps whose current content was undone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    undone: Vec<String>,
    /// What to type to get their current content.
    #[serde(skip)]
    remedy: String,
}

impl Pinning {
    /// Returns the pins, given the objects of the workload and the copies of the content that was undone.
    pub(super) fn of(seen: &Seen<'_>, found: &Found, copies: &Found) -> Self {
        let pins = Stamps::present(seen).pins;
        // Without its settings, nobody knows whether the operator lets workloads pin anything.
        let is_pinned = match seen.operator {
            Some(_) => seen.workload.rare().pinning.is_some(),
            None => pins.is_some(),
        };
        if !is_pinned {
            return Self::default();
        }
        let kept = kept(seen);
        let undone = kept.undone.iter();
        let undone =
            undone.filter(|(source, copy)| is_still_there(seen, found, copies, source, copy));
        let by_name = |(source, copy): (&Name, &Name)| (source.to_string(), copy.to_string());
        Self {
            pins: Some(kept.pins.iter().map(by_name).collect()),
            has_failed: pins.as_deref() == Some(""),
            undone: undone.map(|(source, _)| source.to_string()).collect(),
            remedy: format!(
                "kubectl annotate --namespace={} {} {} {UNDONE}-",
                seen.workload.id.namespace,
                seen.target().kind,
                seen.workload.id.name
            ),
        }
    }

    /// Returns true if pods keep earlier content than their objects hold.
    pub(super) fn is_undone(&self) -> bool {
        !self.undone.is_empty()
    }

    /// Returns the lines of the text.
    pub(super) fn fields(&self) -> Vec<(&'static str, Vec<Piece>)> {
        let Some(pins) = &self.pins else {
            return Vec::new();
        };
        let copies = pins.iter();
        let copies = copies.map(|(source, copy)| format!("ConfigMap {source} as {copy}"));
        let mut copies: Vec<Piece> = copies.map(Piece::from).collect();
        if copies.is_empty() {
            let nothing = match self.has_failed {
                true => "nothing: copies could not be made",
                false => "nothing yet",
            };
            copies.push(nothing.into());
        }
        let mut fields = vec![("Pinned", copies)];
        if self.is_undone() {
            let undone = self.undone.iter();
            let undone = undone.map(|it| format!("the current content of ConfigMap {it}"));
            let mut lines: Vec<Piece> = undone.map(Piece::from).collect();
            lines.push(format!("To have it after all: {}", self.remedy).into());
            fields.push(("Undone", lines));
        }
        fields
    }
}

/// Reads the copies of the content that was undone.
pub(super) async fn undone_copies(cluster: &Cluster, seen: &Seen<'_>) -> Found {
    let undone = kept(seen).undone;
    let copies = undone.iter().map(|(_, copy)| seen.config_map(copy));
    objects::read(cluster, &copies.collect(), Aspects::default()).await
}

fn kept(seen: &Seen<'_>) -> Kept {
    let undone = seen.object["metadata"]["annotations"][UNDONE].as_str();
    Kept::parse(Stamps::present(seen).pins.as_deref(), undone)
}

/// Returns true if a ConfigMap has the content that was undone, as far as the user may see it. Only the operator has the
/// keys that tell this from the name of the copy. If the copy is gone, the annotation counts: the operator removes it
/// when there is other content.
fn is_still_there(
    seen: &Seen<'_>,
    found: &Found,
    copies: &Found,
    source: &Name,
    copy: &Name,
) -> bool {
    let copy = copies.objects.get(&seen.config_map(copy));
    match found.objects.get(&seen.config_map(source)) {
        Some(Presence::Absent) => false,
        Some(object) => {
            let is_there = |copy: &&Presence| matches!(copy, Presence::Present(_));
            let copy = copy.filter(is_there);
            copy.is_none_or(|copy| copy.same_content(object))
        }
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use crate::args::Target;
    use crate::cluster::canned::{Canned, copy_of, deployment, pinning_operator};
    use crate::explain::explain;
    use crate::operators::Operators;
    use crate::print::Answer;
    use serde_json::{Value, json};

    fn pins(color: &str) -> String {
        let copy = copy_of("app", json!({"color": color}));
        format!("app={}", copy["metadata"]["name"].as_str().unwrap())
    }

    /// Explains Deployment `web` with these pins, whose ConfigMap is green. There are copies of all colours but black.
    async fn explained(pins: Option<&str>, undone: Option<&str>) -> (String, Value) {
        let mut web = deployment("web");
        web["metadata"]["annotations"] = json!({
            "pod-reloader.cs.sap.com/configmaps": "app",
            "pod-reloader.cs.sap.com/pin": "configmaps",
            "pod-reloader.cs.sap.com/undone": undone.unwrap_or_default(),
        });
        web["spec"]["template"]["metadata"]["annotations"] = match pins {
            Some(pins) => json!({"pod-reloader.cs.sap.com/pins": pins}),
            None => json!({}),
        };
        let mut app = copy_of("app", json!({"color": "green"}));
        app["metadata"]["name"] = json!("app");
        let copies = ["blue", "green", "red"].map(|it| copy_of("app", json!({"color": it})));
        let objects = [&[app][..], &copies[..]].concat();
        let cluster = Canned::shop()
            .with(
                "/apis/apps/v1/deployments",
                json!({"items": [pinning_operator()]}),
            )
            .with_all("/apis/apps/v1/namespaces/shop/deployments", &[web])
            .with_all("/api/v1/namespaces/shop/configmaps", &objects)
            .reporting("current")
            .cluster();
        let operators = Operators::find(&cluster, None).await;
        let target = Target::here("deploy", "web");
        let (answer, _) = explain(&cluster, &operators, &target).await.unwrap();
        let text = answer.text().without_styles();
        (text, serde_json::to_value(answer).unwrap())
    }

    #[tokio::test]
    async fn what_is_pinned_and_what_was_undone_is_shown() {
        let (blue, green) = (pins("blue"), pins("green"));
        let (text, json) = explained(Some(&blue), Some(&green)).await;
        for line in [
            format!("ConfigMap app as {}", &blue[4..]),
            "the current content of ConfigMap app".to_owned(),
            "kubectl annotate --namespace=shop deployments.apps web pod-reloader.cs.sap.com/undone-"
                .to_owned(),
            "its pods run the current configuration, apart from what was undone".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
        assert_eq!(json["pins"], json!({"app": &blue[4..]}));
        assert_eq!(json["undone"], json!(["app"]));
    }

    #[tokio::test]
    async fn what_has_changed_since_is_no_longer_undone() {
        let (blue, red) = (pins("blue"), pins("red"));
        let (text, json) = explained(Some(&blue), Some(&red)).await;
        assert!(
            !text.contains("Undone") && json.get("undone").is_none(),
            "{text}"
        );
    }

    #[tokio::test]
    async fn what_nobody_can_compare_is_undone_as_the_annotation_says() {
        let (blue, black) = (pins("blue"), pins("black"));
        let (_, json) = explained(Some(&blue), Some(&black)).await;
        assert_eq!(json["undone"], json!(["app"]));
    }

    #[tokio::test]
    async fn a_workload_without_copies_says_so() {
        let (text, _) = explained(Some(""), None).await;
        assert!(text.contains("nothing: copies could not be made"), "{text}");
        let (text, json) = explained(None, None).await;
        assert!(text.contains("nothing yet"), "{text}");
        assert_eq!(json["pins"], json!({}));
    }
}
