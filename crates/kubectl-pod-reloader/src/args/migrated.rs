//! The workloads that `migrate` is about.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches};

use super::Sources;
use super::chosen::Chosen;
use super::words::{Named, typed_kind};

/// The workloads whose annotations are translated.
#[derive(Debug)]
pub(crate) enum Migrated {
    /// Workloads in manifests.
    Manifests(Sources),
    /// Workloads in the cluster.
    Workloads(Chosen),
}

impl Migrated {
    const FILENAME: &str = "filename";
    const RECURSIVE: &str = "recursive";

    /// Parses workloads of the cluster. `-A` alone chooses the workloads of all namespaces, because nothing is written.
    fn chosen(words: &[String], matches: &ArgMatches) -> Result<Chosen, String> {
        let selects = matches.contains_id(Chosen::SELECTOR) || matches.get_flag(Chosen::ALL);
        let all_namespaces = matches.get_flag(Chosen::ALL_NAMESPACES);
        if words.is_empty() && !selects && !all_namespaces {
            let flags = "--selector, --all, --all-namespaces or --filename";
            return Err(format!("name workloads, or give {flags}"));
        }
        if selects || !all_namespaces {
            return Chosen::of(words, matches);
        }
        if matches.contains_id(Chosen::NAMESPACE) {
            return Err("give either --namespace or --all-namespaces".to_owned());
        }
        let kind = match words {
            [] => None,
            [kind] if !kind.contains('/') => Some(typed_kind(kind)?),
            _ => return Err("give either names, or --all-namespaces".to_owned()),
        };
        Ok(Chosen::Selected {
            kind,
            selector: None,
            all_namespaces,
        })
    }
}

impl Named for Migrated {
    const ID: &str = "workloads";

    fn arg() -> Arg {
        let help = "Workloads, for example deployment/web, or deployment web; - reads manifests from standard input";
        Arg::new(Self::ID).help(help).num_args(1..)
    }

    fn flags() -> Vec<Arg> {
        let filename = Arg::new(Self::FILENAME)
            .short('f')
            .long(Self::FILENAME)
            .value_name("PATH")
            .value_parser(clap::value_parser!(PathBuf))
            .action(ArgAction::Append)
            .help("File or folder with manifests, or - for standard input; can be given more than once");
        let recursive = Arg::new(Self::RECURSIVE)
            .short('R')
            .long(Self::RECURSIVE)
            .action(ArgAction::SetTrue)
            .requires(Self::FILENAME)
            .help("Read the folders below a folder, too");
        let of_workloads = Chosen::flags().into_iter().map(|flag| {
            let id = flag.get_id().as_str().to_owned();
            match id.as_str() {
                Chosen::ALL => flag.help("All workloads of the namespace, managed or not"),
                Chosen::ALL_NAMESPACES => flag.help("Workloads of all namespaces"),
                _ => flag,
            }
        });
        of_workloads.chain([filename, recursive]).collect()
    }

    fn of(words: &[String], matches: &ArgMatches) -> Result<Self, String> {
        let files = matches.get_many::<PathBuf>(Self::FILENAME);
        let mut filename: Vec<_> = files.into_iter().flatten().cloned().collect();
        let is_piped = words == ["-"];
        if is_piped {
            filename.push("-".into());
        }
        if filename.is_empty() {
            return Self::chosen(words, matches).map(Self::Workloads);
        }
        let selects = matches.contains_id(Chosen::SELECTOR)
            || matches.get_flag(Chosen::ALL)
            || matches.get_flag(Chosen::ALL_NAMESPACES);
        if selects || (!words.is_empty() && !is_piped) {
            return Err("give either manifests, or workloads of the cluster".to_owned());
        }
        Ok(Self::Manifests(Sources {
            filename,
            kustomize: None,
            recursive: matches.get_flag(Self::RECURSIVE),
        }))
    }
}
