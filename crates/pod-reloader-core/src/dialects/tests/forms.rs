//! Every form in which a pod template can name a ConfigMap or Secret, and the part of the object that is then tracked.

use super::*;

#[test]
fn auto_tracks_the_object_of_each_form_or_the_key_that_it_names() {
    for form in forms() {
        let counts = form.counts(&[AUTO], &json!({}));
        assert_eq!(counts, [form.part()], "{}", form.name);
        let silent = form.with(&[]).workload();
        assert!(silent.references.is_empty(), "{}", form.name);
    }
}

#[test]
fn per_key_false_tracks_the_whole_object_of_each_form() {
    for form in forms() {
        let counts = form.counts(&[AUTO, (keys::PER_KEY, "false")], &json!({}));
        assert_eq!(counts, [form.object()], "{}", form.name);
    }
}

#[test]
fn restart_on_needed_leaves_out_each_form_that_pods_see_unless_the_object_is_immutable() {
    for form in forms() {
        let counts = |object: &Value| form.counts(&[AUTO, NEEDED], object);
        let needed = if form.is_seen_by_pods {
            vec![]
        } else {
            vec![form.part()]
        };
        assert_eq!(counts(&json!({})), needed, "{}", form.name);
        let immutable = counts(&json!({"immutable": true}));
        assert_eq!(immutable, [form.part()], "{}", form.name);
    }
}

#[test]
fn restart_on_needed_tracks_the_key_that_a_variable_names_beside_a_volume() {
    let mut form = volume(ConfigMap, false);
    form.pod_spec["containers"][0]["env"] = variables(ConfigMap, false);
    assert_eq!(form.counts(&[AUTO], &json!({})), ["cm/app"]);
    assert_eq!(form.counts(&[AUTO, NEEDED], &json!({})), ["cm/app[level]"]);
}

#[test]
fn restart_on_needed_tracks_the_key_that_a_variable_names_of_a_pull_secret() {
    let mut form = of_secret(IMAGE_PULL, json!({"imagePullSecrets": [{"name": "app"}]}));
    form.pod_spec["containers"] = json!([{"env": variables(Secret, false)}]);
    assert_eq!(form.counts(&[AUTO], &json!({})), ["secret/app"]);
    let needed = form.counts(&[AUTO, NEEDED], &json!({}));
    assert_eq!(needed, ["secret/app[level]"]);
}

#[test]
fn pods_need_the_object_of_each_form_that_the_kubelet_reads_before_they_start() {
    for form in forms() {
        let needed = match form.name {
            // The kubelet goes on without the first, does not set up the second, and does not read the third.
            IMAGE_PULL | "unmounted" | "cinder" => vec![],
            _ => vec![form.kind],
        };
        assert_eq!(form.needed(), needed, "{}", form.name);
    }
}

#[test]
fn an_optional_object_is_tracked_in_each_form_whether_it_exists_or_not() {
    let forms = ConfigKind::ALL.map(|kind| of_both_kinds(kind, true));
    for form in forms.concat() {
        assert!(form.needed().is_empty(), "{}", form.name);
        let there = form.counts(&[AUTO], &json!({}));
        assert_eq!(there, [form.part()], "{}", form.name);
        let absent = form.with(&[AUTO]).asks_for();
        assert_eq!(absent, [form.object()], "{}", form.name);
    }
}

/// A pod template that names one object, `app`, in one way.
#[derive(Clone)]
struct Form {
    name: &'static str,
    kind: ConfigKind,
    pod_spec: Value,
    /// True if it names the key `level`.
    names_key: bool,
    /// True if a running pod sees a change of the object.
    is_seen_by_pods: bool,
}

impl Form {
    fn object(&self) -> &'static str {
        match self.kind {
            ConfigMap => "cm/app",
            Secret => "secret/app",
        }
    }

    /// Returns the part of the object that is tracked, as [`Case::counts`] shows it.
    fn part(&self) -> String {
        if self.names_key {
            format!("{}[level]", self.object())
        } else {
            self.object().to_owned()
        }
    }

    fn with(&self, annotations: &[(&str, &str)]) -> Case {
        let case = speaking(&[Dialect::PodReloader]).annotated(annotations);
        case.pod_spec(self.pod_spec.clone())
    }

    /// Returns what is tracked if the object exists with these extra fields.
    fn counts(&self, annotations: &[(&str, &str)], object: &Value) -> Vec<String> {
        let object = (self.object(), object.clone());
        self.with(annotations).counts(&[object])
    }

    /// Returns the kind of each object that a pod does not start without.
    fn needed(&self) -> Vec<ConfigKind> {
        let workload = self.with(&[AUTO]).workload();
        let needed = workload.requirements.iter();
        needed.map(|it| it.reference.kind).collect()
    }
}

fn forms() -> Vec<Form> {
    let mut forms = ConfigKind::ALL
        .map(|kind| of_both_kinds(kind, false))
        .concat();
    let secret = json!({"name": "app"});
    let azure_file = json!({"secretName": "app", "shareName": "share"});
    let csi = json!({"driver": "csi.example.com", "nodePublishSecretRef": secret});
    let others = OTHER_DRIVERS.map(|driver| {
        let volume = json!({"secretRef": secret, "chapAuthSession": true});
        (driver, volume)
    });
    let drivers = [("azureFile", azure_file), ("csi", csi)];
    for (driver, volume) in drivers.into_iter().chain(others) {
        let volumes = json!([{"name": "driven", (driver): volume}]);
        let mounts = json!([{"volumeMounts": [{"name": "driven"}]}]);
        let pod_spec = json!({"volumes": volumes, "containers": mounts});
        forms.push(of_secret(driver, pod_spec));
    }
    forms.push(Form {
        is_seen_by_pods: true,
        ..of_secret(IMAGE_PULL, json!({"imagePullSecrets": [secret]}))
    });
    forms
}

fn of_secret(name: &'static str, pod_spec: Value) -> Form {
    Form {
        name,
        kind: Secret,
        pod_spec,
        names_key: false,
        is_seen_by_pods: false,
    }
}

/// Returns the forms that exist for ConfigMaps and Secrets alike.
fn of_both_kinds(kind: ConfigKind, optional: bool) -> Vec<Form> {
    let env = json!({"env": variables(kind, optional)});
    let member = format!("{}Ref", member(kind));
    let all = json!({(member): {"name": "app", "optional": optional}});
    let env_from = json!({"envFrom": [all]});
    let sidecar = |container: &Value| {
        let mut container = container.clone();
        container["restartPolicy"] = json!("Always");
        json!({"initContainers": [container]})
    };
    let whole = || files(kind, optional, false, &json!(null));
    let items = json!([{"key": "level", "path": "below/level"}]);
    let mount = json!({"volumeMounts": [{"name": "config"}]});
    let unseen = |name, names_key, pod_spec| Form {
        name,
        kind,
        pod_spec,
        names_key,
        is_seen_by_pods: false,
    };
    let seen = |name, names_key, pod_spec| Form {
        is_seen_by_pods: true,
        ..unseen(name, names_key, pod_spec)
    };
    let with_volumes = |mut pod_spec: Value| {
        pod_spec["volumes"] = whole();
        pod_spec
    };
    vec![
        unseen("env", true, json!({"containers": [env]})),
        unseen("envFrom", false, json!({"containers": [env_from]})),
        unseen("init env", true, json!({"initContainers": [env]})),
        unseen("init envFrom", false, json!({"initContainers": [env_from]})),
        unseen("sidecar env", true, sidecar(&env)),
        unseen("sidecar envFrom", false, sidecar(&env_from)),
        volume(kind, optional),
        seen("unmounted", false, json!({"volumes": whole()})),
        seen(
            "items",
            true,
            mounted(files(kind, optional, false, &items), &json!({})),
        ),
        seen(
            "projected",
            false,
            mounted(files(kind, optional, true, &json!(null)), &json!({})),
        ),
        seen(
            "projected items",
            true,
            mounted(files(kind, optional, true, &items), &json!({})),
        ),
        unseen(
            "init volume",
            false,
            with_volumes(json!({"initContainers": [mount]})),
        ),
        seen("sidecar volume", false, with_volumes(sidecar(&mount))),
        unseen(
            "subPath",
            true,
            mounted(whole(), &json!({"subPath": "level"})),
        ),
        unseen(
            "subPath of items",
            true,
            mounted(
                files(kind, optional, true, &items),
                &json!({"subPath": "below"}),
            ),
        ),
        unseen(
            "subPathExpr",
            false,
            mounted(whole(), &json!({"subPathExpr": "$(LEVEL)"})),
        ),
    ]
}

/// Returns the form of a mounted volume.
fn volume(kind: ConfigKind, optional: bool) -> Form {
    Form {
        name: "volume",
        kind,
        pod_spec: mounted(files(kind, optional, false, &json!(null)), &json!({})),
        names_key: false,
        is_seen_by_pods: true,
    }
}

fn variables(kind: ConfigKind, optional: bool) -> Value {
    let member = format!("{}KeyRef", member(kind));
    let source = json!({"name": "app", "key": "level", "optional": optional});
    json!([{"name": "LEVEL", "valueFrom": {(member): source}}])
}

/// Returns the volume `config`, made of the object directly or projected.
fn files(kind: ConfigKind, optional: bool, is_projected: bool, items: &Value) -> Value {
    let name = match kind {
        Secret if !is_projected => "secretName",
        _ => "name",
    };
    let source = json!({(name): "app", "optional": optional, "items": items});
    let source = json!({(member(kind)): source});
    let mut volume = if is_projected {
        json!({"projected": {"sources": [source]}})
    } else {
        source
    };
    volume["name"] = json!("config");
    json!([volume])
}

/// Returns a pod spec with these volumes, and a mount of `config` that has the fields of `mount`.
fn mounted(volumes: Value, mount: &Value) -> Value {
    let mut mount = mount.clone();
    mount["name"] = json!("config");
    json!({"volumes": volumes, "containers": [{"volumeMounts": [mount]}]})
}

/// Returns the beginning of the field names of a pod spec for this kind.
fn member(kind: ConfigKind) -> &'static str {
    match kind {
        ConfigMap => "configMap",
        Secret => "secret",
    }
}

const AUTO: (&str, &str) = (keys::AUTO, "true");
const NEEDED: (&str, &str) = (keys::RESTART_ON, keys::NEEDED);
const IMAGE_PULL: &str = "imagePullSecrets";
/// Drivers of volumes that name their Secret in `secretRef`.
const OTHER_DRIVERS: [&str; 7] = [
    "cephfs",
    "cinder",
    "flexVolume",
    "iscsi",
    "rbd",
    "scaleIO",
    "storageos",
];
