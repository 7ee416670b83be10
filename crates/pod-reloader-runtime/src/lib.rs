//! The general parts of an operator: clients of the apiserver, lists and watches that go on whatever fails, queues,
//! leader election, Events, ports, and what controllers have in common.
//!
//! They know no workload, no review and no flag. Of the rules they know only what all parts have in common: a
//! [`Name`](pod_reloader_core::name::Name), an [`Item`](pod_reloader_core::item::Item) of a queue, what may be read of
//! [foreign objects](pod_reloader_core::foreign) and of our [own](pod_reloader_core::slim), what is remembered of a
//! [status](pod_reloader_core::ready), by which name the operator writes, and the texts of two
//! [errors](error::CallError). A controller brings the rest: a function that returns its
//! [`Controller`](controller::Controller), which works with a [`Kit`](kit::Kit) and passes a
//! [`Follower`](follower::Follower) to each of its watches.
//!
//! For all that, they are for one operator: [`Clients`](client::Clients) has a client for each of its purposes, and the
//! sizes in [`budget`] and [`server`] are those that its reviews and its webhook need.
//!
//! Each group of modules uses only those above it, which `make lint` checks:
//!
//! - [`budget`] and [`share`] bound memory. [`queue`] and [`worker`] say whose turn it is. [`follower`] takes in what
//!   watches see, [`keyed`] runs one watch for each key, and [`watch_age`] shows how long each has been silent.
//!   [`complaint`], [`heartbeat`] and [`pause`] are for loops.
//! - [`client`] makes the clients, [`calls`] is about single objects, and [`resources`] about all objects of a kind.
//!   Both read answers by [`objects`], and fail with [`error`].
//! - [`events`] tells users, and [`leader`] elects one replica.
//! - [`server`] and [`admin`] serve ports, and [`tasks`] has the tasks of the process.
//! - [`controller`] and [`kit`] are what controllers are made with. [`counted`] counts what they do, [`own`] follows
//!   their custom resources, and [`status`] writes the status of these.

pub mod budget;
pub mod complaint;
pub mod follower;
pub mod heartbeat;
pub mod keyed;
pub mod pause;
pub mod queue;
pub mod share;
pub mod watch_age;
pub mod worker;

pub mod calls;
pub mod client;
pub mod error;
pub mod objects;
pub mod resources;

pub mod events;
pub mod leader;

pub mod admin;
pub mod server;
pub mod tasks;

pub mod controller;
pub mod counted;
pub mod kit;
pub mod own;
pub mod status;

#[cfg(any(test, feature = "mock"))]
pub mod mock;
