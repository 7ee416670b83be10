//! Applies on the side of the server, as Flux and others make them: by the API, without kubectl.

use anyhow::{Context, Result, ensure};
use http::header::WARNING;
use http_body_util::BodyExt;
use kube::{
    Api, Client,
    api::{DynamicObject, GetParams, GroupVersionKind, Patch, PatchParams, Request, TypeMeta},
    client::Body,
    discovery::{Scope, pinned_kind},
};
use serde_json::Value;

use super::Scene;
use crate::apply::api_of;

impl Scene {
    /// Applies an object on the side of the server, as a field manager that takes fields over from others. `namespace` is
    /// that of an object whose manifest names none, and `None` for those of the whole cluster. Returns the warnings of the
    /// apiserver, a line each.
    ///
    /// # Errors
    /// When it is refused: with the words of the apiserver.
    pub async fn server_side_apply(
        &self,
        namespace: Option<&str>,
        manager: &str,
        manifest: &Value,
    ) -> Result<String> {
        let params = PatchParams::apply(manager).force();
        let (_, warnings) = self.send_apply(namespace, manifest, params).await?;
        Ok(warnings)
    }

    /// Applies an object like [`Scene::server_side_apply`], without taking over what others manage.
    ///
    /// # Errors
    /// Same as [`Scene::server_side_apply`]. Fields that others manage with other values are a conflict.
    pub async fn server_side_apply_without_force(
        &self,
        namespace: Option<&str>,
        manager: &str,
        manifest: &Value,
    ) -> Result<()> {
        let params = PatchParams::apply(manager);
        self.send_apply(namespace, manifest, params).await.map(drop)
    }

    /// Returns what would be stored after [`Scene::server_side_apply`]. Nothing is stored.
    ///
    /// # Errors
    /// Same as [`Scene::server_side_apply`].
    pub async fn try_server_side_apply(
        &self,
        namespace: Option<&str>,
        manager: &str,
        manifest: &Value,
    ) -> Result<Value> {
        let params = PatchParams::apply(manager).force().dry_run();
        let (object, _) = self.send_apply(namespace, manifest, params).await?;
        Ok(object)
    }

    /// Reads the object that a manifest is about, as stored. `namespace` is as in [`Scene::server_side_apply`].
    ///
    /// # Errors
    /// When it does not exist.
    pub async fn live(&self, namespace: Option<&str>, manifest: &Value) -> Result<Value> {
        let api = api_of(&self.client, namespace, manifest)?;
        let name = name(manifest)?;
        let get = Request::new(api.resource_url()).get(name, &GetParams::default())?;
        let object = self.client.request(get).await;
        object.with_context(|| format!("reading {name}"))
    }

    async fn send_apply(
        &self,
        namespace: Option<&str>,
        manifest: &Value,
        params: PatchParams,
    ) -> Result<(Value, String)> {
        let api = api_of(&self.client, namespace, manifest)?;
        send(&self.client, &api, manifest, params).await
    }
}

/// Returns the warnings of the apiserver, a line each, about an object that is tried by a server-side apply in a dry run: in
/// the namespace `default`, unless it names another one. Takes fields over from others.
///
/// # Errors
/// When it is refused, or the apiserver does not serve its kind.
pub async fn try_apply(client: &Client, manifest: &Value) -> Result<String> {
    let types: TypeMeta = serde_json::from_value(manifest.clone())?;
    let kind = GroupVersionKind::try_from(&types)?;
    let (kind, capabilities) = pinned_kind(client, &kind).await?;
    let namespace = manifest["metadata"]["namespace"].as_str();
    let namespace = namespace.unwrap_or("default");
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, &kind),
        Scope::Cluster => Api::all_with(client.clone(), &kind),
    };
    let params = PatchParams::apply("kubectl").force().dry_run();
    let (_, warnings) = send(client, &api, manifest, params).await?;
    Ok(warnings)
}

/// Applies an object, and returns it as it is stored then, with the warnings of the apiserver, a line each.
async fn send(
    client: &Client,
    api: &Api<DynamicObject>,
    manifest: &Value,
    params: PatchParams,
) -> Result<(Value, String)> {
    let params = params.validation_strict();
    let name = name(manifest)?;
    let request = Request::new(api.resource_url());
    let request = request.patch(name, &params, &Patch::Apply(manifest))?;
    // `Client::request` drops the headers, and the warnings with them.
    let answer = client.send(request.map(Body::from)).await?;
    let status = answer.status();
    let warnings = answer.headers().get_all(WARNING).iter();
    let warnings = warnings.map(|warning| String::from_utf8_lossy(warning.as_bytes()));
    let warnings = Vec::from_iter(warnings).join("\n");
    let body = answer.into_body().collect().await?.to_bytes();
    let said = || String::from_utf8_lossy(&body);
    ensure!(status.is_success(), "applying {name}: {}", said());
    let object = serde_json::from_slice(&body).with_context(|| said().into_owned())?;
    Ok((object, warnings))
}

fn name(manifest: &Value) -> Result<&str> {
    let name = manifest["metadata"]["name"].as_str();
    name.context("the manifest has no name")
}
