//! What the benchmarks and the counts of instructions have in common, so that both measure the same.

pub(crate) mod inputs;
pub(crate) mod paths;
