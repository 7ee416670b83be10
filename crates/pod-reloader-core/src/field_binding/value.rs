//! The values of fields: how the bytes of a key become one.

use pod_reloader_api::ValueType;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The reason why the bytes of a key are no value of a type. It says nothing of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidValue {
    /// They are no UTF-8.
    #[error("the key is not text in UTF-8")]
    NotText,
    /// They are no whole number.
    #[error("the key is no whole number of 64 bits")]
    NotInteger,
    /// They are neither `true` nor `false`.
    #[error("the key is neither true nor false")]
    NotBoolean,
    /// They are too long, with those of the other fields.
    #[error("the keys of these fields are longer than 1 MiB together")]
    TooLong,
}

/// The number of bytes that values may still have together, of those that are in memory at once.
#[derive(Debug)]
pub struct Room(usize);

impl Default for Room {
    /// Returns the room of one object: the apiserver takes no longer one.
    fn default() -> Self {
        Self(1 << 20)
    }
}

impl Room {
    /// Takes this many bytes, if they are left.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), InvalidValue> {
        self.0 = self.0.checked_sub(bytes).ok_or(InvalidValue::TooLong)?;
        Ok(())
    }
}

/// Returns the value of a field of this type that has these bytes.
///
/// A text stays as it is. White space around numbers, and around `true` and `false`, is left out: files end with a
/// newline.
///
/// # Errors
///
/// The bytes are no such value.
pub fn convert(bytes: &[u8], value_type: ValueType) -> Result<Value, InvalidValue> {
    let text = std::str::from_utf8(bytes).map_err(|_| InvalidValue::NotText)?;
    match value_type {
        ValueType::String => Ok(Value::from(text)),
        ValueType::Integer => {
            let number = text.trim().parse::<i64>();
            number
                .map(Value::from)
                .map_err(|_| InvalidValue::NotInteger)
        }
        ValueType::Boolean => {
            let truth = text.trim().parse::<bool>();
            truth.map(Value::from).map_err(|_| InvalidValue::NotBoolean)
        }
    }
}

/// Returns a digest of a value. It stays in memory: a short value could be guessed from it.
pub fn digest(value: &Value) -> [u8; 16] {
    let bytes = Sha256::digest(value.to_string());
    std::array::from_fn(|at| bytes[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bytes_become_values_of_the_type_of_the_field() {
        let text = |bytes| convert(bytes, ValueType::String);
        assert_eq!(text(b"a b\n"), Ok(json!("a b\n")));
        assert_eq!(text(b""), Ok(json!("")));
        assert_eq!(text(b"\xff"), Err(InvalidValue::NotText));
        let number = |bytes| convert(bytes, ValueType::Integer);
        assert_eq!(number(b" 5432\n"), Ok(json!(5432)));
        assert_eq!(number(b"-1"), Ok(json!(-1)));
        for bytes in [&b""[..], b"5.0", b"1e3", b"5 432", b"9223372036854775808"] {
            assert_eq!(number(bytes), Err(InvalidValue::NotInteger), "{bytes:?}");
        }
        let truth = |bytes| convert(bytes, ValueType::Boolean);
        assert_eq!(
            (truth(b"true\n"), truth(b"false")),
            (Ok(json!(true)), Ok(json!(false)))
        );
        for bytes in [&b"1"[..], b"True", b"yes", b""] {
            assert_eq!(truth(bytes), Err(InvalidValue::NotBoolean), "{bytes:?}");
        }
    }

    #[test]
    fn the_digest_tells_types_apart() {
        assert_ne!(digest(&json!("1")), digest(&json!(1)));
        assert_eq!(digest(&json!("1")), digest(&json!("1")));
    }
}
