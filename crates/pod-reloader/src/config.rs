//! Live reads of config objects and of hash keys.

pub(crate) mod copies;
pub(crate) mod error;
pub(crate) mod keys;
pub(crate) mod request;
pub(crate) mod source;
