//! Counts the memory that reading takes: whatever somebody sends, it takes no more than a few times its size, and what
//! has been read is given back.

use peak_alloc::PeakAlloc;
use pod_reloader_core::admission::begin;
use pod_reloader_core::digest::{Aspects, ConfigObject, DataKeys};
use pod_reloader_core::hash::{HashKey, Keyring};
use pod_reloader_core::name::Name;
use pod_reloader_core::pinned_pod::use_copies;
use pod_reloader_core::protect::{Deletion, Protection};
use pod_reloader_core::readers::{POD_SPEC, READERS};
use pod_reloader_core::review::Request;
use pod_reloader_core::scope::Scope;

/// The size of each document, in bytes.
const SIZE: usize = 48 << 10;
/// The memory that reading may take in addition to the document, as a multiple of its size.
const TIMES: usize = 4;
/// The memory that a short answer may take, in bytes.
const SHORT: usize = 32 << 10;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Returns the most memory that `work` had at any time, and what it has kept, in bytes.
fn measure(work: impl FnOnce()) -> (usize, usize) {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    work();
    let peak = MEMORY.peak_usage() - before;
    (peak, MEMORY.current_usage().saturating_sub(before))
}

/// Many tiny items: a list, a map, or a text. `#` stands for another name each time.
const FLOODS: &[(&str, &str, &str)] = &[
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

/// The places in which an object can have many items.
const PLACES: &[&str] = &[
    "metadata annotations",
    "metadata annotations pod-reloader.cs.sap.com/configmaps",
    "metadata annotations pod-reloader.cs.sap.com/pins",
    "metadata annotations kubectl.kubernetes.io/last-applied-configuration",
    "metadata annotations pod-reloader.github.io/kept-object",
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
    "status conditions",
    "status containerStatuses",
    "status objects",
    "status fields",
    "status operationState syncResult resources",
];

/// Returns a document of [`SIZE`] bytes, with a flood in a place.
fn document((begin, item, end): (&str, &str, &str), place: &str) -> String {
    let mut flood = begin.to_owned();
    let mut number = 0_u32;
    while flood.len() < SIZE {
        number += 1;
        flood.push_str(&item.replace('#', &short(number)));
    }
    let flood = format!("{}{end}", flood.trim_end_matches(','));
    inside(place, &flood)
}

/// Returns the shortest names first.
fn short(mut number: u32) -> String {
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

/// Returns an object of each flood in each place, with what every object has.
fn documents() -> impl Iterator<Item = (String, String)> {
    PLACES.iter().flat_map(|place| {
        FLOODS.iter().map(move |flood| {
            let document = document(*flood, place);
            (
                format!("{} in {place}", flood.1),
                completed(&document, place),
            )
        })
    })
}

/// Adds the members without which nothing is read. Those that the flood is in stay as they are.
fn completed(document: &str, place: &str) -> String {
    let more = [
        (
            "metadata",
            r#"{"name":"a","namespace":"a","uid":"u","resourceVersion":"1"}"#,
        ),
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
fn hold(what: &str, length: usize, fixed: usize, work: impl FnOnce()) {
    let (peak, kept) = measure(work);
    assert!(
        peak <= TIMES * length + fixed,
        "{what}: {peak} bytes for {length}, {:.1} times as much",
        peak as f64 / length as f64
    );
    assert_eq!(kept, 0, "{what}");
}

/// The memory of all threads is counted, so this is one test.
#[test]
fn whatever_somebody_sends_takes_a_few_times_its_size_while_it_is_read() {
    each_type_is_read_in_a_few_times_the_size_of_its_document();
    each_review_is_answered_in_a_few_times_its_size();
    each_config_object_is_digested_in_a_few_times_its_size();
    the_lists_of_a_pod_spec_have_a_limit();
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
    for (what, document) in documents() {
        for reader in READERS {
            let (peak, kept) = measure(|| {
                (reader.read)(document.as_bytes());
            });
            if peak > TIMES * document.len() + reader.fixed || kept > 0 {
                let times = peak as f64 / document.len() as f64;
                excess.push(format!(
                    "{}: {what}: {times:.1} times as much, keeps {kept}",
                    reader.name
                ));
            }
        }
    }
    assert!(excess.is_empty(), "{}\n{}", excess.len(), excess.join("\n"));
}

fn each_config_object_is_digested_in_a_few_times_its_size() {
    let keys: DataKeys = ["a".into()].into();
    for (what, document) in documents() {
        let aspects = Aspects {
            keys: Some(&keys),
            ..Aspects::default()
        };
        hold(&what, document.len(), SHORT, || {
            drop(ConfigObject::parse(document.as_bytes(), aspects));
        });
    }
}

fn review(kind: &str, operation: &str, object: &str, old: &str) -> String {
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","kind":{kind},"operation":"{operation}","namespace":"a","object":{object},"oldObject":{old}}}}}"#
    )
}

fn each_review_is_answered_in_a_few_times_its_size() {
    let scope = Scope::new([], Name::parse("operator").expect("it is a name"));
    let keys = Keyring::new(vec![HashKey::new([7; 32])]).expect("it has a key");
    let opted_in = r#"{"metadata":{"name":"a","annotations":{"pod-reloader.cs.sap.com/auto":"true"}},"spec":{"template":{}}}"#;
    for (what, document) in documents() {
        let deployment = r#"{"group":"apps","kind":"Deployment"}"#;
        for (object, old) in [
            (&*document, opted_in),
            (opted_in, &*document),
            (&*document, &*document),
        ] {
            for operation in ["CREATE", "UPDATE"] {
                let body = review(deployment, operation, object, old);
                hold(
                    &format!("{operation} of a Deployment, {what}"),
                    body.len(),
                    SHORT + POD_SPEC,
                    || {
                        let request = Request::parse(body.as_bytes());
                        drop(request.map(|it| drop(begin(&it, &scope, &keys, ""))));
                    },
                );
            }
        }
        let body = review(r#"{"kind":"Pod"}"#, "CREATE", &document, "null");
        hold(&format!("a new pod, {what}"), body.len(), SHORT, || {
            let request = Request::parse(body.as_bytes());
            drop(request.map(|it| it.object.map(use_copies)));
        });
        let body = review(r#"{"kind":"ConfigMap"}"#, "DELETE", "null", &document);
        hold(
            &format!("a ConfigMap that goes, {what}"),
            body.len(),
            SHORT,
            || {
                let request = Request::parse(body.as_bytes());
                drop(request.map(|it| Deletion::of(&it, Protection::InUse).is_ok()));
            },
        );
    }
}
