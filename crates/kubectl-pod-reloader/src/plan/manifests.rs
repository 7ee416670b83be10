//! Reads manifests: from files, folders, standard input or kustomize.

mod yaml;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pod_reloader_core::name::Name;
use serde_json::Value;

use crate::args::Sources;

/// The endings of the files in a folder that are read, as kubectl does.
const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];
/// Metadata that the apiserver sets itself. It does not accept all of them in a manifest.
const SET_BY_SERVER: [&str; 6] = [
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// An object as its author writes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Manifest {
    pub(crate) id: Id,
    /// The group and version, such as `apps/v1`.
    pub(crate) api_version: String,
    pub(crate) object: Value,
    /// True if its author has written the namespace.
    pub(crate) names_namespace: bool,
}

/// The identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) group: String,
    pub(crate) kind: String,
    /// The namespace, even of an object that has none.
    pub(crate) namespace: Name,
    /// The name as written: kinds such as ClusterRole have other rules than ours.
    pub(crate) name: String,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// Manifests, and remarks on those that are left out.
#[derive(Debug, Default)]
pub(crate) struct Manifests {
    /// The manifests, by object. If there are several of the same object, the last one counts, as it is applied
    /// last.
    pub(crate) all: BTreeMap<Id, Manifest>,
    pub(crate) notes: Vec<String>,
}

/// The reason why manifests cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("the manifests have no objects")]
    Empty,
    #[error("reading {0}: {1}")]
    File(String, io::Error),
    #[error("{0} has no files that end in .yaml, .yml or .json")]
    EmptyFolder(String),
    #[error("{0} is not valid YAML{place}", place = place(*.1))]
    NotYaml(String, Option<(u64, u64)>),
    #[error("{0} has a document that is no object of Kubernetes: it has no {1}")]
    NotAnObject(String, &'static str),
    #[error("the namespace of {object} is not a valid name: {reason}")]
    Namespace {
        object: String,
        reason: pod_reloader_core::name::InvalidName,
    },
    #[error(
        "kustomize is a part of kubectl, which cannot be run: {0}; pipe the output of kustomize build to plan -f - instead"
    )]
    NoKubectl(io::Error),
    #[error("kubectl kustomize {0} failed")]
    Kustomize(String),
}

fn place(place: Option<(u64, u64)>) -> String {
    place.map_or_else(String::new, |(line, column)| {
        format!(": line {line}, column {column}")
    })
}

impl Manifests {
    /// Reads all sources. Objects without a namespace are in `namespace`.
    pub(crate) fn read(sources: &Sources, namespace: &Name) -> Result<Self, Unreadable> {
        let mut manifests = Self::default();
        for path in &sources.filename {
            if path.as_os_str() == "-" {
                let mut text = String::new();
                let read = io::stdin().read_to_string(&mut text);
                read.map_err(|error| Unreadable::File("standard input".to_owned(), error))?;
                manifests.parse("standard input", &text, namespace)?;
                continue;
            }
            for file in files(path, sources.recursive)? {
                let name = file.display().to_string();
                let text = fs::read_to_string(&file);
                let text = text.map_err(|error| Unreadable::File(name.clone(), error))?;
                manifests.parse(&name, &text, namespace)?;
            }
        }
        if let Some(folder) = &sources.kustomize {
            manifests.parse("the output of kustomize", &kustomized(folder)?, namespace)?;
        }
        Ok(manifests)
    }

    /// Parses documents of YAML, of which JSON is a part.
    fn parse(&mut self, source: &str, text: &str, namespace: &Name) -> Result<(), Unreadable> {
        let documents = yaml::documents(text);
        let documents =
            documents.map_err(|error| Unreadable::NotYaml(source.to_owned(), error.place))?;
        for document in documents {
            self.add(source, document, namespace)?;
        }
        Ok(())
    }

    /// Adds an object, or each object of a list.
    fn add(&mut self, source: &str, mut object: Value, namespace: &Name) -> Result<(), Unreadable> {
        if object.is_null() {
            return Ok(());
        }
        let text = |object: &Value, field: &'static str| {
            let text = object[field].as_str().filter(|it| !it.is_empty());
            let missing = || Unreadable::NotAnObject(source.to_owned(), field);
            text.map(ToOwned::to_owned).ok_or_else(missing)
        };
        let (api_version, kind) = (text(&object, "apiVersion")?, text(&object, "kind")?);
        if kind.ends_with("List") && object["items"].is_array() {
            for item in items(&mut object, &api_version, &kind) {
                self.add(source, item, namespace)?;
            }
            return Ok(());
        }
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().filter(|it| !it.is_empty());
        let Some(name) = text("name") else {
            let prefix = text("generateName");
            let prefix =
                prefix.ok_or(Unreadable::NotAnObject(source.to_owned(), "metadata.name"))?;
            self.notes.push(format!(
                "{kind} {prefix}...: it gets its name when it is created, so nothing can track it"
            ));
            return Ok(());
        };
        let name = name.to_owned();
        let names_namespace = text("namespace").is_some();
        let namespace = match text("namespace") {
            Some(own) => Name::parse(own).map_err(|reason| Unreadable::Namespace {
                object: format!("{kind} {name} in {source}"),
                reason,
            })?,
            None => namespace.clone(),
        };
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let id = Id {
            group: group.to_owned(),
            kind,
            namespace,
            name,
        };
        strip(&mut object);
        object["metadata"]["namespace"] = id.namespace.as_str().into();
        self.insert(Manifest {
            id,
            api_version,
            object,
            names_namespace,
        });
        Ok(())
    }

    fn insert(&mut self, manifest: Manifest) {
        let id = manifest.id.clone();
        if self.all.insert(id.clone(), manifest).is_some() {
            let note = format!("{id}: it is there twice, and the last one counts");
            self.notes.push(note);
        }
    }
}

/// Returns the items of a list of this type. The items of a typed list, such as a ConfigMapList, need not repeat its
/// type, so they get it.
fn items(list: &mut Value, api_version: &str, kind: &str) -> Vec<Value> {
    let Value::Array(mut items) = list["items"].take() else {
        return Vec::new();
    };
    if let Some(kind) = kind.strip_suffix("List").filter(|it| !it.is_empty()) {
        for fields in items.iter_mut().filter_map(Value::as_object_mut) {
            let version = fields.entry("apiVersion");
            version.or_insert_with(|| api_version.into());
            fields.entry("kind").or_insert_with(|| kind.into());
        }
    }
    items
}

/// Removes what the apiserver sets itself.
fn strip(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| !SET_BY_SERVER.contains(&&**field));
    }
}

/// Returns a file itself, or the manifests in a folder, sorted.
fn files(path: &Path, recursive: bool) -> Result<Vec<PathBuf>, Unreadable> {
    let wrong = |error| Unreadable::File(path.display().to_string(), error);
    if !fs::metadata(path).map_err(wrong)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(wrong)? {
            let path = entry.map_err(wrong)?.path();
            let ending = path.extension().and_then(|it| it.to_str());
            if path.is_dir() {
                folders.extend(recursive.then_some(path));
            } else if ending.is_some_and(|it| ENDINGS.contains(&it)) {
                found.push(path);
            }
        }
    }
    found.sort();
    match found.is_empty() {
        true => Err(Unreadable::EmptyFolder(path.display().to_string())),
        false => Ok(found),
    }
}

/// Returns what kustomize, as kubectl has it, makes of a folder. It says itself what is wrong.
fn kustomized(folder: &Path) -> Result<String, Unreadable> {
    let mut kustomize = Command::new("kubectl");
    kustomize
        .arg("kustomize")
        .arg(folder)
        .stderr(Stdio::inherit());
    let output = kustomize.output().map_err(Unreadable::NoKubectl)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Unreadable::Kustomize(folder.display().to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(text: &str) -> Result<Manifests, Unreadable> {
        let mut manifests = Manifests::default();
        let shop = Name::parse("shop").unwrap();
        manifests.parse("it", text, &shop).map(|()| manifests)
    }

    fn names(text: &str) -> Vec<String> {
        let manifests = parsed(text).unwrap();
        let ids = manifests.all.keys();
        ids.map(ToString::to_string).collect()
    }

    #[test]
    fn documents_and_lists_are_read_and_empty_ones_are_not() {
        let text = "
# Source: chart/templates/a.yaml
---
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: other}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Secret, metadata: {name: b}}
---
apiVersion: v1
kind: ConfigMapList
items:
- {metadata: {name: c}}
---
";
        assert_eq!(
            names(text),
            ["ConfigMap other/a", "ConfigMap shop/c", "Secret shop/b"]
        );
        for empty in ["", "---\n", "# nothing\n", "---\n---\n# nothing\n"] {
            assert!(names(empty).is_empty(), "{empty:?}");
        }
        let json = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "j"}}"#;
        assert_eq!(names(json), ["ConfigMap shop/j"]);
    }

    #[test]
    fn yaml_is_read_as_kubectl_reads_it() {
        let text = "
apiVersion: v1
kind: ConfigMap
metadata: {name: a, uid: x, resourceVersion: '7', managedFields: []}
mode: 0644
on: yes
text: 'yes'
data:
  no: Norsk
  y: up
  1.10: new
  0x50: shop/web:80
block: |
  line
status: {}
";
        let manifests = parsed(text).unwrap();
        let object = &manifests.all.values().next().unwrap().object;
        let expected = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"},
            "mode": 420, "true": true, "text": "yes", "block": "line\n",
            "data": {"false": "Norsk", "true": "up", "1.1": "new", "80": "shop/web:80"},
        });
        assert_eq!(*object, expected);
    }

    #[test]
    fn what_cannot_be_read_is_an_error_that_quotes_nothing() {
        for (text, says) in [
            ("hunter2: [", "it is not valid YAML: line 1"),
            ("hunter2", "no object of Kubernetes: it has no apiVersion"),
            ("- hunter2", "no object of Kubernetes"),
            ("apiVersion: v1", "it has no kind"),
            ("{apiVersion: v1, kind: Secret}", "it has no metadata.name"),
            (
                "{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: /}, data: {a: hunter2}}",
                "the namespace of Secret a in it is not a valid name",
            ),
            (
                "{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {a: *hunter2}}",
                "not valid YAML",
            ),
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn an_object_without_a_name_is_left_out_and_of_two_the_last_one_counts() {
        let generated = "{apiVersion: v1, kind: ConfigMap, metadata: {generateName: a-}}";
        let manifests = parsed(generated).unwrap();
        assert!(manifests.all.is_empty());
        assert!(manifests.notes[0].starts_with("ConfigMap a-...: it gets its name"));
        let one = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: '1'}}";
        let manifests = parsed(&format!("{one}\n---\n{}", one.replace('1', "2"))).unwrap();
        let object = &manifests.all.values().next().unwrap().object;
        assert_eq!(object["data"]["a"], "2");
        let note = "ConfigMap shop/a: it is there twice, and the last one counts";
        assert_eq!(manifests.notes, [note]);
        let role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: 'a:b'}}";
        assert_eq!(names(role), ["ClusterRole shop/a:b"]);
        let nowhere = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: ''}}";
        assert_eq!(names(nowhere), ["ConfigMap shop/a"]);
    }

    #[test]
    fn the_manifests_of_a_folder_are_those_that_kubectl_takes() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let stem = name.replace(['/', '.'], "-");
            let text = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {stem}}}}}");
            fs::write(folder.path().join(name), text).unwrap();
        };
        fs::create_dir(folder.path().join("below")).unwrap();
        for name in ["b.yaml", "a.json", "c.yml", "README.md", "below/d.yaml"] {
            write(name);
        }
        let shop = Name::parse("shop").unwrap();
        let read = |recursive| {
            let sources = Sources {
                filename: vec![folder.path().to_owned()],
                kustomize: None,
                recursive,
            };
            let manifests = Manifests::read(&sources, &shop).unwrap();
            let ids = manifests.all.keys();
            Vec::from_iter(ids.map(|id| id.name.to_string()))
        };
        assert_eq!(read(false), ["a-json", "b-yaml", "c-yml"]);
        assert_eq!(read(true), ["a-json", "b-yaml", "below-d-yaml", "c-yml"]);
        let none = files(&folder.path().join("nowhere"), false);
        assert!(none.is_err());
        let empty = tempfile::tempdir().unwrap();
        let error = files(empty.path(), true).unwrap_err().to_string();
        assert!(error.ends_with("has no files that end in .yaml, .yml or .json"));
    }
}
