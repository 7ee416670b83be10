//! Operations of a JSON Patch.

use json_patch::{AddOperation, PatchOperation, TestOperation};
use jsonptr::PointerBuf;
use serde_json::Value;

/// Returns the operation that fails unless a field has this value.
pub(crate) fn test(path: &[&str], value: Value) -> PatchOperation {
    let path = PointerBuf::from_tokens(path.iter().copied());
    PatchOperation::Test(TestOperation { path, value })
}

/// Returns the operation that writes a field.
pub(crate) fn add(path: &[&str], value: Value) -> PatchOperation {
    let path = PointerBuf::from_tokens(path.iter().copied());
    PatchOperation::Add(AddOperation { path, value })
}
