//! Config objects and hash keys, as the apiserver has them.

pub(crate) mod error;
pub(crate) mod keys;
pub(crate) mod source;
