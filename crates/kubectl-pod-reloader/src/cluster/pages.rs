//! Lists objects page by page.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Cluster, JSON, Place, Unseen, encoded, unreadable};

/// Number of objects that one call lists.
const PAGE: usize = 250;
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// A list that is read page by page, so that only some objects are in memory at a time.
pub(crate) struct Pages<'a> {
    cluster: &'a Cluster,
    place: Place<'a>,
    query: &'a str,
    accept: &'static str,
    /// Start of the next page; `None` after the last one.
    token: Option<String>,
}

/// Returns the query for objects whose labels match `selector`, or for all.
pub(crate) fn with_labels(selector: Option<&str>) -> String {
    selector.map_or_else(String::new, |it| format!("labelSelector={}", encoded(it)))
}

impl Cluster {
    /// Lists the objects of a place that match `query`, such as `labelSelector=a%3Db`.
    pub(crate) fn pages<'a>(&'a self, place: Place<'a>, query: &'a str) -> Pages<'a> {
        self.pages_as(place, query, JSON)
    }

    /// Lists the metadata of the objects, however large they are.
    pub(crate) fn metadata_pages<'a>(&'a self, place: Place<'a>, query: &'a str) -> Pages<'a> {
        self.pages_as(place, query, METADATA)
    }

    fn pages_as<'a>(&'a self, place: Place<'a>, query: &'a str, accept: &'static str) -> Pages<'a> {
        Pages {
            cluster: self,
            place,
            query,
            accept,
            token: Some(String::new()),
        }
    }
}

impl Pages<'_> {
    /// Returns the objects of all pages.
    pub(crate) async fn all<T: DeserializeOwned>(mut self) -> Result<Vec<T>, Unseen> {
        let mut all = Vec::new();
        while let Some(page) = self.next::<T>().await? {
            all.extend(page);
        }
        Ok(all)
    }

    /// Returns the next objects, or `None` if there are no more.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Vec<T>>, Unseen> {
        /// A page. The apiserver writes `null` for an empty list, for example of metadata.
        #[derive(Deserialize)]
        #[serde(bound = "T: DeserializeOwned")]
        struct List<T> {
            metadata: Option<Metadata>,
            items: Option<Vec<T>>,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(rename = "continue")]
            token: Option<String>,
        }
        let Some(token) = self.token.take() else {
            return Ok(None);
        };
        let (place, query) = (self.place.path(), self.query);
        let what = self.place.words("list");
        let path = format!("{place}?limit={PAGE}&{query}&continue={token}");
        let body = self.cluster.read(&path, &what, self.accept).await?;
        let list: List<T> =
            serde_json::from_slice(&body).map_err(|error| unreadable(&what, &error))?;
        let next = list.metadata.and_then(|it| it.token);
        self.token = next.filter(|it| !it.is_empty()).map(|it| encoded(&it));
        Ok(Some(list.items.unwrap_or_default()))
    }
}
