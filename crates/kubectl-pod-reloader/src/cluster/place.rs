//! Names a place of objects, in the paths of the API and in words.

/// A place of objects in the API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// `apps/v1`, or `v1` for the core group.
    pub(crate) api_version: &'a str,
    /// `deployments`.
    pub(crate) plural: &'a str,
    /// `None` for all namespaces, or for kinds that have none.
    pub(crate) namespace: Option<&'a str>,
}

impl<'a> Place<'a> {
    pub(crate) fn new(api_version: &'a str, plural: &'a str, namespace: Option<&'a str>) -> Self {
        Self {
            api_version,
            plural,
            namespace,
        }
    }

    /// Returns the path of the objects.
    pub(super) fn path(&self) -> String {
        let root = match self.api_version.contains('/') {
            true => "apis",
            false => "api",
        };
        let Self {
            api_version,
            plural,
            ..
        } = self;
        match self.namespace {
            Some(namespace) => format!("/{root}/{api_version}/namespaces/{namespace}/{plural}"),
            None => format!("/{root}/{api_version}/{plural}"),
        }
    }

    /// Returns the path of an object. Names need no encoding for the apiserver itself, but an aggregated one
    /// may accept others.
    pub(super) fn path_of(&self, name: &str) -> String {
        format!("{}/{}", self.path(), encoded(name))
    }

    /// Names a call there: `list deployments in namespace shop`.
    pub(super) fn words(&self, verb: &str) -> String {
        match self.namespace {
            Some(namespace) => format!("{verb} {} in namespace {namespace}", self.plural),
            None => format!("{verb} {} in the cluster", self.plural),
        }
    }
}

/// Encodes `text` as part of a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(byte.into());
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_encoded() {
        assert_eq!(encoded("a=b,c d/é"), "a%3Db%2Cc%20d%2F%C3%A9");
    }

    #[test]
    fn a_place_has_an_api_path_and_a_description() {
        let deployments = Place::new("apps/v1", "deployments", Some("shop"));
        assert_eq!(
            deployments.path(),
            "/apis/apps/v1/namespaces/shop/deployments"
        );
        assert_eq!(
            deployments.words("list"),
            "list deployments in namespace shop"
        );
        let namespaces = Place::new("v1", "namespaces", None);
        assert_eq!(namespaces.path(), "/api/v1/namespaces");
    }
}
