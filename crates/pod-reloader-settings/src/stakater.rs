//! Tips for flags of Stakater's Reloader that are not ours.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// The error with a tip that is true, where it is about such a flag: what clap finds alike is not.
pub(super) fn with_tip(mut error: Error) -> Error {
    let flag = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) => flag.as_str(),
        _ => return error,
    };
    let Some((_, tip)) = TIPS.iter().find(|(flags, _)| flags.contains(&flag)) else {
        return error;
    };
    error.remove(ContextKind::SuggestedArg);
    let tips = ContextValue::StyledStrs(vec![StyledStr::from(*tip)]);
    error.insert(ContextKind::Suggested, tips);
    error
}

const TIPS: [(&[&str], &str); 9] = [
    (
        &[
            "--configmap-annotation",
            "--secret-annotation",
            "--auto-annotation",
            "--ignore-annotation",
            "--configmap-auto-annotation",
            "--secret-auto-annotation",
            "--auto-search-annotation",
            "--search-match-annotation",
            "--pause-deployment-annotation",
            "--pause-deployment-time-annotation",
        ],
        "leave it out: annotations of Stakater's Reloader are read under their default names, with --dialects=pod-reloader,stakater",
    ),
    (
        &["--webhook-url"],
        "--reconcile=observe with --notifications-url-file tells of changes and restarts nothing",
    ),
    (
        &["--ignored-workload-types"],
        "leave it out: CronJobs are left alone unless --custom-resources names them, and Jobs always are",
    ),
    (
        &["--is-Argo-Rollouts"],
        "name Rollouts in --custom-resources",
    ),
    (
        &["--reload-strategy"],
        "leave it out: pods are always restarted by an annotation of the pod template",
    ),
    (
        &["--reload-on-create", "--reload-on-delete"],
        "leave it out: objects that are created or deleted always count",
    ),
    (&["--enable-ha"], "--leader-elect lets several replicas run"),
    (
        &["--sync-after-restart"],
        "leave it out: what changed while pod-reloader was not running is always found",
    ),
    (
        &["--enable-pprof", "--pprof-addr"],
        "leave it out: there is no profiler; --metrics-bind-address has the metrics",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Args;
    use clap::Parser;

    fn refused(argument: &str) -> Option<String> {
        let error = Args::try_parse_from(["pod-reloader", argument]).err()?;
        Some(with_tip(error).to_string())
    }

    /// As Reloader v1.4 lists them.
    #[test]
    fn every_flag_of_stakaters_reloader_is_understood_or_gets_a_true_tip() {
        for flag in [
            "--auto-reload-all",
            "--enable-csi-integration",
            "--log-format=json",
            "--log-level=warning",
            "--resources-to-ignore=configMaps",
            "--namespaces-to-ignore=a,b",
            "--namespace-selector=team:shop",
            "--resource-label-selector=team:shop",
        ] {
            assert_eq!(refused(flag), None, "{flag}");
        }
        for (flags, tip) in TIPS {
            for flag in flags {
                for argument in [(*flag).to_owned(), format!("{flag}=x")] {
                    let error = refused(&argument).unwrap();
                    assert!(error.contains(&format!("tip: {tip}\n")), "{error}");
                    assert_eq!(error.matches("tip:").count(), 1, "{error}");
                }
            }
        }
    }

    #[test]
    fn a_flag_of_ours_that_is_misspelt_is_named() {
        let error = refused("--setle-period=1s").unwrap();
        assert!(error.contains("'--settle-period'"), "{error}");
    }
}
