//! Tries out how an object would be stored, by dry runs under the user's own rights.

use http::{Method, StatusCode};
use kube::core::Status;
use serde_json::Value;

use super::{Cluster, JSON, Place, Unseen, encoded, is_about_rights, unreadable, write};

/// A write to try.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trial {
    /// A server-side apply that takes over fields of others.
    Apply,
    /// A replacement of the whole object.
    Replace,
}

/// The reason why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Untried {
    /// The namespace does not exist, or the cluster does not serve the kind.
    NoPlace,
    /// The apiserver refuses the write, as it would refuse it in earnest.
    Refused(String),
    /// Nobody can tell.
    Unseen(Unseen),
}

impl Trial {
    /// Returns the object as it would be stored if `manager` wrote `body`. Nothing is stored.
    pub(crate) async fn run(
        self,
        cluster: &Cluster,
        (place, name): (Place<'_>, &str),
        manager: &str,
        body: &Value,
    ) -> Result<Value, Untried> {
        let (method, verb, content_type, force) = match self {
            Self::Apply => (
                Method::PATCH,
                "patch",
                "application/apply-patch+yaml",
                "&force=true",
            ),
            Self::Replace => (Method::PUT, "update", JSON, ""),
        };
        let what = format!("{} ({name})", place.words(verb));
        let (path, manager) = (place.path_of(name), encoded(manager));
        let path = format!("{path}?dryRun=All&fieldManager={manager}{force}");
        let request = write(method, path, [content_type, JSON], body.to_string());
        let answer = cluster.exchange(request, &what).await;
        let (head, body) = answer.map_err(Untried::Unseen)?;
        if head.status().is_success() {
            let object = serde_json::from_slice(&body);
            return object.map_err(|error| Untried::Unseen(unreadable(&what, &error)));
        }
        let status = serde_json::from_slice(&body).unwrap_or_default();
        Err(untried(head.status(), &status, what, place))
    }
}

fn untried(code: StatusCode, status: &Status, what: String, place: Place<'_>) -> Untried {
    let unseen = || Untried::Unseen(Unseen::refused(&*what, code.to_string()));
    match code {
        StatusCode::NOT_FOUND => Untried::NoPlace,
        StatusCode::FORBIDDEN if is_about_rights(&status.message) => {
            let message = status.message.clone();
            Untried::Refused(Unseen::Forbidden { what, message }.to_string())
        }
        StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => unseen(),
        code if code.is_client_error() => Untried::Refused(refusal(code, status, place)),
        _ => unseen(),
    }
}

/// Describes a refusal by its reason and the fields that it is about. The apiserver's words are left out, because
/// they may repeat a value. Only those of a denial are there, unless it is about a config object.
fn refusal(code: StatusCode, status: &Status, place: Place<'_>) -> String {
    let reason = match &*status.reason {
        "" => code.to_string(),
        reason => reason.to_owned(),
    };
    let causes = status.details.iter().flat_map(|it| &it.causes);
    let fields: Vec<&str> = causes
        .map(|it| &*it.field)
        .filter(|it| !it.is_empty())
        .collect();
    let is_config = place.api_version == "v1";
    match &*fields {
        [] if code == StatusCode::FORBIDDEN && !is_config => {
            format!("{reason}: {}", status.message)
        }
        [] => reason,
        fields => format!("{reason}: {}", fields.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_refusal_quotes_no_value_of_a_config_object() {
        let secrets = Place::new("v1", "secrets", Some("shop"));
        let workloads = Place::new("apps/v1", "deployments", Some("shop"));
        let of = |code: u16, status: Value, place| {
            let status = serde_json::from_value(status).unwrap();
            let code = StatusCode::from_u16(code).unwrap();
            untried(code, &status, "patch secrets".to_owned(), place)
        };
        let refused = |text: &str| Untried::Refused(text.to_owned());
        let invalid = json!({
            "message": "data.a: Invalid value: hunter2", "reason": "Invalid",
            "details": {"causes": [{"field": "data.a", "message": "hunter2", "reason": "x"}]},
        });
        assert_eq!(of(422, invalid, secrets), refused("Invalid: data.a"));
        let denied = json!({"message": "policy x denied hunter2", "reason": "Forbidden"});
        assert_eq!(of(403, denied.clone(), secrets), refused("Forbidden"));
        let words = "Forbidden: policy x denied hunter2";
        assert_eq!(of(403, denied, workloads), refused(words));
        let bad = json!({"message": "expected string, got hunter2", "reason": "BadRequest"});
        assert_eq!(of(400, bad, workloads), refused("BadRequest"));
        let right = json!({"message": "secrets is forbidden: User \"u\" cannot patch", "reason": "Forbidden"});
        assert_eq!(
            of(403, right, secrets),
            refused("you may not patch secrets")
        );
        assert_eq!(of(404, json!({}), secrets), Untried::NoPlace);
        for code in [409, 429, 500] {
            let unseen = of(code, json!({"message": "hunter2"}), secrets);
            assert!(matches!(unseen, Untried::Unseen(_)), "{unseen:?}");
            assert!(!format!("{unseen:?}").contains("hunter2"), "{unseen:?}");
        }
    }
}
