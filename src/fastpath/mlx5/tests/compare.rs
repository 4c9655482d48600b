//! Comparing what was recorded with what this provider does, and counting what was compared.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// What was compared so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Bytes, or numbers, by field.
    pub compared: BTreeMap<&'static str, usize>,
    /// Bytes and numbers that were left out, by reason.
    pub left_out: BTreeMap<&'static str, usize>,
}

/// A difference.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference(String);

pub(super) type Outcome<T = ()> = Result<T, Difference>;

impl Tally {
    /// Compares bytes.
    pub(super) fn bytes(&mut self, field: &'static str, ours: &[u8], theirs: &[u8]) -> Outcome {
        self.bytes_except(field, ours, theirs, &[], "")
    }

    /// Compares bytes except some.
    pub(super) fn bytes_except(
        &mut self,
        field: &'static str,
        ours: &[u8],
        theirs: &[u8],
        except: &[Range<usize>],
        reason: &'static str,
    ) -> Outcome {
        if ours.len() != theirs.len() {
            return Err(Difference(format!(
                "{field}: {} bytes, C {}\n  ours {}\n  C    {}",
                ours.len(),
                theirs.len(),
                Hex(ours),
                Hex(theirs)
            )));
        }
        let is_left_out = |at: usize| except.iter().any(|range| range.contains(&at));
        let left_out = (0..ours.len()).filter(|at| is_left_out(*at)).count();
        let different = (0..ours.len()).find(|at| ours[*at] != theirs[*at] && !is_left_out(*at));
        if let Some(at) = different {
            return Err(Difference(format!(
                "{field}: byte {at} of {}\n  ours {}\n  C    {}",
                ours.len(),
                Hex(ours),
                Hex(theirs)
            )));
        }
        *self.compared.entry(field).or_default() += ours.len() - left_out;
        if left_out > 0 {
            self.leave_out(reason, left_out);
        }
        Ok(())
    }

    /// Compares numbers.
    pub(super) fn number(
        &mut self,
        field: &'static str,
        ours: impl Into<u64>,
        theirs: impl Into<u64>,
    ) -> Outcome {
        let (ours, theirs) = (ours.into(), theirs.into());
        if ours != theirs {
            return Err(Difference(format!(
                "{field}: {ours} ({ours:#x}), C {theirs} ({theirs:#x})"
            )));
        }
        *self.compared.entry(field).or_default() += 1;
        Ok(())
    }

    /// Takes note of something that is not compared.
    pub(super) fn leave_out(&mut self, reason: &'static str, count: usize) {
        *self.left_out.entry(reason).or_default() += count;
    }
}

impl Difference {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// Says where it was found.
    pub(super) fn at(self, place: impl fmt::Display) -> Self {
        Self(format!("{place}: {}", self.0))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

struct Hex<'b>(&'b [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if at > 0 && at % 16 == 0 {
                f.write_str(" ")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}
