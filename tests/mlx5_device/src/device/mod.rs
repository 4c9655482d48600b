//! The card's side: a thread that watches the doorbell pages and executes requests.

mod completion;
mod datagram;
mod doorbell;
mod execute;
mod keys;
mod receive;
mod request;
mod send;
mod window;

use std::sync::atomic::Ordering;
use std::sync::{PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::Shared;
use crate::world::World;

/// Bytes of half a BlueFlame register.
pub(crate) const HALF: usize = 256;

/// So often it looks around before it rests.
const EAGER: u32 = 200;

/// Works until the card is gone.
pub(crate) fn watch(shared: &Weak<Shared>) {
    let mut idle = 0u32;
    while let Some(shared) = shared.upgrade() {
        let is_busy = {
            let world = shared.world.lock();
            world.unwrap_or_else(PoisonError::into_inner).step()
        };
        // Commands go first, and the lock is not fair.
        while shared.waiting.load(Ordering::Acquire) != 0 {
            thread::yield_now();
        }
        drop(shared);
        idle = if is_busy { 0 } else { idle.saturating_add(1) };
        match idle {
            0 => {}
            _ if idle < EAGER => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(50)),
        }
    }
}

impl World {
    /// Looks at everything once. False where there was nothing to do.
    fn step(&mut self) -> bool {
        let mut is_busy = self.look_at_pages();
        is_busy |= self.run();
        self.compare_copies();
        if self.looked.elapsed() > Duration::from_millis(10) {
            self.looked = Instant::now();
            self.look_for_stale_arms();
            self.channels.retain(|_, channel| !channel.is_closed());
            self.channels
                .values_mut()
                .for_each(|channel| channel.flush());
        }
        is_busy
    }
}
