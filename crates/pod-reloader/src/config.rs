//! Live reads of config objects, of what protects and uses them, and of hash keys.

pub(crate) mod copies;
pub(crate) mod covered;
pub(crate) mod error;
pub(crate) mod fields;
pub(crate) mod kept;
pub(crate) mod keys;
pub(crate) mod protected;
pub(crate) mod request;
pub(crate) mod source;
pub(crate) mod users;
