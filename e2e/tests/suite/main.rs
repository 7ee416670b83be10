//! The end-to-end tests: one program, so that it is linked once and runs them all side by side.

mod cert_manager;
mod certificates;
mod chart;
mod clients;
mod contents;
mod control_plane;
mod control_plane_command;
mod gitops;
mod helm_releases;
mod input;
mod leaders;
mod lifecycle;
mod modes;
mod order;
mod outage;
mod pending;
mod proxy;
mod races;
mod rbac;
mod replicas;
mod restart;
mod scope;
mod secrecy;
mod storm;
mod takeover;
mod unknown;
