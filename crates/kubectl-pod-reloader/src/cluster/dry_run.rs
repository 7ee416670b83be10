//! Tries out a write, and collects the warnings that it gets.

use http::{Method, Request, Response, header};

use super::{Cluster, Place, Unseen};

/// The response to a dry run.
pub(crate) struct DryRun {
    /// The warnings of the response.
    pub(crate) warnings: Vec<String>,
}

impl DryRun {
    /// Sends a dry run to `cluster`: an empty patch of an object, or its creation if `body` is given.
    ///
    /// Every admission sees it, under the field manager `manager`. Nothing is stored.
    pub(crate) async fn send(
        cluster: &Cluster,
        place: Place<'_>,
        name: &str,
        manager: &str,
        body: Option<String>,
    ) -> Result<Self, Unseen> {
        let (method, verb, path, content_type) = match &body {
            None => {
                let path = place.path_of(name);
                (Method::PATCH, "patch", path, "application/merge-patch+json")
            }
            Some(_) => (Method::POST, "create", place.path(), "application/json"),
        };
        let what = place.words(verb);
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?dryRun=All&fieldManager={manager}"))
            .header(header::CONTENT_TYPE, content_type)
            .body(body.unwrap_or_else(|| "{}".to_owned()).into_bytes())
            .expect("names are safe in a path");
        let (response, _) = cluster.call(request, &what).await?;
        Ok(Self {
            warnings: warnings(&response),
        })
    }
}

/// Returns the warnings of a response.
pub(super) fn warnings(response: &Response<()>) -> Vec<String> {
    let warnings = response.headers().get_all(header::WARNING);
    let warnings = warnings.iter().filter_map(|value| value.to_str().ok());
    warnings.filter_map(warning).collect()
}

/// Parses the text of a `Warning` header, which looks like `299 - "text"`.
fn warning(header: &str) -> Option<String> {
    let quoted = header.split_once('"')?.1;
    let mut text = String::new();
    let mut characters = quoted.chars();
    loop {
        match characters.next()? {
            '"' => return Some(text),
            '\\' => text.push(characters.next()?),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_warning_is_unquoted() {
        let header = r#"299 - "say \"no\" to C:\\" "Sat, 21 Nov 2026""#;
        assert_eq!(warning(header).as_deref(), Some(r#"say "no" to C:\"#));
        assert_eq!(warning("299 - unquoted"), None);
        assert_eq!(warning(r#"299 - "cut"#), None);
    }
}
