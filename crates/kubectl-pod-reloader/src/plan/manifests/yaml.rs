//! Reads YAML as kubectl does: as YAML 1.1 in the way of sigs.k8s.io/yaml, which makes JSON of it.

mod scalar;

use std::collections::HashMap;

use granit_parser::{Event, Marker, Parser, ScanError, Span, StrInput};
use serde_json::{Map, Value};

use self::scalar::{Scalar, is_merge};

/// The maximum depth of lists and maps in each other: the apiserver's answer would not be read beyond that.
const MAX_DEPTH: usize = 120;
/// The maximum number of nodes that aliases stand for: a few lines could stand for more than fits into memory.
const MAX_ALIASED: usize = 1 << 20;

/// The error of a text that is not valid YAML, or of which no JSON can be made. It quotes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotYaml {
    /// Its line and its column, counted from 1, if they are known.
    pub(super) place: Option<(u64, u64)>,
}

impl NotYaml {
    fn at(marker: &Marker) -> Self {
        let place = (marker.line() as u64, marker.col() as u64 + 1);
        Self { place: Some(place) }
    }
}

impl From<ScanError> for NotYaml {
    fn from(error: ScanError) -> Self {
        Self::at(error.marker())
    }
}

/// Returns the documents of a text. One without content is `null`.
///
/// # Errors
///
/// The text is not valid YAML, or has something that JSON does not have, such as a key that is `null`.
pub(super) fn documents(text: &str) -> Result<Vec<Value>, NotYaml> {
    let mut reader = Reader {
        events: Parser::new_from_str(text),
        anchors: HashMap::new(),
        nodes: 0,
        aliased: 0,
    };
    let mut documents = Vec::new();
    while let Some((event, at)) = reader.next()? {
        documents.push(reader.value(event, &at, 0)?);
    }
    Ok(documents)
}

/// A scalar or a collection. Only the former can be a key, and then becomes another text than as a value.
#[derive(Clone)]
enum Node {
    Scalar(Scalar),
    Collection(Value),
}

impl Node {
    fn into_value(self) -> Option<Value> {
        match self {
            Self::Scalar(scalar) => scalar.into_value(),
            Self::Collection(value) => Some(value),
        }
    }
}

/// A node that aliases can stand for.
struct Anchored {
    node: Node,
    /// The number of nodes in it, with itself.
    size: usize,
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Anchored>,
    /// The number of nodes so far, and of those of them that aliases stand for.
    nodes: usize,
    aliased: usize,
}

impl<'a> Reader<'a> {
    /// Returns the next event that belongs to a document.
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, NotYaml> {
        for event in &mut self.events {
            let (event, at) = event?;
            let is_content = matches!(
                event,
                Event::Alias(_)
                    | Event::Scalar(..)
                    | Event::SequenceStart(..)
                    | Event::SequenceEnd
                    | Event::MappingStart(..)
                    | Event::MappingEnd
            );
            if is_content {
                return Ok(Some((event, at)));
            }
        }
        Ok(None)
    }

    /// Returns the next event of a collection.
    fn next_inside(&mut self) -> Result<(Event<'a>, Span), NotYaml> {
        self.next()?.ok_or(NotYaml { place: None })
    }

    /// Reads the node that begins with this event.
    fn node(&mut self, event: Event<'a>, at: &Span, depth: usize) -> Result<Node, NotYaml> {
        let wrong = NotYaml::at(&at.start);
        if depth > MAX_DEPTH {
            return Err(wrong);
        }
        let before = self.nodes;
        self.nodes += 1;
        let (anchor, node) = match event {
            // An anchor that is not known yet contains this alias.
            Event::Alias(anchor) => return self.alias(anchor).ok_or(wrong),
            Event::Scalar(text, style, anchor, tag) => {
                let scalar = Scalar::resolve(&text, style, tag.as_deref());
                (anchor, Node::Scalar(scalar.ok_or(wrong)?))
            }
            Event::SequenceStart(_, anchor, _) => (anchor, Node::Collection(self.list(depth)?)),
            Event::MappingStart(_, anchor, _) => (anchor, Node::Collection(self.map(depth)?)),
            _ => return Err(wrong),
        };
        if anchor > 0 {
            let anchored = Anchored {
                node: node.clone(),
                size: self.nodes - before,
            };
            self.anchors.insert(anchor, anchored);
        }
        Ok(node)
    }

    fn value(&mut self, event: Event<'a>, at: &Span, depth: usize) -> Result<Value, NotYaml> {
        let value = self.node(event, at, depth)?.into_value();
        value.ok_or_else(|| NotYaml::at(&at.start))
    }

    fn alias(&mut self, anchor: usize) -> Option<Node> {
        let Anchored { node, size } = self.anchors.get(&anchor)?;
        self.nodes += size;
        self.aliased += size;
        (self.aliased <= MAX_ALIASED).then(|| node.clone())
    }

    fn list(&mut self, depth: usize) -> Result<Value, NotYaml> {
        let mut items = Vec::new();
        loop {
            let (event, at) = self.next_inside()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(Value::Array(items));
            }
            items.push(self.value(event, &at, depth + 1)?);
        }
    }

    /// Reads a map. Of several entries with the same key, the last one counts.
    fn map(&mut self, depth: usize) -> Result<Value, NotYaml> {
        let mut fields = Map::new();
        loop {
            let (event, at) = self.next_inside()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(Value::Object(fields));
            }
            let wrong = NotYaml::at(&at.start);
            let is_merge = is_merge(&event);
            let key = self.node(event, &at, depth + 1)?;
            let (event, at) = self.next_inside()?;
            let is_list = matches!(event, Event::SequenceStart(..));
            let value = self.value(event, &at, depth + 1)?;
            if is_merge {
                merge(&mut fields, value, is_list).ok_or(wrong)?;
                continue;
            }
            let key = match key {
                Node::Scalar(key) => key.into_key(),
                Node::Collection(_) => None,
            };
            fields.insert(key.ok_or(wrong)?, value);
        }
    }
}

/// Adds the entries of a map, or of each map of a list, of which the first one takes precedence. They replace entries
/// that come before them. `None` if this is something else.
fn merge(fields: &mut Map<String, Value>, value: Value, is_list: bool) -> Option<()> {
    let maps = match value {
        Value::Array(maps) if is_list => maps,
        map => vec![map],
    };
    for map in maps.into_iter().rev() {
        let Value::Object(map) = map else {
            return None;
        };
        fields.extend(map);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Value, NotYaml> {
        let mut documents = documents(text)?;
        assert_eq!(documents.len(), 1, "{text}");
        Ok(documents.remove(0))
    }

    #[test]
    fn aliases_and_merges_are_resolved() {
        for (text, expected) in [
            (
                "a: &x 1.10\nb: *x\n*x : c",
                json!({"a": 1.1, "b": 1.1, "1.1": "c"}),
            ),
            (
                "a: &x [1, {b: c}]\nd: *x",
                json!({"a": [1, {"b": "c"}], "d": [1, {"b": "c"}]}),
            ),
            (
                "a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}",
                json!({"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 3}}),
            ),
            // What comes before a merge is replaced.
            (
                "a: &x {k: 1}\nb: {k: 2, <<: *x}",
                json!({"a": {"k": 1}, "b": {"k": 1}}),
            ),
            (
                "a: {<<: [{k: 1, l: 1}, {k: 2, m: 2}]}",
                json!({"a": {"k": 1, "l": 1, "m": 2}}),
            ),
            (
                "a: {'<<': 1, !!merge <<: {k: 1}}",
                json!({"a": {"<<": 1, "k": 1}}),
            ),
            ("{a: 1, 'a': 2}", json!({"a": 2})),
            ("{yes: 1, on: 2}", json!({"true": 2})),
        ] {
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_json_does_not_have_is_an_error() {
        for text in [
            "~: a",
            "null: a",
            ": a",
            "? [a]\n: b",
            "? {a: b}\n: c",
            "18446744073709551615: a",
            "a: .nan",
            "a: -.inf",
            "a: {<<: b}",
            "a: {<<: [b]}",
            "a: &x [1]\nb: {<<: *x}",
            "a: &x [*x]",
            "a: *x",
            "a: !!int b",
            "a: !!bool 1",
            "a: !!binary '?'",
            "a: [",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_error_says_where_it_is() {
        assert_eq!(read("a: 1\n~: b").unwrap_err().place, Some((2, 1)));
        assert_eq!(read("a:\n  b: .inf").unwrap_err().place, Some((2, 6)));
    }

    #[test]
    fn what_would_not_fit_into_memory_is_an_error() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
        for at in 1..12 {
            let before = vec![format!("*a{}", at - 1); 8].join(", ");
            text += &format!("a{at}: &a{at} [{before}]\n");
        }
        assert!(read(&text).is_err());
        let deep = format!("{}{}", "[".repeat(MAX_DEPTH + 2), "]".repeat(MAX_DEPTH + 2));
        assert!(read(&deep).is_err());
    }
}
