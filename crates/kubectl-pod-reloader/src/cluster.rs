//! The cluster as the user may see it. Every call says what it was for, and whether it was allowed.

mod annotations;
mod connection;
mod dry_run;
mod pages;
mod place;
mod trial;

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use kube::core::discovery::v2::ACCEPT_AGGREGATED_DISCOVERY_V2;
use pod_reloader_core::api_discovery::{self, Groups, State};
use pod_reloader_core::error::chain;
use pod_reloader_core::name::Name;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokio::sync::OnceCell;

pub(crate) use self::annotations::{Rewrite, Writes, annotate, annotation};
pub(crate) use self::connection::NoCluster;
pub(crate) use self::dry_run::query_status;
use self::dry_run::warnings;
pub(crate) use self::pages::with_labels;
pub(crate) use self::place::{Place, encoded};
pub(crate) use self::trial::{Trial, Untried};
use crate::args::Target;

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// A cluster, as seen by one user.
pub(crate) struct Cluster {
    client: Client,
    /// The groups that the cluster serves, once they have been read.
    groups: Arc<OnceCell<Groups>>,
    /// Time limit of one call.
    deadline: Duration,
    /// What becomes of the annotations that a user writes.
    pub(crate) writes: Writes,
    /// The namespace to use if none is given.
    pub(crate) namespace: Name,
}

/// The reason why something cannot be seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unseen {
    /// The user lacks the right.
    #[error("you may not {what}")]
    Forbidden {
        /// The call that was tried.
        what: String,
        /// The apiserver's own words, which name the user.
        message: String,
    },
    /// There is no object of this name.
    #[error("{resource} {name:?} not found")]
    NotFound {
        /// The resource with its group: `deployments.apps`.
        resource: String,
        /// The name.
        name: String,
    },
    /// There is nothing of the kind, or the cluster does not serve it.
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
    /// Returns the error of what failed for any other reason than a lack of rights.
    pub(crate) fn refused(what: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Refused {
            what: what.into(),
            message: message.into(),
        }
    }

    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent(_) | Self::NotFound { .. })
    }

    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Forbidden { .. })
    }

    /// Returns true if the same call may succeed a moment later: neither a right nor an object is missing.
    pub(crate) fn is_temporary(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Unreachable(..))
    }

    /// Returns the error as kubectl words it, if kubectl has words for it.
    pub(crate) fn as_kubectl(&self) -> Option<String> {
        match self {
            Self::Forbidden { message, .. } => {
                Some(format!("Error from server (Forbidden): {message}"))
            }
            Self::NotFound { .. } => Some(format!("Error from server (NotFound): {self}")),
            Self::Absent(_) | Self::Refused { .. } | Self::Unreachable(..) => None,
        }
    }

    /// Returns the error in kubectl's words, or else in our own.
    pub(crate) fn words(&self) -> String {
        self.as_kubectl().unwrap_or_else(|| self.to_string())
    }
}

impl Cluster {
    /// Returns the same cluster in the namespace of `target`.
    pub(crate) fn of(&self, target: &Target) -> Self {
        let namespace = target.namespace.as_ref().unwrap_or(&self.namespace);
        Self {
            client: self.client.clone(),
            groups: Arc::clone(&self.groups),
            deadline: self.deadline,
            writes: self.writes,
            namespace: namespace.clone(),
        }
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

    /// Checks that the namespace exists, if one is given.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not exist, but none if that cannot be seen.
    pub(crate) async fn check_namespace(&self, namespace: Option<&Name>) -> Result<(), Unseen> {
        let Some(namespace) = namespace else {
            return Ok(());
        };
        let namespaces = Place::new("v1", "namespaces", None);
        let found: Result<IgnoredAny, _> = self.get(namespaces, namespace.as_str()).await;
        match found {
            Err(error) if error.is_absent() => Err(Unseen::NotFound {
                resource: "namespaces".to_owned(),
                name: namespace.to_string(),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the error of an object that does not exist, or of its namespace if that does not exist either.
    pub(crate) async fn not_found(&self, resource: String, name: &str) -> Unseen {
        let found = self.check_namespace(Some(&self.namespace)).await;
        found.err().unwrap_or_else(|| Unseen::NotFound {
            resource,
            name: name.to_owned(),
        })
    }

    /// Returns the names of all namespaces.
    pub(crate) async fn namespaces(&self) -> Result<Vec<String>, Unseen> {
        let pages = self.metadata_pages(Place::new("v1", "namespaces", None), "");
        let all: Vec<Value> = pages.all().await?;
        let names = all.iter().filter_map(|it| it["metadata"]["name"].as_str());
        Ok(names.map(ToOwned::to_owned).collect())
    }

    /// Reads one object, and returns it as serialised.
    pub(crate) async fn get_raw(&self, place: Place<'_>, name: &str) -> Result<Vec<u8>, Unseen> {
        self.read(&place.path_of(name), &place.words("get"), JSON)
            .await
    }

    /// Returns the version in which the cluster serves a resource. The groups are read once.
    pub(crate) async fn version_of(&self, group: &str, plural: &str) -> Result<String, Unseen> {
        let what = format!("tell whether the cluster has {plural}.{group}");
        let ask = async || {
            let body = self.read(api_discovery::PATH, &what, ACCEPT_AGGREGATED_DISCOVERY_V2);
            serde_json::from_slice(&body.await?).map_err(|error| unreadable(&what, &error))
        };
        let groups = self.groups.get_or_try_init(ask).await?;
        match groups.state(group, plural) {
            State::Served(version) => Ok(version.to_owned()),
            State::Missing => {
                let text = format!("the cluster does not serve {plural}.{group}");
                Err(Unseen::Absent(text))
            }
            State::Unknown => Err(Unseen::refused(what, "what serves it is out of reach")),
        }
    }

    async fn read(&self, path: &str, what: &str, accept: &str) -> Result<Vec<u8>, Unseen> {
        let request = Request::get(path)
            .header(header::ACCEPT, accept)
            .body(Vec::new())
            .expect("names are safe in a path");
        Ok(self.call(request, what).await?.1)
    }

    /// Sends a request, which has to succeed; errors say that it was for `what`.
    async fn call(
        &self,
        request: Request<Vec<u8>>,
        what: &str,
    ) -> Result<(Response<()>, Vec<u8>), Unseen> {
        let (head, body) = self.exchange(request, what).await?;
        if head.status().is_success() {
            return Ok((head, body));
        }
        let message = serde_json::from_slice(&body).map(|status: Status| status.message);
        let message = message.unwrap_or_else(|_| head.status().to_string());
        Err(match head.status() {
            StatusCode::FORBIDDEN if is_about_rights(&message) => Unseen::Forbidden {
                what: what.to_owned(),
                message,
            },
            StatusCode::NOT_FOUND => Unseen::Absent(format!("cannot {what}: {message}")),
            _ => Unseen::refused(what, message),
        })
    }

    /// Sends a request, and returns the answer, whatever its status is.
    async fn exchange(
        &self,
        request: Request<Vec<u8>>,
        what: &str,
    ) -> Result<(Response<()>, Vec<u8>), Unseen> {
        let answer = async {
            let response = self.client.send(request.map(Body::from)).await;
            let (head, body) = response.map_err(|error| unseen(what, error))?.into_parts();
            let body = body.collect().await.map_err(|error| unseen(what, error))?;
            Ok((Response::from_parts(head, ()), Vec::from(body.to_bytes())))
        };
        let in_time = tokio::time::timeout(self.deadline, answer).await;
        in_time.map_err(|_| {
            let message = format!("no answer within {} s", self.deadline.as_secs());
            Unseen::Unreachable(what.to_owned(), message)
        })?
    }
}

/// Returns a request to write to a path. Names the type of the body, and the one that the answer is to have.
fn write(
    method: Method,
    path: String,
    [content_type, accept]: [&str; 2],
    body: String,
) -> Request<Vec<u8>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content_type)
        .header(header::ACCEPT, accept)
        .body(body.into_bytes())
        .expect("names are safe in a path")
}

/// Tells a lack of rights from a 403 of an admission, which has its author's own words.
fn is_about_rights(message: &str) -> bool {
    message.contains(" cannot ") && message.contains("forbidden: User ")
}

fn unreadable(what: &str, error: &serde_json::Error) -> Unseen {
    // The error itself is left out: it may quote a Secret.
    let message = format!("the answer is not as expected (line {})", error.line());
    Unseen::refused(what, message)
}

fn unseen(what: &str, error: kube::Error) -> Unseen {
    Unseen::Unreachable(what.to_owned(), chain(&error))
}

#[cfg(test)]
pub(crate) mod canned;

#[cfg(test)]
mod tests {
    use super::canned::{Canned, deployment};
    use super::*;
    use crate::operators::Operators;
    use crate::{events, objects, revisions, workloads};
    use pod_reloader_core::reference::ConfigKind;
    use serde_json::json;

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
        let web = Target::here("deploy", "web");
        let web = workloads::get(&cluster, &operators, &web).await.unwrap();
        let mut listed = vec![match &*operators.unseen {
            [] => Ok(operators.all.len()),
            [first, ..] => Err(Unseen::Absent(first.clone())),
        }];
        for kind in ConfigKind::ALL {
            let names = objects::names(&cluster, kind, Some(&shop), None).await;
            listed.push(names.map(|it| it.len()));
        }
        for seen in [None, Some(&web)] {
            let events = events::events(&cluster, seen).await;
            listed.push(events.map(|it| it.len()));
        }
        let since = revisions::hash_since(&cluster, &web).await;
        listed.push(since.map(|it| usize::from(it.is_some())));
        let elsewhere = Name::parse("elsewhere").unwrap();
        for namespace in [None, Some(&elsewhere)] {
            let (all, unseen) = workloads::list(&cluster, &operators, namespace, None, Some).await;
            listed.push(match unseen.words.into_iter().next() {
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
    async fn an_empty_list_may_be_null_or_left_out() {
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
    async fn the_versions_and_resources_of_an_api_group_may_be_null() {
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
    fn a_missing_object_and_a_missing_right_are_worded_as_by_kubectl() {
        let none = Unseen::NotFound {
            resource: "deployments.apps".to_owned(),
            name: "web".to_owned(),
        };
        let words = r#"Error from server (NotFound): deployments.apps "web" not found"#;
        assert_eq!(none.as_kubectl().as_deref(), Some(words));
        let right = r#"pods is forbidden: User "u" cannot list resource "pods""#;
        let forbidden = Unseen::Forbidden {
            what: "list pods".to_owned(),
            message: right.to_owned(),
        };
        let words = format!("Error from server (Forbidden): {right}");
        assert_eq!(forbidden.as_kubectl(), Some(words));
        assert_eq!(forbidden.to_string(), "you may not list pods");
        assert_eq!(Unseen::Absent("x".to_owned()).as_kubectl(), None);
    }

    #[test]
    fn a_denial_by_a_policy_is_distinguished_from_a_missing_right() {
        let right =
            r#"deployments.apps "web" is forbidden: User "u" cannot patch resource "deployments""#;
        assert!(is_about_rights(right));
        let policy =
            r#"deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'x' denied request"#;
        assert!(!is_about_rights(policy));
    }
}
