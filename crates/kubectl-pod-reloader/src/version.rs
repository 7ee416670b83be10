//! `version`: the versions of the plugin and of the operators.

use serde::Serialize;

use crate::operators::{Installed, NONE_FOUND, Operators};
use crate::print::{self, Answer, Text, Verdict};

/// The version of the plugin.
const CLIENT: &str = env!("CARGO_PKG_VERSION");

/// The versions of the plugin and of the operators.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Versions {
    client_version: &'static str,
    /// `None` if they are not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    operators: Option<Vec<Installed>>,
}

/// Returns the version of the plugin alone.
pub(crate) fn client() -> (Versions, Verdict) {
    let versions = Versions {
        client_version: CLIENT,
        operators: None,
    };
    (versions, Verdict::Good)
}

/// Returns the versions of the plugin and of all operators. Warns on standard error if they differ too much.
pub(crate) fn versions(operators: &Operators) -> (Versions, Verdict) {
    let read = operators.all.iter().map(|it| &it.installed);
    let unread = operators.unread.iter().map(|it| &it.installed);
    let found: Vec<_> = read.chain(unread).cloned().collect();
    // Settings that cannot be read do not matter here.
    let verdict = if found.is_empty() {
        for error in &operators.unseen {
            print::note(&format!("not seen: {error}"));
        }
        if operators.are_none() {
            print::note(NONE_FOUND);
        }
        operators.verdict(true)
    } else {
        Verdict::Good
    };
    for operator in &found {
        if let Some(warning) = skew(CLIENT, operator) {
            print::note(&warning);
        }
    }
    let versions = Versions {
        client_version: CLIENT,
        operators: Some(found),
    };
    (versions, verdict)
}

/// Returns a warning if the operator is of another minor version than the plugin. `None` if a version is not known.
fn skew(client: &str, operator: &Installed) -> Option<String> {
    let version = &operator.version;
    (minor(client)? != minor(version)?).then(|| {
        format!(
            "warning: the plugin has version {client} and the operator has version {version} ({operator}); use a plugin of the operator's version"
        )
    })
}

/// Returns the major and the minor version.
fn minor(version: &str) -> Option<(u64, u64)> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let mut parts = version.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    Some((major, minor))
}

impl Answer for Versions {
    fn text(&self) -> Text {
        let mut text = Text::default();
        text.line([format!("Client Version: {}", self.client_version).into()]);
        for operator in self.operators.iter().flatten() {
            let version = &operator.version;
            text.line([format!("Operator Version: {version} ({operator})").into()]);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{Canned, operator, operator_with};
    use serde_json::{Value, json};

    async fn of(operators: &[Value]) -> (Versions, Verdict) {
        let list = json!({"items": operators});
        let cluster = Canned::shop()
            .with("/apis/apps/v1/deployments", list)
            .cluster();
        versions(&Operators::find(&cluster, None).await)
    }

    #[tokio::test]
    async fn every_operator_is_named_with_its_version() {
        let mut known = operator();
        known["metadata"]["labels"] = json!({"app.kubernetes.io/version": "0.1.0"});
        let mut newer = operator_with(&["--flag-of-the-future"]);
        newer["metadata"]["labels"] = json!({"app.kubernetes.io/version": "9.0.0"});
        let (versions, verdict) = of(&[known, newer]).await;
        let expected = format!(
            "Client Version: {CLIENT}
Operator Version: 0.1.0 (deployment reloader in namespace ops)
Operator Version: 9.0.0 (deployment reloader in namespace ops)
"
        );
        assert_eq!(versions.text().without_styles(), expected);
        assert_eq!(verdict, Verdict::Good);
        let (_, verdict) = of(&[]).await;
        assert_eq!(verdict, Verdict::Bad);
        let (versions, _) = client();
        let json = serde_json::to_value(&versions).unwrap();
        assert_eq!(json, json!({"clientVersion": CLIENT}));
    }

    #[test]
    fn another_minor_version_is_warned_about() {
        let of = |version: &str| Installed {
            namespace: "ops".to_owned(),
            name: "reloader".to_owned(),
            version: version.to_owned(),
        };
        for (version, is_skew) in [
            ("0.1.0", false),
            ("v0.1.9", false),
            ("0.1.0-rc.1", false),
            ("0.2.0", true),
            ("1.1.0", true),
            ("unknown", false),
        ] {
            let skew = skew("0.1.3", &of(version));
            assert_eq!(skew.is_some(), is_skew, "{version}");
        }
    }
}
