//! Finds the series that a PromQL expression queries, and the labels that it groups by.

use anyhow::{Context, Result, bail, ensure};

/// The parts of an expression.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Query {
    pub(super) selectors: Vec<Selector>,
    /// Labels that aggregations keep or drop, and by which vectors are matched.
    pub(super) grouping: Vec<String>,
}

/// A selector: all series of a name, or some of them.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Selector {
    pub(super) series: String,
    pub(super) matchers: Vec<Matcher>,
}

/// A condition on a label.
#[derive(Debug, PartialEq)]
pub(super) struct Matcher {
    pub(super) label: String,
    /// Operator: `=`, `!=`, `=~` or `!~`.
    pub(super) operator: String,
    pub(super) value: String,
}

impl Query {
    /// Parses an expression.
    ///
    /// # Errors
    /// When it uses anything unknown here, such as a misspelt function, or when its brackets do not match.
    pub(super) fn parse(expression: &str) -> Result<Self> {
        let mut query = Self::default();
        let mut open = Vec::new();
        let tokens = tokens(expression).with_context(|| expression.to_owned())?;
        let mut rest = tokens.iter().peekable();
        while let Some(token) = rest.next() {
            let next = rest.peek();
            match token {
                Token::Sign(sign @ ("(" | "[" | "{")) => open.push(*sign),
                Token::Sign(sign @ (")" | "]" | "}")) => {
                    let pair = format!("{}{sign}", open.pop().unwrap_or_default());
                    ensure!(
                        ["()", "[]", "{}"].contains(&&*pair),
                        "{pair} in {expression}"
                    );
                }
                Token::Word(word) if GROUPINGS.contains(word) => {
                    ensure!(
                        next == Some(&&Token::Sign("(")),
                        "{word} what? {expression}"
                    );
                    for token in rest
                        .by_ref()
                        .take_while(|token| **token != Token::Sign(")"))
                    {
                        if let Token::Word(label) = token {
                            query.grouping.push((*label).to_owned());
                        }
                    }
                }
                Token::Word(word) if FUNCTIONS.contains(word) => {
                    let opens =
                        matches!(next, Some(Token::Sign("(") | Token::Word("by" | "without")));
                    ensure!(opens, "{word} of what? {expression}");
                }
                Token::Word(word) if OPERATORS.contains(word) => {}
                Token::Word(series) => {
                    ensure!(
                        next != Some(&&Token::Sign("(")),
                        "{series} is no function: {expression}"
                    );
                    let mut selector = Selector {
                        series: (*series).to_owned(),
                        matchers: Vec::new(),
                    };
                    if next == Some(&&Token::Sign("{")) {
                        rest.next();
                        let inside = rest
                            .by_ref()
                            .take_while(|token| **token != Token::Sign("}"));
                        let inside: Vec<_> =
                            inside.filter(|token| **token != Token::Sign(",")).collect();
                        for matcher in inside.chunks(3) {
                            let [
                                Token::Word(label),
                                Token::Sign(operator),
                                Token::Text(value),
                            ] = matcher
                            else {
                                bail!("{matcher:?} is no matcher: {expression}");
                            };
                            ensure!(MATCHERS.contains(operator), "{operator}: {expression}");
                            selector.matchers.push(Matcher {
                                label: (*label).to_owned(),
                                operator: (*operator).to_owned(),
                                value: value.clone(),
                            });
                        }
                    }
                    query.selectors.push(selector);
                }
                Token::Sign(_) | Token::Text(_) | Token::Number => {}
            }
        }
        ensure!(open.is_empty(), "{open:?} is open in {expression}");
        Ok(query)
    }
}

const GROUPINGS: [&str; 6] = [
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
];
const FUNCTIONS: [&str; 13] = [
    "absent",
    "changes",
    "count",
    "histogram_quantile",
    "increase",
    "max",
    "max_over_time",
    "min",
    "rate",
    "sum",
    "time",
    "timestamp",
    "topk",
];
const OPERATORS: [&str; 5] = ["and", "or", "unless", "offset", "bool"];
const MATCHERS: [&str; 4] = ["=", "!=", "=~", "!~"];
/// Longer signs come before those that they begin with.
const SIGNS: [&str; 24] = [
    "==", "!=", "=~", "!~", ">=", "<=", "=", ">", "<", "+", "-", "*", "/", "%", "^", "(", ")", "[",
    "]", "{", "}", ",", ":", "@",
];

#[derive(Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Text(String),
    /// A number, a duration, or a variable of Grafana.
    Number,
    Sign(&'a str),
}

fn tokens(expression: &str) -> Result<Vec<Token<'_>>> {
    let mut tokens = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_in_word = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == ':';
        let word = rest.find(|it| !is_in_word(it)).unwrap_or(rest.len());
        let length = if first == '"' {
            let (text, _) = rest[1..].split_once('"').context("a text does not end")?;
            ensure!(!text.contains('\\'), "escapes are not read: {text}");
            tokens.push(Token::Text(text.to_owned()));
            text.len() + 2
        } else if first.is_ascii_digit() {
            let number = rest
                .find(|it| !is_in_word(it) && it != '.')
                .unwrap_or(rest.len());
            tokens.push(Token::Number);
            number
        } else if first == '$' {
            let name = rest[1..]
                .find(|it| !is_in_word(it))
                .unwrap_or(rest.len() - 1);
            tokens.push(Token::Number);
            name + 1
        } else if word > 0 {
            tokens.push(Token::Word(&rest[..word]));
            word
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
            let sign = sign.with_context(|| format!("{rest} begins with no sign"))?;
            tokens.push(Token::Sign(sign));
            sign.len()
        };
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

#[test]
fn series_matchers_and_groupings_are_read() -> Result<()> {
    let query = Query::parse(
        "histogram_quantile(0.9, sum by (le, kind) (rate(a_bucket{job=~\"$job\",kind!=\"x\"}[$__rate_interval]))) > 7 * 86400 or absent(b)",
    )?;
    let names: Vec<_> = query.selectors.iter().map(|it| &*it.series).collect();
    assert_eq!(names, ["a_bucket", "b"]);
    assert_eq!(query.grouping, ["le", "kind"]);
    let matchers: Vec<_> = query.selectors[0].matchers.iter().collect();
    assert_eq!(matchers.len(), 2);
    assert_eq!(
        (
            &*matchers[1].label,
            &*matchers[1].operator,
            &*matchers[1].value
        ),
        ("kind", "!=", "x")
    );
    Ok(())
}

#[test]
fn queries_that_prometheus_would_refuse_are_refused() {
    for wrong in [
        "sum(a",
        "sum(a))",
        "smu(a)",
        "rate(a[5m)",
        "a{b=c}",
        "a{b}",
        "sum by kind (a)",
        "a{b=\"c}",
        "sum",
    ] {
        assert!(Query::parse(wrong).is_err(), "{wrong}");
    }
}
