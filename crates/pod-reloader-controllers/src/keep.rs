//! The controller of ConfigMaps that are kept: brings those back that are deleted in use, until nothing uses them.

pub mod controller;
mod keeper;
mod known;
