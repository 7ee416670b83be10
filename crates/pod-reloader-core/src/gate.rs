//! Gates: what users put in the way of a restart.
//!
//! A hold keeps a workload as it is. With an approval, exactly the content that somebody has approved is rolled
//! out. With restart windows, it is rolled out only at certain times. Nothing is stored: when a gate opens, the
//! pods get the content of that moment.

use jiff::{Timestamp, Zoned};

use crate::annotations::{APPROVAL, APPROVE, HOLD, Inherited, RESTART_WINDOW};
use crate::digest::Objects;
use crate::hash::ConfigHash;
use crate::mark::is_hold;
use crate::reference::Reference;
use crate::window::Windows;

/// The number of digits by which users name a config hash.
const SHOWN_DIGITS: usize = 8;

/// The gates of one workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    /// The place of the annotation that holds the workload, if it is on hold.
    pub hold: Option<Hold>,
    /// True if each content has to be approved.
    pub needs_approval: bool,
    /// The beginning of the config hash that is approved.
    pub approved: Option<Box<str>>,
    /// The times in which the workload may be restarted, if they are limited. `Some(None)` stands for a value
    /// that means nothing.
    pub windows: Option<Option<Windows>>,
}

impl Gates {
    /// Reads the annotations of a workload, and those of its Namespace. `None` if it has no gates. A value that
    /// means nothing closes the gate.
    pub(crate) fn read<'a>(
        own: impl Fn(&str) -> Option<&'a str>,
        inherited: &'a Inherited,
    ) -> Option<Box<Self>> {
        let annotation = |key| own(key).or_else(|| inherited.get(key));
        let hold = match own(HOLD) {
            Some(value) => is_hold(value).then_some(Hold::Workload),
            None => inherited
                .get(HOLD)
                .filter(|it| is_hold(it))
                .map(|_| Hold::Namespace),
        };
        let approved = own(APPROVE).filter(|it| are_digits(it));
        let gates = Self {
            hold,
            needs_approval: annotation(APPROVAL).is_some(),
            approved: approved.map(Into::into),
            windows: annotation(RESTART_WINDOW).map(Windows::parse),
        };
        // An approval alone is not a gate.
        let none = Self {
            approved: gates.approved.clone(),
            ..Self::default()
        };
        (gates != none).then(|| Box::new(gates))
    }

    /// Returns the memory that the gates take, in bytes.
    pub(crate) fn weight(&self) -> usize {
        // Without `..`, so that a gate that is added is not left out here.
        let Self {
            hold: _,
            needs_approval: _,
            approved: _,
            windows,
        } = self;
        let windows = windows.iter().flatten();
        size_of_val(self) + windows.map(Windows::weight).sum::<usize>()
    }

    /// Returns the gate among these that is closed `now` for the content that users name by `digits`.
    fn closed(&self, digits: &str, now: Timestamp) -> Option<Closed> {
        if self.needs_approval && self.approved.as_deref() != Some(digits) {
            return Some(Closed::NotApproved(digits.to_owned()));
        }
        match self.windows.as_ref()? {
            None => Some(Closed::NoWindow),
            Some(windows) => windows.next_opening(now).map(Closed::Until),
        }
    }
}

/// The place of an annotation that holds a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// On the workload.
    Workload,
    /// On its Namespace.
    Namespace,
}

/// Returns true if a value of the annotation [`APPROVE`] can be the beginning of a config hash.
pub fn are_digits(value: &str) -> bool {
    value.len() == SHOWN_DIGITS && value.bytes().all(|it| it.is_ascii_hexdigit())
}

/// A gate that is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The workload is on hold.
    Held,
    /// The workload's Namespace is on hold.
    HeldByNamespace,
    /// An object that the workload tracks is on hold.
    HeldBy(Reference),
    /// The content with this hash, of which these are the first digits, is not approved.
    NotApproved(String),
    /// No restart window is open. The next one opens then.
    Until(Zoned),
    /// Nobody can tell the restart windows from their annotation.
    NoWindow,
}

/// Returns the gate that keeps a workload with these gates from getting `config_hash`, the hash of `objects`,
/// `now`.
pub fn closed(
    gates: Option<&Gates>,
    objects: &Objects,
    config_hash: &str,
    now: Timestamp,
) -> Option<Closed> {
    if let Some(hold) = gates.and_then(|gates| gates.hold) {
        return Some(match hold {
            Hold::Workload => Closed::Held,
            Hold::Namespace => Closed::HeldByNamespace,
        });
    }
    if let Some((reference, _)) = objects.iter().find(|(_, object)| object.is_held()) {
        return Some(Closed::HeldBy(reference.clone()));
    }
    gates?.closed(&digits(config_hash), now)
}

/// Returns the digits by which users name a config hash. Digits alone stand for themselves.
pub fn digits(config_hash: &str) -> String {
    let (_, hash) = config_hash.rsplit_once('=').unwrap_or(("", config_hash));
    if let Some(hash) = ConfigHash::parse(hash) {
        return hash.beginning(SHOWN_DIGITS / 2);
    }
    let digits = config_hash.rsplit('.').next().unwrap_or_default();
    digits.get(..SHOWN_DIGITS).unwrap_or(digits).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Presence;
    use crate::fixtures::{Builder, deployment, holding, reference};
    use crate::mark::Marks;

    const HASH: &str =
        "v1.dcdaaec6.48a639467b0198a29241395d135eb7a8d25cb046628dc25951ea0ba3d94e2871";

    fn web() -> Builder {
        deployment("web").lists("app")
    }

    fn closed_for(workload: Builder) -> Option<Closed> {
        closed_at(workload, "2026-11-23T12:00:00Z")
    }

    fn closed_at(workload: Builder, now: &str) -> Option<Closed> {
        let gates = workload.build().rare().gates.clone();
        closed(
            gates.as_deref(),
            &Objects::new(),
            HASH,
            now.parse().unwrap(),
        )
    }

    #[test]
    fn a_hold_keeps_a_workload_as_it_is_whatever_its_value_unless_that_is_false() {
        assert_eq!(closed_for(web()), None);
        assert_eq!(closed_for(web().annotation("hold", "false")), None);
        for value in ["true", "", "yes", "False"] {
            assert_eq!(
                closed_for(web().annotation("hold", value)),
                Some(Closed::Held)
            );
        }
    }

    #[test]
    fn only_the_content_that_is_approved_goes() {
        let not_approved = Some(Closed::NotApproved("48a63946".to_owned()));
        let gated = || web().annotation("approval", "required");
        assert_eq!(closed_for(gated()), not_approved);
        assert_eq!(closed_for(gated().annotation("approve", "48a63946")), None);
        for other in ["48a63947", "48a6394", "48a639467", "", "true"] {
            assert_eq!(
                closed_for(gated().annotation("approve", other)),
                not_approved
            );
        }
        assert_eq!(
            closed_for(web().annotation("approval", "please")),
            not_approved
        );
        let held = gated()
            .annotation("approve", "48a63946")
            .annotation("hold", "true");
        assert_eq!(closed_for(held), Some(Closed::Held));
        // An approval alone means nothing.
        assert_eq!(closed_for(web().annotation("approve", "00000000")), None);
    }

    #[test]
    fn an_object_on_hold_holds_every_workload_that_tracks_it() {
        let app = reference("app");
        let mut object = holding("1").unwrap();
        let present = |object| Objects::from([(app.clone(), Presence::Present(object))]);
        let closed = |objects: &Objects| closed(None, objects, HASH, Timestamp::UNIX_EPOCH);
        assert_eq!(closed(&present(object.clone())), None);
        object.marks = Marks::HELD;
        assert_eq!(closed(&present(object)), Some(Closed::HeldBy(app.clone())));
        let absent = Objects::from([(app, Presence::Absent)]);
        assert_eq!(closed(&absent), None);
    }

    #[test]
    fn a_workload_with_windows_is_restarted_only_in_them() {
        let nightly = || web().annotation("restart-window", "Mon-Fri 02:00-04:00 Europe/Berlin");
        let opens = |closed| match closed {
            Some(Closed::Until(opens)) => opens.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(
            opens(closed_at(nightly(), "2026-11-23T12:00:00Z")),
            "2026-11-24T02:00:00+01:00[Europe/Berlin]"
        );
        assert_eq!(closed_at(nightly(), "2026-11-24T01:00:00Z"), None);
        // Whatever needs an approval says so in time.
        let gated = || nightly().annotation("approval", "required");
        let not_approved = Some(Closed::NotApproved("48a63946".to_owned()));
        assert_eq!(closed_for(gated()), not_approved);
        let approved = gated().annotation("approve", "48a63946");
        assert!(matches!(closed_for(approved), Some(Closed::Until(_))));
        for wrong in ["", "Mon-", "Mon 02:00-04:00 Mars"] {
            let wrong = web().annotation("restart-window", wrong);
            assert_eq!(closed_for(wrong), Some(Closed::NoWindow));
        }
    }

    #[test]
    fn a_workload_without_gates_keeps_nothing_of_them() {
        assert_eq!(web().build().rare().gates, None);
        let approved = web().annotation("approve", "48a63946");
        assert_eq!(approved.build().rare().gates, None);
    }
}
