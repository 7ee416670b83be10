//! Errors in words.

use std::error::Error;
use std::fmt::Write as _;

/// Returns an error and its causes on one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        // hyper and kube repeat their causes in their own text.
        if !text.contains(&message) {
            write!(text, ": {message}").expect("a String takes everything");
        }
        cause = error.source();
    }
    text
}
