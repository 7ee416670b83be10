//! Code shared by the benchmarks and the instruction counts, so that both measure the same.

pub(crate) mod inputs;
pub(crate) mod paths;
