//! Connects to the cluster that the user means, through the proxy that kubectl would take.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderValue, Uri, header};
use hyper_util::client::proxy::matcher::Matcher;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use pod_reloader_core::name::{InvalidName, Name};

use super::{Cluster, Writes};
use crate::args::Connection;

/// Name under which the apiserver's audit log shows us.
const USER_AGENT: &str = concat!("kubectl-pod-reloader/", env!("CARGO_PKG_VERSION"));

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
            format!("it has no cluster {cluster}, which the context or --cluster names")
        }
        other => other.to_string(),
    }
}

impl Cluster {
    /// Connects to the cluster of the kubeconfig, or to the one that we run in.
    pub(crate) async fn connect(connection: &Connection) -> Result<Self, NoCluster> {
        let options = KubeConfigOptions {
            context: connection.context.clone(),
            cluster: connection.cluster.clone(),
            user: connection.user.clone(),
        };
        let is_chosen =
            options.context.is_some() || options.cluster.is_some() || options.user.is_some();
        let mut config = match &connection.kubeconfig {
            Some(path) => {
                Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?
            }
            None if is_chosen => Config::from_kubeconfig(&options).await?,
            None => Config::infer().await?,
        };
        if let Some(user) = &connection.impersonate {
            config.auth_info.impersonate = Some(user.clone());
        }
        if let Some(uid) = &connection.impersonate_uid {
            config.auth_info.impersonate_uid = Some(uid.clone());
        }
        if let Some(server) = &connection.server {
            call(&mut config, server);
        }
        if !connection.impersonate_groups.is_empty() {
            config.auth_info.impersonate_groups = Some(connection.impersonate_groups.clone());
        }
        let kubeconfig = match &connection.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let own = kubeconfig.ok();
        let own = own.and_then(|it| proxy_of(&it, &options));
        // kube would check NO_PROXY against the host of the proxy itself.
        config.proxy_url = proxy(&config.cluster_url, own, |name| std::env::var(name).ok());
        let user_agent = HeaderValue::from_static(USER_AGENT);
        config.headers.push((header::USER_AGENT, user_agent));
        config.connect_timeout = Some(connection.request_timeout);
        config.read_timeout = Some(connection.request_timeout);
        let of_context = || {
            let namespace = &config.default_namespace;
            Name::parse(namespace).map_err(|error| NoCluster::Namespace(namespace.clone(), error))
        };
        let namespace = connection.namespace.clone().map_or_else(of_context, Ok)?;
        let client = Client::try_from(config)?;
        Ok(Self {
            client,
            groups: Arc::default(),
            deadline: connection.request_timeout,
            writes: Writes::default(),
            namespace,
        })
    }
}

/// Calls another server in place of the cluster's. The name in the certificate that the kubeconfig expects is that of the
/// cluster's server, so it is dropped, as kubectl does.
fn call(config: &mut Config, server: &Uri) {
    config.cluster_url = server.clone();
    config.tls_server_name = None;
}

/// Returns the proxy that a kubeconfig names for the chosen cluster, or for that of the chosen or current context.
fn proxy_of(kubeconfig: &Kubeconfig, options: &KubeConfigOptions) -> Option<String> {
    let of_context = || {
        let context = options.context.as_ref();
        let context = context.or(kubeconfig.current_context.as_ref())?;
        let mut contexts = kubeconfig.contexts.iter();
        let context = contexts.find(|it| it.name == *context)?;
        Some(&context.context.as_ref()?.cluster)
    };
    let name = options.cluster.as_ref().or_else(of_context)?;
    let mut clusters = kubeconfig.clusters.iter();
    let cluster = clusters.find(|it| it.name == *name)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy_for(server: &str, own: Option<&str>, variables: &[(&str, &str)]) -> Option<String> {
        let server = server.parse().unwrap();
        let variable = |name: &str| {
            let (_, value) = variables.iter().find(|(it, _)| *it == name)?;
            Some((*value).to_owned())
        };
        proxy(&server, own.map(ToOwned::to_owned), variable).map(|it| it.to_string())
    }

    #[test]
    fn another_server_has_another_name_in_its_certificate() {
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let mut config = Config::new(uri("https://10.0.0.1"));
        config.tls_server_name = Some("kubernetes".to_owned());
        call(&mut config, &uri("https://near:6443"));
        assert_eq!(config.cluster_url, uri("https://near:6443"));
        assert_eq!(config.tls_server_name, None);
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
        let of = |context: Option<&str>, cluster: Option<&str>| {
            let options = KubeConfigOptions {
                context: context.map(str::to_owned),
                cluster: cluster.map(str::to_owned),
                user: None,
            };
            proxy_of(&kubeconfig, &options)
        };
        assert_eq!(of(None, None).as_deref(), Some("http://own:2"));
        assert_eq!(of(Some("b"), None), None);
        assert_eq!(of(Some("c"), None), None);
        assert_eq!(of(Some("b"), Some("far")).as_deref(), Some("http://own:2"));
    }
}
