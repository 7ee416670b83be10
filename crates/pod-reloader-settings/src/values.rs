//! Values: how the texts of flags are parsed into what they stand for.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use clap::ValueEnum;
use http::Uri;
use pod_reloader_core::dialect::Dialect;
use pod_reloader_core::duration::{self, MAX_SETTLE_PERIOD};
use pod_reloader_core::field_binding::kind::BoundKind;
use pod_reloader_core::kind::{CustomResource, WorkloadKind};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::ConfigKind;
use pod_reloader_core::staging::Staged;

use crate::choices::ControllerName;

/// Namespaces to manage, none for all. This is one value with commas, so the last of two flags wins.
#[derive(Clone, Debug)]
pub struct Namespaces(pub Vec<Name>);

/// Namespaces of releases, also in one value with commas. `None` stands for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacesOfReleases(pub Vec<Option<Name>>);

/// Dialects, also in one value with commas.
#[derive(Clone, Debug)]
pub struct Spoken(pub BTreeSet<Dialect>);

/// Kinds of workload, also in one value.
#[derive(Clone, Debug)]
pub struct CustomKinds(pub Vec<WorkloadKind>);

/// Kinds whose fields may be bound, also in one value.
#[derive(Clone, Debug)]
pub struct BoundKinds(pub Vec<BoundKind>);

/// Controllers to run, provided that they are switched on. Also in one value with commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers(pub Vec<ControllerName>);

impl Controllers {
    /// Returns true if this one is to run, provided that it is switched on.
    pub fn include(&self, controller: ControllerName) -> bool {
        self.0.contains(&controller)
    }
}

/// A kind that is never tracked, or none: see [`OptionalAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IgnoredKind(pub Option<ConfigKind>);

/// An address, or none: a type of its own, because clap takes `Option` for "may be left out".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionalAddress(pub Option<SocketAddr>);

/// `host:port`, or `:port` for all interfaces, as Go programs take it.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    match text.strip_prefix(':') {
        Some(port) => {
            let port = port
                .parse()
                .map_err(|_| format!("{port:?} is not a port"))?;
            Ok((Ipv6Addr::UNSPECIFIED, port).into())
        }
        None => text
            .to_socket_addrs()
            .map_err(|error| error.to_string())?
            .next()
            .ok_or_else(|| format!("{text:?} has no address")),
    }
}

pub(super) fn optional_address(text: &str) -> Result<OptionalAddress, String> {
    if text == "0" {
        Ok(OptionalAddress(None))
    } else {
        address(text).map(|at| OptionalAddress(Some(at)))
    }
}

pub(super) fn proxy(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|_| "it is not a URL".to_owned())?;
    match (url.scheme_str(), url.authority()) {
        // What stands on a command line is no secret.
        (Some("http"), Some(authority)) if !authority.as_str().contains('@') => Ok(url),
        _ => Err("write it like http://proxy:3128, without a user".to_owned()),
    }
}

pub(super) fn name(text: &str) -> Result<Name, String> {
    Name::parse(text.trim()).map_err(|error| error.to_string())
}

/// Returns the help of the flag that takes dialects.
pub(super) fn help_of_dialects() -> String {
    let names = Dialect::ALL.map(Dialect::as_str).join(", ");
    format!(
        "Dialects (sets of annotations, mostly of other tools) to read, comma-separated: {names}"
    )
}

pub(super) fn spoken(text: &str) -> Result<Spoken, String> {
    text.split(',')
        .map(|name| name.trim().parse())
        .collect::<Result<_, _>>()
        .map(Spoken)
}

pub(super) fn field_bindings(text: &str) -> Result<BoundKinds, String> {
    BoundKind::parse_all(text).map(BoundKinds)
}

pub(super) fn custom_resources(text: &str) -> Result<CustomKinds, String> {
    if text.trim().is_empty() {
        return Ok(CustomKinds(vec![]));
    }
    let resources: Vec<CustomResource> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut kinds: Vec<WorkloadKind> = Vec::new();
    for resource in resources {
        let kind = resource.into_kind()?;
        if kind.is_built_in() || kinds.contains(&kind) {
            return Err(format!("{kind} is named twice"));
        }
        kinds.push(kind);
    }
    Ok(CustomKinds(kinds))
}

pub(super) fn ignored_kind(text: &str) -> Result<IgnoredKind, String> {
    if text.is_empty() {
        return Ok(IgnoredKind(None));
    }
    let is_meant = |kind: &ConfigKind| text.eq_ignore_ascii_case(kind.plural());
    let kind = ConfigKind::ALL.into_iter().find(is_meant);
    kind.map(|kind| IgnoredKind(Some(kind)))
        .ok_or_else(|| "it is neither configmaps nor secrets; name one, not both".to_owned())
}

pub(super) fn namespaces(text: &str) -> Result<Namespaces, String> {
    if text.trim().is_empty() {
        return Ok(Namespaces(vec![]));
    }
    text.split(',')
        .map(name)
        .collect::<Result<_, _>>()
        .map(Namespaces)
}

/// Parses names of controllers as kube-controller-manager does: `*` stands for all, `-name` for all but this one.
pub(super) fn controllers(text: &str) -> Result<Controllers, String> {
    let (mut are_all, mut named, mut excluded) = (false, Vec::new(), Vec::new());
    for word in text.split(',').map(str::trim) {
        let (list, name) = match word.strip_prefix('-') {
            Some(name) => (&mut excluded, name),
            None => (&mut named, word),
        };
        match name {
            "*" if word == "*" => are_all = true,
            name => list.push(ControllerName::from_str(name, false).map_err(|_| {
                let known = ControllerName::value_variants().iter();
                let known: Vec<_> = known.map(|it| it.as_str()).collect();
                format!("{name:?} is none of {}", known.join(", "))
            })?),
        }
    }
    let all = ControllerName::value_variants().iter().copied();
    let runs = |it: &ControllerName| named.contains(it) || (are_all && !excluded.contains(it));
    Ok(Controllers(all.filter(runs).collect()))
}

/// Parses namespaces, or `*` for all of them.
pub(super) fn places(text: &str) -> Result<PlacesOfReleases, String> {
    if text.trim() == "*" {
        return Ok(PlacesOfReleases(vec![None]));
    }
    let Namespaces(namespaces) = namespaces(text)?;
    Ok(PlacesOfReleases(namespaces.into_iter().map(Some).collect()))
}

/// Parses what is staged.
pub(super) fn staged(text: &str) -> Result<Staged, String> {
    Staged::parse(text).ok_or_else(|| "it must be all, configmaps or none".to_owned())
}

/// The levels of tracing, and what other programs call them.
pub(super) fn log_level(text: &str) -> Result<tracing::Level, String> {
    let text = text.to_lowercase();
    let level = match &*text {
        "warning" => "warn",
        "fatal" | "panic" | "critical" => "error",
        other => other,
    };
    let level = level.parse();
    level.map_err(|_| "it is none of error, warn, info, debug and trace".to_owned())
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let duration = duration::parse(text).ok_or("write it like 2s, 500ms or 1m30s")?;
    if duration > MAX_SETTLE_PERIOD {
        return Err(format!("at most {MAX_SETTLE_PERIOD:?}"));
    }
    Ok(duration)
}

/// An amount of memory, in bytes.
pub(super) fn memory(text: &str) -> Result<usize, String> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
    let parts = units
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let bytes = parts.and_then(|(number, shift)| {
        let number: usize = number.parse().ok()?;
        number.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
    });
    bytes.ok_or_else(|| "write it like 32Mi, with Ki, Mi or Gi".to_owned())
}

pub(super) fn resync_period(text: &str) -> Result<Duration, String> {
    let period = duration(text)?;
    if period < Duration::from_secs(1) {
        return Err("at least 1s".to_owned());
    }
    Ok(period)
}
