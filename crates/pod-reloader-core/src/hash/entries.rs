//! The hash keys in their stored form.

use jiff::{SignedDuration, Timestamp};

use super::{HashKey, Keyring};

impl Keyring {
    /// Reads the keys in their stored form. The name of each entry is the time at which its key was made,
    /// as in `20261121T083000Z`, and its value has [`KEY_LENGTH`](super::KEY_LENGTH) bytes. Returns no keyring if no entry is
    /// a key.
    ///
    /// The newest key comes first once it is `grace` old: until then a replica may not have read it yet, so
    /// it only verifies. The second value names the entries that are not keys.
    pub fn from_entries<'a>(
        entries: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        now: Timestamp,
        grace: SignedDuration,
    ) -> (Option<Self>, Vec<&'a str>) {
        let mut rejected = Vec::new();
        let mut keys: Vec<(Timestamp, HashKey)> = Vec::new();
        for (name, bytes) in entries {
            match (parse_entry_name(name), bytes.try_into()) {
                (Some(made), Ok(bytes)) => keys.push((made, HashKey::new(bytes))),
                _ => rejected.push(name),
            }
        }
        keys.sort_by_key(|(made, _)| *made);
        let is_young = |made: Timestamp| now.duration_since(made) < grace;
        let settled = keys
            .partition_point(|(made, _)| !is_young(*made))
            .max(1)
            .min(keys.len());
        let young = keys.split_off(settled);
        let keys = keys
            .into_iter()
            .rev()
            .chain(young)
            .map(|(_, key)| key)
            .collect();
        (Self::new(keys), rejected)
    }
}

/// Returns the name under which to store a key made at `now`.
pub fn entry_name(now: Timestamp) -> String {
    now.strftime(ENTRY_NAME).to_string()
}

pub(super) fn parse_entry_name(name: &str) -> Option<Timestamp> {
    let time = jiff::civil::DateTime::strptime(ENTRY_NAME, name).ok()?;
    Some(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
}

const ENTRY_NAME: &str = "%Y%m%dT%H%M%SZ";
