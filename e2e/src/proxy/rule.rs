//! Defines what breaks, and how.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde_json::{Value, json};

/// A [`Fault`] for some [`Requests`].
#[derive(Clone, Debug)]
pub struct Rule {
    pub(super) requests: Requests,
    pub(super) fault: Fault,
    line: Option<String>,
    times: u64,
    every_nth: u64,
}

impl Rule {
    /// Breaks each of `requests`, or each of their lines if it is a watch fault.
    pub fn new(requests: Requests, fault: Fault) -> Self {
        Self {
            requests,
            fault,
            line: None,
            times: u64::MAX,
            every_nth: 1,
        }
    }

    /// Breaks nothing, and counts `requests`.
    pub fn count(requests: Requests) -> Self {
        Self::new(requests, Fault::None)
    }

    /// Limits the number of times that the rule applies.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Applies only to the `n`-th match, the 2`n`-th, and so on; 0 means 1.
    #[must_use]
    pub fn every_nth(mut self, n: u64) -> Self {
        self.every_nth = n.max(1);
        self
    }

    /// Applies only to lines of a watch with this text, such as `"name":"app-config"` or `"type":"DELETED"`.
    #[must_use]
    pub fn lines_with(mut self, text: &str) -> Self {
        self.line = Some(text.to_owned());
        self
    }

    /// Returns true if `line`, from a watch among [`Rule::requests`], is one to break.
    pub(super) fn concerns_line(&self, line: &[u8]) -> bool {
        self.line.as_ref().is_none_or(|text| {
            line.windows(text.len().max(1))
                .any(|part| part == text.as_bytes())
        })
    }

    /// Returns true if the rule applies to the match number `matched`, after it was `applied` so often.
    pub(super) fn is_due(&self, matched: u64, applied: u64) -> bool {
        matched.is_multiple_of(self.every_nth) && applied < self.times
    }
}

/// The effect of a [`Rule`]. All faults that match a request apply, in the order in which their rules were
/// added, up to one that ends the request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nothing breaks: the rule only counts.
    None,
    /// The request is passed on after a delay.
    Delay(Duration),
    /// The request is never passed on, and never answered.
    Hang,
    /// The request is not passed on; its connection is reset.
    Reset,
    /// The request is not passed on; it gets this answer.
    Answer(Answer),
    /// The request is passed on; its answer is delayed.
    DelayAnswer(Duration),
    /// The request is passed on; its connection is reset in place of the answer.
    LoseAnswer,
    /// The connection ends after this many bytes of the answer's body. A shorter body arrives whole.
    TruncateBody(usize),
    /// Each line of a watch is delivered with this delay, in order. The head of the answer comes at once.
    DelayWatch(Duration),
    /// The lines of a watch are delivered, in order, once the rule is removed.
    HoldWatch,
    /// The lines of a watch are not delivered.
    DropWatch,
    /// The lines of a watch are delivered twice.
    DuplicateWatch,
}

impl Fault {
    /// Returns true if the fault is for lines of watches, not for requests.
    pub(super) fn is_for_lines(&self) -> bool {
        matches!(
            self,
            Self::DelayWatch(_) | Self::HoldWatch | Self::DropWatch | Self::DuplicateWatch
        )
    }
}

/// An answer that does not come from the apiserver.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    /// Returns an error in the apiserver's format.
    pub fn error(code: StatusCode) -> Self {
        Self::json(code, &status(code))
    }

    /// Returns any JSON as an answer.
    pub fn json(status: StatusCode, body: &Value) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(
            http::header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        Self {
            status,
            headers,
            body: Bytes::from(body.to_string()),
        }
    }

    /// Returns the same answer with one more header. A later header replaces an earlier one of the same name.
    ///
    /// # Panics
    /// When `name` is not a header name in lower case, or `value` holds control characters.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        self
    }
}

/// Returns a Kubernetes `Status` for an error.
pub fn status(code: StatusCode) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": format!("the fault proxy answers {code}"),
        "reason": reason(code),
        "code": code.as_u16(),
    })
}

/// Returns the line by which a watch reports an error. With [`StatusCode::GONE`], the client must list again.
pub fn error_event(code: StatusCode) -> Value {
    json!({ "type": "ERROR", "object": status(code) })
}

fn reason(code: StatusCode) -> &'static str {
    match code {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::CONFLICT => "Conflict",
        // For the apiserver, reason `Gone` is for anything but a resourceVersion.
        StatusCode::GONE => "Expired",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::INTERNAL_SERVER_ERROR => "InternalError",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        _ => "",
    }
}

/// A set of requests.
///
/// # Caveats
/// Path and query are compared exactly as they are in the URL, percent-encoding included.
#[derive(Clone, Debug)]
pub struct Requests {
    path: Path,
    method: Option<Method>,
    query: Option<String>,
    watch: Option<bool>,
}

#[derive(Clone, Debug)]
enum Path {
    Any,
    Exactly(String),
    Under(String),
    Containing(String),
}

impl Requests {
    /// Selects all requests.
    pub fn any() -> Self {
        Self::with_path(Path::Any)
    }

    /// Selects requests with this path.
    pub fn exactly(path: impl Into<String>) -> Self {
        Self::with_path(Path::Exactly(path.into()))
    }

    /// Selects requests whose path begins with `prefix`.
    pub fn under(prefix: impl Into<String>) -> Self {
        Self::with_path(Path::Under(prefix.into()))
    }

    /// Selects requests whose path contains `part`.
    pub fn containing(part: impl Into<String>) -> Self {
        Self::with_path(Path::Containing(part.into()))
    }

    fn with_path(path: Path) -> Self {
        Self {
            path,
            method: None,
            query: None,
            watch: None,
        }
    }

    /// Restricts the set to this method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// Restricts the set to requests whose query contains `part`, such as `fieldSelector=`.
    #[must_use]
    pub fn query(mut self, part: impl Into<String>) -> Self {
        self.query = Some(part.into());
        self
    }

    /// Restricts the set to watches.
    #[must_use]
    pub fn watches(mut self) -> Self {
        self.watch = Some(true);
        self
    }

    /// Excludes watches.
    #[must_use]
    pub fn except_watches(mut self) -> Self {
        self.watch = Some(false);
        self
    }

    /// Returns true if the set contains a request with `method` and `uri`.
    pub(super) fn contain(&self, method: &Method, uri: &Uri) -> bool {
        let path = match &self.path {
            Path::Any => true,
            Path::Exactly(path) => uri.path() == path,
            Path::Under(prefix) => uri.path().starts_with(prefix),
            Path::Containing(part) => uri.path().contains(part),
        };
        let query = || uri.query().unwrap_or_default();
        path && self.method.as_ref().is_none_or(|own| own == method)
            && self
                .query
                .as_ref()
                .is_none_or(|part| query().contains(part))
            && self.watch.is_none_or(|watch| watch == is_watch(uri))
    }
}

/// Returns true if the apiserver takes a GET of `uri` for a watch: `watch` is set, and is neither `0` nor
/// `false`.
pub(super) fn is_watch(uri: &Uri) -> bool {
    let pairs = uri.query().unwrap_or_default().split('&');
    let mut values = pairs.filter_map(|pair| match pair.split_once('=') {
        Some(("watch", value)) => Some(value),
        None if pair == "watch" => Some(""),
        _ => None,
    });
    values
        .next()
        .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "/api/v1/secrets?limit=500";
    const WATCH: &str = "/api/v1/secrets?allowWatchBookmarks=true&watch=true&resourceVersion=7";

    fn contain(requests: &Requests, method: Method, uri: &'static str) -> bool {
        requests.contain(&method, &Uri::from_static(uri))
    }

    #[test]
    fn any_matches_all_requests() {
        assert!(contain(&Requests::any(), Method::DELETE, "/"));
        assert!(contain(&Requests::any(), Method::GET, WATCH));
    }

    #[test]
    fn the_list_that_comes_before_a_watch_is_not_a_watch() {
        let watches = Requests::exactly("/api/v1/secrets").watches();

        assert!(contain(&watches, Method::GET, WATCH));
        assert!(!contain(&watches, Method::GET, LIST));
        assert!(contain(
            &Requests::any().except_watches(),
            Method::GET,
            LIST
        ));
    }

    #[test]
    fn a_request_is_a_watch_if_the_apiserver_takes_it_for_one() {
        for watch in ["/x?watch=1", "/x?watch=true", "/x?a=b&watch=", "/x?watch"] {
            assert!(is_watch(&Uri::from_static(watch)), "{watch}");
        }
        for other in [
            "/x",
            "/watch",
            "/x?watch=0",
            "/x?watch=False",
            "/x?watches=1",
            "/x?a=watch",
        ] {
            assert!(!is_watch(&Uri::from_static(other)), "{other}");
        }
    }

    #[test]
    fn a_path_is_matched_whole_or_by_its_beginning_or_by_a_part() {
        let one = "/api/v1/namespaces/a/secrets/one";

        assert!(contain(&Requests::exactly(one), Method::GET, one));
        assert!(!contain(
            &Requests::exactly("/api/v1/namespaces/a/secrets"),
            Method::GET,
            one
        ));
        assert!(contain(
            &Requests::under("/api/v1/namespaces/a/"),
            Method::GET,
            one
        ));
        assert!(!contain(&Requests::under("/secrets"), Method::GET, one));
        assert!(contain(&Requests::containing("/secrets"), Method::GET, one));
    }

    #[test]
    fn method_and_query_narrow() {
        let patches = Requests::any().method(Method::PATCH);
        let selected = Requests::any().query("limit=");

        assert!(!contain(&patches, Method::GET, LIST));
        assert!(contain(&selected, Method::GET, LIST));
        assert!(!contain(&selected, Method::GET, WATCH));
    }

    #[test]
    fn every_third_twice_is_the_third_and_the_sixth() {
        let rule = Rule::count(Requests::any()).every_nth(3).times(2);

        let mut applied = 0;
        let due: Vec<u64> = (1..=12)
            .filter(|matched| {
                let due = rule.is_due(*matched, applied);
                applied += u64::from(due);
                due
            })
            .collect();

        assert_eq!(due, [3, 6]);
    }

    #[test]
    fn a_line_is_chosen_by_its_text() {
        let rule = Rule::new(Requests::any(), Fault::DropWatch).lines_with("\"name\":\"a\"");

        assert!(rule.concerns_line(br#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#));
        assert!(!rule.concerns_line(br#"{"type":"ADDED","object":{"metadata":{"name":"ab"}}}"#));
    }
}
