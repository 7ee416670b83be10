//! Random choices that a seed reproduces.

/// SplitMix64: short, and good enough for choices.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns another generator, which is independent from now on.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// Returns a number below `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        // A slight preference for small numbers does no harm here.
        (self.next() % limit as u64) as usize
    }

    /// Returns one of `options`, which must not be empty.
    pub(crate) fn one<'a, T>(&mut self, options: &'a [T]) -> &'a T {
        &options[self.below(options.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_every_option_has_its_turn() {
        let choices = |seed| {
            let mut random = Random::new(seed);
            (0..100).map(|_| random.below(5)).collect::<Vec<_>>()
        };
        assert_eq!(choices(7), choices(7));
        assert_ne!(choices(7), choices(8));
        assert!((0..5).all(|option| choices(7).contains(&option)));
    }
}
