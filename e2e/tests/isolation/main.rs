//! The program `cluster` itself: two clusters at once do not meet, and nothing is left of one, however it ends.
//! `make test-real` runs these tests, one after the other. They start clusters, so none of them runs inside of one.
//! Unless `POD_RELOADER_NEEDS_REAL_NODE` is set, they do nothing.

mod ends;
mod ground;
mod machine;
mod run;
mod together;
