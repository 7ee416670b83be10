//! Counts the memory that reading takes: whatever somebody sends, it takes no more than a few times its size, and what
//! has been read is given back.

use std::collections::BTreeSet;

use peak_alloc::PeakAlloc;
use pod_reloader_core::admission::begin;
use pod_reloader_core::annotations::KEYS;
use pod_reloader_core::dialect::Dialect;
use pod_reloader_core::dialects::Dialects;
use pod_reloader_core::digest::{Aspects, ConfigObject, DataKeys};
use pod_reloader_core::hash::{HashKey, Keyring};
use pod_reloader_core::kind::{CustomResource, WorkloadKind};
use pod_reloader_core::name::Name;
use pod_reloader_core::pinned_pod::use_copies;
use pod_reloader_core::protect::{Deletion, Protection};
use pod_reloader_core::readers::{POD_SPEC, READERS};
use pod_reloader_core::release::Tool;
use pod_reloader_core::review::{Request, response};
use pod_reloader_core::scope::{Labels, Scope};
use pod_reloader_core::staging::Defaults;

/// The size of each document, in bytes.
const SIZE: usize = 48 << 10;
/// Each document comes after one whose flood is so many times smaller.
const SMALLER: usize = 4;
/// The memory that reading may take in addition to the document, as a multiple of its size.
const TIMES: usize = 4;
/// The memory that reading a list of names in an annotation may take, as a multiple of its size. An annotation has a
/// maximum size itself.
const TIMES_OF_A_LIST: usize = 32;
/// The memory that a short answer may take, in bytes.
const SHORT: usize = 32 << 10;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Returns the most memory that `work` had at any time, and what it keeps each time, in bytes.
fn measure(mut work: impl FnMut()) -> (usize, usize) {
    let mut once = || {
        MEMORY.reset_peak_usage();
        let before = MEMORY.current_usage();
        work();
        let peak = MEMORY.peak_usage() - before;
        (peak, MEMORY.current_usage().saturating_sub(before))
    };
    match once() {
        // It may be the thread that waits for this test: on a busy machine, it makes its lists only now.
        (_, kept) if kept > 0 => once(),
        measured => measured,
    }
}

/// Many tiny items: a list, a map, or a text. `#` stands for another name each time.
type Flood = (&'static str, &'static str, &'static str);

/// The floods that are tried in each place.
const FLOODS: &[Flood] = &[
    ("{", "\"#\":\"\",", "}"),
    ("{", "\"\":\"\",", "}"),
    ("{", "\"#\":0,", "}"),
    ("{", "\"#\":{},", "}"),
    ("{", "\"\\u0061#\":\"\\u0061\",", "}"),
    ("[", "{},", "]"),
    ("[", "0,", "]"),
    ("[", "\"\",", "]"),
    ("[", "null,", "]"),
    ("[", "{\"name\":\"#\"},", "]"),
    ("[", "{\"type\":\"#\",\"status\":\"\"},", "]"),
    ("[", "{\"key\":\"#\",\"path\":\"a\"},", "]"),
    ("[", "{\"configMap\":{\"name\":\"#\"}},", "]"),
    ("[", "{\"configMapRef\":{\"name\":\"#\"}},", "]"),
    (
        "[",
        "{\"valueFrom\":{\"secretKeyRef\":{\"name\":\"#\"}}},",
        "]",
    ),
    (
        "[",
        "{\"env\":[{\"valueFrom\":{\"secretKeyRef\":{\"name\":\"#\"}}}]},",
        "]",
    ),
    ("[", "{\"volumeMounts\":[{\"name\":\"#\"}]},", "]"),
    (
        "[",
        "{\"projected\":{\"sources\":[{\"configMap\":{\"name\":\"#\"}}]}},",
        "]",
    ),
    ("\"", "\\u0001", "\""),
    ("\"", "#,", "\""),
    ("\"", "#=#-0123456789,", "\""),
    ("", "9", ""),
];

/// The floods that are tried in a few places: one huge name, names that are repeated, and what is nested. What is still
/// open at the end of [`LISTS`] and [`OBJECTS`] is closed.
const ODD_FLOODS: &[Flood] = &[
    ("{\"", "x", "\":0}"),
    ("{\"\\u0061", "x", "\":\"\"}"),
    ("{", "\"metadata\":{},", "}"),
    ("{", "\"object\":{},", "}"),
    ("[", "[],", "]"),
    ("[", "[{}],", "]"),
    ("[", "{\"a\":{\"b\":{}}},", "]"),
    LISTS,
    OBJECTS,
];
/// Lists in lists.
const LISTS: Flood = ("", "[", "");
/// Objects in objects.
const OBJECTS: Flood = ("", "{\"a\":", "");

/// The places in which an object can have many items.
const PLACES: &[&str] = &[
    "metadata annotations",
    "metadata annotations pod-reloader.cs.sap.com/configmaps",
    "metadata annotations pod-reloader.cs.sap.com/pins",
    "metadata annotations kubectl.kubernetes.io/last-applied-configuration",
    "metadata annotations pod-reloader.cs.sap.com/kept-object",
    "metadata labels",
    "metadata ownerReferences",
    "metadata managedFields",
    "metadata finalizers",
    "metadata name",
    "metadata",
    "",
    "data",
    "binaryData",
    "data spec template spec containers",
    "data spec template metadata annotations",
    "operation",
    "spec",
    "spec fields",
    "spec selector matchLabels",
    "spec selector matchExpressions",
    "spec source keys",
    "spec template",
    "spec template metadata annotations",
    "spec template metadata annotations pod-reloader.cs.sap.com/pins",
    "spec template metadata labels",
    "spec template spec containers",
    "spec template spec containers [env",
    "spec template spec containers [envFrom",
    "spec template spec containers [volumeMounts",
    "spec template spec imagePullSecrets",
    "spec template spec volumes",
    "spec template spec volumes [configMap items",
    "spec template spec volumes [projected sources",
    "spec containers",
    "spec containers [env",
    "spec volumes",
    "status",
    "status active",
    "status conditions",
    "status containerStatuses",
    "status objects",
    "status fields",
    "status operationState syncResult resources",
];

/// The places in which the odd floods are tried, too.
const ODD_PLACES: &[&str] = &[
    "",
    "metadata",
    "metadata annotations",
    "metadata labels",
    "metadata ownerReferences",
    "metadata managedFields",
    "data",
    "spec",
    "spec template",
    "spec template metadata annotations",
    "spec template spec containers",
    "spec template spec volumes",
    "status conditions",
];

/// Returns the text of a flood, of `size` bytes and a few more.
fn text(flood: Flood, size: usize) -> String {
    let (begin, item, end) = flood;
    let mut text = begin.to_owned();
    let mut number = 0;
    while text.len() < size {
        number += 1;
        text.push_str(&item.replace('#', &short(number)));
    }
    let closing = match flood {
        LISTS => "]".repeat(number),
        OBJECTS => format!("0{}", "}".repeat(number)),
        _ => String::new(),
    };
    format!("{}{closing}{end}", text.trim_end_matches(','))
}

/// Returns the shortest names first.
fn short(mut number: usize) -> String {
    let mut name = String::new();
    while number > 0 {
        name.push(char::from(
            b'a' + u8::try_from(number % 26).expect("it is a letter"),
        ));
        number /= 26;
    }
    name
}

/// Returns an object with a value in a place. A name that begins with `[` is that of a member of the first element of a
/// list.
fn inside(place: &str, value: &str) -> String {
    let names = place.split(' ').filter(|name| !name.is_empty());
    let mut object = value.to_owned();
    for name in names.rev() {
        object = match name.strip_prefix('[') {
            Some(name) => format!("[{{\"{name}\":{object}}}]"),
            None => format!("{{\"{name}\":{object}}}"),
        };
    }
    object
}

/// A document with a flood in a place.
struct Document {
    place: &'static str,
    what: String,
    text: String,
}

impl Document {
    fn new(flood: Flood, text: &str, place: &'static str) -> Self {
        Self {
            place,
            what: format!("{} in {place}", flood.1),
            text: completed(&inside(place, text), place),
        }
    }

    /// Returns true if the flood is in a pod template.
    fn is_of_template(&self) -> bool {
        self.place.starts_with("spec template")
    }

    /// Returns true if the flood is in a list of a pod spec, which is read up to a limit.
    fn is_of_pod_spec(&self) -> bool {
        let lists = ["containers", "volumes", "imagePullSecrets"];
        self.place.split(' ').any(|name| lists.contains(&name))
    }

    /// Returns the memory that a review may take whatever the size of the document.
    fn fixed(&self) -> usize {
        match self.place {
            _ if self.is_of_pod_spec() => SHORT + POD_SPEC,
            place if place.starts_with("metadata annotations ") => SHORT + TIMES_OF_A_LIST * SIZE,
            _ => SHORT,
        }
    }
}

/// Returns an object of each flood in each place, with what every object has: first a small one, then the whole.
fn documents() -> impl Iterator<Item = [Document; 2]> {
    let of = |floods: &'static [Flood], places: &'static [&'static str]| {
        floods.iter().flat_map(move |flood| {
            let texts = [SIZE / SMALLER, SIZE].map(|size| text(*flood, size));
            let places = places.iter();
            places.map(move |place| {
                let texts = texts.each_ref();
                texts.map(|text| Document::new(*flood, text, place))
            })
        })
    };
    of(FLOODS, PLACES).chain(of(ODD_FLOODS, ODD_PLACES))
}

/// The metadata of a workload that is managed, and whose pods reload, or of a pod that is pinned.
const METADATA: &str = r#"{"name":"a","namespace":"a","uid":"u","resourceVersion":"1","annotations":{"pod-reloader.cs.sap.com/auto":"true","pod-reloader.cs.sap.com/reload-url":"http://:8080/-/reload","pod-reloader.cs.sap.com/pins":"b=b-0123456789"}}"#;

/// Adds the members without which nothing is read. Those that the flood is in stay as they are.
fn completed(document: &str, place: &str) -> String {
    let more = [
        ("metadata", METADATA),
        (
            "spec",
            r#"{"template":{},"source":{"kind":"Secret","name":"a"},"target":{"apiVersion":"v1","kind":"A","name":"a"},"fields":[]}"#,
        ),
    ];
    let Some(rest) = document.strip_prefix('{') else {
        return document.to_owned();
    };
    let first = place.split(' ').next().unwrap_or_default();
    let more = more.iter().filter(|(name, _)| *name != first);
    let more: String = more
        .map(|(name, value)| format!("\"{name}\":{value},"))
        .collect();
    match rest == "}" {
        true => format!("{{{}}}", more.trim_end_matches(',')),
        false => format!("{{{more}{rest}"),
    }
}

/// Fails if reading takes too much memory, or keeps some.
fn hold(what: &str, length: usize, fixed: usize, work: impl FnMut()) {
    let (peak, kept) = measure(work);
    assert!(
        peak <= TIMES * length + fixed,
        "{what}: {peak} bytes for {length}, {:.1} times as much",
        peak as f64 / length as f64
    );
    assert_eq!(kept, 0, "{what}");
}

/// Returns true if a small document took so little memory, which was given back, that the whole need not be read: it
/// would not take too much even if memory grew with the square of the size. Most types skip most floods.
fn is_slight((peak, kept): (usize, usize)) -> bool {
    kept == 0 && peak * SMALLER * SMALLER <= TIMES * SIZE
}

/// Like [`hold`], for texts that were made of a small document and of the whole.
fn hold_both(what: &str, fixed: usize, [small, whole]: [&str; 2], work: impl Fn(&str)) {
    if !is_slight(measure(|| work(small))) {
        hold(what, whole.len(), fixed, || work(whole));
    }
}

/// The memory of all threads is counted, so this is one test.
#[test]
fn whatever_somebody_sends_takes_a_few_times_its_size_while_it_is_read() {
    each_type_is_read_in_a_few_times_the_size_of_its_document();
    each_review_is_answered_in_a_few_times_its_size();
    each_part_of_a_review_is_read_in_a_few_times_its_size();
    the_annotations_of_each_tool_are_read_in_some_times_their_size();
    each_config_object_is_digested_in_a_few_times_its_size();
    the_lists_of_a_pod_spec_have_a_limit();
}

fn each_config_object_is_digested_in_a_few_times_its_size() {
    let keys: DataKeys = ["a".into()].into();
    for [small, whole] in documents() {
        let aspects = Aspects {
            keys: Some(&keys),
            ..Aspects::default()
        };
        hold_both(&whole.what, SHORT, [&small.text, &whole.text], |text| {
            drop(ConfigObject::parse(text.as_bytes(), aspects));
        });
    }
}

/// The lists in lists count, too.
fn the_lists_of_a_pod_spec_have_a_limit() {
    let lists = |(item, place)| {
        let flood = format!("[{}]", vec![item; 60_000].join(","));
        completed(&inside(place, &flood), place)
    };
    let containers = "spec template spec containers";
    let volumes = "spec template spec volumes";
    for document in [
        (
            r#"{"env":[{"valueFrom":{"secretKeyRef":{"name":"a","key":"b"}}}]}"#,
            containers,
        ),
        (
            r#"{"volumeMounts":[{"name":"a"},{"name":"b"}]}"#,
            containers,
        ),
        (
            r#"{"projected":{"sources":[{"secret":{"name":"a","items":[{"key":"a"}]}}]}}"#,
            volumes,
        ),
        (r#"{"name":"a"}"#, "spec template spec imagePullSecrets"),
    ]
    .map(lists)
    {
        for reader in READERS.iter().filter(|it| it.fixed > POD_SPEC) {
            let (peak, _) = measure(|| assert!((reader.read)(document.as_bytes())));
            assert!(
                peak <= POD_SPEC,
                "{}: {peak} bytes for {}",
                reader.name,
                &document[..300]
            );
        }
    }
}

fn each_type_is_read_in_a_few_times_the_size_of_its_document() {
    let mut excess = Vec::new();
    for [small, document] in documents() {
        let text = &document.text;
        for reader in READERS {
            let read = |text: &str| {
                measure(|| {
                    (reader.read)(text.as_bytes());
                })
            };
            if is_slight(read(&small.text)) {
                continue;
            }
            let (peak, kept) = read(text);
            let fixed = match document.is_of_pod_spec() {
                true => reader.fixed,
                false => SHORT,
            };
            if peak > TIMES * text.len() + fixed || kept > 0 {
                let times = peak as f64 / text.len() as f64;
                excess.push(format!(
                    "{}: {}: {times:.1} times as much, keeps {kept}",
                    reader.name, document.what
                ));
            }
        }
    }
    assert!(excess.is_empty(), "{}\n{}", excess.len(), excess.join("\n"));
}

fn review(kind: &str, operation: &str, object: &str, old: &str, more: &str) -> String {
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","kind":{kind},"operation":"{operation}","namespace":"a","object":{object},"oldObject":{old}{more}}}}}"#
    )
}

fn every_dialect() -> Dialects {
    Dialects {
        spoken: Dialect::ALL.into(),
        auto_all: true,
        ignored: None,
        classes: true,
    }
}

/// Returns a scope in which everything is read that can be.
fn scope() -> Scope {
    let tools = [Tool::Helm, Tool::Flux, Tool::ArgoCd];
    Scope::new([], Name::parse("operator").expect("it is a name"))
        .with(Labels::default(), every_dialect())
        .and_kinds(vec![custom_kind()])
        .and_releases(tools.map(|tool| (tool, vec![None])).into())
        .and_stages(Defaults {
            judges_all: true,
            ..Defaults::default()
        })
        .and_pins(true)
        .and_http_reloads(true)
}

fn custom_kind() -> WorkloadKind {
    let resource: CustomResource = serde_json::from_str(
        r#"{"group":"x.io","resource":"xs","kind":"X","podTemplates":["spec.template","spec.other"]}"#,
    )
    .expect("it is a custom resource");
    resource.into_kind().expect("its paths are paths")
}

/// Answers reviews, as far as that goes without reading anything else.
struct Webhook {
    scope: Scope,
    keys: Keyring,
}

impl Webhook {
    fn new() -> Self {
        let keys = Keyring::new(vec![HashKey::new([7; 32])]).expect("it has a key");
        let scope = scope();
        let webhook = Self { scope, keys };
        // Whatever is made once and kept, such as the table of time zones, is made now.
        let body = review(STATEFUL_SET, "CREATE", EVERYTHING, "null", "");
        webhook.begin(&body);
        webhook
    }

    fn begin(&self, body: &str) {
        if let Ok(request) = Request::parse(body.as_bytes()) {
            drop(begin(&request, &self.scope, &self.keys, "us"));
            drop(response(&request.uid, &[], &[]));
        }
    }

    /// Fails if the first step towards an answer takes too much memory.
    fn hold(&self, what: &str, fixed: usize, body: &str) {
        hold(what, body.len(), fixed, || self.begin(body));
    }
}

const STATEFUL_SET: &str = r#"{"group":"apps","kind":"StatefulSet"}"#;
const CUSTOM: &str = r#"{"group":"x.io","kind":"X"}"#;
const OPTED_IN: &str = r#"{"metadata":{"name":"a","annotations":{"pod-reloader.cs.sap.com/auto":"true"}},"spec":{"template":{}}}"#;
/// A workload with a regular expression and a time zone.
const EVERYTHING: &str = r#"{"metadata":{"name":"a","annotations":{"configmap.reloader.stakater.com/reload":"a.*","pod-reloader.cs.sap.com/restart-window":"Mon-Fri 02:00-04:00 Europe/Berlin"}},"spec":{"template":{}}}"#;
/// What makes a request a status query.
const QUERY: &str = r#","dryRun":true,"options":{"fieldManager":"pod-reloader-status-query"}"#;

/// What a review is about, and the review of an object.
type Review = (&'static str, fn(&str) -> String);

/// The reviews of a workload.
const OF_WORKLOADS: &[Review] = &[
    ("a new StatefulSet", |object| {
        review(STATEFUL_SET, "CREATE", object, "null", "")
    }),
    ("a StatefulSet that becomes one", |object| {
        review(STATEFUL_SET, "UPDATE", object, OPTED_IN, "")
    }),
    ("a StatefulSet that was one", |object| {
        review(STATEFUL_SET, "UPDATE", OPTED_IN, object, "")
    }),
    ("a status query of a StatefulSet", |object| {
        review(STATEFUL_SET, "UPDATE", OPTED_IN, object, QUERY)
    }),
    ("a new custom resource", |object| {
        review(CUSTOM, "CREATE", object, "null", "")
    }),
];
/// Texts that differ are compared member by member.
const WRITTEN_DIFFERENTLY: Review = ("a StatefulSet that is written differently", |object| {
    let other = object.replace(',', " ,");
    review(STATEFUL_SET, "UPDATE", object, &other, "")
});
const NEW_POD: Review = ("a new pod", |object| {
    review(r#"{"kind":"Pod"}"#, "CREATE", object, "null", "")
});
const CONFIG_MAP_THAT_GOES: Review = ("a ConfigMap that goes", |object| {
    review(r#"{"kind":"ConfigMap"}"#, "DELETE", "null", object, "")
});

fn each_review_is_answered_in_a_few_times_its_size() {
    let webhook = Webhook::new();
    for both in documents() {
        let [_, whole] = &both;
        let hold_of = |(of, body): Review, fixed: usize, work: &dyn Fn(&str)| {
            let bodies = both.each_ref().map(|it| body(&it.text));
            let what = format!("{of}, {}", whole.what);
            hold_both(&what, fixed, bodies.each_ref().map(String::as_str), work);
        };
        let rewritten = whole.is_of_template().then_some(WRITTEN_DIFFERENTLY);
        for review in OF_WORKLOADS.iter().copied().chain(rewritten) {
            hold_of(review, whole.fixed(), &|body| webhook.begin(body));
        }
        hold_of(NEW_POD, SHORT, &|body| {
            let request = Request::parse(body.as_bytes());
            drop(request.map(|it| it.object.map(use_copies)));
        });
        hold_of(CONFIG_MAP_THAT_GOES, SHORT, &|body| {
            let request = Request::parse(body.as_bytes());
            drop(request.map(|it| Deletion::of(&it, Protection::InUse).is_ok()));
        });
    }
}

/// The parts of a request that are no objects.
const PARTS: &[&str] = &[
    "uid",
    "kind",
    "kind group",
    "kind kind",
    "resource",
    "subResource",
    "name",
    "namespace",
    "operation",
    "userInfo",
    "userInfo username",
    "userInfo groups",
    "userInfo extra",
    "options",
    "options fieldManager",
    "dryRun",
];

fn each_part_of_a_review_is_read_in_a_few_times_its_size() {
    let webhook = Webhook::new();
    for flood in FLOODS.iter().chain(ODD_FLOODS) {
        let text = text(*flood, SIZE);
        for place in PARTS {
            let part = inside(place, &text);
            let first = place.split(' ').next().unwrap_or_default();
            let rest = [
                ("uid", r#""u""#),
                ("kind", STATEFUL_SET),
                ("operation", r#""CREATE""#),
                ("namespace", r#""a""#),
                ("object", OPTED_IN),
            ];
            let rest = rest.iter().filter(|(name, _)| *name != first);
            let rest: String = rest
                .map(|(name, value)| format!("\"{name}\":{value},"))
                .collect();
            let body = format!(
                r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{{rest}{}}}"#,
                &part[1..]
            );
            webhook.hold(
                &format!("{} in {place} of a request", flood.1),
                SHORT,
                &body,
            );
        }
        for body in [inside("request", &text), text] {
            webhook.hold(&format!("{} as a review", flood.1), SHORT, &body);
        }
    }
}

/// Returns all annotations that the rules read: somebody may fill each of them with a list of tiny items.
fn annotations() -> BTreeSet<&'static str> {
    let own = KEYS.iter().map(|own| own.key);
    let of_releases = ["argocd.argoproj.io/tracking-id"];
    let dialects = every_dialect();
    let all = dialects.annotation_keys().chain(own).chain(of_releases);
    all.collect()
}

fn the_annotations_of_each_tool_are_read_in_some_times_their_size() {
    let webhook = Webhook::new();
    let excluded = r##""restarter.stackable.tech/ignore-configmap.#":"#","##;
    let lists = annotations().into_iter().flat_map(|key| {
        ["#,", "#[#,#],", "#.*|#,", "secret/#,"].map(|item| {
            let list = text(("\"", item, "\""), SIZE);
            (format!("{item} in {key}"), format!("\"{key}\":{list}"))
        })
    });
    let keys = text(("{", excluded, "}"), SIZE);
    let keys = keys.trim_matches(['{', '}']).to_owned();
    for (what, annotations) in lists.chain([("annotations to exclude".to_owned(), keys)]) {
        let object = format!(
            r#"{{"metadata":{{"name":"a","labels":{{"restarter.stackable.tech/enabled":"true"}},"annotations":{{"wave.pusher.com/update-on-config-change":"true",{annotations}}}}},"spec":{{"template":{{}}}}}}"#
        );
        let body = review(STATEFUL_SET, "CREATE", &object, "null", "");
        webhook.hold(&what, SHORT + TIMES_OF_A_LIST * SIZE, &body);
    }
}
