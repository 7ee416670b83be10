//! Graphs to draw in tests.

use pod_reloader_core::reference::ConfigKind;

use super::{ConfigNode, Edge, Graph, Hash, WorkloadNode};

impl Graph {
    /// Adds an object that exists.
    pub(super) fn object(mut self, kind: ConfigKind, namespace: &str, name: &str) -> Self {
        self.objects.push(ConfigNode {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            exists: Some(true),
            is_held: false,
        });
        self
    }

    /// Adds a workload that carries our hash, and whose pods cannot start without any of the objects in
    /// `needs`.
    pub(super) fn workload(
        mut self,
        kind: &str,
        namespace: &str,
        name: &str,
        pods: i64,
        needs: &[usize],
    ) -> Self {
        let workload = self.workloads.len();
        self.workloads.push(WorkloadNode {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            pods: Some(pods),
            hash: Hash::Own,
            is_held: false,
            stage: None,
        });
        self.edges.extend(needs.iter().map(|&object| Edge {
            object,
            workload,
            keys: None,
            is_required: true,
        }));
        self
    }

    /// Restricts the last edge to these keys.
    pub(super) fn only(mut self, keys: &[&str]) -> Self {
        let edge = self.edges.last_mut().unwrap();
        edge.keys = Some(keys.iter().map(|&key| key.to_owned()).collect());
        self
    }

    /// Sets the hash that the last workload carries.
    pub(super) fn carries(mut self, hash: Hash) -> Self {
        self.workloads.last_mut().unwrap().hash = hash;
        self
    }
}

/// Returns two namespaces with at least one of everything.
pub(super) fn shop() -> Graph {
    use ConfigKind::{ConfigMap, Secret};
    let mut graph = Graph::default()
        .object(ConfigMap, "payments", "fraud-rules")
        .object(ConfigMap, "payments", "payment-settings")
        .object(Secret, "payments", "card-gateway")
        .object(ConfigMap, "shop", "feature-flags")
        .object(ConfigMap, "shop", "shop-settings")
        .object(Secret, "shop", "db-creds")
        .object(Secret, "shop", "mail-token")
        .object(Secret, "shop", "session-keys")
        .workload("Deployment", "payments", "fraud-check", 2, &[0, 1])
        .workload("Deployment", "payments", "payments-api", 3, &[1, 2])
        .only(&["api-key", "merchant"])
        .workload("CronJob", "payments", "settlement", 1, &[2])
        .workload("Deployment", "shop", "cart", 3, &[4, 5, 7])
        .workload("Deployment", "shop", "catalog", 4, &[5, 3])
        .workload("StatefulSet", "shop", "orders", 5, &[4, 5])
        .only(&["password"])
        .workload("Deployment", "shop", "mailer", 1, &[6])
        .carries(Hash::Foreign)
        .workload("DaemonSet", "shop", "edge-cache", 6, &[3])
        .carries(Hash::None);
    graph.objects[6].exists = Some(false);
    for edge in &mut graph.edges {
        edge.is_required = edge.object != 3;
    }
    graph
}

/// Returns a graph of names and keys that pretend to be something else.
pub(super) fn hostile() -> Graph {
    let mut graph = Graph::default()
        .object(ConfigKind::ConfigMap, HOSTILE, HOSTILE)
        .workload(HOSTILE, HOSTILE, HOSTILE, 2, &[0])
        .only(&[HOSTILE, "1.", "- a", "# b"])
        .carries(Hash::Foreign);
    graph.objects[0].exists = None;
    graph
}

/// The text that [`hostile`] is full of.
pub(super) const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\"'`\\]]>--><!--%00&amp;&lt;#quot;${x}{{x}}\u{2028}\n\u{202e}|end%%";

/// Returns a graph with this many namespaces, this many workloads in each, and half as many objects.
pub(super) fn many(namespaces: usize, workloads: usize) -> Graph {
    let mut graph = Graph::default();
    for namespace in 0..namespaces {
        let (name, first) = (format!("team-{namespace:03}"), graph.objects.len());
        let objects = workloads.div_ceil(2);
        for object in 0..objects {
            let kind = ConfigKind::ALL[object % 2];
            graph = graph.object(kind, &name, &format!("config-{object:04}"));
        }
        for workload in 0..workloads {
            let needs = [
                first + workload * 7 % objects,
                first + (workload * 5 + 1) % objects,
            ];
            let needs = if needs[0] == needs[1] {
                &needs[..1]
            } else {
                &needs
            };
            graph = graph.workload(
                "Deployment",
                &name,
                &format!("service-{workload:04}"),
                3,
                needs,
            );
        }
    }
    graph
}

/// Returns a ConfigMap and a Secret, two workloads of the same name in two namespaces, and one workload that
/// nothing restarts.
pub(super) fn small() -> Graph {
    let mut graph = Graph::default()
        .object(ConfigKind::ConfigMap, "a", "app")
        .object(ConfigKind::Secret, "b", "app")
        .workload("Deployment", "a", "web", 1, &[0])
        .workload("Deployment", "a", "worker", 2, &[])
        .carries(Hash::Baseline)
        .workload("Deployment", "b", "web", 3, &[1])
        .only(&["user", "password"]);
    graph.objects[1].exists = Some(false);
    graph.edges[0].is_required = false;
    graph
}
