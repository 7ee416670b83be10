//! The scope that the settings give an operator.

use pod_reloader_core::dialects::Dialects;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::ConfigKind;
use pod_reloader_core::release::{Places, Tool};
use pod_reloader_core::scope::{Labels, Scope};
use pod_reloader_core::staging::Defaults;

use super::Args;

impl Args {
    /// Returns the scope of an operator in the namespace `own`.
    pub fn scope(&self, own: Name) -> Scope {
        let labels = Labels {
            namespace: self.watch_namespace_selector.clone(),
            workload: self.watch_workload_selector.clone(),
            config: self.resource_label_selector.clone(),
        };
        let dialects = Dialects {
            spoken: self.dialects.0.clone(),
            auto_all: self.auto_reload_all,
            ignored: self.resources_to_ignore.0,
            classes: self.secret_provider_classes,
        };
        let scope = Scope::new(self.watch_namespaces.0.iter().cloned(), own)
            .without(self.ignore_namespaces.0.iter().cloned())
            .and_kinds(self.custom_resources.0.clone())
            .with(labels, dialects);
        let staging = Defaults {
            staged: self.staged_by_default,
            soak: self.staged_soak,
            deadline: self.staged_deadline,
            judges_all: self.max_concurrent_restarts_cluster > 0
                || self.max_concurrent_restarts_namespace > 0
                || !self.unstick_after.is_zero(),
        };
        let releases = self.releases(&scope);
        scope
            .and_releases(releases)
            .and_stages(staging)
            .and_namespaces(self.namespace_annotations)
            .and_pins(self.pin)
            .and_http_reloads(self.http_reload)
    }

    /// Returns the places of the releases that restarts wait for.
    fn releases(&self, scope: &Scope) -> Places {
        let mut places = Places::new();
        if self.release_wait.is_zero() {
            return places;
        }
        // Helm stores its releases in Secrets, which we have no right to read if they are never tracked.
        if scope.tracks(ConfigKind::Secret) {
            places.insert(Tool::Helm, scope.watched());
        }
        for (tool, namespaces) in [
            (Tool::Flux, &self.flux_namespaces),
            (Tool::ArgoCd, &self.argo_cd_namespaces),
        ] {
            if !namespaces.0.is_empty() {
                places.insert(tool, namespaces.0.clone());
            }
        }
        places
    }
}
