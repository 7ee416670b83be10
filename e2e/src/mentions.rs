//! Asserts what a text mentions.

use anyhow::{Result, ensure};

/// Asserts that a text mentions this.
///
/// # Errors
/// When it does not: with the text.
pub fn mentions(text: &str, part: &str) -> Result<()> {
    ensure!(text.contains(part), "{part} is not in\n{text}");
    Ok(())
}
