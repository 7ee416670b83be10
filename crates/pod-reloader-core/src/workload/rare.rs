//! The parts that few workloads have.

use std::sync::LazyLock;
use std::time::Duration;

use crate::advice::Advice;
use crate::gate::Gates;
use crate::http_reload::HttpReload;
use crate::pins::Pinning;
use crate::secret_provider_class::Classes;
use crate::together::Together;

/// The parts of a workload that few have. The others need no room for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rare {
    /// The group and version in which the workload was read. `None` for built-in kinds.
    pub api_version: Option<Box<str>>,
    /// The workload's own settle period, at most
    /// [`duration::MAX_SETTLE_PERIOD`](crate::duration::MAX_SETTLE_PERIOD). `None` if it is not set or
    /// cannot be parsed.
    pub settle_period: Option<Duration>,
    /// The gates that its users have put in the way of a restart, if there are any.
    pub gates: Option<Box<Gates>>,
    /// The objects that change together, if there are any.
    pub together: Option<Box<Together>>,
    /// The SecretProviderClasses that the workload tracks. `None` if there are none, or they are not tracked.
    pub classes: Option<Box<Classes>>,
    /// What the workload says about its pins. `None` if it pins nothing, or pins are switched off.
    pub pinning: Option<Box<Pinning>>,
    /// The way in which its pods reload changed config. `None` if they are restarted instead, or such reloads are switched
    /// off.
    pub http_reload: Option<Box<HttpReload>>,
    /// Warnings about annotations and labels that cannot do what their author intended.
    pub advice: Box<[Advice]>,
}

/// The rare parts of a workload that has none of them.
pub(super) static NOTHING: LazyLock<Rare> = LazyLock::new(Rare::default);
