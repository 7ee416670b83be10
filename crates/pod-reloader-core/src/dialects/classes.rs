//! Reads which SecretProviderClasses a workload tracks. Only those count that a volume of its pods names.

use std::collections::{BTreeMap, BTreeSet};

use super::{Dialect, Dialects, OptIn, Subject, own, stakater};
use crate::annotations as keys;
use crate::discovery::Consumption;
use crate::list::{items, quoted};
use crate::mark::Marks;
use crate::name::Name;
use crate::name_regex::{NameRegex, Work};
use crate::reference::ConfigKind;
use crate::references::{MAX_REFERENCES, Rejected};

/// The maximum number of classes of one workload that are reported as not tracked.
const MAX_REJECTED: usize = 10;

/// The SecretProviderClasses that a workload asks for.
#[derive(Debug, Default)]
pub(crate) struct ClassesRead {
    /// The names of those that are tracked.
    pub(crate) names: BTreeSet<Name>,
    /// The items that were left out, with reasons.
    pub(crate) rejected: Vec<Rejected>,
    /// The source of the opt-in, as far as classes are concerned.
    pub(crate) opt_in: OptIn,
}

impl Dialects {
    /// Returns the annotations about SecretProviderClasses that are read.
    pub(super) fn class_keys(&self) -> impl Iterator<Item = &'static str> {
        let own = [
            keys::SECRET_PROVIDER_CLASSES,
            keys::EXCLUDE_SECRET_PROVIDER_CLASSES,
        ];
        let theirs = stakater::OF_CLASSES
            .into_iter()
            .filter(|_| self.speak(Dialect::Stakater));
        let all = own.into_iter().chain(theirs);
        all.filter(|_| self.classes)
    }

    /// Returns the SecretProviderClasses that a workload tracks.
    pub(crate) fn read_classes(&self, subject: &Subject<'_>) -> ClassesRead {
        let mut read = ClassesRead::default();
        if !self.classes {
            return read;
        }
        let mounted = Mounted::of(subject);
        let excluded = excluded(subject, keys::EXCLUDE_SECRET_PROVIDER_CLASSES);
        let auto = own::auto(subject);
        let takes_all = self.auto_all && auto.is_none();
        if self.speak(Dialect::PodReloader) {
            let list = subject.annotation(keys::SECRET_PROVIDER_CLASSES);
            read.opts_in(list.is_some(), OptIn::ByUs);
            read.take_listed(items(list), &mounted, &excluded);
            if auto == Some(&ConfigKind::ALL[..]) {
                read.take_all(&mounted, &excluded);
            }
        }
        if self.speak(Dialect::Stakater) {
            let wishes = stakater::wishes_for_classes(subject, takes_all);
            let theirs = self::excluded(subject, stakater::EXCLUDE_CLASSES);
            let excluded = excluded.union(&theirs).copied().collect();
            // A class has no marks: its statuses are watched, not the class.
            let discovers = wishes.discovers.iter();
            let discovers = discovers.filter(|(_, needs)| *needs == Marks::NONE).count() > 0;
            read.opts_in(discovers || wishes.patterns.is_some(), OptIn::ByOthers);
            if discovers {
                read.take_all(&mounted, &excluded);
            }
            read.take_matching(wishes.patterns, &mounted, &excluded);
        } else if takes_all {
            read.take_all(&mounted, &excluded);
        }
        read.names
            .retain(|name| mounted.needs_restart(subject, name));
        while read.names.len() > MAX_REFERENCES {
            read.names.pop_last();
        }
        read
    }
}

impl ClassesRead {
    fn opts_in(&mut self, opts_in: bool, how: OptIn) {
        if opts_in {
            self.opt_in = self.opt_in.max(how);
        }
    }

    /// Takes the classes that a list names.
    fn take_listed<'a>(
        &mut self,
        list: impl Iterator<Item = &'a str>,
        mounted: &Mounted<'_>,
        excluded: &BTreeSet<&str>,
    ) {
        let distinct: BTreeSet<_> = list.collect();
        for item in distinct {
            let known = Name::parse(item)
                .ok()
                .and_then(|name| mounted.0.get_key_value(&name));
            match known {
                _ if excluded.contains(item) => {}
                Some((name, volumes)) => self.take(name, volumes),
                None => self.reject(item, NOT_MOUNTED),
            }
        }
    }

    /// Takes every class that the pods mount.
    fn take_all(&mut self, mounted: &Mounted<'_>, excluded: &BTreeSet<&str>) {
        for (name, volumes) in &mounted.0 {
            if !excluded.contains(name.as_str()) {
                self.take(name, volumes);
            }
        }
    }

    /// Takes the classes that any item of a list of regular expressions matches.
    fn take_matching(
        &mut self,
        list: Option<&str>,
        mounted: &Mounted<'_>,
        excluded: &BTreeSet<&str>,
    ) {
        let mut work = Work::new();
        let distinct: BTreeSet<_> = items(list).collect();
        for item in distinct {
            let Some(regex) = NameRegex::compile(&format!("^{item}$"), &mut work) else {
                self.reject(item, NO_EXPRESSION);
                continue;
            };
            let matches = mounted.0.iter().filter(|(name, _)| regex.matches(name));
            let mut matches = matches.peekable();
            if matches.peek().is_none() {
                self.reject(item, NOT_MOUNTED);
            }
            for (name, volumes) in matches.filter(|(name, _)| !excluded.contains(name.as_str())) {
                self.take(name, volumes);
            }
        }
    }

    fn take(&mut self, name: &Name, volumes: &[BTreeSet<Consumption>]) {
        match volumes.len() {
            1 => drop(self.names.insert(name.clone())),
            _ => self.reject(name.as_str(), MOUNTED_TWICE),
        }
    }

    fn reject(&mut self, item: &str, why: &'static str) {
        let rejected = Rejected::SecretProviderClass {
            item: quoted(item),
            why,
        };
        if self.rejected.len() < MAX_REJECTED && !self.rejected.contains(&rejected) {
            self.rejected.push(rejected);
        }
    }
}

/// The classes that volumes of the pods name: for each volume, the ways in which containers mount it.
struct Mounted<'a>(BTreeMap<&'a Name, Vec<BTreeSet<Consumption>>>);

impl<'a> Mounted<'a> {
    fn of(subject: &Subject<'a>) -> Self {
        let mut mounted = BTreeMap::<_, Vec<_>>::new();
        for spec in subject.pod_specs {
            let mut of_spec = BTreeMap::<_, Vec<_>>::new();
            for (name, consumptions) in spec.secret_provider_classes() {
                of_spec.entry(name).or_default().push(consumptions);
            }
            for (name, volumes) in of_spec {
                // Two pod templates make different pods, so only the volumes of one of them count.
                let known = mounted.entry(name).or_default();
                if known.len() < volumes.len() {
                    *known = volumes;
                }
            }
        }
        Self(mounted)
    }

    /// Returns true unless only those changes restart the workload that running pods cannot see, and they see new
    /// files of this class.
    fn needs_restart(&self, subject: &Subject<'_>, name: &Name) -> bool {
        let consumptions = self.0.get(name).into_iter().flatten().flatten();
        !own::restarts_where_needed(subject) || !{ consumptions }.all(|it| it.sees_changes())
    }
}

fn excluded<'a>(subject: &'a Subject<'_>, key: &str) -> BTreeSet<&'a str> {
    items(subject.annotation(key)).collect()
}

const NOT_MOUNTED: &str = "no volume of the pod template names it";
const NO_EXPRESSION: &str = "it is not a valid regular expression, or is too large";
const MOUNTED_TWICE: &str =
    "two volumes of the pod template name it, and the driver has one status for both";

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{Builder, deployment};
    use crate::workload::Workload;

    fn volume(class: &str) -> Value {
        let attributes = json!({"secretProviderClass": class});
        json!({"name": class, "csi": {"driver": "secrets-store.csi.k8s.io", "volumeAttributes": attributes}})
    }

    /// Returns a Deployment whose pods mount classes `db` and `tls`.
    fn web() -> Builder {
        let other = json!({"name": "x", "csi": {"driver": "other", "volumeAttributes": {"secretProviderClass": "x"}}});
        deployment("web")
            .with("/spec/selector", json!({"matchLabels": {"app": "web"}}))
            .with(
                "/spec/template/spec/volumes",
                json!([volume("db"), volume("tls"), other]),
            )
    }

    fn read(builder: Builder) -> Workload {
        builder.read_in(Dialects {
            spoken: BTreeSet::from([Dialect::PodReloader, Dialect::Stakater]),
            classes: true,
            ..Dialects::default()
        })
    }

    fn names(workload: &Workload) -> Vec<&str> {
        let names = workload.rare().classes.iter().flat_map(|it| &it.names);
        names.map(Name::as_str).collect()
    }

    #[test]
    fn mounted_classes_are_tracked_by_auto_or_by_name() {
        const OURS: &str = "pod-reloader.cs.sap.com/";
        const THEIRS: &str = "reloader.stakater.com/";
        for (annotation, value, expected) in [
            (format!("{OURS}auto"), "true", ["db", "tls"].as_slice()),
            (format!("{OURS}auto"), "secrets", &[]),
            (format!("{OURS}secretproviderclasses"), "db, other", &["db"]),
            (format!("{THEIRS}auto"), "true", &["db", "tls"]),
            (
                format!("secretproviderclass.{THEIRS}auto"),
                "true",
                &["db", "tls"],
            ),
            (
                format!("secretproviderclass.{THEIRS}reload"),
                "t.s,x",
                &["tls"],
            ),
            (format!("secret.{THEIRS}auto"), "true", &[]),
            (format!("{THEIRS}search"), "true", &[]),
        ] {
            let workload = read(web().annotated(&annotation, value));
            assert_eq!(names(&workload), expected, "{annotation}");
            assert!(workload.is_opted_in(), "{annotation}");
        }
        assert_eq!(names(&read(web())), Vec::<&str>::new());
    }

    #[test]
    fn stakaters_annotations_may_be_on_the_pod_template() {
        let key = "secretproviderclass.reloader.stakater.com/reload";
        let on_template = web().with("/spec/template/metadata/annotations", json!({key: "db"}));
        assert_eq!(names(&read(on_template)), ["db"]);
    }

    #[test]
    fn excluded_classes_are_not_tracked() {
        let key = "secretproviderclasses.exclude.reloader.stakater.com/reload";
        for auto in ["pod-reloader.cs.sap.com/auto", "reloader.stakater.com/auto"] {
            let workload = web().annotated(auto, "true");
            let workload = read(workload.annotation("exclude-secretproviderclasses", "db"));
            assert_eq!(names(&workload), ["tls"], "{auto}");
        }
        let theirs = web().annotated("reloader.stakater.com/auto", "true");
        assert_eq!(names(&read(theirs.annotated(key, "tls"))), ["db"]);
    }

    #[test]
    fn what_cannot_be_tracked_is_reported() {
        let twice = json!([volume("db"), volume("db")]);
        let workload = web()
            .with("/spec/template/spec/volumes", twice)
            .annotation("secretproviderclasses", "db,tls,No Name");
        let workload = read(workload);
        let rejected = workload.references.rejected.iter();
        let rejected: Vec<_> = rejected.map(ToString::to_string).collect();
        assert_eq!(names(&workload), Vec::<&str>::new());
        let say = |item, why| format!("SecretProviderClass \"{item}\" is not tracked: {why}");
        let expected = [
            ("No Name", NOT_MOUNTED),
            ("db", MOUNTED_TWICE),
            ("tls", NOT_MOUNTED),
        ];
        assert_eq!(rejected, expected.map(|(item, why)| say(item, why)));
    }

    #[test]
    fn files_that_running_pods_see_do_not_restart_them_if_that_is_asked_for() {
        let mounts = |mount: Value| json!([{"name": "main", "volumeMounts": [mount]}]);
        let asks = |mount| {
            let workload = web()
                .with("/spec/template/spec/containers", mounts(mount))
                .annotation("secretproviderclasses", "db")
                .annotation("restart-on", "needed");
            names(&read(workload)).len()
        };
        assert_eq!(asks(json!({"name": "db", "mountPath": "/db"})), 0);
        assert_eq!(
            asks(json!({"name": "db", "mountPath": "/db", "subPath": "password"})),
            1
        );
    }

    #[test]
    fn nothing_is_read_unless_classes_are_tracked() {
        let workload = web().annotation("secretproviderclasses", "db,none").build();
        assert!(workload.rare().classes.is_none() && !workload.is_opted_in());
        assert_eq!(*workload.references.rejected, []);
    }
}
