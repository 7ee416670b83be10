//! Advice on annotations of Stakater's Reloader, if its dialect is enabled.

use std::borrow::Cow;

use super::{Advice, NO_CLASSES, on_duration};
use crate::annotations::Place;
use crate::dialects::stakater::{
    EXCLUDE_CONFIG_MAPS, EXCLUDE_SECRETS, OF_CLASSES, PAUSE_PERIOD, READ,
};

/// Returns the advice on one annotation. `classes` says that SecretProviderClasses are tracked.
pub(super) fn on(place: Place, key: &str, value: &str, classes: bool) -> Option<Advice> {
    // Stakater's Reloader reads no labels. All its annotations are short, so this rules out most others.
    if place.is_of_labels() || key.len() > LONGEST_KEY || !key.contains("stakater.com/") {
        return None;
    }
    let foreign = |why| {
        Some(Advice::Foreign {
            key: key.escape_debug().to_string(),
            why,
        })
    };
    if key == PAUSE_PERIOD {
        return on_duration(PAUSE_PERIOD, value, "--settle-period");
    }
    if keys().any(|known| known == key) || WRITTEN.contains(&key) {
        return None;
    }
    if ON_OBJECTS.contains(&key) {
        return foreign(Cow::Borrowed(
            "has no effect on a workload; it is an annotation of ConfigMaps and Secrets",
        ));
    }
    if key.starts_with("secretproviderclass") && !classes {
        return foreign(Cow::Borrowed(NO_CLASSES));
    }
    if OF_CLASSES.contains(&key) {
        return None;
    }
    match nearest(key) {
        Some(meant) => foreign(Cow::Owned(format!("is not read; did you mean {meant}?"))),
        None if is_of_reloader(key) => foreign(Cow::Borrowed("is not read")),
        None => None,
    }
}

/// Returns the annotations that are read from a workload.
fn keys() -> impl Iterator<Item = &'static str> {
    READ.into_iter()
        .chain([EXCLUDE_CONFIG_MAPS, EXCLUDE_SECRETS])
}

/// Returns the annotation that was likely meant, which differs by one or two letters.
fn nearest(key: &str) -> Option<&'static str> {
    let key = key.to_lowercase();
    let errors = |known: &str| strsim::osa_distance(&key, known);
    let known = keys().map(|known| (errors(known), known));
    let (errors, known) = known.min()?;
    (errors <= MAX_ERRORS).then_some(known)
}

fn is_of_reloader(key: &str) -> bool {
    let domain = key.split('/').next();
    domain.is_some_and(|it| it == DOMAIN || it.ends_with(&format!(".{DOMAIN}")))
}

const DOMAIN: &str = "reloader.stakater.com";
/// The annotations that Stakater's Reloader writes itself.
const WRITTEN: [&str; 2] = [
    "reloader.stakater.com/last-reloaded-from",
    "deployment.reloader.stakater.com/paused-at",
];
/// The annotations of ConfigMaps and Secrets.
const ON_OBJECTS: [&str; 2] = [
    "reloader.stakater.com/match",
    "reloader.stakater.com/ignore",
];
const LONGEST_KEY: usize = 80;
const MAX_ERRORS: usize = 2;

#[cfg(test)]
mod tests {
    use crate::dialect::Dialect;
    use crate::dialects::Dialects;
    use crate::fixtures::{Builder, deployment};
    use serde_json::json;

    fn advice(workload: Builder) -> Vec<String> {
        let dialects = Dialects {
            spoken: [Dialect::PodReloader, Dialect::Stakater].into(),
            ..Dialects::default()
        };
        let advice = workload.read_in(dialects).rare().advice.clone();
        advice.iter().map(ToString::to_string).collect()
    }

    fn on_workload(key: &str, value: &str) -> Vec<String> {
        advice(deployment("web").annotated(key, value))
    }

    #[test]
    fn an_annotation_of_stakater_that_is_misspelt_is_named_with_the_one_that_is_meant() {
        for (misspelt, meant) in [
            ("reloader.stakater.com/Auto", "reloader.stakater.com/auto"),
            ("reload.stakater.com/auto", "reloader.stakater.com/auto"),
            (
                "reloader.stakater.com/serach",
                "reloader.stakater.com/search",
            ),
            (
                "secrets.reloader.stakater.com/reload",
                "secret.reloader.stakater.com/reload",
            ),
            (
                "configmap.reloader.stakater.com/reloads",
                "configmap.reloader.stakater.com/reload",
            ),
            (
                "configmap.exclude.reloader.stakater.com/reload",
                "configmaps.exclude.reloader.stakater.com/reload",
            ),
            (
                "deployment.reloader.stakater.com/pauseperiod",
                "deployment.reloader.stakater.com/pause-period",
            ),
        ] {
            let expected = format!("{misspelt} is not read; did you mean {meant}?");
            assert_eq!(on_workload(misspelt, "true"), [expected]);
        }
        assert_eq!(
            on_workload("reloader.stakater.com/something", "true"),
            ["reloader.stakater.com/something is not read"]
        );
    }

    #[test]
    fn an_annotation_for_secret_provider_classes_is_reported_as_not_read() {
        for key in [
            "secretproviderclass.reloader.stakater.com/reload",
            "secretproviderclass.reloader.stakater.com/auto",
            "secretproviderclasses.exclude.reloader.stakater.com/reload",
        ] {
            let [advice] = &on_workload(key, "vault")[..] else {
                panic!("{key}");
            };
            assert!(
                advice.contains("track the Secret that the CSI driver syncs"),
                "{advice}"
            );
        }
    }

    #[test]
    fn advice_on_an_annotation_of_stakater_in_another_place_says_where_it_belongs() {
        assert_eq!(
            on_workload("reloader.stakater.com/ignore", "true"),
            [
                "reloader.stakater.com/ignore has no effect on a workload; it is an annotation of \
              ConfigMaps and Secrets"
            ]
        );
        let annotations = json!({"secrets.exclude.reloader.stakater.com/reload": "a"});
        let workload = deployment("web").with("/spec/template/metadata/annotations", annotations);
        assert_eq!(
            advice(workload),
            [
                "secrets.exclude.reloader.stakater.com/reload has no effect as an annotation of the \
              pod template; make it an annotation of the workload"
            ]
        );
    }

    #[test]
    fn a_pause_period_that_stakater_refuses_is_reported() {
        let told = |value| on_workload("deployment.reloader.stakater.com/pause-period", value);
        assert_eq!(
            told("5 minutes"),
            [
                "deployment.reloader.stakater.com/pause-period \"5 minutes\" is not a duration such as \
              90s or 1h30m; --settle-period applies"
            ]
        );
        assert_eq!(told("5m"), [""; 0]);
        assert_eq!(told("2h").len(), 1);
    }

    #[test]
    fn annotations_that_stakater_reads_or_writes_and_foreign_ones_need_no_advice() {
        for key in super::keys().filter(|key| *key != super::PAUSE_PERIOD) {
            assert_eq!(on_workload(key, "true"), [""; 0]);
        }
        let annotations = json!({
            "reloader.stakater.com/last-reloaded-from": "{}",
            "reloader.stakater.com/auto": "true",
            "forecastle.stakater.com/expose": "true",
        });
        let workload = deployment("web")
            .annotated("deployment.reloader.stakater.com/paused-at", "now")
            .with("/spec/template/metadata/annotations", annotations);
        assert_eq!(advice(workload), [""; 0]);
    }

    #[test]
    fn without_the_dialect_its_annotations_are_none_of_our_business() {
        let workload = deployment("web").annotated("reloader.stakater.com/atuo", "true");
        assert_eq!(*workload.build().rare().advice, []);
    }
}
