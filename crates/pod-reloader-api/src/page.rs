//! Compares `docs/api.md` with the schemas.

use std::fs;

use serde_json::Value;

use crate::crds::crds;

/// Where the page is.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
/// What is between these two lines is written by `make golden`.
const BEGINS: &str = "<!-- kinds -->\n";
const ENDS: &str = "<!-- end of kinds -->\n";

#[test]
fn the_documented_fields_are_those_of_the_schemas() {
    let page = fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGINS).unwrap();
    let (_, after) = rest.split_once(ENDS).unwrap();
    let mut contents = "\n".to_owned();
    let mut sections = String::new();
    for crd in crds() {
        let crd = serde_json::to_value(crd).unwrap();
        contents += &line_of_contents(text(&crd["spec"]["names"]["kind"]));
        sections += &section(&crd);
    }
    let current = format!("{before}{BEGINS}{contents}{sections}\n{ENDS}{after}");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(PAGE, &current).unwrap();
        return;
    }
    assert!(page == current, "{PAGE} differs: `make golden` writes it");
}

fn line_of_contents(kind: &str) -> String {
    let anchor = kind.to_lowercase();
    let part = |part: &str| format!("[{part}](#the-{part}-of-a-{anchor})");
    let [spec, status] = ["spec", "status"].map(part);
    format!("- [{kind}](#{anchor}): {spec}, {status}\n")
}

/// Returns the section of a kind, given its CustomResourceDefinition.
fn section(crd: &Value) -> String {
    let names = &crd["spec"]["names"];
    let version = &crd["spec"]["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    let kind = text(&names["kind"]);
    let mut section = format!("\n## {kind}\n\n{}\n\n", text(&schema["description"]));
    section += "| | |\n| --- | --- |\n";
    let group = text(&crd["spec"]["group"]);
    for (what, is) in [
        (
            "`apiVersion`",
            format!("`{group}/{}`", text(&version["name"])),
        ),
        ("`kind`", format!("`{kind}`")),
        ("names for kubectl", names_for_kubectl(names)),
        ("scope", text(&crd["spec"]["scope"]).to_owned()),
    ] {
        section += &format!("| {what} | {is} |\n");
    }
    for part in ["spec", "status"] {
        let fields = &schema["properties"][part];
        let meaning = text(&fields["description"]);
        section += &format!("\n### The {part} of a {kind}\n\n{meaning}\n\n");
        section += "| field | type | required | default | limits | meaning |\n| --- | --- | --- | --- | --- | --- |\n";
        let mut rows = Vec::new();
        add_fields(part, fields, &mut rows);
        section += &rows.concat();
    }
    section
}

fn names_for_kubectl(names: &Value) -> String {
    let mut all = vec![text(&names["plural"]), text(&names["singular"])];
    all.extend(items(&names["shortNames"]).map(text));
    in_ticks(all)
}

/// Adds a row for each field below `schema`, which is at `path`: those of an object right after the object.
fn add_fields(path: &str, schema: &Value, rows: &mut Vec<String>) {
    // The fields of a list are those of its items.
    let (path, object) = if schema["items"].is_object() {
        (format!("{path}[]"), &schema["items"])
    } else {
        (path.to_owned(), schema)
    };
    for (name, field) in object["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let is_required = items(&object["required"]).any(|required| required == name);
        rows.push(row(&path, field, is_required));
        add_fields(&path, field, rows);
    }
}

fn row(path: &str, field: &Value, is_required: bool) -> String {
    let default = match &field["default"] {
        Value::Null => String::new(),
        default => format!("`{default}`"),
    };
    let cells = [
        format!("`{path}`"),
        type_of(field),
        if is_required { "yes" } else { "" }.to_owned(),
        default,
        limits(field).join("; "),
        text(&field["description"]).to_owned(),
    ];
    let cells = cells.map(|cell| cell.replace('|', r"\|"));
    format!("| {} |\n", cells.join(" | "))
}

fn type_of(field: &Value) -> String {
    let items = &field["items"];
    let values = &field["additionalProperties"];
    if items.is_object() {
        format!("list of {}", type_of(items))
    } else if values.is_object() {
        format!("map to {}", type_of(values))
    } else if field["format"] == "date-time" {
        "time".to_owned()
    } else {
        text(&field["type"]).to_owned()
    }
}

/// Returns what the apiserver checks about a field, and about its items or values.
fn limits(field: &Value) -> Vec<String> {
    let mut limits = Vec::new();
    let words: Vec<_> = items(&field["enum"]).map(text).collect();
    if !words.is_empty() {
        limits.push(format!("one of {}", in_ticks(words)));
    }
    for (least, most, unit) in [
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
        ("minProperties", "maxProperties", " entries"),
        ("minimum", "maximum", ""),
    ] {
        let bounds = (field[least].as_f64(), field[most].as_f64());
        limits.extend(match bounds {
            (Some(least), Some(most)) => Some(format!("{least} to {most}{unit}")),
            (Some(least), None) => Some(format!("at least {least}{unit}")),
            (None, Some(most)) => Some(format!("at most {most}{unit}")),
            (None, None) => None,
        });
    }
    if let Some(pattern) = field["pattern"].as_str() {
        limits.push(form(pattern));
    }
    if field["x-kubernetes-list-type"] == "set" {
        limits.push("no item twice".to_owned());
    }
    let keys: Vec<_> = items(&field["x-kubernetes-list-map-keys"])
        .map(text)
        .collect();
    if !keys.is_empty() {
        limits.push(format!("no two items with the same {}", in_ticks(keys)));
    }
    let rules = items(&field["x-kubernetes-validations"]);
    limits.extend(rules.map(|rule| text(&rule["message"]).to_owned()));
    let parts = ["items", "additionalProperties"].map(|part| &field[part]);
    for part in parts.into_iter().filter(|part| part.is_object()) {
        let of_each = self::limits(part).into_iter();
        limits.extend(of_each.map(|limit| format!("each: {limit}")));
    }
    limits
}

/// Returns a pattern in words: hardly anybody can read the names of Kubernetes as patterns.
fn form(pattern: &str) -> String {
    let words = match pattern {
        r"^[-._a-zA-Z0-9]+$" => "letters, digits, `-`, `_` and `.`",
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" => "a DNS label",
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" => "a DNS subdomain",
        r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/v[0-9a-z]+$" => "an API group and a version",
        r"^[A-Za-z][A-Za-z0-9]*$" => "letters and digits, a letter first",
        path if path.starts_with("^spec(") => "[a path](field-bindings.md#paths-and-types)",
        other => panic!("put this pattern into words: {other}"),
    };
    words.to_owned()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn in_ticks(words: Vec<&str>) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}
