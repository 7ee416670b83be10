use super::*;
use serde_json::{Value, json};

#[test]
fn the_first_requirements_are_used_if_there_are_more_than_memory_has_room_for() {
    let items: Vec<_> = (0..10_000).map(|n| json!({"key": n.to_string()})).collect();
    let volume = |name: &str| json!({"name": name, "configMap": {"name": name, "items": items}});
    let spec = mounting(&json!({"volumes": [volume("other"), volume("listed")]}));
    let spec: PodSpec = serde_json::from_value(spec).unwrap();
    let is_listed = |reference: &Reference| reference.name.as_str() == "listed";
    let requirements = spec.requirements(&Name::parse("ns").unwrap(), is_listed);
    assert_eq!(requirements.len(), MAX_REQUIREMENTS);
    assert!(requirements.iter().all(|it| is_listed(&it.reference)));
}

#[test]
fn parts_of_a_pod_spec_that_name_no_object_are_not_stored() {
    let spec = json!({
        "containers": [{"env": [{"name": "A", "value": "1"}, {}]}, {"env": null}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    });
    let spec: PodSpec = serde_json::from_value(spec).unwrap();
    assert!(spec.containers.is_empty());
    assert!(spec.volumes.is_empty());
}

/// Adds a container that mounts every volume.
fn mounting(pod_spec: &Value) -> Value {
    let mut pod_spec = pod_spec.clone();
    let volumes = pod_spec["volumes"].as_array().into_iter().flatten();
    let mounts: Value = volumes.map(|it| json!({"name": it["name"]})).collect();
    pod_spec["initContainers"] = json!([{"volumeMounts": mounts}]);
    pod_spec
}

fn requirements(pod_spec: &Value) -> Vec<String> {
    let pod_spec: PodSpec = serde_json::from_value(pod_spec.clone()).unwrap();
    pod_spec
        .requirements(&Name::parse("ns").unwrap(), |_| true)
        .iter()
        .map(|it| match (&it.key, it.is_variable) {
            (Some(key), true) => format!("{}[${key}]", it.reference),
            (Some(key), false) => format!("{}[{key}]", it.reference),
            (None, _) => it.reference.to_string(),
        })
        .collect()
}

#[test]
fn env_needs_its_key() {
    assert_eq!(
        requirements(&json!({"containers": [{"env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "C", "value": "literal"},
            {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ]}]})),
        ["ConfigMap ns/c[$k]", "Secret ns/s[$k]"]
    );
}

#[test]
fn env_from_needs_the_object_also_in_init_containers() {
    assert_eq!(
        requirements(&json!({"initContainers": [{"envFrom": [
            {"configMapRef": {"name": "c"}}, {"prefix": "P", "secretRef": {"name": "s"}},
        ]}], "containers": null})),
        ["ConfigMap ns/c", "Secret ns/s"]
    );
}

#[test]
fn volumes_need_the_object_or_their_items() {
    assert_eq!(
        requirements(&mounting(&json!({"volumes": [
            {"name": "a", "configMap": {"name": "c"}},
            {"name": "b", "secret": {"secretName": "s", "items": [{"key": "k", "path": "p"}]}},
            {"name": "c", "projected": {"sources": [
                {"configMap": {"name": "pc", "items": [{"key": "k", "path": "p"}]}},
                {"secret": {"name": "ps"}},
                {"serviceAccountToken": {"path": "token"}},
            ]}},
            {"name": "d", "emptyDir": {}},
        ]}))),
        [
            "ConfigMap ns/c",
            "ConfigMap ns/pc[k]",
            "Secret ns/ps",
            "Secret ns/s[k]"
        ]
    );
}

#[test]
fn a_volume_that_nothing_mounts_is_not_needed() {
    let spec = json!({
        "containers": [{"volumeMounts": [{"name": "other"}, {"name": ""}]}],
        "volumes": [
            {"name": "a", "configMap": {"name": "c"}},
            {"name": "b", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "s"}}},
            {"name": "", "secret": {"secretName": "s"}},
            {"secret": {"secretName": "s"}},
        ],
    });
    assert!(requirements(&spec).is_empty());
    assert_eq!(
        requirements(&mounting(&spec)),
        ["ConfigMap ns/c", "Secret ns/s"]
    );
}

#[test]
fn a_sub_path_needs_the_object_and_not_its_key() {
    let needs = |mount: Value| {
        requirements(&json!({
            "containers": [{"volumeMounts": [mount]}],
            "volumes": [{"name": "v", "configMap": {"name": "c"}}],
        }))
    };
    let by_path = json!({"name": "v", "subPath": "k"});
    assert_eq!(needs(by_path), ["ConfigMap ns/c"]);
    let by_expression = json!({"name": "v", "subPathExpr": "$(K)"});
    assert_eq!(needs(by_expression), ["ConfigMap ns/c"]);
}

#[test]
fn a_variable_and_a_file_need_a_key_in_different_ways() {
    let items = json!([{"key": "k", "path": "p"}]);
    let from = json!({"configMapKeyRef": {"name": "c", "key": "k"}});
    let spec = json!({
        "containers": [{"env": [{"name": "A", "valueFrom": from}]}],
        "volumes": [{"name": "v", "configMap": {"name": "c", "items": items}}],
    });
    assert_eq!(
        requirements(&mounting(&spec)),
        ["ConfigMap ns/c[k]", "ConfigMap ns/c[$k]"]
    );
}

#[test]
fn optional_sources_are_not_needed() {
    assert_eq!(
        requirements(&mounting(&json!({
            "containers": [{
                "env": [{"name": "A", "valueFrom":
                    {"configMapKeyRef": {"name": "c", "key": "k", "optional": true}}}],
                "envFrom": [{"secretRef": {"name": "s", "optional": true}}],
            }],
            "volumes": [
                {"name": "a", "configMap": {"name": "c", "optional": true}},
                {"name": "b", "projected": {"sources": [{"secret": {"name": "s", "optional": true}}]}},
                {"name": "c", "secret": {"secretName": "needed", "optional": false}},
            ],
        }))),
        ["Secret ns/needed"]
    );
}

#[test]
fn a_name_that_no_object_can_have_is_not_a_requirement() {
    for source in [json!({"name": "../x"}), json!({})] {
        let spec = mounting(&json!({"volumes": [{"name": "v", "configMap": source}]}));
        assert!(requirements(&spec).is_empty());
    }
}

#[test]
fn drivers_need_their_secret_and_image_pulls_go_on_without() {
    assert_eq!(
        requirements(&mounting(&json!({
            "imagePullSecrets": [{"name": "registry"}],
            "volumes": [
                {"name": "a", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "csi"}}},
                {"name": "b", "azureFile": {"secretName": "azure", "shareName": "s"}},
                {"name": "c", "iscsi": {"chapAuthSession": true, "secretRef": {"name": "chap"}}},
                {"name": "d", "iscsi": {"chapAuthSession": false, "secretRef": {"name": "unread"}}},
                {"name": "e", "cinder": {"volumeID": "v", "secretRef": {"name": "unread"}}},
                {"name": "f", "flexVolume": {"driver": "a/b", "secretRef": {"name": "flex"}}},
            ],
        }))),
        [
            "Secret ns/azure",
            "Secret ns/chap",
            "Secret ns/csi",
            "Secret ns/flex"
        ]
    );
}

fn uses(pod_spec: &Value) -> Vec<String> {
    let pod_spec: PodSpec = serde_json::from_value(pod_spec.clone()).unwrap();
    let uses: BTreeSet<_> = pod_spec.uses().into_iter().collect();
    let text = |it: &Use<'_>| {
        let keys = Vec::from_iter(it.keys.iter().copied()).join(",");
        format!("{} {}[{keys}] {:?}", it.kind, it.name, it.consumption)
    };
    uses.iter().map(text).collect()
}

#[test]
fn env_uses_its_key_also_in_init_containers() {
    let env =
        |kind: &str, name| json!([{"name": "A", "valueFrom": {kind: {"name": name, "key": "k"}}}]);
    assert_eq!(
        uses(&json!({
            "containers": [{"env": env("configMapKeyRef", "c")}],
            "initContainers": [{"env": env("secretKeyRef", "s")}],
        })),
        ["ConfigMap c[k] Env", "Secret s[k] Env"]
    );
}

#[test]
fn env_from_uses_the_object_also_in_init_containers() {
    assert_eq!(
        uses(&json!({
            "containers": [{"envFrom": [{"configMapRef": {"name": "c", "optional": true}}]}],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "s"}}]}],
        })),
        ["ConfigMap c[] EnvFrom", "Secret s[] EnvFrom"]
    );
}

#[test]
fn a_mounted_volume_uses_the_object_or_its_items() {
    assert_eq!(
        uses(&json!({
            "containers": [{"volumeMounts": [{"name": "a"}, {"name": "b"}]}],
            "volumes": [
                {"name": "a", "configMap": {"name": "c"}},
                {"name": "b", "secret": {"secretName": "s", "items": [{"key": "k", "path": "p"}]}},
            ],
        })),
        ["ConfigMap c[] Volume", "Secret s[k] Volume"]
    );
}

#[test]
fn a_projected_volume_uses_each_of_its_sources() {
    assert_eq!(
        uses(&json!({
            "containers": [{"volumeMounts": [{"name": "v"}]}],
            "volumes": [{"name": "v", "projected": {"sources": [
                {"configMap": {"name": "c"}},
                {"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}},
                {"serviceAccountToken": {"path": "token"}},
                {"clusterTrustBundle": {"name": "bundle", "path": "ca"}},
            ]}}],
        })),
        ["ConfigMap c[] Volume", "Secret s[k] Volume"]
    );
}

#[test]
fn a_mount_in_an_init_container_is_refreshed_in_a_sidecar_alone() {
    let mounted_with = |restart_policy: Value| {
        uses(&json!({
            "initContainers": [{"restartPolicy": restart_policy, "volumeMounts": [{"name": "v"}]}],
            "volumes": [{"name": "v", "configMap": {"name": "c"}}],
        }))
    };
    assert_eq!(mounted_with(json!("Always")), ["ConfigMap c[] Volume"]);
    assert_eq!(mounted_with(json!(null)), ["ConfigMap c[] InitVolume"]);
    assert_eq!(
        mounted_with(json!("OnFailure")),
        ["ConfigMap c[] InitVolume"]
    );
}

#[test]
fn a_volume_that_nothing_mounts_is_a_use_too() {
    assert_eq!(
        uses(&json!({
            "containers": [{"volumeMounts": [{"name": "other"}]}],
            "volumes": [{"name": "v", "configMap": {"name": "c"}}],
        })),
        ["ConfigMap c[] Unmounted"]
    );
}

/// Returns the uses if the volume `source` is mounted by `mount`.
fn mounted_by(mount: &Value, source: &Value) -> Vec<String> {
    let (mut mount, mut volume) = (mount.clone(), source.clone());
    mount["name"] = json!("v");
    volume["name"] = json!("v");
    uses(&json!({"containers": [{"volumeMounts": [mount]}], "volumes": [volume]}))
}

#[test]
fn a_sub_path_uses_its_key() {
    let whole = json!({"configMap": {"name": "c"}});
    let at = |path| mounted_by(&json!({"subPath": path}), &whole);
    assert_eq!(at("app.yaml"), ["ConfigMap c[app.yaml] SubPath"]);
    for no_key in ["a/b", ".", "..data/app.yaml", "..data"] {
        assert_eq!(at(no_key), ["ConfigMap c[] SubPath"], "{no_key}");
    }
    assert_eq!(at(""), ["ConfigMap c[] Volume"]);
}

#[test]
fn a_sub_path_uses_the_items_that_lie_there() {
    let items = json!([
        {"key": "a", "path": "dir/a"}, {"key": "b", "path": "dir/deep/b"}, {"key": "c", "path": "dira"},
    ]);
    let volume = json!({"secret": {"secretName": "s", "items": items}});
    let at = |path| mounted_by(&json!({"subPath": path}), &volume);
    assert_eq!(at("dir"), ["Secret s[a,b] SubPath"]);
    assert_eq!(at("dir/a"), ["Secret s[a] SubPath"]);
    assert_eq!(at("dira"), ["Secret s[c] SubPath"]);
    for nothing in ["a", "dir/", "di"] {
        assert_eq!(at(nothing), ["Secret s[a,b,c] SubPath"], "{nothing}");
    }
}

#[test]
fn a_sub_path_of_a_projected_volume_uses_the_sources_that_have_it() {
    let volume = json!({"projected": {"sources": [
        {"configMap": {"name": "c", "items": [{"key": "k", "path": "dir/k"}]}},
        {"secret": {"name": "s"}},
    ]}});
    let at = |path| mounted_by(&json!({"subPath": path}), &volume);
    assert_eq!(
        at("dir"),
        ["ConfigMap c[k] SubPath", "Secret s[dir] SubPath"]
    );
    assert_eq!(at("dir/k"), ["ConfigMap c[k] SubPath"]);
    assert_eq!(at("k"), ["Secret s[k] SubPath"]);
    assert_eq!(at("x/y"), ["ConfigMap c[k] SubPath", "Secret s[] SubPath"]);
}

#[test]
fn an_expression_for_a_sub_path_may_mean_any_item() {
    let whole = json!({"configMap": {"name": "c"}});
    let mount = json!({"subPathExpr": "$(POD_NAME)", "subPath": ""});
    assert_eq!(mounted_by(&mount, &whole), ["ConfigMap c[] SubPath"]);
    let items = json!({"configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}});
    assert_eq!(mounted_by(&mount, &items), ["ConfigMap c[k] SubPath"]);
}

#[test]
fn each_way_of_mounting_a_volume_is_a_use() {
    assert_eq!(
        uses(&json!({
            "containers": [{"volumeMounts": [{"name": "v"}, {"name": "v", "subPath": "k"}]}],
            "initContainers": [{"volumeMounts": [{"name": "v"}]}],
            "volumes": [{"name": "v", "configMap": {"name": "c"}}],
        })),
        [
            "ConfigMap c[] Volume",
            "ConfigMap c[] InitVolume",
            "ConfigMap c[k] SubPath",
        ]
    );
}

#[test]
fn image_pull_secrets_are_used() {
    assert_eq!(
        uses(&json!({"imagePullSecrets": [{"name": "s"}, {}, {"name": null}]})),
        ["Secret s[] ImagePull"]
    );
}

#[test]
fn drivers_of_volumes_use_their_secret() {
    let volume =
        |source: &str, secret: Value| uses(&json!({"volumes": [{"name": "v", source: secret}]}));
    for source in [
        "cephfs",
        "cinder",
        "rbd",
        "iscsi",
        "flexVolume",
        "scaleIO",
        "storageos",
    ] {
        let uses = volume(source, json!({"secretRef": {"name": "s"}}));
        assert_eq!(uses, ["Secret s[] Driver"], "{source}");
    }
    for (source, secret) in [
        ("azureFile", json!({"secretName": "s"})),
        ("csi", json!({"nodePublishSecretRef": {"name": "s"}})),
    ] {
        assert_eq!(volume(source, secret), ["Secret s[] Driver"], "{source}");
    }
}

#[test]
fn volumes_of_other_kinds_are_not_uses() {
    assert!(
        uses(&json!({"volumes": [
            {"name": "a", "csi": {"volumeAttributes": {"secretProviderClass": "vault"}}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "c", "downwardAPI": {"items": [{"path": "labels"}]}},
            {"name": "d", "emptyDir": {}, "projected": null, "secret": null},
        ]}))
        .is_empty()
    );
}

#[test]
fn a_running_pod_sees_what_the_kubelet_refreshes() {
    use Consumption::{Driver, Env, EnvFrom, ImagePull, InitVolume, SubPath, Unmounted, Volume};
    let seen = [Volume, Unmounted, ImagePull];
    assert!(seen.iter().all(|it| it.sees_changes()));
    let others = [Env, EnvFrom, InitVolume, SubPath, Driver];
    assert!(!others.iter().any(|it| it.sees_changes()));
}

#[test]
fn the_first_items_are_read_if_there_are_more_than_memory_has_room_for() {
    let many = |item: Value| vec![item; pod_spec::MAX_ITEMS + 1];
    let source = json!({"secret": {"name": "s"}});
    let variable = json!({"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
    let container = json!({
        "volumeMounts": many(json!({"name": "v"})),
        "envFrom": many(json!({"secretRef": {"name": "s"}})),
        "env": many(variable),
    });
    let spec = json!({
        "imagePullSecrets": many(json!({"name": "s"})),
        "initContainers": many(json!({"volumeMounts": [{"name": "v"}]})),
        "containers": [container],
        "volumes": [{"projected": {"sources": many(source)}}],
    });
    let spec: PodSpec = serde_json::from_value(spec).unwrap();
    let container = &spec.containers[0];
    let lengths = [
        spec.image_pull_secrets.len(),
        spec.init_containers.len(),
        spec.volumes[0].sources.len(),
        container.volume_mounts.len(),
        container.env().count(),
        container.env_from().count(),
    ];
    assert_eq!(lengths, [pod_spec::MAX_ITEMS; 6]);
}

/// These 26 KB used to become 65,536 uses.
#[test]
fn sources_are_not_multiplied_with_mounts() {
    let source = |n| json!({"secret": {"name": format!("s{n}")}});
    let mount = |n| json!({"name": "v", "subPath": format!("k{n}")});
    let spec = json!({
        "containers": [{"volumeMounts": (0..262).map(mount).collect::<Value>()}],
        "volumes": [{"name": "v", "projected": {"sources": (0..250).map(source).collect::<Value>()}}],
    });
    let spec: PodSpec = serde_json::from_value(spec).unwrap();
    assert_eq!(spec.uses().len(), 250);
}

#[test]
fn objects_are_used_whole_if_there_are_more_mounts_than_can_be_compared() {
    let mounts = |name: &str| -> Vec<_> {
        let mount = |n| json!({"name": name, "subPath": format!("k{n}")});
        (0..1000).map(mount).collect()
    };
    let source = |n| json!({"secret": {"name": format!("s{n}")}});
    let sources: Vec<_> = (0..1000).map(source).collect();
    let spec = json!({
        "containers": [{"volumeMounts": mounts("large")}, {"volumeMounts": mounts("small")}],
        "volumes": [
            {"name": "large", "projected": {"sources": sources}},
            {"name": "small", "configMap": {"name": "c"}},
        ],
    });
    let spec: PodSpec = serde_json::from_value(spec).unwrap();
    let (whole, keys): (Vec<_>, Vec<_>) =
        spec.uses().into_iter().partition(|it| it.keys.is_empty());
    let is_of = |uses: &[Use<'_>], kind| uses.iter().all(|it| it.kind == kind);
    assert!(is_of(&whole, ConfigKind::Secret) && is_of(&keys, ConfigKind::ConfigMap));
    assert_eq!((whole.len(), keys.len()), (1000, 1000));
    assert!(whole.iter().all(|it| !it.consumption.sees_changes()));
}
