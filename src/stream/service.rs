//! The one thread of streams: it makes the handshakes of listeners and of streams that connect without
//! waiting, while the program does something else. It exists while there is one of these.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::sys::{Deadline, Readiness, Wake, fork_generation, is_inherited};

/// Something that has handshakes to make.
pub(super) trait Served: Send + Sync {
    /// What is readable when a handshake can go on.
    fn readiness(&self) -> &Readiness;

    /// Goes on with them. False when there will be no more.
    fn serve(&self) -> bool;
}

/// How often handshakes that get no answer are looked at.
const PATIENCE: Duration = Duration::from_millis(500);

const SERVED: u8 = 0;
const CHANGED: u8 = 1;

struct Service {
    served: Vec<Weak<dyn Served>>,
    desk: Option<Arc<Desk>>,
}

/// Where the thread sits.
struct Desk {
    readiness: Readiness,
    changed: Wake,
    /// Which process the thread is of.
    generation: u32,
}

fn service() -> MutexGuard<'static, Service> {
    static SERVICE: OnceLock<Mutex<Service>> = OnceLock::new();
    let service = SERVICE.get_or_init(|| {
        Mutex::new(Service {
            served: Vec::new(),
            desk: None,
        })
    });
    service.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the thread make the handshakes of `one`.
pub(super) fn register(one: &Arc<impl Served + 'static>) -> Result<()> {
    let os = |error| Error::from_os("stream", &error);
    let mut service = service();
    let desk = match &service.desk {
        // That of a parent process does nothing here.
        Some(desk) if !is_inherited(desk.generation) => Arc::clone(desk),
        _ => {
            let desk = Arc::new(Desk::new().map_err(os)?);
            let seat = Arc::clone(&desk);
            let thread = thread::Builder::new().name("rdmacm".to_owned());
            thread.spawn(move || seat.work()).map_err(os)?;
            service.served.clear();
            service.desk = Some(Arc::clone(&desk));
            desk
        }
    };
    let fd = one.readiness().as_fd();
    desk.readiness.watch_edges(fd, SERVED).map_err(os)?;
    let one: Weak<dyn Served> = Arc::downgrade(one) as _;
    service.served.push(one);
    desk.changed.raise();
    Ok(())
}

/// Has the thread look whether there is anybody left.
pub(super) fn notice() {
    if let Some(desk) = &service().desk {
        desk.changed.raise();
    }
}

impl Desk {
    fn new() -> std::io::Result<Self> {
        let (readiness, changed) = (Readiness::new()?, Wake::new()?);
        readiness.watch(changed.as_fd(), CHANGED)?;
        Ok(Self {
            readiness,
            changed,
            generation: fork_generation(),
        })
    }

    fn work(&self) {
        loop {
            let deadline = Deadline::after(Some(PATIENCE));
            // A wait that fails is one that ended at once; the pause keeps that from running wild.
            match self.readiness.wait("stream", deadline) {
                Ok(readable) if readable.has(CHANGED) => self.changed.calm(),
                Ok(_) => {}
                Err(_) => thread::sleep(PATIENCE),
            }
            let mut service = service();
            let all = std::mem::take(&mut service.served);
            let present: Vec<Arc<dyn Served>> = all.iter().filter_map(Weak::upgrade).collect();
            if present.is_empty() {
                service.desk = None;
                return;
            }
            service.served = present.iter().map(Arc::downgrade).collect();
            drop(service);
            for one in present {
                if !one.serve() {
                    self.dismiss(&one);
                }
            }
        }
    }

    fn dismiss(&self, one: &Arc<dyn Served>) {
        self.readiness.forget(one.readiness().as_fd());
        let leaving = Arc::downgrade(one);
        service().served.retain(|served| !served.ptr_eq(&leaving));
    }
}
