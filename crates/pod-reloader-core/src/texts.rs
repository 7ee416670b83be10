//! Maps of texts, such as labels and annotations, in little more memory than their texts take.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::raw;

/// The maximum total size of annotations on an object or a pod template that Kubernetes accepts, in bytes.
pub const MAX_ANNOTATIONS_SIZE: usize = 256 << 10;
/// The maximum number of entries: annotations that Kubernetes accepts have no more, because no two keys are the same.
const MAX_ENTRIES: usize = 128 << 10;

/// A map of texts that does not change. A `BTreeMap<String, String>` takes more than ten times the memory.
#[derive(Clone, Default)]
pub struct Texts {
    /// All keys and values.
    text: Box<str>,
    /// Sorted by key.
    entries: Box<[Entry]>,
    size: u32,
}

/// The place of a key, and of the value behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    start: u32,
    value: u32,
    end: u32,
}

impl Texts {
    /// Reads the entries with these keys. All others are dropped as they are read.
    ///
    /// # Errors
    ///
    /// This is not a map of texts.
    pub(crate) fn among<'de, D: Deserializer<'de>>(
        keys: &[&str],
        deserializer: D,
    ) -> Result<Self, D::Error> {
        Self::those(|key| keys.contains(&key), deserializer)
    }

    /// Reads the entries whose keys are wanted. All others are dropped as they are read.
    ///
    /// # Errors
    ///
    /// This is not a map of texts.
    pub(crate) fn those<'de, D: Deserializer<'de>>(
        is_wanted: impl Fn(&str) -> bool,
        deserializer: D,
    ) -> Result<Self, D::Error> {
        Ok(Self::those_counted(is_wanted, deserializer)?.0)
    }

    /// Does the same, and counts all entries that there are.
    ///
    /// # Errors
    ///
    /// This is not a map of texts.
    pub(crate) fn those_counted<'de, D: Deserializer<'de>>(
        is_wanted: impl Fn(&str) -> bool,
        deserializer: D,
    ) -> Result<(Self, usize), D::Error> {
        let found = (Builder::default(), 0);
        let (texts, count) = raw::fold_map(deserializer, found, |(texts, count), key, value| {
            *count += 1;
            if is_wanted(key) {
                texts.add(key, value);
            }
        })?;
        Ok((texts.build(), count))
    }

    /// Reads a map of texts of any size, such as the data of a ConfigMap.
    ///
    /// # Errors
    ///
    /// This is not a map of texts.
    pub(crate) fn of_any_size<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Self, D::Error> {
        let texts = raw::fold_map(deserializer, Builder::without_limit(), Builder::add)?;
        Ok(texts.build())
    }

    /// Returns the same entries with `others`, which count if both have a key.
    #[must_use]
    pub(crate) fn with(&self, others: &[(&str, &str)]) -> Self {
        self.iter().chain(others.iter().copied()).collect()
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.entries.binary_search_by(|it| self.key(*it).cmp(key));
        Some(self.value(self.entries[at.ok()?]))
    }

    /// Returns each key with its value, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let entries = self.entries.iter();
        entries.map(|it| (self.key(*it), self.value(*it)))
    }

    /// Returns the total size of the keys and values as they were read, in bytes. 4 GiB and more are [`u32::MAX`].
    pub fn size(&self) -> u32 {
        self.size
    }

    fn key(&self, entry: Entry) -> &str {
        &self.text[entry.start as usize..entry.value as usize]
    }

    fn value(&self, entry: Entry) -> &str {
        &self.text[entry.value as usize..entry.end as usize]
    }
}

impl PartialEq for Texts {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Texts {}

/// Writes a map, sorted by key.
impl Serialize for Texts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// All entries are kept, however many there are.
impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Texts {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut texts = Builder::without_limit();
        for (key, value) in entries {
            texts.add(key.as_ref(), value.as_ref());
        }
        texts.build()
    }
}

/// Reads a map of texts. One that is larger than annotations can be is read as empty, apart from its size: a review
/// comes before the apiserver has looked at that. The last value of a key counts.
impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = raw::fold_map(deserializer, Builder::default(), Builder::add)?;
        Ok(texts.build())
    }
}

/// A map that is being read.
pub(crate) struct Builder {
    text: String,
    entries: Vec<Entry>,
    size: usize,
    max_size: usize,
    max_entries: usize,
    is_too_large: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            max_size: MAX_ANNOTATIONS_SIZE,
            max_entries: MAX_ENTRIES,
            ..Self::without_limit()
        }
    }
}

impl Builder {
    fn without_limit() -> Self {
        Self {
            text: String::new(),
            entries: Vec::new(),
            size: 0,
            max_size: u32::MAX as usize,
            max_entries: usize::MAX,
            is_too_large: false,
        }
    }

    /// Adds an entry. With more than annotations can be, nothing is kept.
    pub(crate) fn add(&mut self, key: &str, value: &str) {
        self.size += key.len() + value.len();
        self.is_too_large |= self.size > self.max_size || self.entries.len() == self.max_entries;
        if self.is_too_large {
            (self.text, self.entries) = (String::new(), Vec::new());
            return;
        }
        // The last one of several comes first among them in the end, so the others need no room.
        if let Some(last) = self.entries.last()
            && self.text[last.start as usize..last.value as usize] == *key
        {
            self.text.truncate(last.start as usize);
            self.entries.pop();
        }
        let end = |text: &str| u32::try_from(text.len()).expect("its size is limited");
        let start = end(&self.text);
        self.text.push_str(key);
        let middle = end(&self.text);
        self.text.push_str(value);
        let end = end(&self.text);
        self.entries.push(Entry {
            start,
            value: middle,
            end,
        });
    }

    /// Returns the map.
    pub(crate) fn build(self) -> Texts {
        let Self {
            text,
            mut entries,
            size,
            ..
        } = self;
        let key = |it: &Entry| &text[it.start as usize..it.value as usize];
        // The last one of several comes first among them, and is the one that stays.
        entries.sort_unstable_by(|one, other| {
            let by_key = key(one).cmp(key(other));
            by_key.then(other.start.cmp(&one.start))
        });
        entries.dedup_by(|later, first| key(later) == key(first));
        Texts {
            entries: entries.into(),
            text: text.into(),
            size: u32::try_from(size).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Texts {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_last_value_of_a_key_counts() {
        let texts = read(r#"{"b":"1","a":"2","b":"3","":"4","\u0062c":"\"5\""}"#);
        let all: Vec<_> = texts.iter().collect();
        assert_eq!(all, [("", "4"), ("a", "2"), ("b", "3"), ("bc", "\"5\"")]);
        assert_eq!((texts.get("b"), texts.get("c")), (Some("3"), None));
        assert_eq!(texts, all.iter().copied().chain([("b", "3")]).collect());
    }

    #[test]
    fn null_is_an_empty_map_and_what_is_not_a_text_is_refused() {
        assert_eq!(read("null"), Texts::default());
        for json in ["1", "[]", "\"a\"", r#"{"a":1}"#, r#"{"a":null}"#] {
            assert!(serde_json::from_str::<Texts>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn more_than_annotations_can_be_is_not_kept() {
        let of = |length: usize| read(&format!(r#"{{"a":"{}"}}"#, "x".repeat(length)));
        assert!(of(MAX_ANNOTATIONS_SIZE - 1).get("a").is_some());
        let large = of(MAX_ANNOTATIONS_SIZE);
        assert_eq!(
            (large.get("a"), large.size()),
            (None, MAX_ANNOTATIONS_SIZE as u32 + 1)
        );
        let same = r#""":"","a":"","#.repeat(MAX_ENTRIES);
        let same = format!("{{{}}}", same.trim_end_matches(','));
        assert_eq!(read(&same).iter().count(), 0);
    }
}
