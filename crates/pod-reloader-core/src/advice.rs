//! Advice: warnings about annotations and labels that cannot do what their author intended.

mod stakater;

use std::borrow::Cow;

use crate::annotations::{
    ANY, APPROVAL, APPROVE, AT, AUTO, CONFIG_HASH, EXCLUDE_SECRET_PROVIDER_CLASSES, HELD, HOLD,
    KEYS, Key, NEEDED, ON_FAILURE, PER_KEY, PIN, PREFIX, Place, RELOAD_URL, REQUIRED, RESTART,
    RESTART_ON, RESTART_WINDOW, REVERTED, SECRET_PROVIDER_CLASSES, STAGE, STAGED, TEMPLATE,
    TOGETHER,
};
use crate::dialect::Dialect;
use crate::dialects::stakater::SEARCH;
use crate::dialects::{Dialects, ReadKey, is_auto};
use crate::duration::{self, MAX_SETTLE_PERIOD};
use crate::gate;
use crate::http_reload::Target;
use crate::kind::WorkloadKind;
use crate::list::{escaped, quoted};
use crate::mark::STAKATER_MATCH;
use crate::pins::is_pin;
use crate::reference::{ConfigKind, Reference};
use crate::staging::Staged;
use crate::texts::Texts;
use crate::together;
use crate::window::Windows;

/// The maximum number of warnings for one workload: it may hold thousands of annotations.
pub(crate) const MAX_ADVICE: usize = 10;

/// A warning about one annotation or label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Advice {
    /// An annotation or label that nobody reads.
    #[error("{}", unknown(name, *place, *meant))]
    Unknown {
        /// The name after our prefix, made safe to print.
        name: String,
        /// The place in which it was found.
        place: Place,
        /// The one that is likely meant.
        meant: Option<&'static Key>,
    },
    /// An annotation or label that is read elsewhere.
    #[error("{} has no effect as {place}; {}", key.key, remedy(key))]
    Misplaced {
        /// The annotation or label.
        key: &'static Key,
        /// The place in which it was found.
        place: Place,
    },
    /// A value that is not among those that an annotation takes.
    #[error("{} {value} {effect}; it takes {values}", key.key)]
    NoValue {
        /// The annotation.
        key: &'static Key,
        /// The value, made safe to print.
        value: String,
        /// The effect of the value.
        effect: &'static str,
        /// The values that the annotation takes.
        values: &'static str,
    },
    /// A time that is not a duration: another one applies.
    #[error("{key} {value} is not a duration such as 90s or 1h30m; {default} applies")]
    NoDuration {
        /// The annotation.
        key: &'static str,
        /// The value, made safe to print.
        value: String,
        /// The default, or the flag that sets it.
        default: &'static str,
    },
    /// A time of more than [`MAX_SETTLE_PERIOD`], which applies instead.
    #[error("{key} {value} is too long; {} minutes apply", MAX_SETTLE_PERIOD.as_secs() / 60)]
    TooLong {
        /// The annotation.
        key: &'static str,
        /// The value, made safe to print.
        value: String,
    },
    /// An item of [`TOGETHER`], safe to print, that names no object which the workload tracks.
    #[error("{TOGETHER} names {0}, which is not tracked; nothing waits for it")]
    NotTracked(String),
    /// An object that is listed, that does not exist, and that no pod uses.
    #[error(
        "{} {} is listed and does not exist (yet), and the pods do not use it", .0.kind, .0.name
    )]
    Absent(Reference),
    /// A regular expression, safe to print, that matches no object of this kind.
    #[error("no {0} matches the regular expression {1} (yet)")]
    NoMatch(ConfigKind, String),
    /// A search for objects with a mark that none of those have that the pods use.
    #[error(
        "{SEARCH} finds nothing (yet): no object that the pods use has the annotation {STAKATER_MATCH}"
    )]
    NoneMarked,
    /// The annotation [`RELOAD_URL`] where pods are restarted anyway, and the reason.
    #[error("{RELOAD_URL} has no effect, pods are restarted: {0}")]
    NoReload(&'static str),
    /// An annotation of another tool that is not read.
    #[error("{key} {why}")]
    Foreign {
        /// The annotation, made safe to print.
        key: String,
        /// The reason, and the remedy.
        why: Cow<'static, str>,
    },
}

fn unknown(name: &str, place: Place, meant: Option<&Key>) -> String {
    let kind = match place.is_of_labels() {
        true => "label",
        false => "annotation",
    };
    let guess = match meant {
        Some(meant) if meant.place == place => format!("; did you mean {}?", meant.key),
        Some(meant) => format!("; did you mean {}, {}?", meant.key, meant.place),
        None => String::new(),
    };
    format!("unknown {kind} {PREFIX}{name}{guess}")
}

fn remedy(key: &Key) -> String {
    match key.is_ours {
        true => "pod-reloader alone writes it, remove it".to_owned(),
        false => format!("make it {}", key.place),
    }
}

/// Returns the advice on a workload of this kind with these annotations and labels, given the enabled dialects.
pub(crate) fn on(
    kind: WorkloadKind,
    places: [(Place, &Texts); 4],
    dialects: &Dialects,
) -> Vec<Advice> {
    let has_stakater = dialects.speak(Dialect::Stakater);
    let of_others: Vec<_> = dialects.keys_of_others(kind).collect();
    let has = |place: Place, key: &str| {
        let mut maps = places.iter();
        maps.any(|(own, map)| *own == place && map.get(key).is_some())
    };
    places
        .into_iter()
        .flat_map(|(place, map)| map.iter().map(move |(key, value)| (place, key, value)))
        .filter_map(|(place, key, value)| {
            let Some(name) = key.strip_prefix(PREFIX) else {
                let elsewhere = read_elsewhere(&of_others, place, key, |place| has(place, key));
                return elsewhere.or_else(|| {
                    has_stakater.then(|| stakater::on(place, key, value, dialects.classes))?
                });
            };
            if OF_CLASSES.contains(&key) && !dialects.classes {
                return Some(Advice::Foreign {
                    key: key.to_owned(),
                    why: Cow::Borrowed(NO_CLASSES),
                });
            }
            match KEYS.iter().find(|known| known.key == key) {
                Some(known) if known.place == place => on_value(known, value),
                // There it is a message of SAP's controller to its webhook.
                Some(known) if known.key == CONFIG_HASH && place == Place::Annotation => None,
                // Some tools put the same annotations, or labels, on everything.
                Some(known) if !known.is_ours && has(known.place, key) => None,
                Some(key) => Some(Advice::Misplaced { key, place }),
                None => Some(Advice::Unknown {
                    name: escaped(name),
                    place,
                    meant: nearest(name),
                }),
            }
        })
        .take(MAX_ADVICE)
        .collect()
}

/// Returns the advice on an annotation or label of another controller that is read in other places only. `has` says in
/// which of them it is, too.
fn read_elsewhere(
    of_others: &[ReadKey],
    place: Place,
    key: &str,
    has: impl Fn(Place) -> bool,
) -> Option<Advice> {
    let known = of_others.iter().find(|read| read.is(key))?;
    let is_read = |own: &Place| *own == place || has(*own);
    if known.places.iter().any(is_read) {
        return None;
    }
    let right = known.places.first()?;
    Some(Advice::Foreign {
        key: key.escape_debug().to_string(),
        why: Cow::Owned(format!("has no effect as {place}; make it {right}")),
    })
}

/// Returns the advice on a workload whose pods could reload changed config, if that is switched off.
pub(crate) fn unread_reload<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<Advice> {
    annotation(RELOAD_URL).and_then(Target::parse)?;
    Some(Advice::NoReload(NO_RELOADS))
}

fn on_value(key: &'static Key, value: &str) -> Option<Advice> {
    if let Some(default) = key.default_time {
        return on_duration(key.key, value, default);
    }
    let takes = |is_one: bool, values| {
        (!is_one).then(|| Advice::NoValue {
            key,
            value: quoted(value),
            effect: match key.key {
                HOLD | APPROVAL | RESTART_WINDOW => "prevents restarts",
                _ => "has no effect",
            },
            values,
        })
    };
    match key.key {
        AUTO => takes(is_auto(value), "true, configmaps, secrets or false"),
        PER_KEY => takes(value.parse::<bool>().is_ok(), "true or false"),
        RESTART => takes([AT, TEMPLATE].contains(&value), "template or at"),
        RESTART_ON => takes([ANY, NEEDED].contains(&value), "any or needed"),
        STAGED => takes(Staged::parse(value).is_some(), "all, configmaps or none"),
        STAGE => takes(
            value.parse::<i32>().is_ok(),
            "a whole number, such as 0 or 2",
        ),
        HOLD => takes(value.parse::<bool>().is_ok(), "true or false"),
        RESTART_WINDOW => takes(
            Windows::parse(value).is_some(),
            "windows such as Mon-Fri 02:00-04:00 Europe/Berlin; Sat,Sun 00:00-24:00 UTC",
        ),
        APPROVAL => takes(value == REQUIRED, REQUIRED),
        TOGETHER => takes(
            together::are_items(value),
            "two or more names, such as db-user, secret/db-password",
        ),
        PIN => takes(is_pin(value), "configmaps, or names of ConfigMaps"),
        ON_FAILURE => takes([HELD, REVERTED].contains(&value), "hold or revert"),
        APPROVE => takes(
            gate::are_digits(value),
            "the first eight digits of a config hash",
        ),
        RELOAD_URL => takes(
            Target::parse(value).is_some(),
            "a port and a path without a host, such as http://:8080/-/reload",
        ),
        _ => None,
    }
}

fn on_duration(key: &'static str, value: &str, default: &'static str) -> Option<Advice> {
    let own = quoted(value);
    match duration::parse(value) {
        Some(period) if period <= MAX_SETTLE_PERIOD => None,
        Some(_) => Some(Advice::TooLong { key, value: own }),
        None => Some(Advice::NoDuration {
            key,
            value: own,
            default,
        }),
    }
}

/// Returns the annotation or label whose name equals `name` apart from typing errors, at most one for every
/// three letters. Never returns one that only we write: nobody should be led to write it.
fn nearest(name: &str) -> Option<&'static Key> {
    // A longer name is none of ours, and takes long to compare.
    if name.len() > LONGEST_NAME {
        return None;
    }
    let name = name.to_lowercase();
    let typed = |key: &Key| {
        let own = &key.key[PREFIX.len()..];
        let errors = strsim::osa_distance(&name, own);
        (errors <= own.len() / 3).then_some(errors)
    };
    KEYS.iter()
        .filter_map(|key| Some((typed(key)?, key)))
        .min_by_key(|(errors, _)| *errors)
        .map(|(_, key)| key)
        .filter(|key| !key.is_ours)
}

/// The annotations about SecretProviderClasses.
const OF_CLASSES: [&str; 2] = [SECRET_PROVIDER_CLASSES, EXCLUDE_SECRET_PROVIDER_CLASSES];
const NO_CLASSES: &str = "is not read: SecretProviderClasses are tracked with the chart value secretProviderClasses.enabled \
                          only; without it, track the Secret that the CSI driver syncs";
const NO_RELOADS: &str = "it is read with the chart value httpReload.enabled only";
/// The maximum length of the name of a label or annotation in Kubernetes.
const LONGEST_NAME: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{Builder, deployment};
    use serde_json::json;

    fn advice(workload: Builder) -> Vec<String> {
        let advice = workload.build().rare().advice.clone();
        advice.iter().map(ToString::to_string).collect()
    }

    fn on_template(key: &str) -> Builder {
        let annotations = json!({format!("pod-reloader.cs.sap.com/{key}"): "x"});
        deployment("web").with("/spec/template/metadata/annotations", annotations)
    }

    #[test]
    fn every_annotation_but_a_list_of_names_says_which_values_it_takes() {
        let users = KEYS
            .iter()
            .filter(|key| !key.is_ours && key.place == Place::Annotation);
        for Key { key, .. } in users {
            let is_list = key.ends_with("configmaps")
                || key.ends_with("secrets")
                || key.ends_with("secretproviderclasses");
            let advice = deployment("web").annotated(key, "nonsense!");
            let advice = advice.read_in(Dialects {
                classes: true,
                ..Dialects::default()
            });
            let advice = &advice.rare().advice;
            let expected = if is_list { 0 } else { 1 };
            assert_eq!(advice.len(), expected, "{key}: {advice:?}");
        }
    }

    #[test]
    fn known_annotations_in_their_places_need_no_advice() {
        let workload = deployment("web")
            .lists("a")
            .annotation("secrets", "b")
            .annotation("settle-period", "1h")
            .annotation("baseline", "x=y")
            .label("ignored", "true")
            .label("disabled", "false")
            .stamped("x")
            .with("/metadata/labels/app", json!("web"));
        assert_eq!(advice(workload), [""; 0]);
    }

    #[test]
    fn an_object_that_is_to_change_together_with_others_and_is_not_tracked_is_named() {
        let web = || deployment("web").lists("user");
        let both = web().annotation("secrets", "password");
        let together = |workload: Builder| workload.annotation("together", "user, secret/password");
        assert_eq!(advice(together(both)), [""; 0]);
        let note = "pod-reloader.cs.sap.com/together names secret/password, which is not tracked; \
                    nothing waits for it";
        assert_eq!(advice(together(web())), [note]);
    }

    #[test]
    fn a_misspelt_annotation_is_named_with_the_one_that_is_meant() {
        for (misspelt, meant) in [
            ("config-maps", "configmaps"),
            ("configmap", "configmaps"),
            ("configMaps", "configmaps"),
            ("CONFIGMAPS", "configmaps"),
            ("cofnigmaps", "configmaps"),
            ("configs", "configmaps"),
            ("secret", "secrets"),
            ("settleperiod", "settle-period"),
            ("settle_period", "settle-period"),
        ] {
            assert_eq!(
                advice(deployment("web").annotation(misspelt, "x")),
                [format!(
                    "unknown annotation pod-reloader.cs.sap.com/{misspelt}; \
                     did you mean pod-reloader.cs.sap.com/{meant}?"
                )]
            );
        }
        assert_eq!(
            advice(deployment("web").label("ignore", "true")),
            ["unknown label pod-reloader.cs.sap.com/ignore; \
              did you mean pod-reloader.cs.sap.com/ignored?"]
        );
    }

    #[test]
    fn a_misspelt_annotation_in_the_wrong_place_gets_advice_on_both() {
        assert_eq!(
            advice(deployment("web").annotation("ignore", "true")),
            ["unknown annotation pod-reloader.cs.sap.com/ignore; \
              did you mean pod-reloader.cs.sap.com/ignored, a label of the workload?"]
        );
        assert_eq!(
            advice(on_template("config-maps")),
            ["unknown annotation pod-reloader.cs.sap.com/config-maps; \
              did you mean pod-reloader.cs.sap.com/configmaps, an annotation of the workload?"]
        );
    }

    #[test]
    fn the_labels_of_the_pod_template_are_read_for_advice() {
        let labels = json!({"app": "web", "pod-reloader.cs.sap.com/disabled": "true", "pod-reloader.cs.sap.com/secret": "a"});
        assert_eq!(
            advice(deployment("web").with("/spec/template/metadata/labels", labels)),
            [
                "pod-reloader.cs.sap.com/disabled has no effect as a label of the pod template; make it a \
                 label of the workload",
                "unknown label pod-reloader.cs.sap.com/secret; did you mean \
                 pod-reloader.cs.sap.com/secrets, an annotation of the workload?",
            ]
        );
    }

    #[test]
    fn an_annotation_that_resembles_no_other_is_named_alone() {
        for unknown in ["rolled-at", "enabled", "map", "", "confighash", "base-line"] {
            assert_eq!(
                advice(deployment("web").annotation(unknown, "x")),
                [format!(
                    "unknown annotation pod-reloader.cs.sap.com/{unknown}"
                )]
            );
        }
    }

    #[test]
    fn advice_on_an_annotation_in_the_wrong_place_says_where_it_belongs() {
        assert_eq!(
            advice(deployment("web").annotation("ignored", "true")),
            [
                "pod-reloader.cs.sap.com/ignored has no effect as an annotation of the workload; \
              make it a label of the workload"
            ]
        );
        assert_eq!(
            advice(on_template("configmaps")),
            [
                "pod-reloader.cs.sap.com/configmaps has no effect as an annotation of the pod \
              template; make it an annotation of the workload"
            ]
        );
        assert_eq!(
            advice(on_template("baseline")),
            [
                "pod-reloader.cs.sap.com/baseline has no effect as an annotation of the pod \
              template; pod-reloader alone writes it, remove it"
            ]
        );
    }

    /// The places of annotations and labels, in the order in which the tests give them.
    const PLACES: [Place; 4] = [
        Place::Annotation,
        Place::Label,
        Place::TemplateAnnotation,
        Place::TemplateLabel,
    ];

    /// Returns the advice on a StatefulSet with these annotations and labels in each of [`PLACES`], in every dialect.
    fn on_stateful_set(texts: [&[(&str, &str)]; 4]) -> Vec<String> {
        let texts = texts.map(|it| it.iter().copied().collect::<Texts>());
        let places = std::array::from_fn(|at| (PLACES[at], &texts[at]));
        let dialects = Dialects {
            spoken: Dialect::ALL.into(),
            classes: true,
            ..Dialects::default()
        };
        let advice = on(WorkloadKind::STATEFUL_SET, places, &dialects);
        advice.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_annotation_of_a_dialect_that_is_read_elsewhere_says_where() {
        let workload = "make it an annotation of the workload";
        let label = "make it a label of the workload";
        let enabled = "restarter.stackable.tech/enabled";
        for (key, belongs) in [
            ("wave.pusher.com/update-on-config-change", workload),
            ("wave.pusher.com/extra-secrets", workload),
            ("trigger.k8s.io/triggering-configMaps", workload),
            ("configmap.fabric8.io/update-on-change", workload),
            ("restarter.stackable.tech/ignore-secret.0", workload),
            ("deployment.reloader.stakater.com/pause-period", workload),
            ("reloader.stakater.com/rollout-strategy", workload),
            (
                "secretproviderclasses.exclude.reloader.stakater.com/reload",
                workload,
            ),
            (enabled, label),
            ("pod-reloader.cs.sap.com/secrets", workload),
            ("pod-reloader.cs.sap.com/ignored", label),
        ] {
            let expected =
                format!("{key} has no effect as an annotation of the pod template; {belongs}");
            assert_eq!(
                on_stateful_set([&[], &[], &[(key, "true")], &[]]),
                [expected]
            );
            let expected = format!("{key} has no effect as a label of the pod template; {belongs}");
            assert_eq!(
                on_stateful_set([&[], &[], &[], &[(key, "true")]]),
                [expected]
            );
        }
        assert_eq!(
            on_stateful_set([&[(enabled, "true")], &[], &[], &[]]),
            [format!(
                "{enabled} has no effect as an annotation of the workload; {label}"
            )]
        );
        for key in [
            "reloader.stakater.com/auto",
            "wave.pusher.com/extra-secrets",
        ] {
            assert_eq!(
                on_stateful_set([&[], &[(key, "true")], &[], &[]]),
                [format!(
                    "{key} has no effect as a label of the workload; {workload}"
                )]
            );
        }
    }

    #[test]
    fn what_is_read_where_it_is_and_what_is_also_where_it_belongs_needs_no_advice() {
        let wave = [("wave.pusher.com/update-on-config-change", "true")];
        let own = [("pod-reloader.cs.sap.com/auto", "true")];
        let stakater = [("secret.reloader.stakater.com/reload", "a")];
        let stackable = [("restarter.stackable.tech/enabled", "true")];
        let foreign = [("example.com/wave.pusher.com", "true")];
        let ignored = [("pod-reloader.cs.sap.com/ignored", "true")];
        let cases: [[&[(&str, &str)]; 4]; 7] = [
            [&wave, &[], &wave, &[]],
            [&own, &own, &own, &own],
            [&[], &[], &stakater, &[]],
            [&[], &stackable, &[], &stackable],
            [&[], &ignored, &[], &ignored],
            [&[], &[], &foreign, &foreign],
            [&stakater, &[], &[], &stakater],
        ];
        for places in cases {
            assert_eq!(on_stateful_set(places), [""; 0], "{places:?}");
        }
    }

    #[test]
    fn a_dialect_that_does_not_apply_to_a_kind_or_is_off_gets_no_advice() {
        let keys = [
            "restarter.stackable.tech/enabled",
            "secrets.infisical.com/auto-reload",
            "operator.1password.io/auto-restart",
        ];
        let of_template = keys.map(|key| (key, "true")).into_iter().collect();
        let none = Texts::default();
        let on = |spoken: &[Dialect]| {
            let dialects = Dialects {
                spoken: spoken.iter().copied().collect(),
                ..Dialects::default()
            };
            let texts = [&none, &none, &of_template, &of_template];
            let places = std::array::from_fn(|at| (PLACES[at], texts[at]));
            super::on(WorkloadKind::DEPLOYMENT, places, &dialects)
        };
        assert_eq!(on(&Dialect::ALL), []);
        assert_eq!(on(&[Dialect::PodReloader]), []);
    }

    #[test]
    fn the_message_of_saps_controller_gets_no_advice() {
        assert_eq!(
            advice(deployment("web").annotation("config-hash", "x")),
            [""; 0]
        );
    }

    #[test]
    fn other_prefixes_are_not_ours() {
        let annotations = json!({
            "cs.sap.com/config-maps": "a",
            "pod-reloader.cs.sap.com": "a",
            "reloader.cs.sap.com/config-maps": "a",
        });
        let workload = deployment("web").with("/metadata/annotations", annotations);
        assert_eq!(advice(workload), [""; 0]);
    }

    #[test]
    fn advice_on_a_settle_period_that_does_not_apply_says_what_does() {
        let settle_period = |text| advice(deployment("web").annotation("settle-period", text));
        for text in ["soon", "10", "-1s", "", "5 minutes", "PT5M"] {
            assert_eq!(
                settle_period(text),
                [format!(
                    "pod-reloader.cs.sap.com/settle-period \"{text}\" is not a duration \
                     such as 90s or 1h30m; --settle-period applies"
                )]
            );
        }
        assert_eq!(
            settle_period("2h"),
            ["pod-reloader.cs.sap.com/settle-period \"2h\" is too long; 60 minutes apply"]
        );
    }

    #[test]
    fn advice_is_short_and_on_one_line() {
        let rubbish = format!("a\n\0{}", "X".repeat(100_000));
        let workload = deployment("web")
            .annotation(&rubbish, "x")
            .annotation("settle-period", &rubbish);
        let advice = advice(workload);
        assert_eq!(advice.len(), 2);
        for text in advice {
            assert!(text.len() < 200 && !text.contains(['\n', '\0']), "{text}");
        }
    }

    #[test]
    fn ten_of_thousands_of_unknown_annotations_are_named() {
        let annotations: serde_json::Map<_, _> = (0..5_000)
            .map(|n| (format!("pod-reloader.cs.sap.com/k{n}"), json!("x")))
            .collect();
        let workload = deployment("web").with("/metadata/annotations", json!(annotations));
        assert_eq!(advice(workload).len(), 10);
    }
}
