//! Counts by a label whose values are a closed set.

use std::marker::PhantomData;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

type Labels = [(&'static str, &'static str); 1];

/// The values of a label.
pub trait Label: Copy + 'static {
    /// The name of the label.
    const NAME: &'static str;

    /// Every value.
    const ALL: &'static [Self];

    /// Returns the value as it is shown.
    fn as_str(self) -> &'static str;
}

/// A counter for each value of a label. All of them are shown from the start. Cloning is cheap.
#[derive(Clone)]
pub struct Counted<L> {
    family: Family<Labels, Counter>,
    label: PhantomData<fn(L)>,
}

impl<L: Label> Default for Counted<L> {
    fn default() -> Self {
        let counted = Self {
            family: Family::default(),
            label: PhantomData,
        };
        for value in L::ALL {
            drop(counted.family.get_or_create(&labels(*value)));
        }
        counted
    }
}

impl<L: Label> Counted<L> {
    /// Returns the metric, to be registered.
    pub fn family(&self) -> Family<Labels, Counter> {
        self.family.clone()
    }

    /// Counts something with this value.
    pub fn count(&self, value: L) {
        self.family.get_or_create(&labels(value)).inc();
    }
}

fn labels<L: Label>(value: L) -> Labels {
    [(L::NAME, value.as_str())]
}
