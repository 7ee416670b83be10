mod forms;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::annotations::Inherited;
use crate::digest::{Aspects, ConfigObject, Content, Objects, Presence};
use crate::fixtures::reference;
use crate::kind::CustomResource;
use crate::object::{Object, WorkloadObject};
use crate::reference::ConfigKind::{ConfigMap, Secret};
use crate::reference::Reference;
use crate::references::{MAX_EXCLUDED, MAX_KEYS, MAX_PATTERNS, MAX_REFERENCES, Rejected};
use crate::workload::{Reading, Workload};

/// Reads a workload in one or more dialects.
struct Case {
    dialects: Dialects,
    kind: WorkloadKind,
    object: Value,
}

fn speaking(dialects: &[Dialect]) -> Case {
    let dialects = Dialects {
        spoken: dialects.iter().copied().collect(),
        ..Dialects::default()
    };
    Case {
        dialects,
        kind: WorkloadKind::DEPLOYMENT,
        object: json!({
            "metadata": {"name": "web", "namespace": "ns"},
            "spec": {"template": {"metadata": {}, "spec": {}}},
        }),
    }
}

impl Case {
    fn auto_all(mut self) -> Self {
        self.dialects.auto_all = true;
        self
    }

    fn kind(mut self, kind: WorkloadKind) -> Self {
        self.kind = kind;
        self
    }

    fn annotated(mut self, annotations: &[(&str, &str)]) -> Self {
        self.object["metadata"]["annotations"] =
            json!(BTreeMap::from_iter(annotations.iter().copied()));
        self
    }

    fn labelled(mut self, key: &str, value: &str) -> Self {
        self.object["metadata"]["labels"] = json!({key: value});
        self
    }

    fn template_annotated(mut self, annotations: &[(&str, &str)]) -> Self {
        self.object["spec"]["template"]["metadata"]["annotations"] =
            json!(BTreeMap::from_iter(annotations.iter().copied()));
        self
    }

    fn pod_spec(mut self, pod_spec: Value) -> Self {
        self.object["spec"]["template"]["spec"] = pod_spec;
        self
    }

    /// A pod that takes one key of ConfigMap `env`, all of `from` and of Secret `pass`, mounts `file`, and
    /// mounts `part` by a subPath.
    fn using_all(self) -> Self {
        self.pod_spec(json!({
            "containers": [{
                "env": [{"valueFrom": {"configMapKeyRef": {"name": "env", "key": "mode"}}}],
                "envFrom": [{"configMapRef": {"name": "from"}}, {"secretRef": {"name": "pass"}}],
                "volumeMounts": [
                    {"name": "file", "mountPath": "/file"},
                    {"name": "part", "mountPath": "/part", "subPath": "level"},
                ],
            }],
            "volumes": [
                {"name": "file", "configMap": {"name": "file"}},
                {"name": "part", "configMap": {"name": "part"}},
                {"name": "idle", "configMap": {"name": "idle"}},
            ],
            "imagePullSecrets": [{"name": "pull"}],
        }))
    }

    fn workload(self) -> Workload {
        let object: WorkloadObject = serde_json::from_value(self.object).unwrap();
        let reading = Reading::new(self.dialects, []);
        object
            .into_workload(self.kind, &reading, &Inherited::default())
            .unwrap()
    }

    /// Returns what is tracked if all these objects exist: `cm/name`, `secret/name`, `cm/name[key]`.
    fn counts(self, objects: &[(&str, Value)]) -> Vec<String> {
        let workload = self.workload();
        let there: Objects = objects
            .iter()
            .map(|(name, metadata)| object(name, metadata))
            .collect();
        let (all, _) = workload.references.with_matches(there.keys().cloned());
        let objects: Objects = all
            .into_iter()
            .map(|reference| {
                let presence = there.get(&reference).cloned();
                (reference, presence.unwrap_or(Presence::Absent))
            })
            .collect();
        let contents = workload.references.contents(&objects);
        contents
            .0
            .iter()
            .map(|(reference, content)| shown(reference, content))
            .collect()
    }

    /// Returns what is tracked if none of these objects exist.
    fn asks_for(self) -> Vec<String> {
        self.counts(&[])
    }
}

fn shown(reference: &Reference, content: &Content<'_>) -> String {
    let kind = match reference.kind {
        ConfigKind::ConfigMap => "cm",
        ConfigKind::Secret => "secret",
    };
    let name = &reference.name;
    match content {
        Content::Absent | Content::Whole(_) => format!("{kind}/{name}"),
        Content::Entries(entries) => {
            let keys: Vec<_> = entries.iter().map(|(key, _)| *key).collect();
            format!("{kind}/{name}[{}]", keys.join(","))
        }
    }
}

/// Returns `cm/name` or `secret/name` with these extra fields, in its metadata or beside it.
fn object(name: &str, more: &Value) -> (Reference, Presence) {
    let (kind, name) = name.split_once('/').unwrap();
    let kind = match kind {
        "cm" => ConfigMap,
        _ => Secret,
    };
    let mut object = json!({
        "metadata": {"uid": "1", "resourceVersion": "1"},
        "data": {"mode": "1", "level": "2", "other": "3"},
    });
    for (field, value) in more.as_object().unwrap() {
        match field.as_str() {
            "immutable" => object[field] = value.clone(),
            _ => object["metadata"][field] = value.clone(),
        }
    }
    let parsed = ConfigObject::parse(object.to_string().as_bytes(), Aspects::default()).unwrap();
    let reference = Reference {
        kind,
        ..reference(name)
    };
    (reference, Presence::Present(parsed))
}

/// Returns objects of these names without extra fields.
fn plain<'a>(names: &[&'a str]) -> Vec<(&'a str, Value)> {
    names.iter().map(|name| (*name, json!({}))).collect()
}

const ALL: [&str; 7] = [
    "cm/env",
    "cm/file",
    "cm/from",
    "cm/idle",
    "cm/part",
    "secret/pass",
    "secret/pull",
];

mod own {
    use super::*;

    fn with(annotations: &[(&str, &str)]) -> Case {
        let keys = annotations
            .iter()
            .map(|(key, value)| (format!("{}{key}", keys::PREFIX), *value));
        let keys: Vec<_> = keys.collect();
        let keys: Vec<_> = keys
            .iter()
            .map(|(key, value)| (key.as_str(), *value))
            .collect();
        speaking(&[Dialect::PodReloader])
            .using_all()
            .annotated(&keys)
    }

    #[test]
    fn auto_finds_everything_with_the_data_keys_that_are_named() {
        let found = with(&[("auto", "true")]).counts(&plain(&ALL));
        assert_eq!(
            found,
            [
                "cm/env[mode]",
                "cm/file",
                "cm/from",
                "cm/idle",
                "cm/part[level]",
                "secret/pass",
                "secret/pull"
            ]
        );
        assert_eq!(
            with(&[("auto", "secrets")]).asks_for(),
            ["secret/pass", "secret/pull"]
        );
        assert_eq!(with(&[("auto", "configmaps")]).asks_for().len(), 5);
    }

    #[test]
    fn a_list_adds_to_what_auto_finds() {
        let asks_for = |auto, list| with(&[("auto", auto), list]).asks_for();
        assert_eq!(
            asks_for("false", ("configmaps", "elsewhere")),
            ["cm/elsewhere"]
        );
        assert_eq!(
            asks_for("secrets", ("configmaps", "elsewhere")),
            ["cm/elsewhere", "secret/pass", "secret/pull"]
        );
        let both = asks_for("configmaps", ("secrets", "elsewhere"));
        assert!(both.contains(&"secret/elsewhere".to_owned()), "{both:?}");
        assert_eq!(both.len(), 6);
    }

    #[test]
    fn the_keys_of_a_list_add_to_those_that_auto_finds() {
        for (list, expected) in [
            ("env[mode]", "cm/env[mode]"),
            ("env[level]", "cm/env[level,mode]"),
            ("env", "cm/env"),
            ("from[level]", "cm/from"),
        ] {
            let counts = with(&[("auto", "true"), ("configmaps", list)]).counts(&plain(&ALL));
            assert!(counts.iter().any(|it| it == expected), "{list}: {counts:?}");
        }
    }

    #[test]
    fn auto_that_is_false_or_no_value_finds_nothing() {
        for value in ["false", "yes", "True", ""] {
            let workload = with(&[("auto", value)]).workload();
            assert!(
                workload.references.is_empty() && !workload.is_opted_in(),
                "{value}"
            );
        }
    }

    #[test]
    fn an_excluded_object_is_tracked_neither_by_auto_nor_by_a_list() {
        let case = with(&[
            ("auto", "true"),
            ("configmaps", "env,listed,file"),
            ("exclude-configmaps", " env, idle,part"),
            ("exclude-secrets", "pull"),
        ]);
        assert_eq!(
            case.asks_for(),
            ["cm/file", "cm/from", "cm/listed", "secret/pass"]
        );
    }

    #[test]
    fn a_list_may_name_keys() {
        let case = with(&[
            ("configmaps", "a[x, y],b,c[x],c[z],d[x],d"),
            ("secrets", "s[k]"),
        ]);
        assert_eq!(
            case.counts(&plain(&["cm/a", "cm/b", "cm/c", "cm/d", "secret/s"])),
            ["cm/a[x,y]", "cm/b", "cm/c[x,z]", "cm/d", "secret/s[k]"]
        );
        let rejected = with(&[("configmaps", "a[],b[x/y],c[x")])
            .workload()
            .references
            .rejected;
        assert_eq!(rejected.len(), 3);
        assert_eq!(
            rejected[0].to_string(),
            "ConfigMap \"a[]\" is not a name with keys, such as app[log.level,mode]"
        );
    }

    #[test]
    fn per_key_false_takes_whole_objects() {
        let case = with(&[
            ("auto", "configmaps"),
            ("configmaps", "a[x]"),
            ("per-key", "false"),
        ]);
        let names = plain(&["cm/a", "cm/env", "cm/file", "cm/from", "cm/idle", "cm/part"]);
        assert_eq!(
            case.counts(&names),
            ["cm/a", "cm/env", "cm/file", "cm/from", "cm/idle", "cm/part"]
        );
    }

    #[test]
    fn restart_on_needed_tracks_only_what_pods_cannot_see() {
        let needed = |annotations: &[(&str, &str)]| {
            let all = [annotations, &[("restart-on", "needed")]].concat();
            with(&all)
        };
        assert_eq!(
            needed(&[("auto", "true")]).counts(&plain(&ALL)),
            ["cm/env[mode]", "cm/from", "cm/part[level]", "secret/pass"]
        );
        let pull = [("secret/pull", json!({}))];
        let names_it = [("secrets", "pull")];
        assert!(needed(&names_it).counts(&pull).is_empty());
        assert_eq!(with(&names_it).counts(&pull), ["secret/pull"]);
        let listed = plain(&["cm/env", "cm/file", "cm/elsewhere"]);
        assert_eq!(
            needed(&[("configmaps", "file,env,elsewhere")]).counts(&listed),
            ["cm/elsewhere", "cm/env[mode]"]
        );
        let keys = needed(&[("configmaps", "env[mode,other],part[other]")]);
        assert_eq!(
            keys.counts(&plain(&["cm/env", "cm/part"])),
            ["cm/env[mode]"]
        );
    }

    #[test]
    fn an_immutable_object_is_never_seen_to_change() {
        let objects = [
            ("cm/file", json!({"immutable": true})),
            ("cm/idle", json!({})),
        ];
        for annotations in [("auto", "true"), ("configmaps", "file,idle")] {
            let counts = with(&[annotations, ("restart-on", "needed")]).counts(&objects);
            assert!(counts.contains(&"cm/file".to_owned()), "{counts:?}");
            assert!(!counts.contains(&"cm/idle".to_owned()), "{counts:?}");
        }
    }

    #[test]
    fn auto_all_opts_in_every_workload_that_does_not_say_otherwise() {
        let all = |annotations| with(annotations).auto_all().workload();
        let workload = all(&[]);
        assert_eq!(workload.opt_in, OptIn::ByOthers);
        assert_eq!(workload.references.named().count(), 7);
        assert!(!all(&[("auto", "false")]).is_opted_in());
        assert_eq!(all(&[("auto", "secrets")]).references.named().count(), 2);
        let listing = all(&[("configmaps", "a")]);
        assert_eq!(listing.opt_in, OptIn::ByUs);
        assert_eq!(listing.references.named().count(), 8);
        let excluding = all(&[("exclude-secrets", "pass")]);
        assert_eq!(excluding.references.named().count(), 6);
        let ignored = with(&[]).labelled(keys::IGNORED, "true").auto_all();
        assert!(!ignored.workload().is_opted_in());
        let uses_nothing = speaking(&[Dialect::PodReloader]).auto_all().workload();
        assert!(uses_nothing.references.is_empty());
    }

    #[test]
    fn a_kind_that_is_ignored_is_never_tracked() {
        let mut case = with(&[("auto", "true"), ("secrets", "s")]);
        case.dialects.ignored = Some(Secret);
        assert_eq!(case.asks_for().len(), 5);
    }

    #[test]
    fn nothing_is_read_for_a_workload_that_did_not_opt_in() {
        let workload = with(&[("settle-period", "1s")]).workload();
        assert!(!workload.is_opted_in() && workload.references.is_empty());
    }
}

mod stakater {
    use super::*;
    use crate::scope::{Labels, Scope};

    const AUTO: &str = "reloader.stakater.com/auto";
    const SEARCH: &str = "reloader.stakater.com/search";
    const MATCH: &str = "reloader.stakater.com/match";
    const IGNORE: &str = "reloader.stakater.com/ignore";
    const CM_AUTO: &str = "configmap.reloader.stakater.com/auto";
    const SECRET_AUTO: &str = "secret.reloader.stakater.com/auto";
    const CM_RELOAD: &str = "configmap.reloader.stakater.com/reload";
    const SECRET_RELOAD: &str = "secret.reloader.stakater.com/reload";
    const CM_EXCLUDE: &str = "configmaps.exclude.reloader.stakater.com/reload";
    const SECRET_EXCLUDE: &str = "secrets.exclude.reloader.stakater.com/reload";

    /// The objects used by the pod that Stakater's Reloader sees.
    const SEEN: [&str; 5] = ["cm/env", "cm/file", "cm/from", "cm/part", "secret/pass"];

    fn case() -> Case {
        speaking(&[Dialect::Stakater]).using_all()
    }

    fn marked(name: &str, key: &str, value: &str) -> Vec<(&'static str, Value)> {
        let mark = |it: &'static str| match it == name {
            true => (it, json!({"annotations": {key: value}})),
            false => (it, json!({})),
        };
        ALL.into_iter().map(mark).collect()
    }

    /// Stakater's Reloader manages Jobs and CronJobs unless they are among its ignored workload types.
    #[test]
    fn rule_1_jobs_are_never_managed_and_cron_jobs_only_if_they_are_named() {
        let own = Name::parse("operator").unwrap();
        let scope = Scope::new([], own).with(Labels::default(), case().dialects);
        let keeps = |scope: &Scope, kind| scope.kind("batch", kind).is_some();
        assert!(!keeps(&scope, "Job") && !keeps(&scope, "CronJob"));
        let cron_jobs: CustomResource = serde_json::from_value(json!({
            "group": "batch", "resource": "cronjobs", "kind": "CronJob",
            "podTemplates": ["spec.jobTemplate.spec.template"],
        }))
        .unwrap();
        let scope = scope.and_kinds(vec![cron_jobs.into_kind().unwrap()]);
        assert!(!keeps(&scope, "Job") && keeps(&scope, "CronJob"));
    }

    #[test]
    fn rule_2_an_object_that_says_ignore_is_never_tracked() {
        let auto = || case().annotated(&[(AUTO, "true")]);
        assert_eq!(auto().counts(&plain(&ALL)), SEEN);
        assert_eq!(auto().counts(&marked("cm/env", IGNORE, "true")), SEEN[1..]);
        // Only exactly "true" has an effect.
        assert_eq!(auto().counts(&marked("cm/env", IGNORE, "True")), SEEN);
        let listed = case().annotated(&[(CM_RELOAD, "env,file")]);
        assert_eq!(
            listed.counts(&marked("cm/env", IGNORE, "true")),
            ["cm/file"]
        );
    }

    #[test]
    fn rule_3_the_pod_template_is_read_if_the_workload_has_no_annotation_for_the_kind() {
        let on_template = |annotations: &[(&str, &str)], template: &[(&str, &str)]| {
            case()
                .annotated(annotations)
                .template_annotated(template)
                .asks_for()
        };
        let auto = [(AUTO, "true")];
        assert_eq!(on_template(&[], &auto), SEEN);
        assert_eq!(on_template(&[("other", "x")], &auto), SEEN);
        // An empty value is still a value.
        for key in [AUTO, SEARCH] {
            assert!(on_template(&[(key, "")], &auto).is_empty(), "{key}");
        }
        // Annotations of one kind apply to that kind only.
        for key in [SECRET_AUTO, SECRET_RELOAD] {
            assert_eq!(on_template(&[(key, "")], &auto), SEEN[..4], "{key}");
        }
        for key in [CM_AUTO, CM_RELOAD] {
            assert_eq!(on_template(&[(key, "")], &auto), SEEN[4..], "{key}");
        }
        // Excludes do not opt in.
        assert_eq!(on_template(&[(CM_EXCLUDE, "env")], &auto), SEEN[1..]);
    }

    #[test]
    fn rule_4_excludes_are_exact_and_beat_everything() {
        let excluding = |annotation: (&str, &str)| {
            let excludes = [(CM_EXCLUDE, " env ,fil"), (SECRET_EXCLUDE, "pass")];
            case()
                .annotated(&[&[annotation], &excludes[..]].concat())
                .counts(&plain(&ALL))
        };
        assert_eq!(excluding((AUTO, "true")), ["cm/file", "cm/from", "cm/part"]);
        assert_eq!(excluding((CM_RELOAD, "env,file")), ["cm/file"]);
        assert_eq!(excluding((CM_RELOAD, "e.*,file")), ["cm/file"]);
        // Excludes on the pod template are not read.
        let template = [(AUTO, "true"), (CM_EXCLUDE, "env")];
        assert_eq!(case().template_annotated(&template).asks_for(), SEEN);
    }

    #[test]
    fn rule_5_a_named_list_contains_regular_expressions() {
        let there = plain(&[
            "cm/app",
            "cm/app-extra",
            "cm/myweb",
            "cm/web",
            "cm/a.c",
            "cm/abc",
        ]);
        for (list, expected) in [
            ("app", &["cm/app"][..]),
            (" app , web ", &["cm/app", "cm/web"]),
            ("app.*", &["cm/app", "cm/app-extra"]),
            // Each alternative is anchored at one end, as in `^app|web$`.
            ("app|web", &["cm/app", "cm/app-extra", "cm/myweb", "cm/web"]),
            ("(app|web)", &["cm/app", "cm/web"]),
            // A dot matches any character.
            ("a.c", &["cm/a.c", "cm/abc"]),
            (r"a\.c", &["cm/a.c"]),
            // Upper case matches nothing, unless the pattern asks for it.
            ("APP.*", &[]),
            ("(?i)APP", &["cm/app"]),
            // A comma ends an item, even within braces.
            ("ap{1,2}", &[]),
            ("app,[", &["cm/app"]),
            ("app-(,app-.*,web", &["cm/app-extra", "cm/web"]),
        ] {
            let counts = case().annotated(&[(CM_RELOAD, list)]).counts(&there);
            assert_eq!(counts, expected, "{list}");
        }
    }

    // The expected matches are those of Go 1.26.
    #[test]
    fn rule_5_patterns_are_read_as_go_reads_them() {
        const NAMES: [&str; 6] = [
            "cm/a1",
            "cm/app",
            "cm/app-1",
            "cm/team.app",
            "cm/web",
            "cm/x",
        ];
        let there = plain(&NAMES);
        for (item, expected) in [
            ("app(-[0-9]+)?", &["cm/app", "cm/app-1"][..]),
            ("^(app|web)$", &["cm/app", "cm/web"]),
            ("[^a].*", &["cm/team.app", "cm/web", "cm/x"]),
            ("[[:alpha:]]+", &["cm/app", "cm/web", "cm/x"]),
            ("[a-z]{1}", &["cm/x"]),
            ("ap{2}", &["cm/app"]),
            (r"a\d", &["cm/a1"]),
            (r"\w+", &["cm/a1", "cm/app", "cm/web", "cm/x"]),
            (r"\bapp\b.*", &["cm/app", "cm/app-1"]),
            (r"\Aapp\z", &["cm/app"]),
            (r"app\-1", &["cm/app-1"]),
            (r"\x61pp", &["cm/app"]),
            ("(?P<name>app)", &["cm/app"]),
            ("(?i:APP)", &["cm/app"]),
            ("(?U)x+", &["cm/x"]),
            ("2}|web", &["cm/web"]),
            ("\u{a0}app\u{85}", &["cm/app"]),
            // These match every name: an anchor alone is all that must match.
            ("|app", &NAMES),
            ("app|", &NAMES),
            ("*", &NAMES),
            // The backslash escapes the `$` that follows.
            (r"app\", &[]),
            ("\u{200b}app", &[]),
            ("app[mode]", &[]),
            // These patterns do not compile.
            ("(?=app)app", &[]),
            (r"(a)\1|web", &[]),
        ] {
            let counts = case().annotated(&[(CM_RELOAD, item)]).counts(&there);
            assert_eq!(counts, expected, "{item}");
        }
    }

    // docs/migration/stakater.md documents these differences.
    #[test]
    fn rule_5_some_syntax_works_only_in_go_or_only_in_rust() {
        let there = plain(&["cm/app"]);
        let counts = |item: &str| case().annotated(&[(CM_RELOAD, item)]).counts(&there);
        for of_go in [
            r"\Qapp\E", r"\pLpp", r"\141pp", "[a[]pp", "app|{", "(?)app", "[a&&b]pp",
        ] {
            assert!(counts(of_go).is_empty(), "{of_go}");
        }
        for of_rust in ["app**", "(app){1}{1}", r"\<app\>", "(?x)a p p"] {
            assert_eq!(counts(of_rust), ["cm/app"], "{of_rust}");
        }
    }

    #[test]
    fn rule_5_a_listed_object_is_tracked_even_if_no_pod_uses_it_and_auto_is_false() {
        let case = case().annotated(&[(SECRET_RELOAD, "elsewhere"), (AUTO, "false")]);
        assert_eq!(case.asks_for(), ["secret/elsewhere"]);
    }

    #[test]
    fn rule_5_an_invalid_regular_expression_is_rejected_and_the_rest_is_tracked() {
        for (item, problem) in [
            (
                "a(",
                "ConfigMap \"a(\" is not a valid regular expression, or is too large",
            ),
            (
                "ap{1",
                "ConfigMap \"ap{1\" is not a valid regular expression, or is too large",
            ),
            (
                "App",
                "ConfigMap \"App\" is not a valid name: a name has only lower case letters, digits, '-' and '.'",
            ),
        ] {
            let list = format!("app,{item}");
            let workload = case().annotated(&[(CM_RELOAD, &list)]).workload();
            assert_eq!(workload.references.named().count(), 1);
            assert_eq!(workload.references.rejected[0].to_string(), problem);
        }
        let huge = format!("{}(a{{1000}}){{1000}}", "a?".repeat(500));
        let workload = case().annotated(&[(CM_RELOAD, &huge)]).workload();
        assert_eq!(workload.references.rejected.len(), 1);
    }

    #[test]
    fn rule_6_search_tracks_what_says_match_even_if_auto_is_false() {
        let search = || case().annotated(&[(SEARCH, "true"), (AUTO, "false")]);
        assert!(search().counts(&plain(&ALL)).is_empty());
        assert_eq!(
            search().counts(&marked("cm/env", MATCH, "true")),
            ["cm/env"]
        );
        assert!(search().counts(&marked("cm/env", MATCH, "True")).is_empty());
        // An object that no pod uses is not found, and neither is one that says ignore.
        assert!(
            search()
                .counts(&marked("cm/idle", MATCH, "true"))
                .is_empty()
        );
        let both = json!({"annotations": {MATCH: "true", IGNORE: "true"}});
        let mut all = plain(&ALL);
        all[0].1 = both;
        assert!(search().counts(&all).is_empty());
        // An absent object is tracked as absent, so its creation with the mark is noticed.
        assert_eq!(search().asks_for(), SEEN);
        let search = case().annotated(&[(SEARCH, "True")]);
        assert!(search.counts(&marked("cm/env", MATCH, "true")).is_empty());
        // If both apply, `auto` wins.
        let both = case().annotated(&[(SEARCH, "true"), (AUTO, "true")]);
        assert_eq!(both.counts(&plain(&ALL)), SEEN);
    }

    #[test]
    fn rule_7_either_auto_is_enough() {
        let counts = |annotations: &[(&str, &str)]| case().annotated(annotations).asks_for();
        for value in ["1", "t", "T", "true", "TRUE", "True"] {
            assert_eq!(counts(&[(AUTO, value)]), SEEN, "{value}");
        }
        for value in ["0", "yes", "tRUE", " true", ""] {
            assert!(counts(&[(AUTO, value)]).is_empty(), "{value}");
        }
        assert_eq!(counts(&[(CM_AUTO, "true")]), SEEN[..4]);
        assert_eq!(counts(&[(SECRET_AUTO, "true")]), SEEN[4..]);
        assert_eq!(counts(&[(AUTO, "true"), (CM_AUTO, "false")]), SEEN);
        assert_eq!(counts(&[(AUTO, "false"), (CM_AUTO, "true")]), SEEN[..4]);
    }

    #[test]
    fn rule_8_when_all_are_taken_any_value_of_auto_opts_out() {
        let counts =
            |annotations: &[(&str, &str)]| case().auto_all().annotated(annotations).asks_for();
        assert_eq!(counts(&[]), SEEN);
        assert!(counts(&[(AUTO, "false")]).is_empty());
        assert!(counts(&[(AUTO, "yes")]).is_empty());
        assert_eq!(counts(&[(AUTO, "")]), SEEN);
        // The annotation of one kind applies to that kind only.
        assert_eq!(counts(&[(SECRET_AUTO, "false")]), SEEN[..4]);
        assert_eq!(counts(&[(CM_AUTO, "false")]), SEEN[4..]);
        // A search without a match does not opt out.
        assert_eq!(counts(&[(SEARCH, "true")]), SEEN);
        assert!(counts(&[("pod-reloader.cs.sap.com/auto", "false")]).is_empty());
        let ignored = case().auto_all().counts(&marked("cm/env", IGNORE, "true"));
        assert_eq!(ignored, SEEN[1..]);
    }

    #[test]
    fn when_all_are_taken_our_own_auto_says_what_beside_stakater() {
        let counts = |value| {
            let both = speaking(&[Dialect::PodReloader, Dialect::Stakater]);
            let all = both.using_all().auto_all();
            all.annotated(&[(keys::AUTO, value)]).asks_for()
        };
        assert_eq!(counts("secrets"), ["secret/pass", "secret/pull"]);
        assert!(counts("false").is_empty());
        // An unknown value opts out of nothing.
        assert_eq!(counts("yes"), SEEN);
    }

    #[test]
    fn rule_9_what_no_container_mounts_is_not_used_and_every_volume_is_checked() {
        let spec = json!({
            "initContainers": [{"volumeMounts": [{"name": "init", "mountPath": "/i"}]}],
            "containers": [{"volumeMounts": [{"name": "second", "mountPath": "/s"}]}],
            "volumes": [
                {"name": "first", "configMap": {"name": "twice"}},
                {"name": "second", "configMap": {"name": "twice"}},
                {"name": "init", "secret": {"secretName": "init"}},
                {"name": "none", "configMap": {"name": "none"}},
            ],
        });
        let counts = case()
            .pod_spec(spec)
            .annotated(&[(AUTO, "true")])
            .asks_for();
        assert_eq!(counts, ["cm/twice", "secret/init"]);
    }

    #[test]
    fn the_pause_period_of_a_deployment_is_its_settle_period() {
        let key = "deployment.reloader.stakater.com/pause-period";
        let period = |case: Case| case.workload().rare().settle_period.map(|it| it.as_secs());
        assert_eq!(period(case().annotated(&[(key, "5m")])), Some(300));
        assert_eq!(period(case().annotated(&[(key, "30m.5h")])), Some(3600));
        assert_eq!(period(case().annotated(&[(key, "5 minutes")])), None);
        let own = [(key, "5m"), (keys::SETTLE_PERIOD, "7s")];
        assert_eq!(period(case().annotated(&own)), Some(7));
        let daemon_set = case().kind(WorkloadKind::DAEMON_SET);
        assert_eq!(period(daemon_set.annotated(&[(key, "5m")])), None);
        let unread = speaking(&[Dialect::PodReloader]);
        assert_eq!(period(unread.annotated(&[(key, "5m")])), None);
    }

    #[test]
    fn our_own_settings_apply_to_annotations_of_stakater_too() {
        let auto = [
            (AUTO, "true"),
            (keys::PER_KEY, "true"),
            (keys::RESTART_ON, "needed"),
        ];
        assert_eq!(
            case().annotated(&auto).counts(&plain(&ALL)),
            ["cm/env[mode]", "cm/from", "cm/part[level]", "secret/pass"]
        );
        let excluding = [(AUTO, "true"), (keys::EXCLUDE_SECRETS, "pass")];
        let excluding = case().annotated(&excluding);
        assert_eq!(excluding.counts(&plain(&ALL)), SEEN[..4]);
        let patterns = [(CM_RELOAD, "f.*"), (keys::RESTART_ON, "needed")];
        assert_eq!(
            case().annotated(&patterns).counts(&plain(&ALL)),
            ["cm/from"]
        );
    }
}

#[test]
fn wave_needs_its_annotation_and_takes_keys_and_extras() {
    let wave = |annotations: &[(&str, &str)]| {
        speaking(&[Dialect::Wave])
            .using_all()
            .annotated(annotations)
    };
    let (gate, extra) = (
        "wave.pusher.com/update-on-config-change",
        "wave.pusher.com/extra-configmaps",
    );
    assert_eq!(
        wave(&[(gate, "true"), (extra, "more,other/one")]).counts(&plain(&ALL)),
        [
            "cm/env[mode]",
            "cm/file",
            "cm/from",
            "cm/idle",
            "cm/more",
            "cm/part[level]",
            "secret/pass"
        ]
    );
    assert_eq!(
        wave(&[(gate, "true"), (extra, "other/one")])
            .workload()
            .references
            .rejected
            .len(),
        1
    );
    for closed in [&[(extra, "more")][..], &[(gate, "True"), (extra, "more")]] {
        assert!(!wave(closed).workload().is_opted_in());
    }
}

#[test]
fn stackable_applies_to_stateful_sets_with_its_label() {
    let case = || {
        speaking(&[Dialect::Stackable])
            .using_all()
            .kind(WorkloadKind::STATEFUL_SET)
    };
    let label = "restarter.stackable.tech/enabled";
    // Everything except the pull secret.
    let all = &ALL[..6];
    assert_eq!(case().labelled(label, "true").asks_for(), all);
    assert!(case().labelled(label, "false").asks_for().is_empty());
    let deployment = case().kind(WorkloadKind::DEPLOYMENT);
    assert!(deployment.labelled(label, "true").asks_for().is_empty());

    let ignoring = case().labelled(label, "true").annotated(&[
        ("restarter.stackable.tech/ignore-configmap.0", "env"),
        ("restarter.stackable.tech/ignore-configmap.x", "file"),
        ("restarter.stackable.tech/ignore-secret.0", "pass"),
    ]);
    assert_eq!(ignoring.asks_for(), ["cm/from", "cm/idle", "cm/part"]);
    let ignored = json!({"labels": {"restarter.stackable.tech/ignore": "true"}});
    let counts = case()
        .labelled(label, "true")
        .counts(&[("cm/env", ignored)]);
    assert_eq!(counts, all[1..]);
}

#[test]
fn kinds_that_infisical_and_1password_restart_themselves_are_left_to_them() {
    let kinds = |dialect, key| {
        let asks_for = |kind| {
            let case = speaking(&[dialect]).using_all().kind(kind);
            case.annotated(&[(key, "true")]).asks_for()
        };
        WorkloadKind::BUILT_IN.map(asks_for)
    };
    let auto_reload = "secrets.infisical.com/auto-reload";
    let none = Vec::<String>::new();
    assert_eq!(
        kinds(Dialect::Infisical, auto_reload),
        [none.clone(), none.clone(), none.clone()]
    );
    let pass = vec!["secret/pass".to_owned()];
    let auto_restart = "operator.1password.io/auto-restart";
    let of_one_password = kinds(Dialect::OnePassword, auto_restart);
    assert_eq!(of_one_password, [none.clone(), pass.clone(), pass.clone()]);

    let resource = json!({
        "group": "argoproj.io", "resource": "rollouts", "kind": "Rollout",
        "podTemplates": ["spec.template"],
    });
    let resource: CustomResource = serde_json::from_value(resource).unwrap();
    let custom = resource.into_kind().unwrap();
    let rollout = |dialect, key, value| {
        let case = speaking(&[dialect]).using_all().kind(custom);
        case.annotated(&[(key, value)]).asks_for()
    };
    assert_eq!(rollout(Dialect::Infisical, auto_reload, "true"), pass);
    assert_eq!(rollout(Dialect::OnePassword, auto_restart, "true"), pass);
    for value in ["false", "True", ""] {
        assert_eq!(rollout(Dialect::Infisical, auto_reload, value), none);
        assert_eq!(rollout(Dialect::OnePassword, auto_restart, value), none);
    }
}

#[test]
fn lists_of_trigger_controller_and_fabric8_name_objects() {
    let case = speaking(&[Dialect::TriggerController, Dialect::Fabric8]).using_all();
    let case = case.annotated(&[
        ("trigger.k8s.io/triggering-configMaps", "a, b"),
        ("trigger.k8s.io/triggering-secrets", "s"),
        ("configmap.fabric8.io/update-on-change", "b,c"),
    ]);
    assert_eq!(case.asks_for(), ["cm/a", "cm/b", "cm/c", "secret/s"]);
}

#[test]
fn only_dialects_that_are_on_are_understood() {
    let annotations = [
        ("reloader.stakater.com/auto", "true"),
        ("wave.pusher.com/update-on-config-change", "true"),
        ("trigger.k8s.io/triggering-secrets", "s"),
        ("configmap.fabric8.io/update-on-change", "b"),
        (keys::CONFIG_MAPS, "a"),
    ];
    let counts = |dialects: &[Dialect]| speaking(dialects).using_all().annotated(&annotations);
    assert_eq!(counts(&[Dialect::PodReloader]).asks_for(), ["cm/a"]);
    assert_eq!(counts(&[Dialect::Fabric8]).asks_for(), ["cm/b"]);
    let workload = counts(&[Dialect::Fabric8]).workload();
    assert_eq!(workload.opt_in, OptIn::ByOthers);
    let both = counts(&[Dialect::Fabric8, Dialect::PodReloader]);
    assert_eq!(both.workload().opt_in, OptIn::ByUs);
}

#[test]
fn an_object_that_several_dialects_ask_for_is_tracked_once() {
    let gate = ("wave.pusher.com/update-on-config-change", "true");
    let of_others = [
        (RELOAD, "from,more"),
        ("configmap.fabric8.io/update-on-change", "from"),
        ("trigger.k8s.io/triggering-configMaps", "from"),
    ];
    let all = |annotations: &[(&str, &str)]| {
        let annotations = [&of_others[..], annotations].concat();
        let case = speaking(&Dialect::ALL).using_all();
        case.annotated(&annotations).asks_for()
    };
    assert_eq!(all(&[(keys::CONFIG_MAPS, "from")]), ["cm/from", "cm/more"]);
    let found = ["cm/env", "cm/file", "cm/from", "cm/idle", "cm/more"];
    let found = [&found[..], &["cm/part", "secret/pass"]].concat();
    assert_eq!(all(&[gate]), found);
}

#[test]
fn nothing_is_tracked_for_workloads_that_did_not_opt_in() {
    let case = || speaking(&Dialect::ALL).using_all();
    let is_left_alone = |case: Case| {
        let workload = case.workload();
        !workload.is_opted_in() && workload.references.is_empty()
    };
    for annotation in [
        (keys::AUTO, "false"),
        (keys::AUTO, "True"),
        (keys::PER_KEY, "true"),
        (keys::EXCLUDE_SECRETS, "x"),
        ("reloader.stakater.com/auto", "false"),
        ("reloader.stakater.com/search", "false"),
        ("reloader.stakater.com/match", "true"),
        ("wave.pusher.com/update-on-config-change", "false"),
        ("wave.pusher.com/extra-configmaps", "env"),
        ("trigger.k8s.io/note", "env"),
        ("configmap.fabric8.io/note", "env"),
        ("secrets.infisical.com/auto-reload", "false"),
        ("operator.1password.io/auto-restart", "false"),
    ] {
        assert!(
            is_left_alone(case().annotated(&[annotation])),
            "{annotation:?}"
        );
    }
    let ours_on_template = case().template_annotated(&[(keys::AUTO, "true")]);
    assert!(is_left_alone(ours_on_template));
}

#[test]
fn no_dialect_tracks_secrets_that_are_ignored() {
    for annotation in [
        (keys::AUTO, "true"),
        (keys::SECRETS, "pass"),
        ("reloader.stakater.com/auto", "true"),
        ("secret.reloader.stakater.com/reload", "p.*"),
        ("wave.pusher.com/update-on-config-change", "true"),
        ("trigger.k8s.io/triggering-secrets", "pass"),
    ] {
        let mut case = speaking(&Dialect::ALL).using_all().annotated(&[annotation]);
        case.dialects.ignored = Some(Secret);
        let counts = case.counts(&plain(&ALL));
        let is_config_map = |it: &String| it.starts_with("cm/");
        assert!(
            counts.iter().all(is_config_map),
            "{annotation:?}: {counts:?}"
        );
    }
}

#[test]
fn the_labels_of_ours_opt_out_of_every_dialect() {
    let annotation = [("reloader.stakater.com/auto", "true")];
    let case = speaking(&[Dialect::Stakater])
        .using_all()
        .annotated(&annotation);
    assert!(
        !case
            .labelled(keys::IGNORED, "true")
            .workload()
            .is_opted_in()
    );
}

#[test]
fn every_dialect_is_found_by_its_name() {
    for dialect in Dialect::ALL {
        assert_eq!(dialect.as_str().parse(), Ok(dialect));
    }
    let error = "auto-all".parse::<Dialect>().unwrap_err();
    assert!(error.contains("trigger-controller"), "{error}");
}

#[test]
fn a_migration_says_of_each_dialect_whether_marks_keep_objects_from_being_tracked() {
    for dialect in Dialect::ALL {
        let has_marks = dialect.denying_marks() != Marks::NOT_SELECTED;
        for ReadKey { key, .. } in dialect.read_keys() {
            assert_eq!(crate::migration::reads_marks(key), has_marks, "{key}");
        }
    }
}

/// This is as large as the annotations of an object may be. Reading it used to take minutes.
#[test]
fn a_workload_full_of_data_keys_or_of_bad_patterns_is_read() {
    let keys: Vec<String> = (0..30_000).map(|n| format!("a[{n}]")).collect();
    let case = speaking(&[Dialect::PodReloader]).annotated(&[(keys::CONFIG_MAPS, &keys.join(","))]);
    assert_eq!(case.workload().references.named().count(), 1);
    let patterns: Vec<String> = (0..16_000).map(|n| format!("{n}.{{99}}{{99}}")).collect();
    let reload = "configmap.reloader.stakater.com/reload";
    let case = speaking(&[Dialect::Stakater]).annotated(&[(reload, &patterns.join(","))]);
    assert!(case.workload().references.rejected.len() <= MAX_PATTERNS + 2);
}

/// A dry run is reviewed before the size of the annotations is checked.
#[test]
fn annotations_of_megabytes_are_not_read() {
    let keys: Vec<_> = (0..600_000).map(|n| n.to_string()).collect();
    let others: Vec<_> = (1..=255).map(|n| format!("x{n}")).collect();
    let list = format!("kube-root-ca.crt[{}],{}", keys.join(","), others.join(","));
    let listing = |key| speaking(&[Dialect::PodReloader]).annotated(&[(key, &list)]);
    let workload = listing(keys::CONFIG_MAPS).workload();
    assert!(workload.references.is_empty() && !workload.is_opted_in());
    let on_template = speaking(&[Dialect::Stakater]).template_annotated(&[(RELOAD, &list)]);
    assert!(!on_template.workload().is_opted_in());
}

#[test]
fn an_object_of_which_too_many_data_keys_are_named_is_tracked_as_a_whole() {
    let named = |keys: &[String]| {
        let list = format!("a[x],big[{}],c[y]", keys.join(","));
        speaking(&[Dialect::PodReloader]).annotated(&[(keys::CONFIG_MAPS, &list)])
    };
    let rejected = |case: Case| {
        let rejected = case.workload().references.rejected;
        rejected.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let there = plain(&["cm/a", "cm/big", "cm/c"]);
    let many: Vec<_> = (0..45_000).map(|n| n.to_string()).collect();
    let long: Vec<_> = (0..300).map(|n| format!("{n:0>250}")).collect();
    for keys in [many, long] {
        assert_eq!(
            named(&keys).counts(&there),
            ["cm/a[x]", "cm/big", "cm/c[y]"]
        );
        assert_eq!(
            rejected(named(&keys)),
            [
                "ConfigMap big is tracked as a whole: a workload may name 4096 keys, of 65536 bytes in all"
            ]
        );
    }
    let most: Vec<_> = (0..4000).map(|n| n.to_string()).collect();
    assert!(rejected(named(&most)).is_empty());
}

#[test]
fn the_first_name_beyond_the_limit_is_reported() {
    let list: Vec<_> = (0..10 * MAX_REFERENCES)
        .map(|n| format!("x{n:05}"))
        .collect();
    let case = speaking(&[Dialect::PodReloader]).annotated(&[(keys::CONFIG_MAPS, &list.join(","))]);
    let rejected = case.workload().references.rejected;
    let first = Rejected::TooMany {
        kind: ConfigKind::ConfigMap,
        name: Name::parse(&list[MAX_REFERENCES]).unwrap(),
    };
    assert_eq!(*rejected, [first]);
}

#[test]
fn names_beyond_the_limit_of_a_list_are_not_excluded() {
    let names: Vec<_> = (0..30_000).map(|n| format!("x{n:05}")).collect();
    let case = speaking(&[Dialect::PodReloader, Dialect::Stakater]).annotated(&[
        (keys::EXCLUDE_CONFIG_MAPS, &names.join(",")),
        (keys::CONFIG_MAPS, "x00000,x29999"),
    ]);
    let rejected = case.workload().references.rejected;
    assert_eq!(
        rejected.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["ConfigMap names are not excluded: a workload may exclude 1024 in each list"]
    );
}

/// Every read of the workload used to match each source with each pattern, which took a minute.
#[test]
fn only_as_many_of_a_thousand_sources_are_matched_as_may_be_tracked() {
    let source = |n: usize| {
        let name = format!("{n:04}{}", "ab".repeat(124));
        let key_ref =
            |key: &str| json!({"valueFrom": {"secretKeyRef": {"name": name, "key": key}}});
        [key_ref("a"), key_ref("b"), key_ref("c")]
    };
    let env: Vec<_> = (0..1000).flat_map(source).collect();
    let patterns: Vec<_> = (0..32).map(|n| format!("[ab0-9]*[0-9]*b?z{n}")).collect();
    let list = patterns.join(",");
    let case = speaking(&[Dialect::Stakater])
        .annotated(&[("secret.reloader.stakater.com/reload", &list)])
        .pod_spec(json!({"containers": [{"env": env}]}));
    let (workload, steps) = crate::name_regex::steps::counted(|| case.workload());
    assert_eq!(*workload.references.rejected, []);
    assert!(
        steps > 0 && steps <= MAX_REFERENCES * 32 * 253,
        "{steps} steps"
    );
}

const RELOAD: &str = "configmap.reloader.stakater.com/reload";

/// Matching 4,000 names used to take a minute, because each state was visited for each character.
#[test]
fn a_pattern_that_is_slow_for_names_made_for_it_is_rejected() {
    let counted = (221..=250).rev().map(|n| format!("[ab]*a[ab]{{{n}}}z"));
    let explosive = format!("({})", Vec::from_iter(counted).join("|"));
    let case = speaking(&[Dialect::Stakater]).annotated(&[(RELOAD, &explosive)]);
    let references = case.workload().references;
    assert_eq!(references.pattern_kinds().count(), 0);
    assert_eq!(references.rejected.len(), 1, "{:?}", references.rejected);
}

/// Each of these used to take up megabytes as soon as it was read.
#[test]
fn patterns_with_groups_and_many_states_take_up_little_memory() {
    let letters: String = ('!'..='~')
        .filter(|c| !",|()[]{}^$.*+?\\".contains(*c))
        .collect();
    for n in 0..8 {
        let pattern = |m| format!("({letters}{n}{m}|{}.{{9}})", letters.repeat(11));
        let patterns: Vec<_> = (0..32).map(pattern).collect();
        let list = patterns.join(",");
        let case = speaking(&[Dialect::Stakater]).annotated(&[(RELOAD, &list)]);
        let references = case.workload().references;
        assert!(references.size_of_patterns() < 96 << 10, "{references:?}");
    }
}

#[test]
fn settings_of_ours_are_tested_in_every_dialect() {
    let workload = speaking(&[Dialect::Stakater])
        .annotated(&[(keys::AUTO, "false")])
        .workload();
    for key in [
        keys::AUTO,
        keys::EXCLUDE_SECRETS,
        keys::RESTART_ON,
        keys::SETTLE_PERIOD,
    ] {
        let is_asked = |(asked, _): (&str, Option<&str>)| asked == key;
        assert!(workload.markers.annotations.each().any(is_asked), "{key}");
    }
}

#[test]
fn every_annotation_of_the_user_is_watched_unless_it_says_only_when() {
    use crate::annotations::{KEYS, Place};
    let dialects = Dialects {
        classes: true,
        ..Dialects::default()
    };
    let watched: Vec<_> = dialects.annotation_keys().collect();
    for key in KEYS
        .iter()
        .filter(|key| !key.is_ours && key.place == Place::Annotation)
    {
        assert_eq!(watched.contains(&key.key), !key.is_timing, "{}", key.key);
    }
}

#[test]
fn matches_take_the_room_that_names_leave_and_no_more() {
    let name = |n: usize| format!("listed-{n:03}");
    let listed: Vec<_> = (0..MAX_REFERENCES - 2).map(name).collect();
    let list = [&listed.join(","), "match-.*"].join(",");
    let case = speaking(&[Dialect::Stakater]).annotated(&[(RELOAD, &list)]);
    let references = case.workload().references;
    let there = (0..5).map(|n| reference(&format!("match-{n}")));
    let namespace = references.named().next().unwrap().namespace.clone();
    let there = there.map(|it| Reference {
        namespace: namespace.clone(),
        ..it
    });
    let (all, left_out) = references.with_matches(there.clone());
    assert_eq!(all.len(), MAX_REFERENCES);
    assert!(all.iter().any(|it| it.name.as_str() == "match-1"));
    let expected = Rejected::TooMany {
        kind: ConfigKind::ConfigMap,
        name: Name::parse("match-2").unwrap(),
    };
    assert_eq!(left_out, Some(expected));
    let one_less = there.filter(|it| it.name.as_str() != "match-0");
    let (all, _) = references.with_matches(one_less);
    assert!(all.iter().any(|it| it.name.as_str() == "match-2"));
}

#[test]
fn the_documented_limits_are_those_of_the_code() {
    let page = include_str!("../../../../docs/annotations.md");
    for limit in [
        format!("| {MAX_REFERENCES} objects,"),
        format!("| {MAX_KEYS} keys of objects,"),
        format!("| {MAX_EXCLUDED} names in an exclude list |"),
        format!("| {MAX_PATTERNS} regular expressions of"),
    ] {
        assert!(page.contains(&limit), "{limit}");
    }
}
