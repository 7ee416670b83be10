//! Tries out a write, and collects the warnings that it gets.

use http::{Method, Response, header};
use pod_reloader_core::annotations::STATUS_QUERY;

use super::{Cluster, JSON, MERGE_PATCH, Place, Unseen, write};

/// Sends a status query: the dry run of an empty patch of an object, or of its creation if `body` is given. Returns the
/// warnings that come back.
///
/// Every admission sees it. Nothing is stored.
pub(crate) async fn query_status(
    cluster: &Cluster,
    place: Place<'_>,
    name: &str,
    body: Option<String>,
) -> Result<Vec<String>, Unseen> {
    let (method, verb, path, content_type) = match &body {
        None => (Method::PATCH, "patch", place.path_of(name), MERGE_PATCH),
        Some(_) => (Method::POST, "create", place.path(), JSON),
    };
    let path = format!("{path}?dryRun=All&fieldManager={STATUS_QUERY}");
    let body = body.unwrap_or_else(|| "{}".to_owned());
    let request = write(method, path, [content_type, JSON], body);
    let (response, _) = cluster.call(request, &place.words(verb)).await?;
    Ok(warnings(&response))
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
