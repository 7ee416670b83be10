//! What is read from objects that somebody else can write.

use kube_core::{Status, WatchEvent};
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::api_discovery::Group;

/// A type that is read from objects which somebody else can write. A few megabytes of tiny items would become hundreds
/// of megabytes of maps and lists, so such a type has no map and no list of all that it finds.
///
/// All of them are in the table of [`readers`](crate::readers). The calls of the operator read no other type.
pub trait Foreign: DeserializeOwned {}

impl Foreign for IgnoredAny {}

/// An event in a watch has one object.
impl<K: Foreign> Foreign for WatchEvent<K> {}

/// The apiserver makes it when a watch ends.
impl Foreign for Box<Status> {}

/// The apiserver makes it of the kinds that administrators define.
impl Foreign for Group {}
