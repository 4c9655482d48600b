//! What the tracer does to the processes it watches.

use super::event::Event;

/// Chooses events; may keep a state of its own.
pub type Filter = Box<dyn FnMut(&Event) -> bool + Send>;

/// What happens to a system call, before it does anything.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// It fails with this errno.
    Fail(i32),
    /// The process gets SIGKILL.
    Kill,
}

/// Something that happens once, at the n-th system call that a filter chooses.
pub struct Rule {
    /// Matching calls up to and including the one it is about.
    remaining: usize,
    filter: Filter,
    action: Action,
}

impl Rule {
    /// Acts on the n-th matching call, counted from 1.
    pub fn new(n: usize, action: Action, filter: Filter) -> Self {
        Self {
            remaining: n,
            filter,
            action,
        }
    }

    /// What to do with a call that is about to be made.
    pub fn apply(&mut self, event: &Event) -> Option<Action> {
        if self.remaining == 0 || !(self.filter)(event) {
            return None;
        }
        self.remaining -= 1;
        (self.remaining == 0).then_some(self.action)
    }
}
