//! `-o jsonpath=TEMPLATE`: fills a template with an answer, in kubectl's dialect of JSONPath.
//!
//! The crate jsonpath-rust evaluates paths in the syntax of RFC 9535. This adds what only kubectl has: text around
//! braces, `range` and `end`, and names in which a backslash stands before a dot.

mod parser;

use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::query::js_path_process;
use serde_json::Value;

/// A template. What it names and an answer does not have is left out, as by kubectl.
#[derive(Clone, Debug)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    /// Text that is printed as it is.
    Text(String),
    /// The values of these paths, one path after the other.
    Values(Vec<JpQuery>),
    /// Further parts for each value of these paths.
    Each(Vec<JpQuery>, Vec<Self>),
}

/// The reason why a text is not a template.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}, at character {at} of the template")]
pub(crate) struct Invalid {
    problem: &'static str,
    /// The position, counted from 1.
    at: usize,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// Names the first problem and its place.
    pub(crate) fn parse(text: &str) -> Result<Self, Invalid> {
        parser::parts(text).map(Self)
    }

    /// Fills the template. Adds no newline, as kubectl does.
    pub(crate) fn fill(&self, value: &Value) -> String {
        let mut text = String::new();
        add(&mut text, &self.0, value);
        text
    }
}

fn add(text: &mut String, parts: &[Part], value: &Value) {
    for part in parts {
        match part {
            Part::Text(own) => text.push_str(own),
            Part::Values(paths) => {
                let shown: Vec<_> = found(paths, value).into_iter().map(shown).collect();
                text.push_str(&shown.join(" "));
            }
            Part::Each(paths, parts) => {
                for value in found(paths, value) {
                    add(text, parts, value);
                }
            }
        }
    }
}

fn found<'a>(paths: &[JpQuery], value: &'a Value) -> Vec<&'a Value> {
    let found = paths
        .iter()
        .flat_map(|path| js_path_process(path, value).unwrap_or_default());
    found.map(|found| found.val).collect()
}

/// Returns a text as it is, and everything else as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::parser::MAX_DEPTH;
    use super::*;
    use serde_json::json;

    /// The input of kubectl's documentation.
    fn documented() -> Value {
        json!({
            "kind": "List",
            "items": [
                {
                    "kind": "None",
                    "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
                    "status": {"capacity": {"cpu": "4"}, "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}]},
                },
                {
                    "kind": "None",
                    "metadata": {"name": "127.0.0.2"},
                    "status": {"capacity": {"cpu": "8"}, "addresses": [
                        {"type": "LegacyHostIP", "address": "127.0.0.2"},
                        {"type": "another", "address": "127.0.0.3"},
                    ]},
                },
            ],
            "users": [
                {"name": "myself", "user": {}},
                {"name": "e2e", "user": {"username": "admin", "password": "secret"}},
            ],
            "name.type": "dotted",
        })
    }

    fn filled(template: &str) -> String {
        let parsed = Template::parse(template);
        let parsed = parsed.unwrap_or_else(|error| panic!("{template}: {error}"));
        parsed.fill(&documented())
    }

    #[test]
    fn the_examples_of_kubectls_documentation_are_filled() {
        for (template, expected) in [
            ("kind is {.kind}", "kind is List"),
            ("{.kind}", "List"),
            ("{$.kind}", "List"),
            ("{['kind']}", "List"),
            (r"{['name\.type']}", "dotted"),
            ("{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
            ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
            ("{.items.*.metadata.name}", "127.0.0.1 127.0.0.2"),
            ("{.users[0].name}", "myself"),
            ("{.users[-1].name}", "e2e"),
            ("{.users[-1:].name}", "e2e"),
            ("{.items[0:2].kind}", "None None"),
            (
                "{.items[*]['metadata.name', 'status.capacity']}",
                r#"127.0.0.1 127.0.0.2 {"cpu":"4"} {"cpu":"8"}"#,
            ),
            (r#"{.users[?(@.name=="e2e")].user.password}"#, "secret"),
            ("{.users[?(@.name == 'e2e')].user.password}", "secret"),
            (
                "{range .items[*]}[{.metadata.name}, {.status.capacity}] {end}",
                r#"[127.0.0.1, {"cpu":"4"}] [127.0.0.2, {"cpu":"8"}] "#,
            ),
            (
                r"{range .items[*]}{.metadata.name}{'\t'}{end}",
                "127.0.0.1\t127.0.0.2\t",
            ),
            (
                r"{.items[0].metadata.labels.kubernetes\.io/hostname}",
                "127.0.0.1",
            ),
        ] {
            assert_eq!(filled(template), expected, "{template}");
        }
        assert_eq!(filled("{@}"), documented().to_string());
        assert_eq!(filled("{.}"), documented().to_string());
    }

    #[test]
    fn ranges_may_be_in_ranges_and_what_is_missing_is_left_out() {
        let template = r#"{range .items[*]}{.metadata.name}:{range .status.addresses[*]} {@.type}{end}{"\n"}{end}"#;
        let expected = "127.0.0.1: LegacyHostIP\n127.0.0.2: LegacyHostIP another\n";
        assert_eq!(filled(template), expected);
        assert_eq!(filled("a{.none.at[7].all}b"), "ab");
        assert_eq!(filled("no braces"), "no braces");
        let by_label =
            r#"{.items[?(@.metadata.labels.kubernetes\.io/hostname=="127.0.0.1")].kind}"#;
        assert_eq!(filled(by_label), "None");
    }

    #[test]
    fn values_that_are_no_text_are_json() {
        let value = json!({"number": 1, "is": true, "nothing": null, "list": ["a"]});
        let template = Template::parse("{.number} {.is} {.nothing} {.list}").unwrap();
        assert_eq!(template.fill(&value), r#"1 true null ["a"]"#);
    }

    #[test]
    fn an_error_names_its_place() {
        for (template, problem, at) in [
            ("{.kind", "} is missing", 7),
            ("{.items[*}", "] is missing", 10),
            (
                "é{kind}",
                "a path has to begin with a dot, such as .items[*].name",
                3,
            ),
            (
                "{range .items[*]}{.kind}",
                "{end} of {range} is missing",
                25,
            ),
            ("{.kind}{end}", "{end} is without {range}", 13),
            (
                "{.items[name]}",
                "a number, * or a name in quotes has to follow [",
                9,
            ),
            ("{.items[?(@.name=='a']}", ") is missing", 23),
            ("{'a}", "the quote has no end", 5),
            (r"{'\d'}", "the character after the backslash is unknown", 5),
            ("{.items[1:2:3:4]}", "the path is not valid", 2),
            ("{.a.}", "a name is missing", 5),
            ("{..}", "a name is missing", 4),
        ] {
            let error = Template::parse(template).unwrap_err();
            assert_eq!(error, Invalid { problem, at }, "{template}");
        }
    }

    #[test]
    fn an_endless_template_takes_neither_the_stack_nor_the_time() {
        let too_deep = "too many ranges, filters or parentheses are within each other";
        for (begin, more, problem) in [
            ("", "{range .a}", too_deep),
            ("{.a", "[?(@.b", too_deep),
            ("{.a[?", "(", too_deep),
            ("{.a[?(", "length(", too_deep),
            ("{.a", "['b','c']", "too many names are listed"),
        ] {
            let template = begin.to_owned() + &more.repeat(10_000);
            let error = Template::parse(&template).unwrap_err();
            assert_eq!(error.problem, problem, "{begin}{more}");
        }
        let ranges = "{range .a}".repeat(MAX_DEPTH) + &"{end}".repeat(MAX_DEPTH);
        assert!(Template::parse(&ranges).is_ok());
    }
}
