//! Gives users of a scene rights, without a process of kubectl for each Role and each binding.

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::Scene;

/// The API group of roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";

impl Scene {
    /// Gives a user a new Role in a namespace, which has these rules.
    ///
    /// # Errors
    /// When that is refused.
    ///
    /// # Caveats
    /// kubectl refuses a rule about a resource that the apiserver does not serve. This does not.
    pub async fn grant(
        &self,
        namespace: &str,
        user: &str,
        name: &str,
        rules: &Value,
    ) -> Result<()> {
        let role = json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": "Role",
            "metadata": {"name": name, "namespace": namespace},
            "rules": rules,
        });
        self.create_object(&role).await?;
        self.bind(namespace, user, &format!("role/{name}")).await
    }

    /// Gives a user a role in a namespace, such as `role/owner` or `clusterrole/view`.
    ///
    /// # Errors
    /// When that is refused.
    ///
    /// # Caveats
    /// The binding has the name of the role, so a second user of the same role in a namespace gets AlreadyExists.
    pub async fn bind(&self, namespace: &str, user: &str, role: &str) -> Result<()> {
        let (kind, name) = match role.split_once('/') {
            Some(("role", name)) => ("Role", name),
            Some(("clusterrole", name)) => ("ClusterRole", name),
            _ => bail!("{role} is neither role/NAME nor clusterrole/NAME"),
        };
        let binding = json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
            "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
        });
        self.create_object(&binding).await
    }
}
