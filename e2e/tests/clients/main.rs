//! Tests under real GitOps tools, Kyverno and Helm, on a real node with every feature of the operator on.
//! `make test-clients` runs them, one after the other. Where there is no real node, they do nothing.

mod argo;
mod claims;
mod flux;
mod helm;
mod kyverno;
