//! Names of namespaces and objects that are safe to put into a URL.

use std::fmt;
use std::sync::Arc;

/// The longest name of a Kubernetes object, in bytes.
pub const MAX_LENGTH: usize = 253;

/// A DNS-1123 subdomain: the names that Kubernetes accepts for ConfigMaps, Secrets and namespaces.
///
/// # Guarantees
///
/// A name contains nothing that has a meaning in a URL. A client pastes names into paths, and `?limit=1` in
/// the place of a name turns a GET of one Secret into a LIST of all of them. So this type is the only thing
/// that is ever read from the apiserver by name.
///
/// Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Parses a name.
    ///
    /// # Errors
    ///
    /// Says which rule of DNS-1123 subdomains `text` breaks.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        if text.is_empty() {
            return Err(InvalidName::Empty);
        }
        if text.len() > MAX_LENGTH {
            return Err(InvalidName::TooLong);
        }
        if text.split('.').all(is_label) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidName::NotASubdomain)
        }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns as much of the name as there is room for in one with an ending of this length.
    pub(crate) fn stem(&self, ending: usize) -> &str {
        let room = self.0.len().min(MAX_LENGTH - ending);
        self.0[..room].trim_end_matches(['.', '-'])
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The reason why a text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// The text is longer than [`MAX_LENGTH`] bytes.
    #[error("it is longer than 253 characters")]
    TooLong,
    /// The text has characters that DNS-1123 does not allow, at all or at the start or end of a part.
    #[error("a name has only lower case letters, digits, '-' and '.'")]
    NotASubdomain,
}

fn is_label(part: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    bytes.first().is_some_and(|&first| alphanumeric(first))
        && bytes.last().is_some_and(|&last| alphanumeric(last))
        && bytes.iter().all(|&byte| alphanumeric(byte) || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_kubernetes_accepts_are_names() {
        for text in [
            "a",
            "app-config",
            "app.config-2",
            "0",
            "a--b",
            &"a".repeat(253),
        ] {
            assert_eq!(
                Name::parse(text).map(|name| name.to_string()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn text_that_could_change_a_url_is_not_a_name() {
        for text in [
            "?limit=1", "../x", "a/b", "%2e", "a\0b", "App", "a_b", "-a", "a-", ".a", "a.", "a..b",
            "a b", "ä", "a\n", "a#b", "a?b", "a:b", "a?w=1", "..", "-",
        ] {
            assert_eq!(
                Name::parse(text),
                Err(InvalidName::NotASubdomain),
                "{text:?}"
            );
        }
        assert_eq!(Name::parse(""), Err(InvalidName::Empty));
        assert_eq!(Name::parse(&"a".repeat(254)), Err(InvalidName::TooLong));
    }
}
