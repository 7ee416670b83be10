//! Reviews of every shape, at the router, with an apiserver that is a function.

use std::convert::Infallible;

use axum::response::Response;
use base64::Engine;
