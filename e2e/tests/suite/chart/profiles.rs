//! The profiles, which are files of values for an environment: each renders for every version of Kubernetes, and sets
//! what it promises.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{
    Options, Scene, THIS_NAMESPACE, chart, merge,
    workload::{Workload, config_map},
};
use serde_json::{Value, json};

use super::{IMAGE, SERVES_POLICY, helm, template, template_args};

/// A golden file of each profile has what the newest version gets. The templates do not ask for the version, only for
/// what is served: the version matters to the range in `Chart.yaml`, which all profiles share.
#[test]
fn every_profile_renders_for_each_version_of_kubernetes() -> Result<()> {
    let oldest = names()?.into_iter().map(|name| (name, "1.30", None));
    let newer = [("1.34", None), ("1.37", Some(SERVES_POLICY))];
    let newer = newer.map(|(version, served)| ("hardened".to_owned(), version, served));
    for (name, version, serves_policy) in oldest.chain(newer) {
        let profile = format!("--values=profiles/{name}.yaml");
        let user = format!("--values=ci/profile-{name}-values.yaml");
        let kubernetes = format!("--kube-version={version}");
        let mut args = template_args().to_vec();
        args.extend(serves_policy);
        args.extend([&kubernetes, &profile, &user].map(String::as_str));
        let rendered = helm(&args).with_context(|| format!("{name}, {version}"))?;
        let is_there = rendered.contains("\nkind: Deployment\n");
        ensure!(is_there, "{name}, {version}");
    }
    Ok(())
}

#[test]
fn a_profile_is_refused_until_its_user_has_filled_it_in() -> Result<()> {
    for (name, complaints) in [
        (
            "hardened",
            &[
                "/watch/namespaces/0",
                "/networkPolicy/webhookFrom/0/ipBlock/cidr",
                "/networkPolicy/egress/0/to/0/ipBlock/cidr",
                "/networkPolicy/egress/0/to/1/ipBlock/cidr",
            ][..],
        ),
        ("namespaced", &["/watch/namespaces/0"][..]),
        ("everything", &["needs webhook.clientCA"][..]),
    ] {
        let profile = format!("--values=profiles/{name}.yaml");
        let error = helm(&[&template_args()[..], &[IMAGE, &*profile]].concat());
        let error = error.err().context(name)?.to_string();
        for complaint in complaints {
            ensure!(error.contains(complaint), "{name}: {error}");
        }
    }
    Ok(())
}

#[test]
fn a_profile_for_some_namespaces_has_no_cluster_role() -> Result<()> {
    let namespaced = [
        "--values=profiles/namespaced.yaml",
        "--set=watch.namespaces={shop}",
    ];
    let of_both = [
        "--values=profiles/hardened.yaml",
        "--values=profiles/namespaced.yaml",
        "--values=ci/profile-hardened-values.yaml",
    ];
    for values in [&namespaced[..], &of_both] {
        let objects: Vec<Value> = serde_saphyr::from_multiple(&template(values)?)?;
        for kind in ["ClusterRole", "ClusterRoleBinding", "FlowSchema"] {
            let found = names_of(&objects, kind);
            ensure!(found.is_empty(), "{values:?}: {kind}: {found:?}");
        }
    }
    Ok(())
}

#[test]
fn the_hardened_profile_has_one_cluster_role_and_a_fence() -> Result<()> {
    let objects = rendered("hardened")?;
    let cluster_roles = names_of(&objects, "ClusterRole");
    ensure!(
        cluster_roles == ["pod-reloader-own-ca"],
        "{cluster_roles:?}"
    );
    for kind in [
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ] {
        let names = names_of(&objects, kind);
        ensure!(names.contains(&"pod-reloader-fence"), "{kind}: {names:?}");
    }
    Ok(())
}

#[test]
fn the_hardened_profile_names_everybody_who_calls_or_is_called() -> Result<()> {
    let objects = rendered("hardened")?;
    let policies = objects
        .iter()
        .filter(|object| object["kind"] == "NetworkPolicy");
    let policies: Vec<_> = policies.collect();
    ensure!(policies.len() == 1, "{policies:?}");
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        let rules = policies[0]["spec"][rules].as_array().context(rules)?;
        ensure!(!rules.is_empty(), "{peers}: nobody is let through");
        for rule in rules {
            let peers = rule[peers].as_array();
            ensure!(peers.is_some_and(|peers| !peers.is_empty()), "{rule}");
        }
    }
    let client_ca = pod(&objects)?["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|volume| volume["name"] == "client-ca")
        .context("no volume client-ca")?;
    ensure!(
        client_ca["configMap"]["name"] == "apiserver-client-ca",
        "{client_ca}"
    );
    Ok(())
}

#[test]
fn every_profile_says_whom_it_is_for_and_is_documented() -> Result<()> {
    let page = fs::read_to_string(chart().join("../../docs/install.md"))?;
    for name in names()? {
        let text = fs::read_to_string(file(&name))?;
        let intro: Vec<_> = text
            .lines()
            .take_while(|line| line.starts_with("# "))
            .collect();
        let is_for = intro.first().is_some_and(|line| line.starts_with("# For "));
        let needs = intro.iter().any(|line| line.starts_with("# Needs "));
        ensure!(is_for && needs, "{name}: {intro:?}");
        let row = format!("| [{name}](../charts/pod-reloader/profiles/{name}.yaml) |");
        ensure!(page.contains(&row), "install.md: {row}");
    }
    Ok(())
}

#[tokio::test]
async fn the_profile_for_some_namespaces_works() -> Result<()> {
    let values = json!({"watch": {"namespaces": [THIS_NAMESPACE]}});
    let options = installed("namespaced", &values)?;
    Scene::play(options, async |scene| restarts(scene).await).await
}

#[test]
fn the_profile_for_openshift_leaves_the_user_open_and_restarts_deploymentconfigs() -> Result<()> {
    let objects = rendered("openshift")?;
    let pod = pod(&objects)?;
    let security_context = &pod["securityContext"];
    for chosen in ["runAsUser", "runAsGroup"] {
        ensure!(security_context[chosen].is_null(), "{security_context}");
    }
    ensure!(security_context["runAsNonRoot"] == true);
    let args = pod["containers"][0]["args"].to_string();
    ensure!(args.contains("DeploymentConfig"), "{args}");
    Ok(())
}

#[test]
fn the_profiles_for_networks_listen_where_the_control_plane_can_call() -> Result<()> {
    for (name, port, host_network, dns_policy) in [
        ("gke-private", 10250, false, "ClusterFirst"),
        ("eks-custom-cni", 10270, true, "ClusterFirstWithHostNet"),
    ] {
        let objects = rendered(name)?;
        let pod = pod(&objects)?;
        let container = &pod["containers"][0];
        let mut ports = container["ports"].as_array().into_iter().flatten();
        let webhook = ports.find(|port| port["name"] == "webhook");
        let webhook = webhook.context("no port of the webhook")?;
        ensure!(webhook["containerPort"] == port, "{name}: {webhook}");
        let bind_address = json!(format!("--webhook-bind-address=:{port}"));
        let args = container["args"].as_array().context("no arguments")?;
        ensure!(args.contains(&bind_address), "{name}: {args:?}");
        ensure!(pod["hostNetwork"] == host_network, "{name}: {pod}");
        ensure!(pod["dnsPolicy"] == dns_policy, "{name}: {pod}");
    }
    Ok(())
}

/// Changes the config of a workload, which is then restarted once.
pub(crate) async fn restarts(scene: &Scene) -> Result<()> {
    let (web, created) = scene.create_listing(Workload::deployment("web")).await?;
    scene.apply(&[config_map("app", "2")]).await?;
    scene.rolls_once(&web, &created).await.map(drop)
}

/// Renders a profile, and what the file in `ci` adds to it.
fn rendered(name: &str) -> Result<Vec<Value>> {
    let profile = format!("--values=profiles/{name}.yaml");
    let user = format!("--values=ci/profile-{name}-values.yaml");
    Ok(serde_saphyr::from_multiple(&template(&[
        &*profile, &*user,
    ])?)?)
}

/// Returns the names of all objects of a kind.
fn names_of<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a str> {
    let of_kind = objects.iter().filter(|object| object["kind"] == kind);
    of_kind
        .filter_map(|object| object["metadata"]["name"].as_str())
        .collect()
}

/// Returns the spec of the operator's pods.
fn pod(objects: &[Value]) -> Result<&Value> {
    let is_operators = |object: &&Value| {
        object["kind"] == "Deployment" && object["metadata"]["name"] == "pod-reloader"
    };
    let deployment = objects.iter().find(is_operators);
    let deployment = deployment.context("no Deployment of the operator")?;
    Ok(&deployment["spec"]["template"]["spec"])
}

/// Returns options with a profile, and with what its user adds.
pub(crate) fn installed(name: &str, user: &Value) -> Result<Options> {
    let text = fs::read_to_string(file(name)).with_context(|| name.to_owned())?;
    let mut values: Value = serde_saphyr::from_str(&text)?;
    merge(&mut values, user);
    Ok(Options::with_values(values))
}

/// Returns the file of the profile to which a file of `ci` adds what a user fills in: `profile-NAME-values.yaml`.
pub(super) fn profile_of(values: &str) -> Option<PathBuf> {
    values.strip_prefix("profile-").map(file)
}

fn file(name: &str) -> PathBuf {
    chart().join("profiles").join(format!("{name}.yaml"))
}

fn names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(chart().join("profiles"))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        names.push(name.context("a name")?.to_owned());
    }
    ensure!(names.len() > 5, "{names:?}");
    Ok(names)
}
