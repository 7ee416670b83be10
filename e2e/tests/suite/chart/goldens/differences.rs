//! Prints a rendering as its differences from earlier renderings.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context, Result};
use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};

use super::compact::compact;

/// Name of the rendering whose objects are not mentioned in others that have the same.
pub(super) const BASE: &str = "default";

/// Number of unchanged lines around each change.
const CONTEXT: usize = 1;

/// Label that every object of the chart has, but none that users add.
const CHART: &str = "helm.sh/chart";

/// Label that is printed with each object: it differs even if it happens to be the same in a whole rendering.
const COMPONENT: &str = "app.kubernetes.io/component";

/// A value that a file of the chart has, and that is compared with that file in place of being printed.
pub(super) struct Part {
    /// Relative to the chart.
    pub(super) file: String,
    pub(super) value: Value,
}

/// The renderings so far, by object.
#[derive(Default)]
pub(super) struct Renderings {
    printed: BTreeMap<Key, Vec<Printed>>,
}

/// An object of a rendering. The labels that all objects have are one more.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: String,
    name: String,
    /// Number of objects before it with the same kind and name, which are in other namespaces.
    before: usize,
}

struct Printed {
    rendering: String,
    namespace: Option<String>,
    text: String,
}

impl Renderings {
    /// Adds the next rendering, and returns how it differs from those before it.
    ///
    /// An object that a rendering has for the first time is printed as a whole. Later, it is compared with the earlier one
    /// from which it differs in the fewest lines.
    ///
    /// # Errors
    ///
    /// If the rendering is not YAML, or has an object without kind or name.
    pub(super) fn add(&mut self, rendering: &str, text: &str, parts: &[Part]) -> Result<String> {
        let objects = objects(rendering, text, parts)?;
        let mut differences: String = objects
            .iter()
            .map(|(key, object)| self.difference(key, object))
            .collect();
        for (key, printed) in &self.printed {
            let is_there = objects.iter().any(|(other, _)| other == key);
            if printed[0].rendering == BASE && !is_there {
                differences += &format!("{}: missing\n", title(key, &printed[0]));
            }
        }
        for (key, object) in objects {
            self.printed.entry(key).or_default().push(object);
        }
        Ok(differences)
    }

    fn difference(&self, key: &Key, object: &Printed) -> String {
        let title = title(key, object);
        let earlier = self.printed.get(key).map(Vec::as_slice).unwrap_or_default();
        let same = earlier.iter().find(|other| other.text == object.text);
        let compared = earlier
            .iter()
            .map(|other| (other, changed_lines(&other.text, &object.text)));
        let nearest = compared.min_by_key(|(_, lines)| lines.lines().count());
        match (same, nearest) {
            (Some(same), _) if same.rendering == BASE && same.namespace == object.namespace => {
                String::new()
            }
            (Some(same), _) => format!("{title}: as in {}\n", same.rendering),
            (None, Some((nearest, lines))) => {
                format!("{title}: differs from {}\n{lines}", nearest.rendering)
            }
            (None, None) => {
                let lines = object.text.lines().map(|line| format!("+{line}\n"));
                format!("{title}: new\n{}", lines.collect::<String>())
            }
        }
    }
}

fn title(key: &Key, object: &Printed) -> String {
    let namespace = object
        .namespace
        .iter()
        .map(|namespace| namespace.clone() + "/");
    format!("{} {}{}", key.kind, namespace.collect::<String>(), key.name)
}

/// Returns the common labels and the objects of a rendering, in its order.
fn objects(rendering: &str, text: &str, parts: &[Part]) -> Result<Vec<(Key, Printed)>> {
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    documents.retain(|document| !document.is_null());
    let common = common_labels(&documents);
    let printed = |namespace, value: &Value| Printed {
        rendering: rendering.to_owned(),
        namespace,
        text: compact(value),
    };
    let labels = Key {
        kind: "Labels".to_owned(),
        name: "of all objects".to_owned(),
        before: 0,
    };
    let mut objects = vec![(labels, printed(None, &Value::from(common.clone())))];
    for mut document in documents {
        name_common_labels(&mut document, &common);
        name_parts(&mut document, parts);
        let kind = take_text(&mut document, "kind").context("an object without a kind")?;
        let metadata = document.get_mut("metadata").context(kind.clone())?;
        let name = take_text(metadata, "name").context(kind.clone())?;
        let namespace = take_text(metadata, "namespace");
        let is_same = |(key, _): &&(Key, Printed)| key.kind == kind && key.name == name;
        let before = objects.iter().filter(is_same).count();
        let key = Key { kind, name, before };
        objects.push((key, printed(namespace, &document)));
    }
    Ok(objects)
}

/// Removes a field if it is a text, and returns it. Anything else stays where it is, and is printed.
fn take_text(value: &mut Value, field: &str) -> Option<String> {
    let fields = value.as_object_mut()?;
    let text = fields.get(field)?.as_str()?.to_owned();
    fields.remove(field);
    Some(text)
}

/// Returns the labels that all objects of the chart have in common.
fn common_labels(documents: &[Value]) -> Map<String, Value> {
    let mut of_objects = documents.iter().filter_map(chart_labels);
    let mut common = of_objects.next().cloned().unwrap_or_default();
    common.remove(COMPONENT);
    for labels in of_objects {
        common.retain(|name, value| labels.get(name) == Some(&*value));
    }
    common
}

/// Returns the labels of an object, if it is one of the chart.
fn chart_labels(object: &Value) -> Option<&Map<String, Value>> {
    let labels = object.pointer("/metadata/labels")?.as_object()?;
    labels.contains_key(CHART).then_some(labels)
}

/// Names the common labels in place of repeating them, as YAML merges maps.
fn name_common_labels(object: &mut Value, common: &Map<String, Value>) {
    if chart_labels(object).is_none() {
        return;
    }
    let labels = object.pointer_mut("/metadata/labels");
    if let Some(labels) = labels.and_then(Value::as_object_mut) {
        labels.retain(|name, _| !common.contains_key(name));
        labels.insert("<<".to_owned(), Value::from("common"));
    }
}

/// Names the files of parts in place of repeating them. A part that differs from its file stays.
fn name_parts(value: &mut Value, parts: &[Part]) {
    if let Some(part) = parts.iter().find(|part| part.value == *value) {
        *value = Value::from(format!("as in {}", part.file));
        return;
    }
    match value {
        Value::Object(map) => map.values_mut().for_each(|value| name_parts(value, parts)),
        Value::Array(items) => items.iter_mut().for_each(|item| name_parts(item, parts)),
        _ => {}
    }
}

/// Returns the lines that differ. Before each group of them is the path of the first one: numbers of lines would
/// change with everything above.
fn changed_lines(old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    let old_lines: Vec<_> = old.lines().collect();
    let mut text = String::new();
    for group in diff.grouped_ops(CONTEXT) {
        let changes: Vec<_> = group.iter().flat_map(|op| diff.iter_changes(op)).collect();
        let first = changes
            .iter()
            .find(|change| change.tag() != ChangeTag::Equal);
        let place = first.map_or_else(String::new, |first| {
            match (first.old_index(), first.new_index()) {
                (Some(at), _) => path(old, at),
                (None, Some(at)) => path(new, at),
                (None, None) => String::new(),
            }
        });
        let begin = group.first().map_or(0, |op| op.old_range().start);
        let end = group.last().map_or(begin, |op| op.old_range().end);
        let number = number(&old_lines, begin..end);
        text += &format!("@@ {place}{number}\n");
        for change in changes {
            text += &format!("{}{}", change.tag(), change.value());
        }
    }
    text
}

/// Returns the number of a group among all places with the same lines, if there are several. Otherwise, a change could
/// move from one to another, and nobody would see it.
fn number(lines: &[&str], group: Range<usize>) -> String {
    let begin = group.start;
    let own = &lines[group];
    if own.is_empty() {
        return String::new();
    }
    let windows = lines.windows(own.len()).enumerate();
    let same = windows.filter(|(_, window)| *window == own);
    let places: Vec<_> = same.map(|(at, _)| at).collect();
    match places.iter().position(|at| *at == begin) {
        Some(before) if places.len() > 1 => format!(" ({} of {})", before + 1, places.len()),
        _ => String::new(),
    }
}

/// Returns the keys above a line of YAML, from the outermost to the innermost.
fn path(text: &str, at: usize) -> String {
    let lines: Vec<_> = text.lines().take(at + 1).collect();
    let mut keys = Vec::new();
    let mut within = usize::MAX;
    for line in lines.iter().rev() {
        let content = line.trim_start();
        let column = line.len() - content.len();
        if content.is_empty() || column >= within {
            continue;
        }
        let entry = content.trim_start_matches("- ");
        let is_above = within != usize::MAX && line.len() - entry.len() < within;
        if let Some((key, _)) = entry.split_once(':').filter(|_| is_above) {
            keys.push(key);
        }
        within = column;
    }
    keys.reverse();
    if keys.is_empty() {
        return "at the top".to_owned();
    }
    keys.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  containers:
    - name: web
      args: [--a, --b, --cccccccccccccccccccccccccccccccccccccccccccc, --dddddddddddddddddddddddddddddddddddddddd]
---
kind: Role
metadata: {name: web, namespace: shop}
---
kind: Role
metadata: {name: web, namespace: bank}
";

    #[test]
    fn the_first_rendering_is_whole_and_the_same_one_differs_in_nothing() -> Result<()> {
        let mut renderings = Renderings::default();
        let first = renderings.add(BASE, BEFORE, &[])?;
        assert!(
            first.contains("Role bank/web: new\n+metadata: {}\n"),
            "{first}"
        );
        assert_eq!(renderings.add("b", BEFORE, &[])?, "");
        Ok(())
    }

    #[test]
    fn a_changed_line_is_printed_with_the_path_to_it() -> Result<()> {
        let after = differences(&BEFORE.replace("--b", "--x"))?;
        let expected = "\
Deployment shop/web: differs from default
@@ spec.containers.args
         - --a
-        - --b
+        - --x
         - --cccccccccccccccccccccccccccccccccccccccccccc
";
        assert_eq!(after, expected);
        Ok(())
    }

    #[test]
    fn a_change_of_one_of_several_equal_places_says_of_which() {
        let old = "rules:\n  - a: 1\n    b: 1\n  - a: 1\n    b: 1\n";
        let new = "rules:\n  - a: 1\n    b: 1\n  - a: 1\n    b: 2\n";
        let expected = "@@ rules (2 of 2)\n   - a: 1\n-    b: 1\n+    b: 2\n";
        assert_eq!(changed_lines(old, new), expected);
    }

    #[test]
    fn what_is_missing_or_in_another_namespace_is_named() -> Result<()> {
        let (before, _) = BEFORE.rsplit_once("---").context("three objects")?;
        assert_eq!(differences(before)?, "Role bank/web: missing\n");
        let moved = differences(&BEFORE.replace("namespace: bank", "namespace: tools"))?;
        assert_eq!(moved, "Role tools/web: as in default\n");
        let number = differences(&BEFORE.replace("namespace: bank", "namespace: 1"))?;
        assert!(number.contains("+metadata: {namespace: 1}\n"), "{number}");
        Ok(())
    }

    #[test]
    fn what_an_earlier_rendering_has_is_printed_once() -> Result<()> {
        let more = format!("{BEFORE}---\nkind: Service\nmetadata: {{name: web}}\n");
        let mut renderings = Renderings::default();
        renderings.add(BASE, BEFORE, &[])?;
        assert_eq!(
            renderings.add("b", &more, &[])?,
            "Service web: new\n+metadata: {}\n"
        );
        assert_eq!(renderings.add("c", &more, &[])?, "Service web: as in b\n");
        Ok(())
    }

    #[test]
    fn only_labels_that_all_objects_have_are_printed_apart() -> Result<()> {
        let labelled = |team: &str| {
            format!(
                "kind: A\nmetadata: {{name: a, labels: {{helm.sh/chart: x, b: c, team: one}}}}\n---\n\
                 kind: B\nmetadata: {{name: b, labels: {{helm.sh/chart: x, b: c, team: {team}}}}}\n"
            )
        };
        let mut renderings = Renderings::default();
        renderings.add(BASE, &labelled("one"), &[])?;
        let expected = "\
Labels of all objects: differs from default
@@ at the top
 helm.sh/chart: x
-team: one
A a: differs from default
@@ at the top
-metadata: {labels: {<<: common}}
+metadata: {labels: {<<: common, team: one}}
B b: differs from default
@@ at the top
-metadata: {labels: {<<: common}}
+metadata: {labels: {<<: common, team: two}}
";
        assert_eq!(renderings.add("b", &labelled("two"), &[])?, expected);
        Ok(())
    }

    #[test]
    fn a_part_is_named_only_while_it_is_as_in_its_file() -> Result<()> {
        let parts = [Part {
            file: "files/stores.json".to_owned(),
            value: serde_json::json!({"group": "example.com"}),
        }];
        let with =
            |group: &str| format!("kind: Crd\nmetadata: {{name: a}}\nspec: {{group: {group}}}\n");
        let printed = |group: &str| Renderings::default().add(BASE, &with(group), &parts);
        let same = printed("example.com")?;
        assert!(
            same.contains("+spec: \"as in files/stores.json\"\n"),
            "{same}"
        );
        let other = printed("example.org")?;
        assert!(other.contains("+spec: {group: example.org}\n"), "{other}");
        Ok(())
    }

    /// Returns how a rendering differs from `BEFORE`.
    fn differences(after: &str) -> Result<String> {
        let mut renderings = Renderings::default();
        renderings.add(BASE, BEFORE, &[])?;
        renderings.add("after", after, &[])
    }
}
