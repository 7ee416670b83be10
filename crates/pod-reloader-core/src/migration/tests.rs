use serde_json::{Value, json};

use super::*;
use crate::fixtures::{Builder, deployment};
use crate::object::WorkloadObject;

const STAKATER: &str = "reloader.stakater.com/";

/// Returns a Deployment whose pods take a key of ConfigMap `env` and of Secret `pass`, and mount ConfigMap `file`.
fn web() -> Builder {
    deployment("web")
        .takes("configMapKeyRef", "env", "mode")
        .takes("secretKeyRef", "pass", "password")
        .requires("file", None)
        .with(
            "/spec/template/spec/imagePullSecrets",
            json!([{"name": "pull"}]),
        )
}

fn migrated(object: &Value) -> Result<Option<Migration>, Untranslatable> {
    migrate(WorkloadKind::DEPLOYMENT, object)
}

/// Returns the object as it is once the migration has been applied.
fn applied(mut object: Value, migration: &Migration) -> Value {
    let annotations = object["metadata"]["annotations"].take();
    let mut annotations = annotations.as_object().cloned().unwrap_or_default();
    for (key, value) in &migration.annotations {
        match value {
            Some(value) => drop(annotations.insert(key.clone(), json!(value))),
            None => drop(annotations.remove(key)),
        }
    }
    object["metadata"]["annotations"] = annotations.into();
    if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
        labels.retain(|key, _| !migration.removed_labels.contains(key));
    }
    object
}

/// Returns the objects that are tracked, each with its keys, as the operator reads them.
fn tracked(object: &Value, dialects: Dialects) -> Vec<String> {
    let object: WorkloadObject = serde_json::from_value(object.clone()).unwrap();
    let workload = crate::object::Object::into_workload(
        object,
        WorkloadKind::DEPLOYMENT,
        &Reading::new(dialects, []),
        &crate::annotations::Inherited::default(),
    );
    let references = workload.unwrap().references;
    let named = references.named().map(|reference| {
        let keys = references.extent(reference).unwrap();
        format!("{} {}: {keys:?}", reference.kind, reference.name)
    });
    named.collect()
}

/// Returns our annotations of a migrated workload. Panics if it does not track the same with our dialect alone.
fn ours(builder: Builder) -> Vec<(String, String)> {
    let object = builder.json();
    let migration = migrated(&object).unwrap().expect("it has keys of others");
    let after = applied(object.clone(), &migration);
    assert_eq!(tracked(&after, of_ours()), tracked(&object, of_all()));
    let set = migration.annotations.into_iter();
    let set = set.filter_map(|(key, value)| {
        let key = key.strip_prefix(keys::PREFIX).unwrap_or(&key).to_owned();
        Some((key, value?))
    });
    set.collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    let all = all.iter();
    all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn auto_of_others_becomes_ours() {
    let of_stakater =
        |key: &str, value: &str| web().annotated(&format!("{key}{STAKATER}auto"), value);
    assert_eq!(
        ours(of_stakater("", "true")),
        pairs(&[
            ("auto", "true"),
            ("exclude-secrets", "pull"),
            ("per-key", "false")
        ])
    );
    assert_eq!(
        ours(of_stakater("configmap.", "t")),
        pairs(&[("auto", "configmaps"), ("per-key", "false")])
    );
    assert_eq!(
        ours(web().annotated("wave.pusher.com/update-on-config-change", "true")),
        pairs(&[("auto", "true"), ("exclude-secrets", "pull")])
    );
}

#[test]
fn lists_and_excludes_of_others_become_ours() {
    let list = |kind: &str| format!("{kind}.{STAKATER}reload");
    assert_eq!(
        ours(web().annotated(&list("configmap"), "b, a")),
        pairs(&[("configmaps", "a,b")])
    );
    let both = web()
        .lists("mine[x]")
        .annotated(&list("secret"), "pass")
        .annotated("configmap.fabric8.io/update-on-change", "env");
    assert_eq!(
        ours(both),
        pairs(&[("configmaps", "mine[x],env"), ("secrets", "pass")])
    );
    let excluded = web()
        .annotated(&format!("{STAKATER}auto"), "true")
        .annotated(&list("configmaps.exclude"), "env,later");
    assert_eq!(
        ours(excluded),
        pairs(&[
            ("auto", "true"),
            ("exclude-configmaps", "env,later"),
            ("exclude-secrets", "pull"),
            ("per-key", "false"),
        ])
    );
}

#[test]
fn auto_of_one_dialect_and_a_list_of_ours_with_keys_are_kept_beside_each_other() {
    let both = web()
        .lists("mine[x]")
        .annotated("wave.pusher.com/update-on-config-change", "true");
    let expected = [("auto", "true"), ("exclude-secrets", "pull")];
    assert_eq!(ours(both), pairs(&expected));
}

#[test]
fn the_settle_period_is_taken_over_unless_there_is_one() {
    let paused = || {
        web()
            .annotated(&format!("configmap.{STAKATER}reload"), "a")
            .annotated("deployment.reloader.stakater.com/pause-period", "5m")
    };
    assert_eq!(
        ours(paused()),
        pairs(&[("configmaps", "a"), ("settle-period", "5m")])
    );
    let own = paused().annotation("settle-period", "9s");
    assert_eq!(ours(own), pairs(&[("configmaps", "a")]));
}

#[test]
fn an_opt_out_of_all_stays_one_and_that_of_one_kind_is_refused() {
    let auto = format!("{STAKATER}auto");
    let of_secrets = || web().annotated(&format!("secret.{auto}"), "false");
    assert_eq!(
        migrated(&of_secrets().json()).unwrap_err().to_string(),
        "secret.reloader.stakater.com/auto opts out where every workload is managed, which has no counterpart for one kind"
    );
    let of_each = of_secrets().annotated(&format!("configmap.{auto}"), "false");
    let of_all = web().annotated(&auto, "false");
    for opting_out in [of_each, of_all] {
        assert_eq!(ours(opting_out), pairs(&[("auto", "false")]));
    }
}

#[test]
fn excludes_are_kept_for_where_every_workload_is_managed() {
    let excluded = web()
        .annotated(&format!("configmap.{STAKATER}reload"), "env")
        .annotated(&format!("secrets.exclude.{STAKATER}reload"), "pass");
    assert_eq!(
        ours(excluded),
        pairs(&[("configmaps", "env"), ("exclude-secrets", "pass")])
    );
}

#[test]
fn old_keys_are_removed_but_not_from_the_pod_template() {
    let reload = format!("configmap.{STAKATER}reload");
    let on_template = web().with(
        "/spec/template/metadata/annotations",
        json!({(reload.clone()): "a"}),
    );
    let migration = migrated(&on_template.json()).unwrap().unwrap();
    let set = BTreeMap::from([(keys::CONFIG_MAPS.to_owned(), Some("a".to_owned()))]);
    assert_eq!(migration.annotations, set);
    assert_eq!(migration.notes, [Note::InTemplate(reload.clone())]);
    let migration = migrated(&web().annotated(&reload, "a").json());
    let migration = migration.unwrap().unwrap();
    assert_eq!(migration.annotations.get(&reload), Some(&None));
    assert_eq!(migration.notes, []);
}

#[test]
fn the_label_of_stackable_is_removed() {
    let mut object = web().json();
    object["kind"] = json!("StatefulSet");
    object["metadata"]["labels"] =
        json!({"restarter.stackable.tech/enabled": "true", "app": "web"});
    let migration = migrate(WorkloadKind::STATEFUL_SET, &object);
    let migration = migration.unwrap().unwrap();
    let removed = ["restarter.stackable.tech/enabled".to_owned()];
    assert_eq!(migration.removed_labels, removed.into());
    let auto = migration.annotations.get(keys::AUTO);
    assert_eq!(auto, Some(&Some("true".to_owned())));
    // On other kinds, the label means nothing.
    assert_eq!(migrated(&object), Ok(None));
}

#[test]
fn what_has_no_counterpart_is_an_error_and_what_is_ours_is_left_alone() {
    let reload = format!("secret.{STAKATER}reload");
    let error = migrated(&web().annotated(&reload, "pass,db-.*").json()).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#""db-.*" is a regular expression for Secrets, which has no counterpart: list the names"#
    );
    let search = web().annotated(&format!("{STAKATER}search"), "true");
    assert_eq!(migrated(&search.json()), Err(Untranslatable::Search));
    assert_eq!(
        migrated(&json!({"metadata": {"namespace": "ns"}})),
        Ok(None),
        "it has no keys of others"
    );
    assert_eq!(
        migrated(&json!({"metadata": {}})),
        Err(Untranslatable::Unreadable)
    );
    assert_eq!(migrated(&web().lists("a").json()), Ok(None));
}

#[test]
fn a_search_beside_auto_adds_nothing() {
    let both = web()
        .annotated(&format!("{STAKATER}search"), "true")
        .annotated(&format!("{STAKATER}auto"), "true");
    assert_eq!(ours(both)[0], ("auto".to_owned(), "true".to_owned()));
}

#[test]
fn an_object_of_an_unknown_kind_may_have_keys_of_others() {
    let has = |spec: Value, key: &str| {
        let metadata = json!({"annotations": {(key.to_owned()): "true"}});
        has_keys_of_others(&json!({"metadata": metadata, "spec": spec}))
    };
    let auto = format!("{STAKATER}auto");
    let template = || json!({"template": {"spec": {"containers": []}}});
    assert!(has(template(), &auto));
    assert!(has(json!({"jobTemplate": {"spec": template()}}), &auto));
    assert!(!has(template(), "example.com/auto"));
    // Such as a ConfigMap, or an object that makes Secrets.
    assert!(!has(json!({}), &auto));
}
