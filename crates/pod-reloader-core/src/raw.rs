//! Walks over JSON that somebody else wrote.
//!
//! A map, a list or a [`Value`] of such JSON takes up to a hundred times its size, so none is made
//! of it: its members and elements are read one at a time, and only those of use are kept.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// A string that is borrowed if the JSON has no escape in it: serde does not borrow inside maps.
#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// Passes each member of an object to `each`, in their order. A name that is repeated is passed each time.
///
/// # Errors
///
/// The value is not an object, or a name is not text.
pub fn members<'a>(
    object: &'a RawValue,
    each: impl FnMut(&str, &'a RawValue),
) -> Result<(), serde_json::Error> {
    struct Members<F>(F);

    impl<'de, F: FnMut(&str, &'de RawValue)> Visitor<'de> for Members<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
            while let Some(name) = members.next_key::<Text<'de>>()? {
                (self.0)(&name, members.next_value()?);
            }
            Ok(())
        }
    }

    serde_json::Deserializer::from_str(object.get()).deserialize_map(Members(each))
}

/// Returns a member of an object, which may be `null`. Of several with this name, it is the last one.
///
/// # Errors
///
/// The value is not an object, or a name is not text.
pub fn member<'a>(
    object: &'a RawValue,
    name: &str,
) -> Result<Option<&'a RawValue>, serde_json::Error> {
    let mut found = None;
    members(object, |it, value| {
        if it == name {
            found = Some(value);
        }
    })?;
    Ok(found)
}

/// Returns the value at the end of a path of members. `None` if there is none, or if something on the way is not an
/// object. One that is `null` counts as missing.
pub(crate) fn at<'a>(object: &'a RawValue, path: &[&str]) -> Option<&'a RawValue> {
    let below =
        |place: &'a RawValue, name: &&str| member(place, name).ok()?.filter(|it| !is_null(it));
    path.iter().try_fold(object, below)
}

/// Parses a value. One that cannot be parsed is treated as missing.
pub(crate) fn read_as<T: DeserializeOwned>(value: &RawValue) -> Option<T> {
    serde_json::from_str(value.get()).ok()
}

/// Returns true if this is `null`.
pub(crate) fn is_null(value: &RawValue) -> bool {
    value.get() == NULL
}

/// Returns true if a value is an object.
pub fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

/// Returns true if a value is a list.
pub fn is_list(value: &RawValue) -> bool {
    value.get().starts_with('[')
}

/// Returns a value that has no members and no elements. `None` for others, and for texts that cannot be one of
/// `longest` bytes.
pub fn single(value: &RawValue, longest: usize) -> Option<Value> {
    let text = value.get();
    // A byte is written with six, as "\u0000", at most.
    let is_too_long = text.starts_with('"') && text.len() > 6 * longest + 2;
    if is_too_long || is_object(value) || is_list(value) {
        return None;
    }
    serde_json::from_str(text).ok()
}

/// Returns the elements of a list in well-formed JSON. `None` if this is not a list.
pub fn elements(list: &str) -> Option<Elements<'_>> {
    let rest = list.strip_prefix('[')?;
    Some(Elements { rest })
}

/// The elements of a list, in their order.
pub struct Elements<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a RawValue;

    fn next(&mut self) -> Option<&'a RawValue> {
        self.rest = passed(self.rest, ',');
        match self.rest.starts_with(']') {
            true => None,
            // Its JSON was read before, so it is well-formed.
            false => take(&mut self.rest).ok(),
        }
    }
}

/// The maximum number of members that are sorted: more would take seconds.
const MAX_MEMBERS: usize = 64 << 10;

/// The members of an object, sorted by name.
pub(crate) struct Sorted<'a> {
    text: &'a str,
    members: Vec<Member>,
}

/// The place of a member in the text of an object: where its name begins, and where its value ends.
#[derive(Clone, Copy)]
struct Member {
    name: u32,
    end: u32,
}

impl<'a> Sorted<'a> {
    /// Finds the members of an object, the last one of several with the same name.
    ///
    /// # Errors
    ///
    /// This is not an object, or it has more than [`MAX_MEMBERS`], or one of its names is not a string of Unicode.
    pub(crate) fn of(object: &'a str) -> Result<Self, serde_json::Error> {
        Self::up_to(MAX_MEMBERS, object)
    }

    /// Finds the members of an object, however many there are, as [`Sorted::of`] does.
    ///
    /// # Errors
    ///
    /// This is not an object, or one of its names is not a string of Unicode.
    pub(crate) fn of_any_size(object: &'a str) -> Result<Self, serde_json::Error> {
        Self::up_to(usize::MAX, object)
    }

    fn up_to(most: usize, text: &'a str) -> Result<Self, serde_json::Error> {
        let not_an_object = || serde_json::Error::custom("not an object");
        let mut rest = text.strip_prefix('{').ok_or_else(not_an_object)?;
        let place = |rest: &str| {
            let place = u32::try_from(text.len() - rest.len());
            place.map_err(serde_json::Error::custom)
        };
        let mut members = Vec::new();
        loop {
            rest = passed(rest, ',');
            if rest.starts_with('}') {
                break;
            }
            if members.len() == most {
                return Err(serde_json::Error::custom("too many members"));
            }
            let name = place(rest)?;
            take::<Text<'_>>(&mut rest)?;
            rest = passed(rest, ':');
            take::<&RawValue>(&mut rest)?;
            let end = place(rest)?;
            members.push(Member { name, end });
        }
        // The last one of several comes first among them, and is the one that stays.
        members.sort_unstable_by(|one, other| {
            let by_name = one.name_in(text).cmp(&other.name_in(text));
            by_name.then(other.name.cmp(&one.name))
        });
        members.dedup_by(|later, first| later.name_in(text) == first.name_in(text));
        Ok(Self { text, members })
    }

    /// Returns each name with the JSON of its value, sorted by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Text<'a>, &'a str)> + '_ {
        let members = self.members.iter();
        members.map(|member| member.of(self.text))
    }

    /// Returns the JSON of a member, unless it is `null`.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        let found = self
            .members
            .binary_search_by(|member| (*member.name_in(self.text)).cmp(name));
        let (_, value) = self.members[found.ok()?].of(self.text);
        (value != NULL).then_some(value)
    }
}

impl Member {
    /// Returns the name. Sorting reads names again and again, so those without an escape are not parsed.
    fn name_in(self, text: &str) -> Text<'_> {
        self.of(text).0
    }

    /// Returns the name and the JSON of the value. Both have been read before, so they are well-formed.
    fn of(self, text: &str) -> (Text<'_>, &str) {
        let member = &text[self.name as usize..self.end as usize];
        let inside = &member[1..];
        let length = inside.bytes().position(|byte| matches!(byte, b'"' | b'\\'));
        let length = length.unwrap_or_default();
        if inside.as_bytes()[length] == b'"' {
            let value = passed(&inside[length + 1..], ':');
            return (Text(inside[..length].into()), value);
        }
        let mut rest = member;
        let name = take(&mut rest).unwrap_or(Text(Cow::Borrowed("")));
        (name, passed(rest, ':'))
    }
}

/// The JSON of nothing.
pub(crate) const NULL: &str = "null";

/// Takes a value from the beginning of a text.
fn take<'a, T: Deserialize<'a>>(text: &mut &'a str) -> Result<T, serde_json::Error> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<T>();
    let ended = || serde_json::Error::custom("the text has ended");
    let value = values.next().ok_or_else(ended)??;
    let end = values.byte_offset();
    *text = &text[end..];
    Ok(value)
}

/// Returns the text behind a separator, which need not be there, and white space.
fn passed(text: &str, separator: char) -> &str {
    let text = text.trim_start();
    text.strip_prefix(separator).unwrap_or(text).trim_start()
}

/// Reads a list, and adds each of its elements to what has been found so far. An absent list is empty.
///
/// # Errors
///
/// This is not a list, or has an element that is not a `T`.
pub(crate) fn fold<'de, D, T, A>(
    deserializer: D,
    found: A,
    add: impl FnMut(&mut A, T),
) -> Result<A, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct List<A, T, F>(A, F, PhantomData<T>);

    impl<'de, T: Deserialize<'de>, A, F: FnMut(&mut A, T)> Visitor<'de> for List<A, T, F> {
        type Value = A;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_none<E>(self) -> Result<A, E> {
            Ok(self.0)
        }

        fn visit_unit<E>(self) -> Result<A, E> {
            Ok(self.0)
        }

        fn visit_some<D: Deserializer<'de>>(self, list: D) -> Result<A, D::Error> {
            list.deserialize_seq(self)
        }

        fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<A, S::Error> {
            let Self(mut found, mut add, _) = self;
            while let Some(element) = list.next_element()? {
                add(&mut found, element);
            }
            Ok(found)
        }
    }

    deserializer.deserialize_option(List(found, add, PhantomData))
}

/// Reads the first elements of a list, `MOST` at most. An absent list is empty.
///
/// # Errors
///
/// This is not a list, or has an element that is not a `T`.
pub(crate) fn first<'de, const MOST: usize, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    fold(deserializer, Vec::new(), |first, element| {
        if first.len() < MOST {
            first.push(element);
        }
    })
}

/// Reads a map of strings, and adds each of its entries to what has been found so far. An absent map is empty.
///
/// # Errors
///
/// This is not a map of strings.
pub(crate) fn fold_map<'de, D, A>(
    deserializer: D,
    found: A,
    add: impl FnMut(&mut A, &str, &str),
) -> Result<A, D::Error>
where
    D: Deserializer<'de>,
{
    struct Map<A, F>(A, F);

    impl<'de, A, F: FnMut(&mut A, &str, &str)> Visitor<'de> for Map<A, F> {
        type Value = A;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of strings")
        }

        fn visit_none<E>(self) -> Result<A, E> {
            Ok(self.0)
        }

        fn visit_unit<E>(self) -> Result<A, E> {
            Ok(self.0)
        }

        fn visit_some<D: Deserializer<'de>>(self, map: D) -> Result<A, D::Error> {
            map.deserialize_map(self)
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<A, M::Error> {
            let Self(mut found, mut add) = self;
            while let Some(key) = map.next_key::<Text<'de>>()? {
                let value = map.next_value::<Text<'de>>()?;
                add(&mut found, &key, &value);
            }
            Ok(found)
        }
    }

    deserializer.deserialize_option(Map(found, add))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn the_last_member_of_a_name_counts_and_null_is_none() {
        let object = raw(r#"{ "a" : 1 , "b":null,"\u0061":[2] ,"c":{"d":"x"}}"#);
        let text = |path: &[&str]| at(&object, path).map(RawValue::get);
        assert_eq!(text(&["a"]), Some("[2]"));
        assert_eq!(text(&["b"]), None);
        assert_eq!(text(&["c", "d"]), Some("\"x\""));
        assert_eq!(text(&["a", "b"]), None, "a list has no members");
        assert_eq!(
            member(&object, "b").unwrap().map(RawValue::get),
            Some("null")
        );
        assert_eq!(member(&object, "d").unwrap().map(RawValue::get), None);
        for other in ["null", "1", r#""a""#, "[]"] {
            assert!(member(&raw(other), "a").is_err(), "{other}");
        }
        let sorted = Sorted::of(object.get()).unwrap();
        assert_eq!(
            [sorted.get("a"), sorted.get("b"), sorted.get("d")],
            [Some("[2]"), None, None]
        );
        let sorted: Vec<_> = sorted.iter().map(|(name, it)| (name.0, it)).collect();
        let members = [("a", "[2]"), ("b", "null"), ("c", r#"{"d":"x"}"#)];
        assert_eq!(sorted, members.map(|(name, value)| (name.into(), value)));
    }

    #[test]
    fn elements_come_in_their_order() {
        let list = raw(r#"[ 1,"a,]" , [2,3],{"a":[]},null ,-1.5e3]"#);
        let found: Vec<_> = elements(list.get()).unwrap().map(RawValue::get).collect();
        assert_eq!(
            found,
            ["1", r#""a,]""#, "[2,3]", r#"{"a":[]}"#, "null", "-1.5e3"]
        );
        assert_eq!(elements("[ ]").unwrap().count(), 0);
        assert!(elements("{}").is_none());
    }

    #[test]
    fn only_so_many_members_are_sorted() {
        let object = |count: usize| {
            let members: Vec<_> = (0..count).map(|name| format!("\"{name}\":0")).collect();
            raw(&format!("{{{}}}", members.join(",")))
        };
        assert!(Sorted::of(object(MAX_MEMBERS).get()).is_ok());
        assert!(Sorted::of(object(MAX_MEMBERS + 1).get()).is_err());
    }

    #[test]
    fn a_name_that_is_not_unicode_is_an_error() {
        let object = raw(r#"{"\ud800":1}"#);
        assert!(member(&object, "a").is_err() && Sorted::of(object.get()).is_err());
    }

    #[test]
    fn nothing_is_too_deep_to_be_passed_over() {
        let (begin, end) = ("[".repeat(5000), "]".repeat(5000));
        let deep = raw(&format!(r#"{{"deep": {begin}1{end}, "a": 2}}"#));
        assert_eq!(at(&deep, &["a"]).map(RawValue::get), Some("2"));
    }

    #[test]
    fn a_text_that_is_longer_than_it_may_be_is_not_read() {
        let text = |length: usize| format!("\"{}\"", "\\u0061".repeat(length));
        assert_eq!(single(&raw(&text(4)), 4), Some(Value::from("aaaa")));
        assert_eq!(single(&raw(&text(5)), 4), None);
        assert_eq!(single(&raw("{}"), 4), None);
        assert_eq!(single(&raw("null"), 0), Some(Value::Null));
    }
}
