//! Shows the clients of a proxy only the objects with a label.

use anyhow::{Context, Result};
use http::{Method, Uri};

/// The objects of a kind that the clients of a proxy see in lists and watches: those with a label.
#[derive(Clone, Debug)]
pub struct Selection {
    path: String,
    label: String,
}

impl Selection {
    /// Selects the objects with `label`, such as `scene=shop`, in lists and watches at `path`.
    pub fn new(path: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            label: label.into(),
        }
    }

    /// Returns the same selection with `text` in place of `part` of the label.
    pub(crate) fn replacing(self, part: &str, text: &str) -> Self {
        let label = self.label.replace(part, text);
        Self { label, ..self }
    }

    /// Returns the URI with which a request is passed on. A list or a watch at the path also asks for the label, in
    /// addition to what it asks for itself.
    pub(super) fn narrow(&self, method: &Method, uri: &Uri) -> Result<Uri> {
        if *method != Method::GET || uri.path() != self.path {
            return Ok(uri.clone());
        }
        let label = self.label.replace('=', "%3D");
        let query = uri.query().unwrap_or_default().split('&');
        let given = query.filter(|pair| !pair.is_empty());
        let mut pairs: Vec<_> = given.map(str::to_owned).collect();
        // The apiserver reads the first selector only.
        match pairs.iter_mut().find(|pair| pair.starts_with(SELECTOR)) {
            Some(own) => *own = format!("{own}%2C{label}"),
            None => pairs.push(format!("{SELECTOR}{label}")),
        }
        let narrowed = format!("{}?{}", self.path, pairs.join("&"));
        narrowed
            .parse()
            .with_context(|| format!("parsing {narrowed}"))
    }
}

/// The parameter of lists and watches that selects by labels.
const SELECTOR: &str = "labelSelector=";

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/apis/example.com/v1/stores";

    fn narrowed(method: Method, uri: &'static str) -> String {
        let selection = Selection::new(PATH, "scene=SCENE").replacing("SCENE", "shop");
        let uri = selection.narrow(&method, &Uri::from_static(uri));
        uri.unwrap().to_string()
    }

    #[test]
    fn a_list_and_a_watch_at_the_path_ask_for_the_label_too() {
        for (uri, expected) in [
            (
                "/apis/example.com/v1/stores",
                "/apis/example.com/v1/stores?labelSelector=scene%3Dshop",
            ),
            (
                "/apis/example.com/v1/stores?&limit=500&continue=x",
                "/apis/example.com/v1/stores?limit=500&continue=x&labelSelector=scene%3Dshop",
            ),
            (
                "/apis/example.com/v1/stores?labelSelector=a%3Db&watch=true",
                "/apis/example.com/v1/stores?labelSelector=a%3Db%2Cscene%3Dshop&watch=true",
            ),
        ] {
            assert_eq!(narrowed(Method::GET, uri), expected);
        }
    }

    #[test]
    fn any_other_request_passes_unchanged() {
        for (method, uri) in [
            (Method::GET, "/apis/example.com/v1/stores/one"),
            (Method::GET, "/apis/example.com/v1/shops?limit=500"),
            (Method::POST, "/apis/example.com/v1/stores?dryRun=All"),
            (Method::PATCH, "/apis/example.com/v1/stores/one/status"),
        ] {
            assert_eq!(narrowed(method, uri), uri);
        }
    }
}
