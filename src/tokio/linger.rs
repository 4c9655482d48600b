//! Closing a stream without waiting for what is still to be sent.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::tokio::runtime::Handle;

use super::watch::Wait;
use crate::stream::Core;
use crate::sys::{Alarm, Deadline};

/// A stream that is closed when it is dropped by the last that has it.
#[derive(Debug, Clone)]
pub(super) struct Open(Option<Arc<Core>>);

impl Open {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self(Some(core))
    }

    pub(super) fn into_inner(mut self) -> Arc<Core> {
        self.0.take().expect("it is taken only here and at the end")
    }

    pub(super) fn as_arc(&self) -> &Arc<Core> {
        self.0.as_ref().expect("it is taken only at the end")
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(&**self, &**other)
    }
}

impl Deref for Open {
    type Target = Core;

    fn deref(&self) -> &Core {
        self.as_arc()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(core) = self.0.take().and_then(Arc::into_inner) else {
            return;
        };
        // Dropping the core waits.
        if !core.say_goodbye() {
            let linger = core.linger();
            // Before the alarm, so that it is over when that wakes the task.
            let deadline = Deadline::after(Some(linger));
            if let (Ok(runtime), Ok(alarm)) = (Handle::try_current(), core.alarm(linger)) {
                runtime.spawn(Lingering {
                    core,
                    wait: Wait::new(),
                    deadline,
                    _alarm: alarm,
                });
            }
        }
    }
}

/// A stream that is closed and has something to send.
struct Lingering {
    core: Core,
    wait: Wait,
    deadline: Deadline,
    _alarm: Alarm,
}

impl Future for Lingering {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        // Nobody is left to be told of an error.
        let settled = this.core.poll_settled(cx, &mut this.wait, this.deadline);
        settled.map(|_| ())
    }
}

impl Drop for Lingering {
    /// A runtime that ends before leaves the rest of the waiting to the thread that ends it.
    fn drop(&mut self) {
        let rest = self.deadline.remaining();
        self.core.set_linger(rest.unwrap_or_default());
    }
}
