//! Estimates how much memory the operator needs for a FieldBinding.

use super::{Binding, Field, InvalidBinding};

/// A FieldBinding in the tables of the operator, apart from its texts: what is known of it, of its source and of its
/// target, and its part of indexes and queues.
const BINDING: usize = 2 << 10;
/// What is remembered of the last look at a field, apart from texts: its value, its state, and what was written.
const LOOK: usize = 128;
/// The longest name of a manager in the state of a field, in bytes, as nearly all managers have it.
const MANAGER: usize = 128;

impl Binding {
    /// Returns the memory that the operator needs for it, in bytes.
    pub fn weight(&self) -> usize {
        let Self {
            id,
            uid,
            source,
            target,
            fields,
            generation: _,
            created: _,
        } = self;
        let names = [&id.namespace, &id.name, &source.name, &target.name];
        let texts = [uid, &target.api_version, &target.kind];
        BINDING
            + names.into_iter().map(|it| text(it.as_str())).sum::<usize>()
            + texts.into_iter().map(|it| text(it)).sum::<usize>()
            + fields.iter().map(Field::weight).sum::<usize>()
    }
}

impl Field {
    fn weight(&self) -> usize {
        let Self {
            key,
            path,
            value_type: _,
        } = self;
        // The state of a field may have one of these.
        let longest = path.as_str().len().max(key.len()).max(MANAGER);
        size_of::<Self>() + LOOK + text(key) + text(path.as_str()) + longest
    }
}

impl InvalidBinding {
    /// Returns the memory that the operator needs for a FieldBinding that cannot be worked with, in bytes.
    pub fn weight(&self) -> usize {
        // It quotes the beginning of a text.
        2 * BINDING
    }
}

/// Returns the size of a separate string: its length, reference counts and allocator overhead.
fn text(text: &str) -> usize {
    text.len() + 40
}

#[cfg(test)]
mod tests {
    use crate::field_binding::tests::binding;
    use serde_json::json;

    fn of_fields(count: usize, key: &str, path: &str) -> usize {
        let fields = (0..count).map(|at| json!({"key": key, "path": format!("{path}{at:02}")}));
        let fields: Vec<_> = fields.collect();
        binding(json!({"spec": {"fields": fields}})).weight()
    }

    #[test]
    fn the_largest_binding_weighs_little_more_than_its_texts() {
        let (key, path) = ("k".repeat(253), format!("spec.{}", "a".repeat(249)));
        let largest = of_fields(64, &key, &path);
        let texts = 64 * (253 + 256);
        assert!(largest > texts && largest < 3 * texts, "{largest}");
    }

    #[test]
    fn five_hundred_ordinary_bindings_fit_into_two_mebibytes() {
        let ordinary = of_fields(2, "password", "spec.database.external.password");
        assert!(500 * ordinary <= 2 << 20, "{ordinary}");
    }
}
