//! What the buffers of both sides must hold, byte by byte.

use std::ops::Range;

use super::random::Random;

/// Bytes of each side's buffer.
pub const LENGTH: usize = 256 << 10;

/// The longest message.
pub const LONGEST: usize = 64 << 10;

/// The memory of both sides as it is to be.
pub struct Memory([Vec<u8>; 2]);

impl Memory {
    /// Memory that is full of random bytes.
    pub fn new(random: &mut Random) -> Self {
        Self([random.bytes(LENGTH), random.bytes(LENGTH)])
    }

    pub fn of(&self, side: usize) -> &[u8] {
        &self.0[side]
    }

    pub fn write(&mut self, side: usize, at: usize, bytes: &[u8]) {
        self.0[side][at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The bytes of several places, one after the other.
    #[cfg(test)]
    pub fn gather(&self, side: usize, places: &[Range<usize>]) -> Vec<u8> {
        let parts = places.iter().map(|place| &self.0[side][place.clone()]);
        parts.collect::<Vec<_>>().concat()
    }

    /// Puts bytes into several places, one after the other, as far as the bytes reach.
    pub fn scatter(&mut self, side: usize, places: &[Range<usize>], mut bytes: &[u8]) {
        for place in places {
            let (here, rest) = bytes.split_at(place.len().min(bytes.len()));
            self.write(side, place.start, here);
            bytes = rest;
        }
    }

    /// The number that an atomic would find.
    pub fn number(&self, side: usize, at: usize) -> u64 {
        let bytes = self.0[side][at..at + 8].try_into();
        u64::from_ne_bytes(bytes.expect("8 bytes"))
    }

    /// Compares what is there with what is to be; says where they differ first,
    /// and what.
    pub fn compare(&self, side: usize, actual: &[u8]) -> Result<(), (usize, String)> {
        let expected = &self.0[side];
        if actual == expected {
            return Ok(());
        }
        let differs = |at: &usize| actual.get(*at) != expected.get(*at);
        let wrong: Vec<usize> = (0..LENGTH).filter(differs).collect();
        let (first, last) = (wrong[0], wrong[wrong.len() - 1]);
        let text = format!(
            "memory of side {side} is wrong in {} bytes, from {first} to {last}: byte {first} is \
             {:#04x} and should be {:#04x}",
            wrong.len(),
            actual[first],
            expected[first]
        );
        Err((first, text))
    }
}

/// Which parts of a buffer are still free in a round: each request gets places of its own, so that the
/// order in which a device carries requests out changes nothing.
pub struct Places {
    next: usize,
    end: usize,
    /// Whether short places may cross the border of two pages.
    crosses_pages: bool,
}

/// Bytes of a page.
const PAGE: usize = 4096;

/// Whether a place is short and crosses the border of two pages. Linux 6.12 mixes up the bytes when
/// siw sends such a place by itself.
pub fn is_short_and_crosses(place: &Range<usize>) -> bool {
    place.len() <= 256 && place.start / PAGE != (place.end.max(1) - 1) / PAGE
}

/// Bytes at the end of a buffer that are kept for the last messages of a round.
const RESERVE: usize = 32 << 10;

impl Places {
    pub fn new(random: &mut Random, crosses_pages: bool) -> Self {
        Self {
            crosses_pages,
            next: random.below(LENGTH / 8),
            end: LENGTH - RESERVE,
        }
    }

    pub fn open_reserve(&mut self) {
        self.end = LENGTH;
    }

    /// A place that begins at a multiple of `align`, with a gap before it.
    pub fn take(
        &mut self,
        random: &mut Random,
        length: usize,
        align: usize,
    ) -> Option<Range<usize>> {
        let mut start = (self.next + random.below(48)).next_multiple_of(align);
        if !self.crosses_pages && is_short_and_crosses(&(start..start + length)) {
            start = start.next_multiple_of(PAGE);
        }
        let end = start.checked_add(length).filter(|end| *end <= self.end)?;
        self.next = end;
        Some(start..end)
    }

    /// Several places that hold so many bytes together. Some may have none.
    pub fn take_parts(
        &mut self,
        random: &mut Random,
        length: usize,
        parts: usize,
    ) -> Option<Vec<Range<usize>>> {
        let mut cuts: Vec<usize> = (1..parts).map(|_| random.below(length + 1)).collect();
        cuts.extend([0, length]);
        cuts.sort_unstable();
        let mut lengths = cuts.windows(2).map(|cut| cut[1] - cut[0]);
        lengths.try_fold(Vec::new(), |mut places, length| {
            places.push(self.take(random, length, 1)?);
            Some(places)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_apart_and_whole() {
        let mut random = Random::new(1);
        for parts in 1..5 {
            let mut places = Places::new(&mut random, true);
            let mut last = 0;
            while let Some(taken) = places.take_parts(&mut random, 3000, parts) {
                assert_eq!(taken.len(), parts);
                assert_eq!(taken.iter().map(Range::len).sum::<usize>(), 3000);
                for place in taken {
                    assert!(place.start >= last && place.end <= LENGTH);
                    last = place.end;
                }
            }
        }
    }

    #[test]
    fn short_places_can_be_kept_in_a_page() {
        let mut random = Random::new(4);
        let mut crossing = [0, 0];
        for crosses_pages in [false, true] {
            let mut places = Places::new(&mut random, crosses_pages);
            while let Some(place) = places.take(&mut random, 200, 1) {
                crossing[usize::from(crosses_pages)] += usize::from(is_short_and_crosses(&place));
            }
        }
        assert!(crossing[0] == 0 && crossing[1] > 0, "{crossing:?}");
    }

    #[test]
    fn a_wrong_byte_is_found() {
        let memory = Memory::new(&mut Random::new(2));
        let mut actual = memory.of(1).to_vec();
        memory.compare(1, &actual).unwrap();
        actual[1234] ^= 1;
        let (at, error) = memory.compare(1, &actual).unwrap_err();
        assert_eq!(at, 1234);
        assert!(error.contains("1 bytes, from 1234 to 1234"), "{error}");
    }

    #[test]
    fn bytes_go_from_place_to_place() {
        let mut memory = Memory::new(&mut Random::new(3));
        memory.write(0, 10, b"abcdefgh");
        assert_eq!(memory.gather(0, &[15..18, 11..11, 10..12]), b"fghab");
        memory.scatter(1, &[100..102, 50..50, 7..20], b"12345");
        assert_eq!(memory.gather(1, &[100..102, 7..10]), b"12345");
        memory.write(1, 64, &7u64.to_ne_bytes());
        assert_eq!(memory.number(1, 64), 7);
    }
}
