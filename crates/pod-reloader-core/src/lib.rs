//! The rules of pod-reloader: references, digests, config hashes and decisions, without I/O.
//!
//! Everything here takes values and returns values; the operator fetches and writes.
//! Read in this order: [`annotations`] (the contract with the user), [`kind`] and [`object`] (where things
//! stand in a workload), [`workload`] (what the rules know of one), [`dialect`] and [`discovery`] (what it asks for), [`claim`] and [`references`]
//! (which objects count), [`advice`] (which of its keys nobody reads), [`duration`] (how their values are read), [`digest`] and [`hash`] (what
//! that adds up to), [`decision`] and [`brake`] (the loop's rules), [`admission`] (the webhook's rule),
//! [`patch`] (how either is written), [`standing`] (what is told to who asks).

pub mod admission;
pub mod advice;
pub mod annotations;
pub mod brake;
pub mod claim;
pub mod decision;
pub mod dialect;
pub mod digest;
pub mod discovery;
pub mod duration;
pub mod hash;
pub mod index;
pub mod kind;
mod list;
pub mod mark;
pub mod name;
mod name_regex;
pub mod object;
mod otherwise;
pub mod patch;
pub mod reference;
pub mod references;
pub mod review;
pub mod sap;
pub mod scope;
pub mod selector;
pub mod standing;
mod weight;
pub mod workload;

#[cfg(test)]
mod fixtures;
