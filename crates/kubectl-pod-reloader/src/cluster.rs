//! The cluster as the user may see it. Every call says what it was for, and whether it was allowed.

use std::net::IpAddr;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper_util::client::proxy::matcher::Matcher;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::Status;
use kube::core::discovery::v2::{ACCEPT_AGGREGATED_DISCOVERY_V2, APIGroupDiscoveryList};
use kube::{Client, Config};
use pod_reloader_core::api_discovery::{self, State};
use pod_reloader_core::error::chain;
use pod_reloader_core::name::{InvalidName, Name};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::args::Connection;

/// Time limit of one call.
const DEADLINE: Duration = Duration::from_secs(15);
/// Number of objects that one call lists.
const PAGE: usize = 250;

/// Name under which the apiserver's audit log shows us.
const USER_AGENT: &str = concat!("kubectl-pod-reloader/", env!("CARGO_PKG_VERSION"));
const JSON: &str = "application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// A list that is read page by page, so that only some objects are in memory at a time.
pub(crate) struct Pages<'a> {
    cluster: &'a Cluster,
    place: Place<'a>,
    query: &'a str,
    accept: &'static str,
    /// Start of the next page; `None` after the last one.
    token: Option<String>,
}

impl Pages<'_> {
    /// Returns the next objects, or `None` if there are no more.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Vec<T>>, Unseen> {
        /// A page. The apiserver writes `null` for an empty list, for example of metadata.
        #[derive(Deserialize)]
        #[serde(bound = "T: DeserializeOwned")]
        struct List<T> {
            metadata: Option<Metadata>,
            items: Option<Vec<T>>,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(rename = "continue")]
            token: Option<String>,
        }
        let Some(token) = self.token.take() else {
            return Ok(None);
        };
        let (place, query) = (self.place.path(), self.query);
        let what = self.place.words("list");
        let path = format!("{place}?limit={PAGE}&{query}&continue={token}");
        let body = self.cluster.read(&path, &what, self.accept).await?;
        let list: List<T> =
            serde_json::from_slice(&body).map_err(|error| unreadable(&what, &error))?;
        let next = list.metadata.and_then(|it| it.token);
        self.token = next.filter(|it| !it.is_empty()).map(|it| encoded(&it));
        Ok(Some(list.items.unwrap_or_default()))
    }
}

/// A cluster, as seen by one user.
pub(crate) struct Cluster {
    client: Client,
    /// The groups that the cluster serves, once they have been read.
    groups: OnceCell<APIGroupDiscoveryList>,
    /// The namespace to use if none is given.
    pub(crate) namespace: Name,
}

/// The reason why something cannot be seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unseen {
    /// The user lacks the right.
    #[error("you may not {0}")]
    Forbidden(String),
    /// There is no such object, or the cluster does not serve its kind.
    #[error("{0}")]
    Absent(String),
    /// The apiserver refused for any other reason.
    #[error("cannot {what}: {message}")]
    Refused {
        /// The call that was tried.
        what: String,
        /// The apiserver's own words.
        message: String,
    },
    /// There was no answer.
    #[error("cannot {0}: {1}")]
    Unreachable(String, String),
}

impl Unseen {
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent(_))
    }

    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Forbidden(_))
    }
}

/// The reason why there is no cluster to look at.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoCluster {
    #[error("reading the kubeconfig: {}", of_kubeconfig(.0))]
    Kubeconfig(#[from] KubeconfigError),
    #[error("finding a cluster: {0}")]
    Infer(#[from] kube::config::InferConfigError),
    #[error("preparing the connection: {0}")]
    Client(#[from] kube::Error),
    #[error("the context names namespace {0}, which is no name: {1}")]
    Namespace(String, InvalidName),
}

/// Describes the error. Avoids kube's text if that would quote a path twice.
fn of_kubeconfig(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(cause, path) => format!("{}: {cause}", path.display()),
        KubeconfigError::LoadContext(context) => format!("it has no context {context}"),
        KubeconfigError::LoadClusterOfContext(cluster) => {
            format!("it has no cluster {cluster}, which the context names")
        }
        other => other.to_string(),
    }
}

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

    fn path(&self) -> String {
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
    fn path_of(&self, name: &str) -> String {
        format!("{}/{}", self.path(), encoded(name))
    }

    /// `list deployments in namespace shop`.
    fn words(&self, verb: &str) -> String {
        match self.namespace {
            Some(namespace) => format!("{verb} {} in namespace {namespace}", self.plural),
            None => format!("{verb} {} in the cluster", self.plural),
        }
    }
}

/// The response to a dry run.
pub(crate) struct DryRun {
    /// The warnings of the response.
    pub(crate) warnings: Vec<String>,
}

impl Cluster {
    /// Connects to the cluster of the kubeconfig, or to the one that we run in.
    pub(crate) async fn connect(connection: &Connection) -> Result<Self, NoCluster> {
        let options = KubeConfigOptions {
            context: connection.context.clone(),
            ..KubeConfigOptions::default()
        };
        let mut config = match &connection.kubeconfig {
            Some(path) => {
                Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?
            }
            None if options.context.is_some() => Config::from_kubeconfig(&options).await?,
            None => Config::infer().await?,
        };
        if let Some(user) = &connection.impersonate {
            config.auth_info.impersonate = Some(user.clone());
        }
        if !connection.impersonate_groups.is_empty() {
            config.auth_info.impersonate_groups = Some(connection.impersonate_groups.clone());
        }
        let kubeconfig = match &connection.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let own = kubeconfig.ok();
        let own = own.and_then(|it| proxy_of(&it, connection.context.as_deref()));
        // kube would check NO_PROXY against the host of the proxy itself.
        config.proxy_url = proxy(&config.cluster_url, own, |name| std::env::var(name).ok());
        let user_agent = HeaderValue::from_static(USER_AGENT);
        config.headers.push((header::USER_AGENT, user_agent));
        config.connect_timeout = Some(DEADLINE);
        config.read_timeout = Some(DEADLINE);
        let of_context = || {
            let namespace = &config.default_namespace;
            Name::parse(namespace).map_err(|error| NoCluster::Namespace(namespace.clone(), error))
        };
        let namespace = connection.namespace.clone().map_or_else(of_context, Ok)?;
        let client = Client::try_from(config)?;
        Ok(Self {
            client,
            groups: OnceCell::new(),
            namespace,
        })
    }

    /// Reads one object.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        place: Place<'_>,
        name: &str,
    ) -> Result<T, Unseen> {
        let what = format!("{} ({name})", place.words("get"));
        let body = self.read(&place.path_of(name), &what, JSON).await?;
        serde_json::from_slice(&body).map_err(|error| unreadable(&what, &error))
    }

    /// Returns an error if the namespace does not exist. `None` if it does, or if that cannot be seen.
    pub(crate) async fn lacks_namespace(&self, namespace: &Name) -> Option<Unseen> {
        let namespaces = Place::new("v1", "namespaces", None);
        let found: Result<IgnoredAny, _> = self.get(namespaces, namespace.as_str()).await;
        let is_absent = found.is_err_and(|error| error.is_absent());
        is_absent.then(|| Unseen::Absent(format!("there is no namespace {namespace}")))
    }

    /// Returns the names of all namespaces.
    pub(crate) async fn namespaces(&self) -> Result<Vec<String>, Unseen> {
        let all: Vec<Value> = self
            .list_metadata(Place::new("v1", "namespaces", None), "")
            .await?;
        let names = all.iter().filter_map(|it| it["metadata"]["name"].as_str());
        Ok(names.map(ToOwned::to_owned).collect())
    }

    /// Reads one object, and returns it as serialised.
    pub(crate) async fn get_raw(&self, place: Place<'_>, name: &str) -> Result<Vec<u8>, Unseen> {
        self.read(&place.path_of(name), &place.words("get"), JSON)
            .await
    }

    /// Lists all objects of a place that match `query`, such as `labelSelector=a%3Db`.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        place: Place<'_>,
        query: &str,
    ) -> Result<Vec<T>, Unseen> {
        self.list_as(place, query, JSON).await
    }

    /// Lists the metadata of all objects of a place, however large the objects are.
    pub(crate) async fn list_metadata<T: DeserializeOwned>(
        &self,
        place: Place<'_>,
        query: &str,
    ) -> Result<Vec<T>, Unseen> {
        self.list_as(place, query, METADATA).await
    }

    async fn list_as<T: DeserializeOwned>(
        &self,
        place: Place<'_>,
        query: &str,
        accept: &'static str,
    ) -> Result<Vec<T>, Unseen> {
        let mut all = Vec::new();
        let mut pages = self.pages_as(place, query, accept);
        while let Some(page) = pages.next().await? {
            all.extend(page);
        }
        Ok(all)
    }

    /// Lists as [`Cluster::list`] does, one page at a time.
    pub(crate) fn pages<'a>(&'a self, place: Place<'a>, query: &'a str) -> Pages<'a> {
        self.pages_as(place, query, JSON)
    }

    fn pages_as<'a>(&'a self, place: Place<'a>, query: &'a str, accept: &'static str) -> Pages<'a> {
        Pages {
            cluster: self,
            place,
            query,
            accept,
            token: Some(String::new()),
        }
    }

    /// Returns the version in which the cluster serves a resource. The groups are read once.
    pub(crate) async fn version_of(&self, group: &str, plural: &str) -> Result<String, Unseen> {
        let what = format!("tell whether the cluster has {plural}.{group}");
        let ask = async || {
            let body = self.read("/apis", &what, ACCEPT_AGGREGATED_DISCOVERY_V2);
            let groups = serde_json::from_slice(&body.await?).map(without_nulls);
            let groups = groups.and_then(serde_json::from_value);
            groups.map_err(|error| unreadable(&what, &error))
        };
        let groups = self.groups.get_or_try_init(ask).await?;
        match api_discovery::state(groups, group, plural) {
            State::Served(version) => Ok(version.to_owned()),
            State::Missing => {
                let text = format!("the cluster does not serve {plural}.{group}");
                Err(Unseen::Absent(text))
            }
            State::Unknown => Err(Unseen::Refused {
                what,
                message: "what serves it is out of reach".to_owned(),
            }),
        }
    }

    /// Sends a dry run: an empty patch of an object, or its creation if `body` is given.
    ///
    /// Every admission sees it, under the field manager `manager`. Nothing is stored.
    pub(crate) async fn dry_run(
        &self,
        place: Place<'_>,
        name: &str,
        manager: &str,
        body: Option<String>,
    ) -> Result<DryRun, Unseen> {
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
        let (response, _) = self.call(request, &what).await?;
        let warnings = response.headers().get_all(header::WARNING);
        let warnings = warnings.iter().filter_map(|value| value.to_str().ok());
        Ok(DryRun {
            warnings: warnings.filter_map(warning).collect(),
        })
    }

    async fn read(&self, path: &str, what: &str, accept: &str) -> Result<Vec<u8>, Unseen> {
        let request = Request::get(path)
            .header(header::ACCEPT, accept)
            .body(Vec::new())
            .expect("names are safe in a path");
        Ok(self.call(request, what).await?.1)
    }

    /// Sends a request; errors say that it was for `what`.
    async fn call(
        &self,
        request: Request<Vec<u8>>,
        what: &str,
    ) -> Result<(Response<()>, Vec<u8>), Unseen> {
        let answer = async {
            let response = self.client.send(request.map(Body::from)).await;
            let (head, body) = response.map_err(|error| unseen(what, error))?.into_parts();
            let body = body.collect().await.map_err(|error| unseen(what, error))?;
            Ok((Response::from_parts(head, ()), body.to_bytes().to_vec()))
        };
        let in_time = tokio::time::timeout(DEADLINE, answer).await;
        let (head, body) = in_time.map_err(|_| {
            let message = format!("no answer within {} s", DEADLINE.as_secs());
            Unseen::Unreachable(what.to_owned(), message)
        })??;
        if head.status().is_success() {
            return Ok((head, body));
        }
        let message = serde_json::from_slice(&body).map(|status: Status| status.message);
        let message = message.unwrap_or_else(|_| head.status().to_string());
        Err(match head.status() {
            StatusCode::FORBIDDEN if is_about_rights(&message) => {
                Unseen::Forbidden(what.to_owned())
            }
            StatusCode::NOT_FOUND => Unseen::Absent(format!("cannot {what}: {message}")),
            _ => Unseen::Refused {
                what: what.to_owned(),
                message,
            },
        })
    }
}

/// Returns the proxy that a kubeconfig names for the cluster of the given context, or of the current one.
fn proxy_of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let context = context.or(kubeconfig.current_context.as_deref())?;
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|it| it.name == context)?.context.as_ref()?;
    let mut clusters = kubeconfig.clusters.iter();
    let cluster = clusters.find(|it| it.name == context.cluster)?;
    let proxy = cluster.cluster.as_ref()?.proxy_url.clone();
    proxy.filter(|it| !it.is_empty())
}

/// Returns the proxy for a server, chosen as kubectl does: the cluster's `own` one first, whatever else is
/// set, then that of the environment, unless the server is on this host or NO_PROXY names it.
fn proxy(
    server: &Uri,
    own: Option<String>,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<Uri> {
    if let Some(own) = own {
        return own.parse().ok();
    }
    let variable = |name: &str| {
        let names = [name.to_owned(), name.to_ascii_lowercase()];
        let mut values = names.iter().filter_map(|name| variable(name));
        values.find(|value| !value.is_empty())
    };
    let proxy = match server.scheme_str() {
        Some("http") => variable("HTTP_PROXY")?,
        _ => variable("HTTPS_PROXY")?,
    };
    let host = server.host()?.trim_matches(['[', ']']);
    let address: Option<IpAddr> = host.parse().ok();
    let no_proxy = variable("NO_PROXY").unwrap_or_default();
    if host == "localhost"
        || address.is_some_and(|it| it.is_loopback())
        || no_proxy.split(',').any(|entry| entry.trim() == "*")
    {
        return None;
    }
    let matcher = Matcher::builder().all(&proxy).no(no_proxy).build();
    matcher.intercept(server)?;
    match proxy.contains("://") {
        true => proxy.parse().ok(),
        false => format!("http://{proxy}").parse().ok(),
    }
}

/// Removes the fields that are `null`, which the apiserver writes for an empty list.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// Tells a lack of rights from a 403 of an admission, which has its author's own words.
fn is_about_rights(message: &str) -> bool {
    message.contains(" cannot ") && message.contains("forbidden: User ")
}

fn unreadable(what: &str, error: &serde_json::Error) -> Unseen {
    // The error itself is left out: it may quote a Secret.
    let message = format!("the answer is not as expected (line {})", error.line());
    Unseen::Refused {
        what: what.to_owned(),
        message,
    }
}

fn unseen(what: &str, error: kube::Error) -> Unseen {
    Unseen::Unreachable(what.to_owned(), chain(&error))
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
pub(crate) mod canned;

#[cfg(test)]
mod tests {
    use super::canned::{Canned, deployment};
    use super::*;
    use crate::args::Target;
    use crate::operators::Operators;
    use crate::{history, objects, workloads};
    use pod_reloader_core::reference::ConfigKind;
    use serde_json::json;

    #[test]
    fn the_text_of_a_warning_is_unquoted() {
        let header = r#"299 - "say \"no\" to C:\\" "Sat, 21 Nov 2026""#;
        assert_eq!(warning(header).as_deref(), Some(r#"say "no" to C:\"#));
        assert_eq!(warning("299 - unquoted"), None);
        assert_eq!(warning(r#"299 - "cut"#), None);
    }

    fn proxy_for(server: &str, own: Option<&str>, variables: &[(&str, &str)]) -> Option<String> {
        let server = server.parse().unwrap();
        let variable = |name: &str| {
            let (_, value) = variables.iter().find(|(it, _)| *it == name)?;
            Some((*value).to_owned())
        };
        proxy(&server, own.map(ToOwned::to_owned), variable).map(|it| it.to_string())
    }

    #[test]
    fn some_servers_need_no_proxy() {
        let proxied = |host: &str, no_proxy: &str| {
            let variables = [("https_proxy", "proxy:3128"), ("NO_PROXY", no_proxy)];
            let proxy = proxy_for(&format!("https://{host}:6443"), None, &variables);
            assert!(proxy.as_deref().is_none_or(|it| it == "http://proxy:3128/"));
            proxy.is_some()
        };
        let no_proxy = "cluster.local, .example.com,10.0.0.1,10.96.0.0/12,fd00::/8";
        for host in [
            "cluster.local",
            "api.example.com",
            "example.com",
            "10.0.0.1",
            "10.100.2.3",
            "[fd00::1]",
        ] {
            assert!(!proxied(host, no_proxy), "{host}");
        }
        for host in ["example.org", "badexample.com", "10.0.0.11", "10.112.0.1"] {
            assert!(proxied(host, no_proxy), "{host}");
        }
        for host in ["any", "10.0.0.11"] {
            assert!(!proxied(host, "a,*") && proxied(host, ""), "{host}");
        }
        for host in ["localhost", "127.0.0.1", "[::1]"] {
            assert!(!proxied(host, ""), "{host}");
        }
    }

    #[test]
    fn the_proxy_of_a_kubeconfig_is_taken_whatever_the_environment_says() {
        let variables = [("HTTPS_PROXY", "http://other:1"), ("NO_PROXY", "*")];
        let proxy = proxy_for("https://127.0.0.1", Some("socks5://own:2"), &variables);
        assert_eq!(proxy.as_deref(), Some("socks5://own:2/"));
        let kubeconfig: Kubeconfig = serde_json::from_value(serde_json::json!({
            "current-context": "a",
            "contexts": [
                {"name": "a", "context": {"cluster": "far", "user": "me"}},
                {"name": "b", "context": {"cluster": "near", "user": "me"}},
            ],
            "clusters": [
                {"name": "far", "cluster": {"server": "https://far", "proxy-url": "http://own:2"}},
                {"name": "near", "cluster": {"server": "https://near", "proxy-url": ""}},
            ],
        }))
        .unwrap();
        assert_eq!(proxy_of(&kubeconfig, None).as_deref(), Some("http://own:2"));
        assert_eq!(proxy_of(&kubeconfig, Some("b")), None);
        assert_eq!(proxy_of(&kubeconfig, Some("c")), None);
    }

    /// Returns what each function that lists gets if the lists are empty.
    async fn listed(empty: &Value) -> Vec<Result<usize, Unseen>> {
        let cluster = Canned::shop()
            .with_empty_lists(empty.clone())
            .with_all(
                "/apis/apps/v1/namespaces/shop/deployments",
                &[deployment("web")],
            )
            .with("/apis/apps/v1/namespaces/shop/statefulsets", empty.clone());
        let cluster = cluster.cluster();
        let shop = Name::parse("shop").unwrap();
        let operators = Operators::find(&cluster, None).await;
        let web = Target {
            kind: "deploy".to_owned(),
            name: "web".to_owned(),
        };
        let web = workloads::get(&cluster, &operators, &web).await.unwrap();
        let mut listed = vec![match &*operators.unseen {
            [] => Ok(operators.all.len()),
            [first, ..] => Err(Unseen::Absent(first.clone())),
        }];
        for kind in ConfigKind::ALL {
            let names = objects::names(&cluster, kind, Some(&shop)).await;
            listed.push(names.map(|it| it.len()));
        }
        for seen in [None, Some(&web)] {
            let events = history::events(&cluster, seen).await;
            listed.push(events.map(|it| it.len()));
        }
        let since = history::hash_since(&cluster, &web).await;
        listed.push(since.map(|it| usize::from(it.is_some())));
        let elsewhere = Name::parse("elsewhere").unwrap();
        for namespace in [None, Some(&elsewhere)] {
            let (all, unseen) = workloads::list(&cluster, &operators, namespace, Some).await;
            listed.push(match unseen.into_iter().next() {
                None => Ok(all.len()),
                Some(unseen) => Err(Unseen::Absent(unseen)),
            });
        }
        let served = cluster.version_of("argoproj.io", "rollouts").await;
        listed.push(match served {
            Err(Unseen::Absent(_)) => Ok(0),
            other => other.map(|_| 1),
        });
        listed
    }

    #[tokio::test]
    async fn a_list_of_nothing_may_be_null_or_left_out() {
        for empty in [
            json!({"metadata": {}, "items": []}),
            json!({"metadata": {"continue": null}, "items": null}),
            json!({"metadata": null}),
            json!({}),
        ] {
            let listed = listed(&empty).await;
            assert!(listed.iter().all(|it| *it == Ok(0)), "{empty}: {listed:?}");
        }
    }

    #[tokio::test]
    async fn what_a_group_serves_may_be_null() {
        let groups = json!({"items": [
            {"metadata": {"name": "example.com", "creationTimestamp": null}, "versions": null},
            {"metadata": {"name": "argoproj.io"}, "versions": [
                {"version": "v1", "resources": null},
                {"version": "v1alpha1", "resources": [{"resource": "rollouts", "verbs": null}]},
            ]},
        ]});
        let cluster = Canned::shop().with("/apis", groups).cluster();
        let version = cluster.version_of("argoproj.io", "rollouts").await;
        assert_eq!(version.as_deref(), Ok("v1alpha1"));
    }

    #[test]
    fn a_query_is_encoded() {
        assert_eq!(encoded("a=b,c d/é"), "a%3Db%2Cc%20d%2F%C3%A9");
    }

    #[test]
    fn a_place_is_found_in_the_api_and_told_in_words() {
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

    #[test]
    fn a_policy_that_forbids_is_told_from_a_missing_right() {
        let right =
            r#"deployments.apps "web" is forbidden: User "u" cannot patch resource "deployments""#;
        assert!(is_about_rights(right));
        let policy =
            r#"deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'x' denied request"#;
        assert!(!is_about_rights(policy));
    }
}
