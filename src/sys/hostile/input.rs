//! An input, byte by byte.

/// The rest of an input of a target; zeros at its end.
pub(crate) struct Input<'i>(&'i [u8]);

impl<'i> Input<'i> {
    pub(crate) fn new(input: &'i [u8]) -> Self {
        Self(input)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    /// A part of the input, as long as its next byte says.
    pub(crate) fn part(&mut self) -> &'i [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (part, rest) = self.0.split_at(length);
        self.0 = rest;
        part
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    pub(crate) fn half(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from(self.half()) << 16 | u32::from(self.half())
    }
}
