//! Installs an operator with the Helm chart, and does a kubelet's work for its pods.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, ListParams, PostParams},
    discovery::Discovery,
};
use serde_json::{Value, json};

use crate::{
    apply::{api_of, create},
    control_plane::ControlPlane,
    mounted_secret::MountedSecret,
    port::free_ports,
    tool::Tool,
    version::{Version, chart},
};

/// Variable that names a file of values for every installation. What a test sets itself goes before them.
pub const VALUES_VARIABLE: &str = "POD_RELOADER_VALUES";

/// An operator as installed by the chart, in a namespace of its own.
///
/// Release and objects are named after that namespace, so that many installations fit into one cluster. The
/// operator itself is a process beside the control plane. Its Service is of type ExternalName, through which
/// the apiserver speaks HTTP/1.1 and checks the certificate for the Service's name, as in production.
#[derive(Clone)]
pub struct Installation {
    /// Namespace of the operator, and also the name of its release and objects, unless it was joined.
    pub namespace: String,
    /// Port of the webhook on 127.0.0.1.
    pub port: u16,
    /// Version of the operator and the chart.
    pub version: Version,
    /// The helm program, as an administrator.
    pub helm: Tool,
    api_url: String,
    client: Client,
    directory: PathBuf,
    /// Name of its Deployment.
    deployment: String,
    /// Label of what the chart renders for this process.
    component: &'static str,
    service_account: String,
    args: Vec<String>,
    /// Mounted Secrets, each with the argument that names its path on this machine.
    mounted: Vec<(String, Arc<MountedSecret>)>,
    /// True if its objects were created directly, without a release of Helm.
    created_directly: bool,
}

impl Installation {
    /// Runs `helm install` for a version with `values`, or creates what that would create. Waits until the Secrets
    /// that its pods mount exist.
    ///
    /// # Errors
    /// When helm or the apiserver refuses.
    pub async fn create(
        control_plane: &ControlPlane,
        namespace: &str,
        directory: &Path,
        version: Version,
        values: &Value,
        released: bool,
    ) -> Result<Self> {
        let port = free_port()?;
        let mut installation =
            Self::new(control_plane, namespace, namespace, port, directory).await?;
        installation.version = version;
        match released {
            true => installation.upgrade(values).await?,
            false => installation.create_objects(values).await?,
        }
        Ok(installation)
    }

    /// Joins an installation of somebody else: the Deployment of this name, whose webhook listens on `port`.
    /// Waits until the Secrets that its pods mount exist.
    ///
    /// # Errors
    /// When there is no such Deployment.
    pub async fn join(
        control_plane: &ControlPlane,
        namespace: &str,
        deployment: &str,
        port: u16,
        directory: &Path,
    ) -> Result<Self> {
        let mut installation =
            Self::new(control_plane, namespace, deployment, port, directory).await?;
        installation.mount().await?;
        Ok(installation)
    }

    async fn new(
        control_plane: &ControlPlane,
        namespace: &str,
        deployment: &str,
        port: u16,
        directory: &Path,
    ) -> Result<Self> {
        Ok(Self {
            namespace: namespace.to_owned(),
            port,
            version: Version::present(),
            helm: control_plane.helm(),
            api_url: control_plane.api_url().to_owned(),
            client: control_plane.admin_client().await?,
            directory: directory.join("mounted"),
            deployment: deployment.to_owned(),
            component: "controller",
            service_account: deployment.to_owned(),
            args: Vec::new(),
            mounted: Vec::new(),
            created_directly: false,
        })
    }

    /// Runs `helm upgrade` to the chart of its version, with `values` alone. Earlier values are forgotten.
    ///
    /// # Errors
    /// Same as [`Installation::create`].
    pub async fn upgrade(&mut self, values: &Value) -> Result<()> {
        ensure!(
            !self.created_directly,
            "no release of Helm: `Options::released` makes one"
        );
        let chart = self.version.chart.display().to_string();
        let upgrade = [
            "upgrade",
            "--install",
            &self.namespace,
            &chart,
            "--namespace",
            &self.namespace,
            "--create-namespace",
            // To read the schemas of all kinds takes Helm and the apiserver a second of processor time. The objects of
            // scenes without a release are checked, as are those of each `helm install` that the documents show.
            "--disable-openapi-validation",
            "--values=-",
        ];
        let values = self.values(values).to_string();
        self.helm.run_with_input(&upgrade, &values).await?;
        self.mount().await
    }

    /// Creates the objects that the chart renders.
    async fn create_objects(&mut self, values: &Value) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        if namespaces
            .get_metadata_opt(&self.namespace)
            .await?
            .is_none()
        {
            create_namespace(&self.client, &self.namespace, &[]).await?;
        }
        self.created_directly = true;
        for mut object in self.rendered(values).await? {
            self.confine(&mut object);
            if stays(&object) {
                self.create_to_stay(&object).await?;
                continue;
            }
            create(&self.client, None, &object).await?;
        }
        self.mount().await
    }

    /// Confines the policies about protected objects to the namespaces of this test. They know one operator only, so they
    /// would refuse what those of other tests write.
    fn confine(&self, object: &mut Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let protects = ["-protect", "-protect-configmaps", "-protect-secrets"];
        let is_policy = object["kind"] == "ValidatingAdmissionPolicy";
        if !is_policy || !protects.iter().any(|end| name.ends_with(end)) {
            return;
        }
        let test = self.namespace.strip_suffix("-op");
        let test = test.unwrap_or(&self.namespace);
        let expression = format!("request.namespace.startsWith('{test}')");
        let condition = json!({"name": "of-this-test", "expression": expression});
        match object["spec"]["matchConditions"].as_array_mut() {
            Some(conditions) => conditions.push(condition),
            None => object["spec"]["matchConditions"] = json!([condition]),
        }
    }

    /// Creates an object that stays when its release goes, unless it is there. All installations share it.
    async fn create_to_stay(&self, object: &Value) -> Result<()> {
        let objects = api_of(&self.client, None, object)?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let is_there = async || anyhow::Ok(objects.get_metadata_opt(name).await?.is_some());
        // The apiserver checks all of a definition, with its rules, before it says that there is one.
        if is_there().await? {
            return Ok(());
        }
        let created = create(&self.client, None, object).await;
        // Another test may have been faster.
        match is_there().await? {
            true => Ok(()),
            false => created,
        }
    }

    /// Renders the chart without its tests. Installations that differ only in name and port share one
    /// rendering.
    async fn rendered(&self, values: &Value) -> Result<Vec<Value>> {
        // Placeholders for what differs between installations.
        const NAME: &str = "name-of-the-test";
        const PORT: &str = "48271";
        static RENDERED: Mutex<BTreeMap<[String; 3], String>> = Mutex::new(BTreeMap::new());
        let name = self.namespace.strip_suffix("-op");
        let name = name.unwrap_or(&self.namespace);
        let port = self.port.to_string();
        let values = self.values(values).to_string();
        let values = values.replace(name, NAME).replace(&port, PORT);
        let chart = self.version.chart.display().to_string();
        let served = self.served().await?;
        let key = [served.join(" "), chart, values];
        let lock = || RENDERED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&key).cloned();
        let rendered = match known {
            Some(rendered) => rendered,
            None => {
                let release = self.namespace.replace(name, NAME);
                let [_, chart, values] = &key;
                let template = ["template", &release, chart, "--namespace", &release];
                let here = ["--skip-tests", "--values=-"];
                let served = served.iter().map(String::as_str);
                let template: Vec<_> = template.into_iter().chain(here).chain(served).collect();
                let rendered = self.helm.run_with_input(&template, values).await?;
                let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered)?;
                let rendered = serde_json::to_string(&objects)?;
                lock().insert(key, rendered.clone());
                rendered
            }
        };
        let objects = rendered.replace(NAME, name).replace(PORT, &port);
        let objects: Vec<Value> = serde_json::from_str(&objects)?;
        Ok(objects.into_iter().filter(|it| !it.is_null()).collect())
    }

    /// Returns the arguments by which Helm knows the version of the cluster and the kinds that it serves. To ask itself
    /// (`--dry-run=server`), Helm reads the schemas of all kinds, which takes it and the apiserver a second of processor
    /// time. The apiserver checks the fields of each object as it is created. All renderings for a cluster share them.
    ///
    /// # Caveats
    /// A template that asks for a version without a kind (`apps/v1`) also gets the versions that Helm knows. `lookup` finds
    /// no object. Kinds that tests define later are missing. The chart asks only for MutatingAdmissionPolicy, which no test
    /// defines.
    async fn served(&self) -> Result<Vec<String>> {
        static SERVED: Mutex<BTreeMap<[String; 2], Vec<String>>> = Mutex::new(BTreeMap::new());
        let lock = || SERVED.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.client.apiserver_version().await?.git_version;
        // The next control plane at this address may have another version.
        let key = [self.api_url.clone(), version.clone()];
        let known = lock().get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let discovery = Discovery::new(self.client.clone()).run_aggregated().await?;
        let mut args = vec![format!("--kube-version={version}")];
        for group in discovery.groups() {
            for version in group.versions() {
                let resources = group.versioned_resources(version);
                let kinds = resources.iter().map(|(resource, _)| {
                    let ApiResource {
                        api_version, kind, ..
                    } = resource;
                    format!("--api-versions={api_version}/{kind}")
                });
                args.extend(kinds);
                let version = resources.first().map(|(resource, _)| &resource.api_version);
                args.extend(version.map(|it| format!("--api-versions={it}")));
            }
        }
        lock().insert(key, args.clone());
        Ok(args)
    }

    /// Runs `helm uninstall`, and waits until everything of the release is gone. Without a release, deletes
    /// only the cluster-scoped objects: the others go with the namespace.
    ///
    /// # Errors
    /// When helm or the apiserver refuses.
    pub async fn uninstall(&self) -> Result<()> {
        if self.created_directly {
            return delete_release(&self.client, &[], &self.namespace).await;
        }
        let uninstall = [
            "uninstall",
            &self.namespace,
            "--namespace",
            &self.namespace,
            "--wait",
        ];
        self.helm.run(&uninstall).await.map(drop)
    }

    /// Returns the same installation for one more replica, whose webhook has a port of its own.
    ///
    /// # Errors
    /// When every port is taken.
    pub fn another_replica(&self) -> Result<Self> {
        Ok(Self {
            port: free_port()?,
            ..self.clone()
        })
    }

    /// Returns the same installation for the writer, the process that writes Secrets and custom resources. `None` if the
    /// chart renders none with these values.
    ///
    /// # Errors
    /// When the apiserver does not answer.
    pub async fn writer(&self) -> Result<Option<Self>> {
        let mut writer = Self {
            deployment: format!("{}-writer", self.deployment),
            component: "writer",
            // Nobody calls it.
            port: free_port()?,
            ..self.clone()
        };
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        if deployments
            .get_metadata_opt(&writer.deployment)
            .await?
            .is_none()
        {
            return Ok(None);
        }
        writer.mount().await?;
        Ok(Some(writer))
    }

    /// Returns `values`, and the values for an installation beside the control plane. Beneath them are those of the
    /// file that [`VALUES_VARIABLE`] names.
    ///
    /// # Panics
    /// When that file cannot be read, or is not YAML.
    pub fn values(&self, values: &Value) -> Value {
        let mut all = json!({
            "fullnameOverride": self.namespace,
            // Nobody pulls this image.
            "image": {"repository": "registry.example.com/pod-reloader"},
            // The replicas are processes.
            "replicaCount": 0,
            "writer": {"replicaCount": 0},
            "service": {"type": "ExternalName", "externalName": "localhost", "port": self.port},
        });
        // The chart asks for it, and nothing enforces it here.
        if self.version.has_value("restrictedOtherwise") {
            all["webhook"] = json!({"restrictedOtherwise": true});
        }
        merge(&mut all, values_of_this_run());
        merge(&mut all, values);
        all
    }

    /// Returns the arguments of the operator's container, with the paths and addresses of this machine.
    pub fn args(&self) -> Vec<String> {
        let mut args = self.args.clone();
        args.push(format!("--namespace={}", self.namespace));
        args.push(format!("--webhook-bind-address=127.0.0.1:{}", self.port));
        args.extend(self.mounted.iter().map(|(argument, _)| argument.clone()));
        args
    }

    /// Returns the same installation, whose operators do without an argument.
    #[must_use]
    pub fn without(&self, argument: &str) -> Self {
        let mut other = self.clone();
        other.args.retain(|it| it != argument);
        other
    }

    /// Returns a selector of what the chart renders for this process.
    pub fn selector(&self) -> String {
        format!(
            "app.kubernetes.io/instance={},app.kubernetes.io/component={}",
            self.namespace, self.component
        )
    }

    /// Returns the operator's user name at the apiserver.
    pub fn username(&self) -> String {
        format!(
            "system:serviceaccount:{}:{}",
            self.namespace,
            self.service_account()
        )
    }

    /// Returns the name that the apiserver expects in the webhook's certificate.
    pub fn host(&self) -> String {
        format!("{0}.{0}.svc", self.namespace)
    }

    /// Returns the service account of the operator.
    pub fn service_account(&self) -> &str {
        &self.service_account
    }

    /// Returns the name of the Secret with the keys of the config hash.
    pub fn hash_keys(&self) -> String {
        format!("{}-hash-keys", self.namespace)
    }

    /// Takes over the Deployment's settings for the operator's container.
    async fn mount(&mut self) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let deployment = serde_json::to_value(deployments.get(&self.deployment).await?)?;
        let pod = &deployment["spec"]["template"]["spec"];
        let service_account = pod["serviceAccountName"].as_str();
        self.service_account = service_account.context("no service account")?.to_owned();
        self.args = serde_json::from_value(pod["containers"][0]["args"].clone())?;
        // Two mounts would refresh the same directory.
        self.mounted.clear();
        for volume in pod["volumes"].as_array().into_iter().flatten() {
            let volume_name = volume["name"].as_str().unwrap_or_default();
            let Some((_, flag, file)) = VOLUMES.iter().find(|(name, ..)| *name == volume_name)
            else {
                continue;
            };
            let secret = volume["secret"]["secretName"].as_str();
            let secret =
                secret.with_context(|| format!("the volume {volume_name} is no Secret"))?;
            let (client, directory) = (self.client.clone(), self.directory.join(secret));
            if volume["secret"]["optional"] == true {
                let secrets: Api<Secret> = Api::namespaced(client.clone(), &self.namespace);
                // A pod starts even without this Secret.
                if secrets.get_opt(secret).await?.is_none() {
                    continue;
                }
            }
            let mounted = MountedSecret::mount(client, &self.namespace, secret, directory).await?;
            let argument = format!("--{flag}={}", mounted.path().join(file).display());
            self.mounted.push((argument, Arc::new(mounted)));
        }
        Ok(())
    }
}

/// Returns true if an object stays when its release goes. The policies about authors do so outside of tests: here, they
/// would refuse what other tests write later, because each installation binds fields of other kinds.
fn stays(object: &Value) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    object["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        && !name.ends_with("-author")
}

/// The volumes of the chart, each with the flag for its path, and the file below it.
const VOLUMES: [(&str, &str, &str); 3] = [
    ("tls", "webhook-tls-directory", ""),
    ("client-ca", "webhook-client-ca-file", "ca.crt"),
    ("notifications", "notifications-url-file", "url"),
];

/// Creates a namespace with labels such as `stage=live`.
pub(crate) async fn create_namespace(client: &Client, name: &str, labels: &[String]) -> Result<()> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    for label in labels {
        let (key, value) = label
            .split_once('=')
            .with_context(|| format!("{label} is no label"))?;
        let labels = namespace.metadata.labels.get_or_insert_default();
        labels.insert(key.to_owned(), value.to_owned());
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let created = namespaces.create(&PostParams::default(), &namespace).await;
    created
        .map(drop)
        .with_context(|| format!("creating the namespace {name}"))
}

/// Deletes a namespace, without waiting until it is gone.
pub(crate) async fn delete_namespace(client: &Client, name: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Deletes the objects that other tests would have to list, and leaves the namespace itself. To delete a
/// namespace, the controller manager would list every kind of object that exists, twice.
pub(crate) async fn empty_namespace(client: &Client, name: &str) -> Result<()> {
    empty_operators_namespace(client, name).await?;
    delete_all(client, Some(name), &OF_WORKLOADS, &ListParams::default()).await
}

/// Deletes objects as [`empty_namespace`] does, in the namespace of an operator.
pub(crate) async fn empty_operators_namespace(client: &Client, name: &str) -> Result<()> {
    // The controller manager would create this one again.
    let all = ListParams::default().fields("metadata.name!=kube-root-ca.crt");
    delete_all(client, Some(name), &OF_THE_CHART, &all).await
}

/// Deletes what the chart has rendered for a release, for the whole cluster and in these namespaces, without a process of Helm,
/// and without waiting until it is gone. Its Secrets and ConfigMaps stay, so Helm still lists it as installed.
///
/// # Errors
/// When the apiserver refuses.
///
/// # Caveats
/// Roles in other namespaces (`watch.namespaces`, `flux`, `argoCD`) stay, unless these are named.
pub async fn delete_release(client: &Client, namespaces: &[&str], release: &str) -> Result<()> {
    let own = of_release(release);
    delete_all(client, None, &OF_THE_CLUSTER, &own).await?;
    for &namespace in namespaces {
        delete_all(client, Some(namespace), &OF_A_RELEASE, &own).await?;
    }
    Ok(())
}

/// Selects what the chart has rendered for a release.
fn of_release(name: &str) -> ListParams {
    let label = format!("app.kubernetes.io/instance={name}");
    // This policy stays, as with Helm: without it, the apiserver would stop watching the parameters of the others. The policies
    // about authors, which Helm would keep, go.
    let stays = format!("metadata.name!={name}-protect-stays");
    ListParams::default().labels(&label).fields(&stays)
}

/// Deletes the selected objects of these kinds: in a namespace, or for the whole cluster.
async fn delete_all(
    client: &Client,
    namespace: Option<&str>,
    kinds: &[(&str, &str)],
    selected: &ListParams,
) -> Result<()> {
    let mut refused = Ok(());
    for &(version, kind) in kinds {
        let of_kind = json!({"apiVersion": version, "kind": kind});
        let api = api_of(client, namespace, &of_kind)?;
        // Only some versions of Kubernetes serve these policies, and not every cluster has cert-manager.
        let is_optional = kind.starts_with("MutatingAdmissionPolicy") || version == CERT_MANAGER;
        let delete = DeleteParams::background();
        match api.delete_collection(&delete, selected).await {
            // The answer has no reason then, but this code.
            Err(kube::Error::Api(status)) if status.code == 404 && is_optional => {}
            Err(error) => refused = Err(error.into()),
            Ok(_) => {}
        }
    }
    refused
}

/// The kinds without a namespace that the chart renders, except definitions, which stay. The webhook goes before the rights, as
/// with Helm.
pub const OF_THE_CLUSTER: [(&str, &str); 9] = [
    (ADMISSION, "MutatingWebhookConfiguration"),
    (ADMISSION, "MutatingAdmissionPolicyBinding"),
    (ADMISSION, "MutatingAdmissionPolicy"),
    (ADMISSION, "ValidatingAdmissionPolicyBinding"),
    (ADMISSION, "ValidatingAdmissionPolicy"),
    (RBAC, "ClusterRoleBinding"),
    (RBAC, "ClusterRole"),
    (FLOW_CONTROL, "FlowSchema"),
    (FLOW_CONTROL, "PriorityLevelConfiguration"),
];
/// The kinds with a namespace that the chart renders, except ConfigMaps, of which all in the namespace are deleted, and those
/// of which nobody has to list the objects that stay.
pub const OF_A_RELEASE: [(&str, &str); 9] = [
    ("apps/v1", "Deployment"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    (RBAC, "RoleBinding"),
    (RBAC, "Role"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    (CERT_MANAGER, "Certificate"),
    (CERT_MANAGER, "Issuer"),
];
const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io/v1";
const CERT_MANAGER: &str = "cert-manager.io/v1";

/// The kinds of which the chart and tests create many objects.
const OF_THE_CHART: [(&str, &str); 3] = [
    ("apps/v1", "Deployment"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
];
/// The kinds of which only tests create many objects.
const OF_WORKLOADS: [(&str, &str); 4] = [
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "CronJob"),
    ("batch/v1", "Job"),
];

/// Returns true if the installations of this run have values that no test has chosen. Restarts may then wait for each
/// other, in stages and for a limit, so all takes longer.
pub fn has_own_values() -> bool {
    values_of_this_run() != &json!({})
}

/// Returns the values of every installation of this run. They are those of the chart, unless somebody says otherwise.
fn values_of_this_run() -> &'static Value {
    static VALUES: LazyLock<Value> = LazyLock::new(|| {
        let Some(file) = env::var_os(VALUES_VARIABLE).filter(|file| !file.is_empty()) else {
            return json!({});
        };
        let shown = file.display();
        let text = fs::read_to_string(&file);
        let text = text.unwrap_or_else(|error| panic!("{VALUES_VARIABLE}: {shown}: {error}"));
        let values = serde_saphyr::from_str(&text);
        values.unwrap_or_else(|error| panic!("{VALUES_VARIABLE}: {shown}: {error}"))
    });
    &VALUES
}

/// Returns the names that the chart takes for dialects.
///
/// # Panics
///
/// The schema of the chart lists none.
pub fn dialects() -> Vec<String> {
    let schema = fs::read(chart().join("values.schema.json")).expect("the chart has a schema");
    let schema: Value = serde_json::from_slice(&schema).expect("it is a JSON schema");
    let names = schema["properties"]["dialects"]["items"]["enum"].clone();
    serde_json::from_value(names).expect("it lists dialects")
}

/// Merges `values` into `all`, as helm merges one values file into another.
pub fn merge(all: &mut Value, values: &Value) {
    match (all, values) {
        (Value::Object(all), Value::Object(values)) => {
            for (key, value) in values {
                merge(all.entry(key).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (all, value) => *all = value.clone(),
    }
}

/// Returns a port of 127.0.0.1 on which nobody listens.
///
/// # Errors
/// When every port is taken.
pub fn free_port() -> Result<u16> {
    free_ports().next().context("every port is taken")
}
