//! The workloads that users have before the upgrade, in every form that the earlier version reads.

use std::fmt;

use pod_reloader_e2e::Version;
use pod_reloader_e2e::features::{GENERATED, TIER};
use pod_reloader_e2e::workload::{CONFIG_MAPS, Kind, SECRETS, Workload, config_map, secret};
use serde_json::{Value, json};

/// A namespace with its config objects and its workloads.
pub(crate) struct Namespace {
    pub(crate) name: String,
    pub(crate) objects: Vec<Value>,
    pub(crate) kept: Vec<Kept>,
}

/// A workload of a user.
pub(crate) struct Kept {
    pub(crate) namespace: String,
    pub(crate) workload: Workload,
    pub(crate) form: Form,
}

/// What is special about a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// It lists a ConfigMap, a Secret or both.
    Plain,
    /// It lists one key of a ConfigMap.
    Keyed,
    /// It tracks what its pod template uses.
    Auto,
    /// It tracks what its pod template uses, except for some.
    Excluding,
    /// It tracks what its pods do not see change.
    Needed,
    /// It has a settle period of its own.
    Settling,
    /// It pins its ConfigMaps.
    Pinned,
    /// Its pods reload.
    Reloading,
    /// Its restarts are staged.
    Staged,
    /// It is on hold.
    Held,
    /// It has a window for restarts.
    Windowed,
    /// Its restarts need an approval.
    Approved,
    /// Its two ConfigMaps change together.
    Together,
    /// It has a label that some selectors leave out.
    Batch,
    /// It uses a ConfigMap that it does not list.
    Using,
    /// It lists a ConfigMap, and another one with an annotation of Stakater's.
    AlsoStakater,
    /// It has an annotation of Stakater's alone.
    Stakater,
    /// It has no annotation at all.
    Silent,
}

impl Kept {
    /// Returns true if it lists this ConfigMap as a whole, and nothing holds its restarts up.
    pub(crate) fn follows(&self, config_map: &str) -> bool {
        self.form == Form::Plain
            && self
                .list(CONFIG_MAPS)
                .is_some_and(|list| list == config_map)
    }

    /// Returns true if it lists objects of both kinds.
    pub(crate) fn lists_both(&self) -> bool {
        self.list(CONFIG_MAPS).is_some() && self.list(SECRETS).is_some()
    }

    fn list(&self, annotation: &str) -> Option<String> {
        let list = &self.workload.manifest()["metadata"]["annotations"][annotation];
        list.as_str().map(str::to_owned)
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            workload,
            ..
        } = self;
        write!(f, "{} in {namespace}", workload.reference())
    }
}

impl Form {
    /// Returns true if pod-reloader manages it with the default values.
    pub(crate) fn is_managed(self) -> bool {
        !matches!(self, Self::Stakater | Self::Silent)
    }

    /// Returns true if its restarts have to wait.
    pub(crate) fn is_gated(self) -> bool {
        matches!(self, Self::Held | Self::Windowed | Self::Approved)
    }
}

/// Returns namespaces with so many managed workloads in all, and some that nobody manages. Forms that `version` does not
/// read are left out.
pub(crate) fn population(workloads: usize, version: &Version) -> Vec<Namespace> {
    let share = |at: usize| workloads / NAMESPACES + usize::from(at < workloads % NAMESPACES);
    (0..NAMESPACES)
        .map(|at| namespace(&format!("upgrade-{at}"), share(at), version))
        .collect()
}

fn namespace(name: &str, workloads: usize, version: &Version) -> Namespace {
    let names = |prefix: &'static str| (0..OBJECTS).map(move |at| format!("{prefix}-{at}"));
    let mut objects: Vec<_> = names("app").map(|name| config_map(&name, "1")).collect();
    objects.extend(names("key").map(|name| secret(&name, "1")));
    let (mut other, special) = (config_map(OTHER, "1"), config_map(SPECIAL, "1"));
    other["metadata"]["labels"] = json!({GENERATED: "true"});
    objects.extend([other, special, secret(SPECIAL, "1")]);
    let special = SPECIAL_FORMS.iter().filter(|(_, needs)| {
        let read = |key: &&str| version.knows(&format!("{PREFIX}{key}"));
        needs.iter().all(read)
    });
    let special = special.map(|(form, _)| *form);
    let plain = std::iter::repeat(Form::Plain);
    let managed = special.chain(plain).take(workloads).enumerate();
    let unmanaged = [Form::Stakater, Form::Silent].into_iter().cycle().take(4);
    let all = managed.chain(unmanaged.enumerate());
    Namespace {
        kept: all.map(|(at, form)| kept(name, at, form)).collect(),
        name: name.to_owned(),
        objects,
    }
}

fn kept(namespace: &str, at: usize, form: Form) -> Kept {
    let kind = match at % 8 {
        3 => Kind::StatefulSet,
        5 => Kind::DaemonSet,
        _ => Kind::Deployment,
    };
    let name = format!("{form:?}-{at}").to_lowercase();
    let bare = bare(kind, &name, at);
    let special = || {
        let lists = bare.clone().lists(SPECIAL).lists_secrets(SPECIAL);
        lists.requires(SPECIAL)
    };
    let says = |workload: Workload, key: &str, value: &str| {
        workload.annotated(&format!("{PREFIX}{key}"), value)
    };
    let workload = match form {
        Form::Plain => {
            let (app, key) = (
                format!("app-{}", at % OBJECTS),
                format!("key-{}", at % OBJECTS),
            );
            let mut workload = bare;
            if at % 3 != 1 {
                workload = workload.lists(&app).requires(&app);
            }
            if !at.is_multiple_of(3) {
                workload = workload.lists_secrets(&key);
            }
            workload
        }
        Form::Keyed => bare.lists(&format!("{SPECIAL}[key]")),
        Form::Auto => says(bare.requires(SPECIAL), "auto", "true"),
        Form::Excluding => says(
            says(bare.requires(SPECIAL).lists(OTHER), "auto", "true"),
            "exclude-configmaps",
            SPECIAL,
        ),
        Form::Needed => says(
            says(bare.requires(SPECIAL), "auto", "true"),
            "restart-on",
            "needed",
        ),
        Form::Settling => says(special(), "settle-period", "2s"),
        Form::Pinned => says(special(), "pin", "configmaps"),
        Form::Reloading => says(special(), "reload-url", "http://:8080/-/reload"),
        Form::Staged => says(special(), "staged", "all"),
        Form::Held => says(special(), "hold", "true"),
        Form::Windowed => says(special(), "restart-window", "Sun 03:00-03:01 UTC"),
        Form::Approved => says(special(), "approval", "required"),
        Form::Together => {
            let both = format!("{SPECIAL},{OTHER}");
            says(bare.lists(&both), "together", &both)
        }
        Form::Batch => special().labelled(TIER, "batch"),
        Form::Using => special().requires(OTHER),
        Form::AlsoStakater => special().annotated(STAKATER_LIST, OTHER),
        Form::Stakater => bare.requires(SPECIAL).annotated(STAKATER_AUTO, "true"),
        Form::Silent => bare.requires(SPECIAL),
    };
    Kept {
        namespace: namespace.to_owned(),
        workload,
        form,
    }
}

/// Returns a workload, which has pods if it is a Deployment or StatefulSet and the one in ten.
fn bare(kind: Kind, name: &str, at: usize) -> Workload {
    let workload = Workload::new(kind, name);
    match at.is_multiple_of(10) && kind != Kind::DaemonSet {
        true => workload,
        false => workload.without_pods(),
    }
}

const NAMESPACES: usize = 10;
/// Number of ConfigMaps and of Secrets in each namespace that plain workloads list.
const OBJECTS: usize = 5;
/// ConfigMap and Secret of workloads that are not plain.
const SPECIAL: &str = "special";
/// ConfigMap with the label [`GENERATED`].
const OTHER: &str = "other";
const PREFIX: &str = "pod-reloader.cs.sap.com/";
const STAKATER_AUTO: &str = "reloader.stakater.com/auto";
const STAKATER_LIST: &str = "configmap.reloader.stakater.com/reload";

/// Forms of which each namespace has one, each with the keys without which it would track something else.
const SPECIAL_FORMS: [(Form, &[&str]); 15] = [
    (Form::Keyed, &["per-key"]),
    (Form::Auto, &["auto"]),
    (Form::Excluding, &["auto", "exclude-configmaps"]),
    (Form::Needed, &["auto", "restart-on"]),
    (Form::Settling, &[]),
    (Form::Pinned, &[]),
    (Form::Reloading, &[]),
    (Form::Staged, &[]),
    (Form::Held, &[]),
    (Form::Windowed, &[]),
    (Form::Approved, &[]),
    (Form::Together, &[]),
    (Form::Batch, &[]),
    (Form::Using, &[]),
    (Form::AlsoStakater, &[]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_managed_workloads_as_asked_for_of_each_kind_and_form() {
        let population = population(500, &Version::present());
        let all = || population.iter().flat_map(|namespace| &namespace.kept);
        let count = |counts: &dyn Fn(&Kept) -> bool| all().filter(|kept| counts(kept)).count();
        assert_eq!(count(&|kept| kept.form.is_managed()), 500);
        for (form, _) in SPECIAL_FORMS {
            assert_eq!(count(&|kept| kept.form == form), NAMESPACES, "{form:?}");
        }
        for kind in Kind::ALL {
            assert!(count(&|kept| kept.workload.kind == kind) > 50, "{kind:?}");
        }
        assert!(count(&|kept| kept.follows("app-0")) > 10);
        assert!(count(&|kept| kept.form == Form::Plain && kept.lists_both()) > 50);
    }
}
