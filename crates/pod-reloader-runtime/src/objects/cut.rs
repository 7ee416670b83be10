//! Finds the beginning and end of each object in an answer, however the answer is split on its way.

use std::ops::Range;

use kube::core::ListMeta;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::CallError;

/// The maximum number of bytes of a list besides its items. Nearly all of them are the token for the next
/// page.
const MAX_ENVELOPE: usize = 64 << 10;

/// Finds the objects in the bytes that arrive.
pub(crate) trait Cut {
    /// Processes the beginning of `bytes`, which is not empty: up to the end of an object, if one ends
    /// there.
    fn cut(&mut self, bytes: &[u8]) -> Piece;
}

/// Some bytes of an answer.
#[derive(Debug, PartialEq)]
pub(crate) struct Piece {
    /// The number of bytes that have been processed.
    pub(crate) taken: usize,
    /// The bytes of the object among them.
    pub(crate) object: Range<usize>,
    /// True if the object ends with them.
    pub(crate) ends: bool,
}

/// Treats each line as an object, as in the answer to a watch.
#[derive(Debug, Default)]
pub(crate) struct Lines;

impl Cut for Lines {
    fn cut(&mut self, bytes: &[u8]) -> Piece {
        match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => Piece {
                taken: end + 1,
                object: 0..end,
                ends: true,
            },
            None => Piece {
                taken: bytes.len(),
                object: 0..bytes.len(),
                ends: false,
            },
        }
    }
}

/// Treats the whole answer as one object.
#[derive(Debug, Default)]
pub(crate) struct Whole;

impl Cut for Whole {
    fn cut(&mut self, bytes: &[u8]) -> Piece {
        Piece {
            taken: bytes.len(),
            object: 0..bytes.len(),
            ends: false,
        }
    }
}

/// Treats each item of a list as an object. The rest of the list is short, and is put together into a list
/// without items.
///
/// Only brackets and strings are recognised. Everything else is left to the readers of the objects and the
/// rest.
#[derive(Debug, Default)]
pub(crate) struct Items {
    /// The list without its items and without white space.
    envelope: Vec<u8>,
    /// The number of open brackets.
    depth: usize,
    string: InString,
    /// True while the brackets of the items are open.
    in_items: bool,
    in_item: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum InString {
    #[default]
    No,
    Yes,
    /// The position after a backslash.
    Escaped,
}

impl Items {
    /// The depth at which items are found.
    const DEPTH: usize = 2;

    /// Returns the metadata of the list.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer was not a list, or broke off.
    pub(crate) fn metadata(&self) -> Result<ListMeta, CallError> {
        #[derive(Deserialize)]
        struct Envelope {
            #[serde(default)]
            metadata: ListMeta,
            /// Go writes an empty list as `null` if it never had an item.
            #[serde(rename = "items", deserialize_with = "Option::deserialize")]
            _items: Option<[IgnoredAny; 0]>,
        }
        let envelope: Result<Envelope, _> = serde_json::from_slice(&self.envelope);
        envelope
            .map(|it| it.metadata)
            .map_err(|_| CallError::Unreadable)
    }

    fn keep(&mut self, byte: u8) {
        // An envelope that is cut off here fails to parse later.
        if self.envelope.len() < MAX_ENVELOPE {
            self.envelope.push(byte);
        }
    }

    fn are_announced(&self) -> bool {
        self.envelope.ends_with(b"{\"items\":") || self.envelope.ends_with(b",\"items\":")
    }
}

impl Cut for Items {
    fn cut(&mut self, bytes: &[u8]) -> Piece {
        let mut begins = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            let was_in_item = self.in_item;
            let end = match self.see(byte) {
                Seen::Part => None,
                Seen::Nothing => continue,
                Seen::EndBefore => Some(at),
                Seen::End => Some(at + 1),
            };
            if let Some(end) = end {
                return Piece {
                    taken: end,
                    object: begins..end,
                    ends: true,
                };
            }
            if !self.in_item {
                self.keep(byte);
            } else if !was_in_item {
                begins = at;
            }
        }
        Piece {
            taken: bytes.len(),
            object: match self.in_item {
                true => begins..bytes.len(),
                false => 0..0,
            },
            ends: false,
        }
    }
}

/// What a byte of a list is.
enum Seen {
    /// A part of an item, or of the envelope.
    Part,
    /// White space or a comma between items.
    Nothing,
    /// The byte after an item.
    EndBefore,
    /// The last byte of an item.
    End,
}

impl Items {
    /// Takes in the next byte.
    fn see(&mut self, byte: u8) -> Seen {
        match (self.string, byte) {
            (InString::Escaped, _) => self.string = InString::Yes,
            (InString::Yes, b'\\') => self.string = InString::Escaped,
            (InString::Yes, b'"') => self.string = InString::No,
            (InString::Yes, _) => {}
            (InString::No, b'"') => {
                self.string = InString::Yes;
                self.in_item = self.in_items;
            }
            (InString::No, b'{' | b'[') => self.open(byte),
            (InString::No, b',' | b'}' | b']') if self.in_items && self.depth == Self::DEPTH => {
                // An item that is not an object ends here. No Kubernetes list has such items, so the
                // exact end does not matter.
                if self.in_item {
                    self.in_item = false;
                    return Seen::EndBefore;
                }
                if byte == b',' {
                    return Seen::Nothing;
                }
                self.in_items = false;
                self.depth -= 1;
            }
            (InString::No, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                if self.in_item && self.depth == Self::DEPTH {
                    self.in_item = false;
                    return Seen::End;
                }
            }
            (InString::No, b' ' | b'\t' | b'\n' | b'\r') if !self.in_item => return Seen::Nothing,
            (InString::No, _) => self.in_item = self.in_items,
        }
        Seen::Part
    }

    /// Takes in a bracket that opens.
    fn open(&mut self, bracket: u8) {
        if self.depth + 1 == Self::DEPTH && bracket == b'[' && self.are_announced() {
            self.in_items = true;
        } else {
            self.in_item = self.in_items;
        }
        self.depth += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Returns the items of a list that arrives in parts of `size` bytes, and its metadata.
    fn cut(list: &str, size: usize) -> (Vec<String>, Result<ListMeta, CallError>) {
        let (mut items, mut item) = (Vec::new(), Vec::new());
        let mut cut = Items::default();
        for mut part in list.as_bytes().chunks(size) {
            while !part.is_empty() {
                let piece = cut.cut(part);
                item.extend_from_slice(&part[piece.object]);
                if piece.ends {
                    items.push(String::from_utf8(std::mem::take(&mut item)).unwrap());
                }
                part = &part[piece.taken..];
            }
        }
        (items, cut.metadata())
    }

    fn assert_cut(list: &str, expected: &[Value]) {
        for size in 1..=list.len() {
            let (items, metadata) = cut(list, size);
            let items: Vec<Value> = items
                .iter()
                .map(|it| serde_json::from_str(it).unwrap())
                .collect();
            assert_eq!(items, expected, "{list} in parts of {size}");
            assert_eq!(metadata.unwrap().resource_version.as_deref(), Some("7"));
        }
    }

    #[test]
    fn a_list_is_cut_the_same_however_it_is_split() {
        let items = [
            json!({"metadata": {"name": "a", "annotations": {"x": "}]{[,\"\\"}}, "items": [{"items": [1]}]}),
            json!({}),
            json!({"items": []}),
        ];
        let list = json!({"metadata": {"resourceVersion": "7", "items": [{}]}, "items": items});
        assert_cut(&list.to_string(), &items);
        assert_cut(&serde_json::to_string_pretty(&list).unwrap(), &items);
    }

    #[test]
    fn the_order_of_the_fields_of_a_list_does_not_matter() {
        let list = r#"{"a":"\"items\":[","items":[{"b":1}],"kind":"items","metadata":{"resourceVersion":"7"}}"#;
        assert_cut(list, &[json!({"b": 1})]);
        let list =
            r#"{"metadata":{"resourceVersion":"7"},"x,\"items":[{"c":2}],"items":[{"b":1}]}"#;
        assert_cut(list, &[json!({"b": 1})]);
    }

    #[test]
    fn a_list_whose_items_are_null_or_none_is_empty() {
        assert_cut(r#"{"metadata":{"resourceVersion":"7"},"items":null}"#, &[]);
        assert_cut(
            r#"{"items" : [ ] , "metadata":{"resourceVersion":"7"}}"#,
            &[],
        );
    }

    #[test]
    fn items_that_are_not_objects_are_still_items() {
        let items = [
            json!(null),
            json!("a,]"),
            json!(1.5),
            json!([[]]),
            json!(true),
        ];
        let list = json!({"metadata": {"resourceVersion": "7"}, "items": items});
        assert_cut(&list.to_string(), &items);
    }

    #[test]
    fn text_that_is_not_a_list_or_breaks_off_is_refused() {
        let whole = r#"{"metadata":{"continue":"x"},"items":[{"a":1},{"b":[]}]}"#;
        assert!(cut(whole, 5).1.is_ok());
        for end in 0..whole.len() {
            assert!(cut(&whole[..end], 5).1.is_err(), "{}", &whole[..end]);
        }
        for text in [
            "[]",
            "null",
            r#"{"metadata":{}}"#,
            r#"{"metadata":{},"items":{}}"#,
            r#"{"metadata":{},"items":[]}x"#,
            r#"{"metadata":{},"items":[}}"#,
            r#"]]]{"metadata":{},"items":[]}"#,
            r#"{"kind":"Status","metadata":{},"message":"no"}"#,
        ] {
            assert!(cut(text, 3).1.is_err(), "{text}");
        }
        let long = format!(
            r#"{{"metadata":{{"continue":"{}"}},"items":[]}}"#,
            "x".repeat(MAX_ENVELOPE)
        );
        assert!(cut(&long, 1000).1.is_err());
    }

    #[test]
    fn each_line_of_a_watch_is_an_object() {
        let whole = |taken| Piece {
            taken,
            object: 0..taken - 1,
            ends: true,
        };
        assert_eq!(Lines.cut(b"{}\n{}\n"), whole(3));
        assert_eq!(Lines.cut(b"\n"), whole(1));
        let part = Piece {
            taken: 2,
            object: 0..2,
            ends: false,
        };
        assert_eq!(Lines.cut(b"{}"), part);
    }
}
