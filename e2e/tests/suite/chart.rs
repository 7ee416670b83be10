//! Renders the chart, without a cluster.

mod applied;
mod cleared;
mod goldens;
mod notes;
mod platform;
pub(crate) mod profiles;
mod renamed;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    path::Path,
    process::Command,
};

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{Programs, chart, dialects, own_kinds};
use serde_json::Value;

use self::goldens::{Rendering, renderings};

/// Variable that `make golden` sets: the rendering is written instead of compared.
const UPDATE: &str = "UPDATE_GOLDEN";

#[test]
fn the_only_ca_bundle_that_is_rendered_is_one_that_was_given() -> Result<()> {
    for Rendering { name, text } in renderings()? {
        let is_given = name == "existing-secret";
        ensure!(text.contains("caBundle:") == is_given, "{name}");
    }
    Ok(())
}

#[test]
fn a_values_file_of_saps_chart_renders_the_same_objects_as_none() -> Result<()> {
    let renderings = renderings()?;
    let kinds = |name: &str| -> Result<Vec<&'static str>> {
        let rendering = renderings.iter().find(|rendering| rendering.name == name);
        let lines = rendering.context("it is rendered")?.text.lines();
        Ok(lines
            .filter_map(|line| line.strip_prefix("kind: "))
            .collect())
    };
    let of_default = kinds("default")?;
    ensure!(!of_default.is_empty() && kinds("sap")? == of_default);
    Ok(())
}

#[test]
fn values_that_cannot_be_right_are_refused_by_name() -> Result<()> {
    // The schema refuses these where they are.
    let by_name = [
        "image.digest=0123",
        "global.imageRegistry=https://x",
        "tests.tolerations=all",
        "crds.enabled=never",
        "rbac.create=never",
        "ports.metrics=0",
        "readinessProbe.periodSeconds=0",
        "terminationGracePeriodSeconds=15",
        "extraVolumes[0].name=tls",
        "extraEnv[0].name=POD_NAMESPACE",
        "extraContainers[0].name=controller,extraContainers[0].image=a",
        "namespaceOverride=Tools",
        "commonLabels.team=a b",
        "revisionHistoryLimit=-1",
        "strategy.type=OnDelete",
        "strategy.rollingUpdate.maxSurge=half",
        "strategy.rollingUpdate.maxUnavailable=150%",
        "webhook.failurePolicy=Refuse",
        "replicaCount=two",
        "settlePeriod=soon",
        "settlePeriod=2h",
        "settlePeriod=90m",
        "settlePeriod=1.5h 3m",
        "maxRestarts=-1",
        "flowControl.nominalConcurrencyShares=0",
        "podMonitor.interval=1.5s",
        "serviceMonitor.scrapeTimeout=soon",
        "podMonitor.metricRelabelings[0].action=remove",
        "reconcile=maybe",
        "policy.enabled=perhaps",
        "dialects={wave,wave}",
        "autoReloadAll=all",
        "customResources={knative,knative}",
        "networkPolicy.webhookFrom[0].ipBlock.cidr=10.0.0.1",
        "networkPolicy.metricsFrom[0].ipBlock.cidr=monitoring/24",
        "networkPolicy.metricsFrom[0].ipBlock.cidr=face/32",
        "networkPolicy.webhookFrom[0].ipBlock.cidr=999.1.1.1/99",
        "networkPolicy.webhookFrom[0].ipBlock.cidr=:::::/999",
        "networkPolicy.egress[0].to[0].ipBlock.cidr=APISERVER/32",
        "prometheusRule.runbookUrl=runbooks.md",
        "grafanaDashboard.labels=1",
        "httpReload.enabled=always",
        "unstick.enabled=always",
        "unstick.after=2h",
        "unstick.after=0s",
        "pin.enabled=configmaps",
        "namespaceAnnotations.enabled=always",
        "sync.enabled=always",
    ];
    let refused = [
        ("webhok.failurePolicy=Fail", "webhok"),
        ("webhook.failurePolcy=Fail", "failurePolcy"),
        (
            "image.tag=1@sha256:0,image.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "set only one of them",
        ),
        (
            "hostNetwork=true,webhook.port=10250",
            "port 10250 is taken on every node",
        ),
        (
            "hostNetwork=true,ports.probes=10250",
            "port 10250 is taken on every node",
        ),
        ("tests.image=kubectl", "/tests"),
        ("rbac.aggregate=true", "/rbac"),
        ("ports.metrics=8081", "must differ"),
        ("ports.probes=9443", "must differ"),
        ("livenessProbe.path=/", "/livenessProbe"),
        ("dnsConfig.servers={a}", "/dnsConfig"),
        ("dnsPolicy=None", "dnsConfig.nameservers"),
        ("hostAliases[0].hostnames={a}", "/hostAliases/0"),
        ("extraEnvFrom[0].prefix=A", "/extraEnvFrom/0"),
        ("extraVolumes[0].emptyDir.medium=Memory", "/extraVolumes/0"),
        ("extraEnv[0].value=a", "/extraEnv/0"),
        ("extraVolumeMounts[0].name=a", "/extraVolumeMounts/0"),
        ("extraContainers[0].name=a", "/extraContainers/0"),
        ("extraObjects={1}", "/extraObjects/0"),
        (
            "strategy.type=Recreate,strategy.rollingUpdate.maxSurge=1",
            "/strategy/rollingUpdate",
        ),
        (
            "strategy.rollingUpdate.maxSurge=0,strategy.rollingUpdate.maxUnavailable=0%",
            "cannot both be 0",
        ),
        (
            "serviceMonitor.relabelings[0].target=a",
            "/serviceMonitor/relabelings/0",
        ),
        (
            "podMonitor.enabled=true,serviceMonitor.enabled=true",
            "exclude each other",
        ),
        ("watch.namespaces={Shop}", "/watch/namespaces/0"),
        ("watch.namespaces={kube-system}", "/watch/namespaces/0"),
        ("watch.namespaces={pod-reloader}", "its own namespace"),
        ("service.type=ExternalName", "/service/externalName"),
        ("dialects={reloader}", "/dialects/0"),
        ("customResources={rollouts}", "/customResources/0"),
        (
            "customResources[0].group=x.io,customResources[0].resource=xs,customResources[0].kind=X",
            "/customResources/0",
        ),
        (
            "customResources[0].group=x.io,customResources[0].resource=xs,customResources[0].kind=X,\
             customResources[0].podTemplates={status.template}",
            "/customResources/0/podTemplates/0",
        ),
        (
            "customResources[0].group=x.io,customResources[0].resource=xs,customResources[0].kind=X,\
             customResources[0].restartAt=metadata.name",
            "/customResources/0/restartAt",
        ),
        (
            "customResources[0]=cronjobs,customResources[1].group=batch,\
             customResources[1].resource=cronjobs,customResources[1].kind=CronJob,\
             customResources[1].restartAt=spec.at",
            "batch/CronJob is managed already",
        ),
        (
            "networkPolicy.webhookFrom[0].ipBlock.cidr=10.0.0.0/8,\
             networkPolicy.webhookFrom[0].ipBlock.except={APISERVER/32}",
            "/networkPolicy/webhookFrom/0/ipBlock/except/0",
        ),
        ("ignoreNamespaces={Shop}", "/ignoreNamespaces/0"),
        (
            "prometheusRule.enabled=true",
            "podMonitor.enabled, serviceMonitor.enabled or prometheusRule.selector",
        ),
        (
            "ignoreSecrets=true,ignoreConfigMaps=true",
            "exclude each other",
        ),
        (
            "pin.enabled=true,ignoreConfigMaps=true",
            "exclude each other",
        ),
        (
            "watch.namespaces={shop},namespaceAnnotations.enabled=true",
            "watch.namespaces and namespaceAnnotations.enabled exclude each other",
        ),
        (
            "fieldBindings.enabled=true",
            "fieldBindings.enabled needs fieldBindings.kinds",
        ),
        (
            "fieldBindings.kinds[0].group=x.io,fieldBindings.kinds[0].version=v1,\
             fieldBindings.kinds[0].resource=xs,fieldBindings.kinds[0].kind=X",
            "fieldBindings.kinds needs fieldBindings.enabled",
        ),
        (
            "sync.enabled=true,watch.namespaces={shop}",
            "sync.enabled and watch.namespaces exclude each other",
        ),
        (
            "sync.enabled=true,ignoreSecrets=true",
            "sync.enabled excludes ignoreSecrets and ignoreConfigMaps",
        ),
        (
            "sync.enabled=true,ignoreConfigMaps=true",
            "sync.enabled excludes ignoreSecrets and ignoreConfigMaps",
        ),
        (
            "sync.enabled=true,reconcile=observe",
            "sync.enabled needs reconcile",
        ),
        (
            "sync.enabled=true,reconcile=none",
            "sync.enabled needs reconcile",
        ),
        (
            "ignoreNamespaces={test},tests.namespace=test",
            "ignoreNamespaces",
        ),
    ];
    let places = by_name.map(place_of);
    let (mut by_schema, by_templates): (Vec<_>, Vec<_>) = refused
        .into_iter()
        .partition(|(_, complaint)| complaint.starts_with('/'));
    by_schema.extend(by_name.into_iter().zip(places.iter().map(String::as_str)));
    refused_by_schema(&by_schema)?;
    for (value, complaint) in by_templates {
        let error = template(&["--set", value]).err().context(value)?;
        ensure!(format!("{error}").contains(complaint), "{value}: {error}");
    }
    for exclusive in [
        "webhook.certManager.enabled=true,webhook.existingSecret=x",
        "webhook.caBundle=Q0E=",
        "webhook.clientCA.configMap=a,webhook.clientCA.secret=b",
        "serviceAccount.create=false",
        "tests.namespace=pod-reloader",
        "webhook.port=8080",
    ] {
        ensure!(template(&["--set", exclusive]).is_err(), "{exclusive}");
    }
    let both = [
        "--set",
        "watch.namespaces={a},watch.namespaceSelector.matchLabels.x=y",
    ];
    ensure!(
        template(&both).is_err(),
        "Roles cannot read the labels of namespaces"
    );
    Ok(())
}

#[test]
fn address_ranges_of_both_families_are_taken() -> Result<()> {
    let ranges = [
        "0.0.0.0/0",
        "255.255.255.255/32",
        "::/0",
        "2001:db8::/32",
        "fd00:1:2:3:4:5:6:7/128",
        "::ffff:10.0.0.1/128",
        "64:ff9b::10.0.0.1/128",
    ];
    let mut values = vec!["networkPolicy.enabled=true".to_owned()];
    for (at, range) in ranges.iter().enumerate() {
        values.push(format!(
            "networkPolicy.webhookFrom[{at}].ipBlock.cidr={range}"
        ));
        values.push(format!(
            "networkPolicy.egress[0].to[{at}].ipBlock.cidr={range}"
        ));
    }
    let rendered = template(&["--set", &values.join(",")])?;
    for range in ranges {
        let count = rendered.matches(range).count();
        ensure!(count == 2, "{range}: {rendered}");
    }
    Ok(())
}

#[test]
fn kinds_whose_fields_may_not_be_bound_are_refused() -> Result<()> {
    let harbor = "group=goharbor.io,version=v1beta1,resource=harbors,kind=Harbor";
    let kind = |at: usize, fields: &str| {
        let fields = fields.split(',');
        let fields = fields.map(|field| format!("fieldBindings.kinds[{at}].{field}"));
        fields.collect::<Vec<_>>().join(",")
    };
    let of = |fields: &str| format!("fieldBindings.enabled=true,{}", kind(0, fields));
    let with = |value: &str| format!("{},{value}", of(harbor));
    let filling = "fieldBindings.kinds[0].fillOnCreate=true";
    let from = "networkPolicy.webhookFrom[0].ipBlock.cidr=10.0.0.0/24";
    for allowed in [
        of(harbor),
        of("group=cluster.x-k8s.io,version=v1beta1,resource=clusters,kind=Cluster"),
        with("watch.namespaces={shop}"),
        with(&format!("{filling},webhook.clientCA.secret=ca")),
        with(&format!("{filling},webhook.restrictedOtherwise=true")),
        with(&format!("{filling},networkPolicy.enabled=true,{from}")),
    ] {
        template(&["--set", &allowed]).context(allowed)?;
    }
    let ours = "is a kind of pod-reloader";
    let open = "needs webhook.clientCA, or networkPolicy.enabled";
    let kinds_of_kubernetes = [
        "group=,version=v1,resource=secrets,kind=Secret",
        "group=apps,version=v1,resource=deployments,kind=Deployment",
        "group=rbac.authorization.k8s.io,version=v1,resource=clusterroles,kind=ClusterRole",
        "group=admissionregistration.k8s.io,version=v1,resource=x,kind=X",
        "group=apiextensions.k8s.io,version=v1,resource=x,kind=X",
    ];
    let others = [
        (
            of("group=goharbor.io,resource=harbors,kind=Harbor"),
            "/fieldBindings/kinds/0",
        ),
        (
            of(
                "group=pod-reloader.github.io,version=v1alpha1,resource=fieldbindings,kind=FieldBinding",
            ),
            ours,
        ),
        (
            format!(
                "{},{}",
                of(harbor),
                kind(1, &harbor.replace("v1beta1", "v1"))
            ),
            "named twice",
        ),
        (
            format!(
                "{},customResources={{cloudnativepg}}",
                of("group=postgresql.cnpg.io,version=v1,resource=clusters,kind=Cluster")
            ),
            "is one of customResources",
        ),
        (
            with("ignoreSecrets=true"),
            "excludes ignoreSecrets and ignoreConfigMaps",
        ),
        (
            with("ignoreConfigMaps=true"),
            "excludes ignoreSecrets and ignoreConfigMaps",
        ),
        (
            with("reconcile=observe"),
            "fieldBindings.enabled needs reconcile",
        ),
        // Whoever reaches the webhook could ask for the values.
        (with(filling), open),
        (with(&format!("{filling},networkPolicy.enabled=true")), open),
        (with(&format!("{filling},{from}")), open),
        (
            with(&format!(
                "{filling},networkPolicy.enabled=true,{from},hostNetwork=true"
            )),
            open,
        ),
    ];
    let refused = kinds_of_kubernetes.map(|fields| (of(fields), "is a kind of Kubernetes itself"));
    for (value, complaint) in refused.into_iter().chain(others) {
        let error = template(&["--set", &value]).err().context(value.clone())?;
        ensure!(format!("{error}").contains(complaint), "{value}: {error}");
    }
    Ok(())
}

#[test]
fn without_an_image_the_chart_says_in_one_sentence_what_to_set() -> Result<()> {
    for args in [
        &[][..],
        &["--set=image.tag=v1"],
        &["--set=image.repository="],
    ] {
        let rendered = helm(&[&template_args()[..], args].concat());
        let error = format!("{}", rendered.err().context("it names somebody's image")?);
        let sentence = error.lines().next().unwrap_or_default();
        for part in [
            "image.repository is required",
            "make image",
            "make push",
            "--set image.repository=REGISTRY/NAME",
            "docs/image.md",
        ] {
            ensure!(sentence.contains(part), "{part}: {error}");
        }
    }
    Ok(())
}

/// Anybody who registered such a name could run code in every cluster that installs from it.
#[test]
fn nothing_that_is_installed_names_an_account_that_anybody_can_take() -> Result<()> {
    let charts = chart().join("..");
    let mut texts = Vec::new();
    for file in [
        chart().join("values.yaml"),
        chart().join("templates/NOTES.txt"),
        charts.join("manifests/kustomize/policy.yaml"),
        charts.join("manifests/kustomize/without-policy/operator.yaml"),
    ] {
        texts.push((file.display().to_string(), fs::read_to_string(&file)?));
    }
    for Rendering { name, text } in renderings()? {
        texts.push((name.clone(), text.clone()));
    }
    for (file, text) in texts {
        for host in ["ghcr.io", "docker.io", "quay.io", "github.com"] {
            ensure!(!text.contains(host), "{file}: {host}");
        }
        let images = text
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("image: "));
        for image in images.filter(|image| !image.is_empty()) {
            let known = ["registry.example.com/", "SET-IMAGE-REPOSITORY:"];
            let is_known = known.iter().any(|prefix| image.starts_with(prefix));
            ensure!(is_known, "{file}: {image}");
        }
    }
    Ok(())
}

#[test]
fn each_definition_of_ours_has_a_policy_about_authors_and_all_of_these_stay() -> Result<()> {
    let mut defined = BTreeSet::new();
    for Rendering { name, text } in renderings()? {
        let objects: Vec<Value> = serde_saphyr::from_multiple(text)?;
        for own in own_kinds() {
            let mut all = objects.iter();
            let Some(definition) = all.find(|it| it["metadata"]["name"] == own.definition) else {
                continue;
            };
            let is_about_authors = |it: &&Value| {
                let resources = &it["spec"]["matchConstraints"]["resourceRules"][0]["resources"];
                let name = it["metadata"]["name"].as_str().unwrap_or_default();
                name.ends_with("-author") && resources[0] == own.plural
            };
            let policy = objects.iter().find(is_about_authors);
            let policy = policy.with_context(|| format!("{name}: authors of {}", own.kind))?;
            let policy_name = &policy["metadata"]["name"];
            let binding = objects
                .iter()
                .find(|it| it["spec"]["policyName"] == *policy_name);
            let binding = binding.with_context(|| format!("{name}: binding of {policy_name}"))?;
            for object in [definition, policy, binding] {
                let metadata = &object["metadata"];
                let stays = metadata["annotations"]["helm.sh/resource-policy"] == "keep";
                ensure!(stays, "{name}: {} goes", metadata["name"]);
            }
            defined.insert(&own.kind);
        }
    }
    ensure!(defined.len() == own_kinds().len(), "only {defined:?}");
    Ok(())
}

#[test]
fn what_others_can_call_has_no_right_to_write_secrets_or_custom_resources() -> Result<()> {
    const WRITES: [&str; 6] = [
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
        "*",
    ];
    let kinds = r#"[{"group":"example.com","version":"v1","resource":"stores","kind":"Store"}]"#;
    let kinds = format!("--set-json=fieldBindings.kinds={kinds}");
    let on = "--set=sync.enabled=true,namespaceAnnotations.enabled=true,fieldBindings.enabled=true,secretProviderClasses.enabled=true";
    let objects: Vec<Value> = serde_saphyr::from_multiple(&template(&[on, &kinds])?)?;
    let of_process = |component: &'static str| {
        let label = "app.kubernetes.io/component";
        let is_of = move |it: &&Value| it["metadata"]["labels"][label] == component;
        objects.iter().filter(is_of)
    };
    // The Roles for their own namespace are left out: the operator has two Secrets there.
    let grants = |component: &'static str| {
        let roles = of_process(component).filter(|it| {
            let kind = it["kind"].as_str().unwrap_or_default();
            let name = it["metadata"]["name"].as_str().unwrap_or_default();
            ["Role", "ClusterRole"].contains(&kind) && !name.ends_with("-own")
        });
        let rules = roles.flat_map(|it| it["rules"].as_array().into_iter().flatten());
        let writes = rules.filter(|rule| {
            let has = |field: &str, words: &[&str]| {
                let mut all = rule[field].as_array().into_iter().flatten();
                all.any(|it| words.iter().any(|word| it == word))
            };
            let is_meant = has("resources", &["secrets", "*"])
                || has("apiGroups", &["example.com", "pod-reloader.github.io", "*"]);
            is_meant && has("verbs", &WRITES)
        });
        writes.collect::<Vec<_>>()
    };
    let granted = grants("controller");
    ensure!(granted.is_empty(), "{granted:?}");
    // The status of each of our kinds, the copies, and the objects that have bound fields.
    let expected = own_kinds().len() + 2;
    ensure!(grants("writer").len() == expected, "{:?}", grants("writer"));

    let deployment = of_process("writer").find(|it| it["kind"] == "Deployment");
    let deployment = deployment.context("a Deployment of the writer")?;
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let ports = container["ports"].as_array().into_iter().flatten();
    let ports: Vec<_> = ports.map(|port| port["name"].as_str()).collect();
    ensure!(
        ports == [Some("metrics"), Some("probes")],
        "others can call it: {ports:?}"
    );
    let called = of_process("writer").find(|it| it["kind"] == "Service");
    ensure!(called.is_none(), "{called:?}");
    Ok(())
}

#[test]
fn a_runbook_is_linked_where_its_url_is_known() -> Result<()> {
    let rules = "--set=prometheusRule.enabled=true,podMonitor.enabled=true";
    ensure!(!template(&[rules])?.contains("runbook_url"));
    let url = "--set=prometheusRule.runbookUrl=https://docs.example.com/runbooks";
    let linked = template(&[rules, url])?;
    ensure!(linked.contains("runbook_url: https://docs.example.com/runbooks#podreloadernoleader"));
    Ok(())
}

#[test]
fn a_large_number_from_a_file_is_written_in_digits() -> Result<()> {
    // Helm reads the numbers of a file as floating point.
    let rendered = template(&["--set-json=maxRestarts=1000000"])?;
    ensure!(rendered.contains("--max-restarts=1000000\n"), "1e+06");
    Ok(())
}

#[test]
fn the_ca_of_cert_manager_has_a_common_name_that_x509_allows() -> Result<()> {
    let common_name = |fullname: &str| -> Result<String> {
        let fullname = format!("--set=fullnameOverride={fullname}");
        let rendered = template(&["--set=webhook.certManager.enabled=true", &fullname])?;
        let name = rendered
            .lines()
            .find_map(|line| line.trim_start().strip_prefix("commonName: "));
        name.map(str::to_owned).context("no common name")
    };
    ensure!(common_name("pod-reloader")? == "pod-reloader-ca");
    ensure!(common_name(&"x".repeat(61))? == format!("{}-ca", "x".repeat(61)));
    let [a, b] = ["a", "b"].map(|last| "x".repeat(62) + last);
    let [a, b] = [common_name(&a)?, common_name(&b)?];
    ensure!(a.len() == 64 && b.len() == 64 && a != b, "{a} {b}");
    Ok(())
}

#[test]
fn null_stands_for_unset() -> Result<()> {
    let all = "watch.namespaces=null,pdb.maxUnavailable=null,pdb.minAvailable=null,extraArgs=null,\
               watch.workloadSelector=null,watch.namespaceSelector.matchLabels=null,staged.byDefault=null,tests.namespace=null,dialects=null,\
               autoReloadAll=null,ignoreSecrets=null,ignoreConfigMaps=null,ignoreNamespaces=null,\
               resourceLabelSelector=null,customResources=null,pin.enabled=null,sync.enabled=null,fieldBindings.kinds=null,fieldBindings.enabled=null,\
               prometheusRule.selector=null,grafanaDashboard.annotations=null";
    let rendered = template(&["--set", all])?;
    for flag in ["--dialects", "--custom-resources", "--staged-by-default"] {
        ensure!(!rendered.contains(flag), "{flag}");
    }
    ensure!(rendered.contains("\n  minAvailable: 1\n"));
    let of_platforms = "global.imageRegistry=null,global.imagePullSecrets=null,image.digest=null,namespaceOverride=null,\
                        commonLabels=null,deploymentAnnotations=null,revisionHistoryLimit=null,strategy=null,\
                        dnsConfig=null,hostAliases=null,runtimeClassName=null,livenessProbe=null,\
                        extraEnvFrom=null,extraVolumes=null,extraVolumeMounts=null,extraContainers=null,\
                        extraObjects=null,crds.annotations=null,podMonitor.relabelings=null,\
                        tests.resources=null,tests.tolerations=null,ports.metrics=null,ports.probes=null,\
                        dnsPolicy=null,terminationGracePeriodSeconds=null,podMonitor=null,\
                        serviceMonitor=null,prometheusRule=null";
    ensure!(template(&["--set", of_platforms])? == template(&[])?);
    let single = template(&["--set", "replicaCount=1"])?;
    ensure!(
        single.contains("\n  maxUnavailable: 1\n"),
        "it blocks every drain"
    );
    Ok(())
}

#[test]
fn the_policy_follows_what_the_cluster_serves() -> Result<()> {
    let served = |version| {
        format!("--api-versions=admissionregistration.k8s.io/{version}/MutatingAdmissionPolicy")
    };
    let auto = |apis: &[&str]| -> Result<Option<String>> {
        let rendered = helm(&[&template_args()[..], &[IMAGE], apis].concat())?;
        let version = rendered
            .lines()
            .zip(rendered.lines().skip(1))
            .find_map(|(version, kind)| {
                (kind == "kind: MutatingAdmissionPolicy").then(|| version.to_owned())
            });
        Ok(version)
    };
    let (stable, beta) = (served("v1"), served("v1beta1"));
    ensure!(auto(&[])?.is_none());
    ensure!(
        auto(&[&stable, &beta])?.as_deref() == Some("apiVersion: admissionregistration.k8s.io/v1")
    );
    ensure!(auto(&[&beta])?.as_deref() == Some("apiVersion: admissionregistration.k8s.io/v1beta1"));
    ensure!(auto(&[&stable, "--set=policy.enabled=false"])?.is_none());
    ensure!(
        auto(&["--set=policy.enabled=true"])?.is_some(),
        "also where nobody was asked"
    );
    Ok(())
}

/// Whoever reaches the webhook could have it write, or name users of objects.
#[test]
fn what_a_review_can_make_the_webhook_do_or_say_asks_who_may_call_it() -> Result<()> {
    let from = "networkPolicy.webhookFrom[0].ipBlock.cidr=10.0.0.0/24";
    for feature in ["pin.enabled=true", "protect.enabled=true"] {
        let with = |more: &str| template(&["--set", &format!("{feature},{more}")]);
        for open in [
            "networkPolicy.enabled=true".to_owned(),
            from.to_owned(),
            format!("networkPolicy.enabled=true,hostNetwork=true,{from}"),
        ] {
            let error = with(&open).err().context(open)?.to_string();
            ensure!(
                error.contains("needs webhook.clientCA"),
                "{feature}: {error}"
            );
        }
        for closed in [
            "webhook.clientCA.secret=ca".to_owned(),
            "webhook.clientCA.configMap=ca".to_owned(),
            "webhook.restrictedOtherwise=true".to_owned(),
            format!("networkPolicy.enabled=true,{from}"),
        ] {
            with(&closed).with_context(|| format!("{feature},{closed}"))?;
        }
    }
    Ok(())
}

#[test]
fn pods_are_pinned_by_a_policy_where_it_is_stable_and_else_by_the_webhook() -> Result<()> {
    let pins = |args: &[&str]| -> Result<[bool; 2]> {
        let rendered = helm(&[&template_args()[..], &[IMAGE], args].concat())?;
        let by_policy = rendered.contains("\n  policyName: pod-reloader-pins\n");
        // The condition of the policy begins at another column.
        let by_webhook = rendered.contains("\n      - name: pinned\n");
        Ok([by_policy, by_webhook])
    };
    let on = "--set=pin.enabled=true,webhook.restrictedOtherwise=true";
    let beta = "--api-versions=admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy";
    ensure!(pins(&[SERVES_POLICY])? == [false, false], "nobody asks");
    ensure!(pins(&[on, SERVES_POLICY])? == [true, false]);
    ensure!(pins(&[on])? == [false, true]);
    ensure!(pins(&[on, beta])? == [false, true], "it lacks a function");
    ensure!(pins(&[on, SERVES_POLICY, "--set=policy.enabled=false"])? == [false, true]);
    Ok(())
}

#[test]
fn the_documented_values_are_those_of_the_chart() -> Result<()> {
    let values = fs::read_to_string(chart().join("values.yaml"))?;
    let mut table = String::from("| value | default | meaning |\n| --- | --- | --- |\n");
    for (name, default, meaning) in documented(&values)? {
        table += &format!("| `{name}` | {default} | {meaning} |\n");
    }
    // The second one is the page of the chart, for those who have only the package.
    for path in ["../../docs/values.md", "README.md"] {
        let path = chart().join(path);
        let page = fs::read_to_string(&path)?;
        let (before, rest) = page
            .split_once(TABLE_BEGINS)
            .context("the table begins nowhere")?;
        let (_, after) = rest
            .split_once(TABLE_ENDS)
            .context("the table ends nowhere")?;
        golden(
            &path,
            &format!("{before}{TABLE_BEGINS}\n{table}{TABLE_ENDS}{after}"),
        )?;
    }
    Ok(())
}

#[test]
fn every_list_of_dialects_and_of_presets_is_complete() -> Result<()> {
    let read = |path: &str| fs::read_to_string(chart().join(path));
    let schema: Value = serde_json::from_str(&read("values.schema.json")?)?;
    let of_schema = |pointer: &str| -> Result<Vec<String>> {
        let names = schema.pointer(pointer).context("the schema lists them")?;
        Ok(serde_json::from_value(names.clone())?)
    };
    let presets: BTreeMap<String, Value> = serde_saphyr::from_str(&read("presets.yaml")?)?;
    let mut of_schema = of_schema("/properties/customResources/items/then/enum")?;
    of_schema.sort();
    ensure!(of_schema.iter().eq(presets.keys()), "{of_schema:?}");

    let values = read("values.yaml")?;
    let annotations = read("../../docs/annotations.md")?;
    let migration = read("../../docs/migration/README.md")?;
    for dialect in dialects() {
        let row = format!("| `dialects: [pod-reloader, {dialect}]` |");
        let is_ours = dialect == "pod-reloader";
        ensure!(
            is_ours || migration.contains(&row),
            "migration/README.md: {dialect}"
        );
        ensure!(
            annotations.contains(&format!("`{dialect}`")),
            "annotations.md: {dialect}"
        );
    }
    let custom_resources = read("../../docs/custom-resources.md")?;
    for preset in presets.keys() {
        let named =
            |line: &str| line.contains("names of presets") && line.contains(&format!("`{preset}`"));
        ensure!(values.lines().any(named), "values.yaml: {preset}");
        let row = format!("| `{preset}` |");
        ensure!(
            custom_resources.contains(&row),
            "custom-resources.md: {preset}"
        );
    }
    Ok(())
}

const TABLE_BEGINS: &str = "<!-- values -->";
const TABLE_ENDS: &str = "<!-- end of values -->";

/// Returns the values with their defaults and comments. Each value needs a comment: a line that begins with
/// `# --`.
fn documented(values: &str) -> Result<Vec<(String, String, String)>> {
    let mut documented = Vec::new();
    let (mut parents, mut comment) = (Vec::<&str>::new(), None);
    // Indentation of the name of the current multi-line value, while in one.
    let mut within = None;
    for line in values.lines() {
        let depth = line.len() - line.trim_start().len();
        if line.is_empty() || within.is_some_and(|outer| depth > outer) {
            continue;
        }
        within = None;
        if let Some(text) = line.trim_start().strip_prefix("# -- ") {
            comment = Some(text.to_owned());
            continue;
        }
        let (key, default) = line
            .trim_start()
            .split_once(':')
            .with_context(|| line.to_owned())?;
        parents.truncate(depth / 2);
        parents.push(key);
        match (comment.take(), default.trim()) {
            (Some(meaning), "") => {
                within = Some(depth);
                documented.push((parents.join("."), "see values.yaml".to_owned(), meaning));
            }
            (Some(meaning), default) => {
                documented.push((parents.join("."), format!("`{default}`"), meaning));
            }
            (None, "") => {}
            (None, _) => anyhow::bail!("{} is not explained", parents.join(".")),
        }
    }
    Ok(documented)
}

fn values_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix("-values.yaml").map(str::to_owned)
}

/// Asserts that `path` has this content, or writes it there.
pub(super) fn golden(path: &Path, content: &str) -> Result<()> {
    if std::env::var_os(UPDATE).is_some() {
        fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
        return Ok(fs::write(path, content)?);
    }
    let expected = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let first = content
        .lines()
        .zip(expected.lines())
        .find(|(new, old)| new != old);
    ensure!(
        content == expected,
        "{} is another: {first:?}; if that is meant, `make golden` writes it",
        path.display()
    );
    Ok(())
}

/// Returns where a value is, as the schema names it: `a[0].b=c` is at `/a/0/b`.
fn place_of(value: &str) -> String {
    let name = value.split('=').next().unwrap_or_default();
    format!("/{}", name.replace(['.', '['], "/").replace(']', ""))
}

/// Asserts that the chart's schema refuses each value, and names its place. Helm names all places at once, so values with
/// different names share a run. A value sets nothing but what is below the first name of its place.
pub(super) fn refused_by_schema(rows: &[(&str, &str)]) -> Result<()> {
    let mut runs: Vec<BTreeMap<&str, (&str, &str)>> = Vec::new();
    for &(value, place) in rows {
        let name = place.split('/').nth(1).context("a place has a name")?;
        let free = runs.iter().position(|run| !run.contains_key(name));
        let at = free.unwrap_or_else(|| {
            runs.push(BTreeMap::new());
            runs.len() - 1
        });
        runs[at].insert(name, (value, place));
    }
    for run in runs {
        let args: Vec<_> = run
            .values()
            .flat_map(|&(value, _)| ["--set", value])
            .collect();
        let error = template(&args).err().with_context(|| format!("{args:?}"))?;
        let error = error.to_string();
        for &(value, place) in run.values() {
            ensure!(error.contains(place), "{value}: {error}");
        }
    }
    Ok(())
}

/// Renders with an image, for a cluster of the newest version.
pub(crate) fn template(args: &[&str]) -> Result<String> {
    helm(&[&template_args()[..], &[SERVES_POLICY, IMAGE], args].concat())
}

const SERVES_POLICY: &str =
    "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy";
const IMAGE: &str = "--set=image.repository=registry.example.com/pod-reloader";

fn template_args() -> [&'static str; 4] {
    ["template", "pod-reloader", "--namespace=pod-reloader", "."]
}

pub(super) fn helm(args: &[&str]) -> Result<String> {
    run(&Programs::find()?.program("helm"), args)
}

/// Runs a program of Helm in the folder of the chart.
fn run(helm: &Path, args: &[impl AsRef<OsStr>]) -> Result<String> {
    let output = Command::new(helm)
        .args(args)
        // Garbage collection is a quarter of the processor time of a short run.
        .env("GOGC", "400")
        .current_dir(chart())
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}
