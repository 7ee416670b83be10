//! Lists in annotations: their items, and how they are shown in warnings.

use std::collections::BTreeSet;

/// The items of a list as they stand in it, without blanks and empty ones.
pub(crate) fn items(list: Option<&str>) -> impl Iterator<Item = &str> {
    separated(list.unwrap_or_default(), |_| false)
}

/// The same for a list whose items may have keys in brackets, with commas between them.
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

/// An item of such a list, taken apart: the name, and the keys in its brackets. `None` where the
/// brackets are not those of such an item, or hold no key, or one that no object can have.
pub(crate) fn name_and_keys(item: &str) -> Option<(&str, Option<BTreeSet<&str>>)> {
    let Some((name, rest)) = item.split_once('[') else {
        return Some((item, None));
    };
    let keys: BTreeSet<_> = items(Some(rest.strip_suffix(']')?)).collect();
    let are_keys = !keys.is_empty() && keys.iter().all(|key| is_key(key));
    are_keys.then(|| (name.trim_end(), Some(keys)))
}

/// Whether a ConfigMap or a Secret can have this key.
fn is_key(text: &str) -> bool {
    let is_of_a_key = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= 253 && text.bytes().all(is_of_a_key)
}

/// `item` in quotes, as [`escaped`].
pub(crate) fn quoted(item: &str) -> String {
    format!("\"{}\"", escaped(item))
}

/// `text` with control characters escaped, cut to a length that fits a warning.
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
        assert_eq!(name_and_keys("a"), Some(("a", None)));
        let keys = |keys: &[&'static str]| Some(keys.iter().copied().collect());
        assert_eq!(name_and_keys("a[x, y,x]"), Some(("a", keys(&["x", "y"]))));
        assert_eq!(
            name_and_keys("a [log.level]"),
            Some(("a", keys(&["log.level"])))
        );
        for wrong in ["a[]", "a[x", "a[x]b", "a[[x]]", "a[x/y]", "a[,]"] {
            assert_eq!(name_and_keys(wrong), None, "{wrong}");
        }
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
