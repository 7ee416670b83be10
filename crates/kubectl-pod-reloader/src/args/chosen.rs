//! The objects that a command is about: these, or all that match.

use clap::{Arg, ArgAction, ArgMatches};

use super::selector;
use super::words::{Named, Target, config_kind, targets, typed_kind};

/// The objects that a command is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// These.
    Named(Vec<Target>),
    /// All that match.
    Selected {
        /// The type as typed, if there is one.
        kind: Option<String>,
        /// A selector of labels, as kubectl takes it. `None` for all objects.
        selector: Option<String>,
        /// True for the objects of all namespaces.
        all_namespaces: bool,
    },
}

/// Workloads.
#[derive(Debug)]
pub(crate) struct ChosenWorkloads(pub(crate) Chosen);

/// Workloads and config objects.
#[derive(Debug)]
pub(crate) struct ChosenObjects(pub(crate) Chosen);

impl Chosen {
    /// Returns true if objects were selected in place of named. Then an object that has been deleted in the meantime is not a fault.
    pub(crate) fn is_selected(&self) -> bool {
        matches!(self, Self::Selected { .. })
    }

    pub(super) const SELECTOR: &str = "selector";
    pub(super) const ALL: &str = "all";
    pub(super) const ALL_NAMESPACES: &str = "all-namespaces";
    /// Id of the flag of [`Connection`](super::Connection).
    pub(super) const NAMESPACE: &str = "namespace";

    fn arg(id: &'static str, help: &'static str) -> Arg {
        Arg::new(id)
            .help(help)
            .num_args(1..)
            .required_unless_present_any([Self::SELECTOR, Self::ALL])
    }

    /// Returns the flags that select objects.
    pub(super) fn flags() -> Vec<Arg> {
        let selector = Arg::new(Self::SELECTOR)
            .short('l')
            .long(Self::SELECTOR)
            .value_name("SELECTOR")
            .value_parser(selector)
            .conflicts_with(Self::ALL)
            .help("Selector of labels in place of names, for example app=web,tier!=db");
        let all = Arg::new(Self::ALL)
            .long(Self::ALL)
            .action(ArgAction::SetTrue)
            .help("All objects of the namespace, or of all with -A: managed workloads, or those of the given type");
        let all_namespaces = Arg::new(Self::ALL_NAMESPACES)
            .short('A')
            .long(Self::ALL_NAMESPACES)
            .action(ArgAction::SetTrue)
            .help("Objects of all namespaces, with --selector or --all; without --namespace");
        vec![selector, all, all_namespaces]
    }

    pub(super) fn of(words: &[String], matches: &ArgMatches) -> Result<Self, String> {
        let selector = matches.get_one::<String>(Self::SELECTOR).cloned();
        let all_namespaces = matches.get_flag(Self::ALL_NAMESPACES);
        if all_namespaces && matches.contains_id(Self::NAMESPACE) {
            return Err("give either --namespace or --all-namespaces".to_owned());
        }
        if selector.is_none() && !matches.get_flag(Self::ALL) {
            return match all_namespaces {
                // A name is that of an object in each of them.
                true => Err("--all-namespaces needs --selector or --all".to_owned()),
                false => targets(words).map(Self::Named),
            };
        }
        let kind = match words {
            [] => None,
            [kind] if !kind.contains('/') => Some(typed_kind(kind)?),
            _ => return Err("give either names, or --selector or --all".to_owned()),
        };
        let is_config = kind.as_deref().and_then(config_kind).is_some();
        if all_namespaces && selector.is_none() && is_config {
            // They include those of Kubernetes itself.
            let every =
                "--all --all-namespaces would take every object of this type in the cluster";
            return Err(format!("{every}: give --selector"));
        }
        Ok(Self::Selected {
            kind,
            selector,
            all_namespaces,
        })
    }
}

impl Named for ChosenWorkloads {
    const ID: &str = "workloads";

    fn arg() -> Arg {
        let help = "Workloads, for example deployment/web sts/db, or deployment web api";
        Chosen::arg(Self::ID, help)
    }

    fn flags() -> Vec<Arg> {
        Chosen::flags()
    }

    fn of(words: &[String], matches: &ArgMatches) -> Result<Self, String> {
        Chosen::of(words, matches).map(Self)
    }
}

impl Named for ChosenObjects {
    const ID: &str = "objects";

    fn arg() -> Arg {
        let help = "Workloads, ConfigMaps and Secrets, for example deployment/web cm/app";
        Chosen::arg(Self::ID, help)
    }

    fn flags() -> Vec<Arg> {
        Chosen::flags()
    }

    fn of(words: &[String], matches: &ArgMatches) -> Result<Self, String> {
        Chosen::of(words, matches).map(Self)
    }
}
