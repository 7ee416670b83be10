//! The page of `kubectl pod-reloader graph`, in a browser.

use std::{fs, path::Path};

use anyhow::{Result, ensure};
use pod_reloader_browser::Browser;
use pod_reloader_e2e::{
    Options, Scene,
    workload::{Kind, Workload, config_map, secret},
};
use serde_json::json;

const AUTO: &str = "pod-reloader.cs.sap.com/auto";

#[tokio::test]
async fn the_page_of_a_cluster_shows_what_a_secret_restarts() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene
            .apply(&[
                config_map("settings", "1"),
                secret("db-creds", "hunter2"),
                secret("mail", "1"),
                // Every character that a key may contain.
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "odd.name-1"},
                       "data": {"-._a-Z..9": "1"}}),
            ])
            .await?;
        let workloads = [
            using("cart", Kind::Deployment, 3, &["db-creds"]),
            using("catalog", Kind::Deployment, 4, &["db-creds", "mail"]),
            using("orders", Kind::StatefulSet, 5, &["db-creds"]),
            using("mailer", Kind::Deployment, 1, &["mail"]).lists("settings,gone"),
            Workload::deployment("odd").lists("odd.name-1[-._a-Z..9]"),
            Workload::deployment("not-kept"),
        ];
        for workload in &workloads {
            let is_kept = workload.name != "not-kept";
            let snapshot = scene.create(workload).await?;
            ensure!(snapshot.key.is_some() == is_kept, "{snapshot:?}");
        }
        let page = page(scene).await?;
        ensure!(
            !page.contains("hunter2"),
            "the page holds the value of a Secret"
        );
        let directory = tempfile::TempDir::new()?;
        let file = directory.path().join("graph.html");
        fs::write(&file, page)?;
        let namespace = scene.namespace.clone();
        tokio::task::spawn_blocking(move || looks_right(&file, &namespace)).await?
    })
    .await
}

/// Returns a workload with this number of pods that cannot start without these Secrets.
fn using(name: &str, kind: Kind, pods: u32, secrets: &[&str]) -> Workload {
    let sources: Vec<_> = secrets
        .iter()
        .map(|secret| json!({"secretRef": {"name": secret}}))
        .collect();
    Workload::new(kind, name)
        .annotated(AUTO, "true")
        .with(&["spec", "replicas"], json!(pods))
        .with(
            &["spec", "template", "spec", "containers"],
            json!([{"name": "main", "image": "app:1", "envFrom": sources}]),
        )
}

/// Returns the page as a user gets it.
async fn page(scene: &Scene) -> Result<String> {
    scene
        .tool()
        .with_plugin()?
        .run(&["pod-reloader", "graph", "--all-namespaces", "--output=html"])
        .await
}

fn looks_right(file: &Path, namespace: &str) -> Result<()> {
    let Some(mut browser) = Browser::start()? else {
        return Ok(());
    };
    browser.look(1200, 900, true)?;
    browser.open(file, &format!("Secret/{namespace}/db-creds"))?;
    browser.wait_until("document.documentElement.dataset.ready === 'true'")?;
    // Other tests have workloads in the same cluster.
    let mut nodes = |class: &str| {
        browser.evaluate(&format!(
            "[...document.querySelectorAll('a.node{class}')].map(node => node.getAttribute('href').slice(1).split('/'))\
             .filter(([, namespace]) => namespace === '{namespace}').map(([kind, , name]) => kind + '/' + name).sort()"
        ))
    };
    let all = [
        "ConfigMap/gone",
        "ConfigMap/odd.name-1",
        "ConfigMap/settings",
        "Deployment/cart",
        "Deployment/catalog",
        "Deployment/mailer",
        "Deployment/odd",
        "Secret/db-creds",
        "Secret/mail",
        "StatefulSet/orders",
    ];
    assert_eq!(nodes("")?, json!(all));
    assert_eq!(nodes(".chosen")?, json!(["Secret/db-creds"]));
    assert_eq!(
        nodes(".related")?,
        json!([
            "Deployment/cart",
            "Deployment/catalog",
            "StatefulSet/orders"
        ])
    );
    assert_eq!(nodes(".marked")?, json!(["ConfigMap/gone"]));
    assert_eq!(
        browser.evaluate("document.querySelector('#effect').textContent")?,
        "A change restarts 3 workloads, 12 pods."
    );

    browser.evaluate(&format!("location.hash = '#Deployment/{namespace}/odd'"))?;
    browser.wait_until(
        "document.querySelector('.chosen')?.getAttribute('aria-label').includes('odd')",
    )?;
    let panel = browser.evaluate("document.querySelector('#panel').textContent")?;
    ensure!(panel.to_string().contains("only key -._a-Z..9"), "{panel}");

    let complaints = browser.complaints();
    ensure!(complaints.is_empty(), "{complaints:?}");
    let page = format!("file://{}", file.display());
    let requests = browser.requests();
    ensure!(requests == [page], "{requests:?}");
    Ok(())
}
