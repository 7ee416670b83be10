//! Turns bytes into choices, so that proptest and a fuzzer can make the same inputs.

/// A source of choices, made from bytes. Once the bytes run out, the first choice is made.
pub(crate) struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a number up to 255.
    pub(crate) fn number(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        usize::from(*first)
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.number() % 2 == 1
    }

    /// Returns one of `options`, which must not be empty.
    pub(crate) fn one<'b, T>(&mut self, options: &'b [T]) -> &'b T {
        &options[self.number() % options.len()]
    }
}
