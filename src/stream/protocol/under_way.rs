//! Requests that were posted and not completed: what they take of the send queue and of the send
//! buffer, and which of them ask for a completion.

use std::collections::VecDeque;

/// Control messages that can be under way; places in the send queue are kept for them.
pub(crate) const CONTROLS: u32 = 4;

/// The send queue and the send buffer of a stream.
///
/// Not each request asks for a completion: one in so many does, and what needs to be known at once.
/// Completions come in the order of the requests, so one tells of all before it.
#[derive(Debug)]
pub(crate) struct UnderWay {
    /// Places in the send queue for data.
    free: u32,
    /// Control messages that can be posted.
    controls: u32,
    /// Size of the send buffer, how many of its bytes are in use, and where the next are to go.
    size: u32,
    used: u32,
    at: u32,
    /// What was posted since the last request that asks for a completion.
    since: Share,
    /// What each completion will tell to be done.
    shares: VecDeque<Share>,
    /// A completion is asked for at the latest when so many requests, or bytes, have none.
    often: Share,
}

/// What some requests take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Share {
    requests: u32,
    controls: u32,
    bytes: u32,
}

/// Where data goes in the send buffer: offset and length, and the length of what is at the
/// beginning of the buffer, when it reaches around the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copied {
    pub offset: usize,
    pub length: usize,
    pub around: usize,
}

impl UnderWay {
    /// With a send queue of `depth` requests, of which a control message takes `each`, and a buffer of
    /// `size` bytes.
    pub(crate) fn new(depth: u32, each: u32, size: u32) -> Self {
        let free = depth.saturating_sub(CONTROLS * each).max(each);
        Self {
            free,
            controls: CONTROLS,
            size,
            used: 0,
            at: 0,
            since: Share::default(),
            shares: VecDeque::with_capacity(depth as usize),
            often: Share {
                requests: (free / 4).max(1),
                controls: 1,
                bytes: (size / 4).max(1),
            },
        }
    }

    /// Whether so many more requests for data find room in the send queue.
    pub(crate) fn has_room(&self, requests: u32) -> bool {
        self.free >= requests
    }

    /// Whether a control message finds room.
    pub(crate) fn has_room_for_control(&self) -> bool {
        self.controls > 0
    }

    /// Free bytes of the send buffer.
    pub(crate) fn buffer_room(&self) -> usize {
        (self.size - self.used) as usize
    }

    /// Takes bytes of the send buffer, of which there must be so many.
    pub(crate) fn copy(&mut self, length: usize) -> Copied {
        debug_assert!(length <= self.buffer_room());
        let length = length as u32;
        let first = length.min(self.size - self.at);
        let copied = Copied {
            offset: self.at as usize,
            length: first as usize,
            around: (length - first) as usize,
        };
        self.at = (self.at + length) % self.size;
        self.used += length;
        self.since.bytes += length;
        copied
    }

    /// Takes places for a message of data. Whether it is to ask for a completion.
    pub(crate) fn data(&mut self, requests: u32) -> bool {
        debug_assert!(self.has_room(requests));
        self.free -= requests;
        self.since.requests += requests;
        let is_due = self.since.requests >= self.often.requests
            || self.since.bytes >= self.often.bytes
            // Nothing else could follow to tell that this is done.
            || self.free == 0;
        if is_due {
            self.close();
        }
        is_due
    }

    /// Takes places for a message of data that is not in the send buffer, which asks for a completion:
    /// whoever owns the memory waits to have it back.
    pub(crate) fn data_of_others(&mut self, requests: u32) {
        debug_assert!(self.has_room(requests));
        self.free -= requests;
        self.since.requests += requests;
        self.close();
    }

    /// Takes the place of a control message, which always asks for a completion.
    pub(crate) fn control(&mut self) {
        debug_assert!(self.has_room_for_control());
        self.controls -= 1;
        self.since.controls += 1;
        self.close();
    }

    /// A message that is known to be the last for a while asks for a completion.
    fn close(&mut self) {
        self.shares.push_back(std::mem::take(&mut self.since));
    }

    /// Takes note of a completion. False when none was due.
    pub(crate) fn complete(&mut self) -> bool {
        let Some(share) = self.shares.pop_front() else {
            return false;
        };
        self.free += share.requests;
        self.controls += share.controls;
        self.used -= share.bytes;
        true
    }

    /// Whether all that was posted is done, as far as completions tell.
    pub(crate) fn is_idle(&self) -> bool {
        self.shares.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_is_a_ring() {
        let mut under_way = UnderWay::new(20, 1, 100);
        let copied = under_way.copy(80);
        assert_eq!((copied.offset, copied.length, copied.around), (0, 80, 0));
        assert!(under_way.data(1), "three quarters of the buffer");
        assert_eq!(under_way.buffer_room(), 20);
        assert!(under_way.complete());
        assert_eq!(under_way.buffer_room(), 100);
        let copied = under_way.copy(50);
        assert_eq!((copied.offset, copied.length, copied.around), (80, 20, 30));
    }

    #[test]
    fn one_completion_tells_of_all_before_it() {
        let mut under_way = UnderWay::new(20, 1, 1000);
        let asked: Vec<bool> = (0..16)
            .map(|_| {
                under_way.copy(1);
                under_way.data(1)
            })
            .collect();
        assert_eq!(asked.iter().filter(|asked| **asked).count(), 4);
        assert!(asked[15], "the last one that fits is told of");
        assert!(!under_way.has_room(1));
        assert!(under_way.complete());
        assert!(under_way.has_room(4) && !under_way.has_room(5));
        assert_eq!(under_way.buffer_room(), 1000 - 12);
        assert!(under_way.complete() && under_way.complete() && under_way.complete());
        assert!(under_way.is_idle());
        assert!(!under_way.complete(), "one that nobody asked for");
    }

    #[test]
    fn memory_of_others_is_told_of_at_once_and_takes_no_room_in_the_buffer() {
        let mut under_way = UnderWay::new(20, 1, 1000);
        under_way.copy(30);
        assert!(!under_way.data(1));
        under_way.data_of_others(1);
        assert!(under_way.has_room(14) && !under_way.has_room(15));
        assert_eq!(under_way.buffer_room(), 970);
        assert!(under_way.complete());
        assert_eq!(under_way.buffer_room(), 1000);
        assert!(under_way.is_idle() && under_way.has_room(16));
    }

    #[test]
    fn control_messages_have_places_of_their_own() {
        let mut under_way = UnderWay::new(6, 1, 1000);
        under_way.data(1);
        under_way.data(1);
        assert!(!under_way.has_room(1));
        for _ in 0..CONTROLS {
            assert!(under_way.has_room_for_control());
            under_way.control();
        }
        assert!(!under_way.has_room_for_control());
        while under_way.complete() {}
        assert!(under_way.has_room(2) && under_way.has_room_for_control());
    }
}
