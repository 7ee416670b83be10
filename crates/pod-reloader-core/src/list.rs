//! Lists in annotations: how they are split, and how items are shown in warnings.

use std::collections::BTreeSet;

/// Returns the items of a list in their order, trimmed, without empty ones.
pub(crate) fn items(list: Option<&str>) -> impl Iterator<Item = &str> {
    separated(list.unwrap_or_default(), |_| false)
}

/// Does the same for a list whose items may have keys in brackets, separated by commas.
pub(crate) fn items_with_keys(list: Option<&str>) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    separated(list.unwrap_or_default(), move |character| {
        is_inside = match character {
            '[' => true,
            ']' => false,
            _ => is_inside,
        };
        is_inside
    })
}

fn separated(list: &str, mut is_inside: impl FnMut(char) -> bool) -> impl Iterator<Item = &str> {
    list.split(move |character| !is_inside(character) && character == ',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

/// Splits an item of such a list into the name and the keys in its brackets. Returns `None` if the brackets
/// are malformed, or hold no key, or hold an invalid one. Stops collecting keys at one more than `most`.
pub(crate) fn name_and_keys(item: &str, most: usize) -> Option<(&str, Option<BTreeSet<&str>>)> {
    let Some((name, rest)) = item.split_once('[') else {
        return Some((item, None));
    };
    let mut keys = BTreeSet::new();
    for key in items(Some(rest.strip_suffix(']')?)) {
        if !is_key(key) {
            return None;
        }
        if keys.len() <= most {
            keys.insert(key);
        }
    }
    (!keys.is_empty()).then(|| (name.trim_end(), Some(keys)))
}

/// Returns the first `most` of `items` in sorted order, and true if there are more.
pub(crate) fn first<'a>(
    items: impl Iterator<Item = &'a str>,
    most: usize,
) -> (BTreeSet<&'a str>, bool) {
    let mut first = BTreeSet::new();
    let mut are_more = false;
    for item in items {
        if first.len() == most && first.last().is_some_and(|last| item > *last) {
            are_more = true;
        } else if first.insert(item) && first.len() > most {
            first.pop_last();
            are_more = true;
        }
    }
    (first, are_more)
}

/// Returns true if a ConfigMap or a Secret can have this key.
fn is_key(text: &str) -> bool {
    let is_of_a_key = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= 253 && text.bytes().all(is_of_a_key)
}

/// Returns `item` in quotes, [`escaped`].
pub(crate) fn quoted(item: &str) -> String {
    format!("\"{}\"", escaped(item))
}

/// Returns `text` with control characters escaped, cut to a length that fits a warning.
pub(crate) fn escaped(text: &str) -> String {
    const SHOWN: usize = 40;
    let escaped: String = text
        .chars()
        .take(SHOWN)
        .flat_map(char::escape_debug)
        .collect();
    let more = if text.chars().nth(SHOWN).is_some() {
        "..."
    } else {
        ""
    };
    format!("{escaped}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_between_keys_ends_no_item() {
        let items = |list| items_with_keys(Some(list)).collect::<Vec<_>>();
        assert_eq!(items("a[x,y],b ,, c[z]"), ["a[x,y]", "b", "c[z]"]);
        assert_eq!(items("a[x,b"), ["a[x,b"]);
    }

    #[test]
    fn an_item_is_a_name_with_or_without_keys() {
        assert_eq!(name_and_keys("a", 9), Some(("a", None)));
        let keys = |keys: &[&'static str]| Some(keys.iter().copied().collect());
        assert_eq!(
            name_and_keys("a[x, y,x]", 9),
            Some(("a", keys(&["x", "y"])))
        );
        assert_eq!(
            name_and_keys("a [log.level]", 9),
            Some(("a", keys(&["log.level"])))
        );
        for wrong in ["a[]", "a[x", "a[x]b", "a[[x]]", "a[x/y]", "a[,]"] {
            assert_eq!(name_and_keys(wrong, 9), None, "{wrong}");
        }
    }

    #[test]
    fn the_first_of_too_many_items_are_used_in_sorted_order() {
        let first = |list, most| {
            let (first, are_more) = first(items(Some(list)), most);
            (first.into_iter().collect::<Vec<_>>().concat(), are_more)
        };
        assert_eq!(first("c,a,b,a,c", 3), ("abc".to_owned(), false));
        assert_eq!(first("d,c,a,b", 2), ("ab".to_owned(), true));
        assert_eq!(first("a,b,d,c", 2), ("ab".to_owned(), true));
        let keys = |item, most| name_and_keys(item, most).unwrap().1.unwrap().len();
        assert_eq!((keys("a[x,y,z,x]", 3), keys("a[x,y,z,x]", 1)), (3, 2));
    }

    #[test]
    fn a_bad_item_is_shown_short_and_on_one_line() {
        let item = format!("a\n\0{}", "X".repeat(100_000));
        let shown = quoted(&item);
        assert!(
            shown.len() < 80 && !shown.contains('\n') && !shown.contains('\0'),
            "{shown}"
        );
    }
}
