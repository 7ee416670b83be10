//! Live reads of ConfigMaps and Secrets, of what protects and uses them, and of the keys of hashes. Of these objects,
//! it also writes some: copies for pins, ConfigMaps that are kept, and the Secret of the keys.
//!
//! Nothing is remembered but the keys: each read asks the apiserver. The webhook and the controllers decide when to read,
//! and the rules of [`pod_reloader_core`] what follows.
//!
//! Each group of modules uses only those above it, which `make lint` checks:
//!
//! - [`error`] has the errors of reads, [`reads`] counts them, and [`request`] makes the requests about one object.
//! - [`source`] reads the objects that workloads track, and [`keys`] the keys of hashes. [`covered`] is about namespaces,
//!   [`protected`] and [`users`] about objects that somebody deletes, [`kept`] about those that come back, and [`fields`]
//!   about FieldBindings of new objects.
//! - [`copies`] makes the copies that pods use.

pub mod error;
pub mod reads;
pub mod request;

pub mod covered;
pub mod fields;
pub mod kept;
pub mod keys;
pub mod protected;
pub mod source;
pub mod users;

pub mod copies;

use pod_reloader_runtime as runtime;
#[cfg(test)]
use pod_reloader_runtime::mock;
