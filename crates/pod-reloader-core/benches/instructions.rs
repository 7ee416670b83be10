//! Runs one path through the rules, so that its instructions can be counted: see `tests/instructions.rs`.

mod shared;

use std::hint::black_box;

use pod_reloader_core::index::Index;
use shared::{inputs, paths};

fn main() {
    let scope = inputs::scope();
    let keys = inputs::keys();
    let objects = inputs::objects("green");
    match std::env::args().nth(1).as_deref() {
        Some("admission") => twice(inputs::review_that_keeps, |review| {
            paths::admission(review, &scope, &keys)
        }),
        Some("admission_read") => twice(inputs::review_that_reads, |review| {
            paths::admission_read(review, &objects, &scope, &keys)
        }),
        Some("reconcile") => {
            let before = inputs::workload(&inputs::stamped(&inputs::config_hash("blue")));
            let after = inputs::stamped(&inputs::config_hash("green"));
            let index = || {
                let mut index = Index::default();
                index.apply(before.clone());
                index
            };
            twice(index, |index| {
                paths::reconcile(index, &before.id, &objects, &keys, &after)
            });
        }
        _ => panic!("which path: admission, admission_read or reconcile"),
    }
}

/// Runs `path` once uncounted: one-time setup, such as the seeds of hash maps, should not be counted.
fn twice<T>(input: impl Fn() -> T, path: impl Fn(&mut T) -> Vec<u8>) {
    path(&mut input());
    let mut input = input();
    black_box(counted(|| path(black_box(&mut input))));
}

/// Runs the counted code; callgrind finds it by this function's name.
#[inline(never)]
fn counted(path: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    black_box(path())
}
