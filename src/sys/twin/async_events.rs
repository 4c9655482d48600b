//! Asynchronous events: who made them, and which stream they go to.

use rdmacm_kernel_abi::uverbs::{AsyncEventDesc, AsyncEventType};

use super::attrs::Inputs;
use super::files::{FileId, Kind};
use super::objects::{Object, ObjectId, Reporter};
use super::{Outcome, Twin, World};

impl Twin {
    /// Has a device say something about itself or a port. Every stream hears of it.
    pub(crate) fn raise(&self, kind: AsyncEventType, element: u64) {
        let mut world = self.world();
        for file in world.files.async_files(|_| true) {
            world.report_to(file, kind, element);
        }
    }

    /// Has a device say something about the object with a cookie, or nothing if there is none.
    pub(crate) fn raise_for(&self, token: u64, kind: AsyncEventType) {
        let mut world = self.world();
        let reporters = world.objects.all.values().filter_map(Object::reporter);
        let found: Vec<_> = reporters
            .filter(|reporter| reporter.token == token)
            .collect();
        for reporter in found {
            world.report(reporter, kind);
        }
    }
}

impl World {
    /// What a new object reports by: its cookie, and the stream that the program names or else the
    /// first that was ever opened.
    pub(super) fn reporter(
        &self,
        file: FileId,
        inputs: Inputs<'_, '_>,
        cookie: u16,
        stream: u16,
    ) -> Outcome<Reporter> {
        let token = inputs.typed(cookie)?;
        let named = inputs.fd(stream).map(|fd| self.files.find(fd));
        let file = match named.transpose()? {
            Some(named) => match self.files.kind(named) {
                Kind::AsyncEvents { device_file, .. } if *device_file == file => Some(named),
                _ => return Err(libc::EBADF),
            },
            None => self.files.async_files(|of| of == file).first().copied(),
        };
        Ok(Reporter { file, token })
    }

    pub(super) fn report(&mut self, reporter: Reporter, kind: AsyncEventType) {
        if let Some(file) = reporter.file {
            self.report_to(file, kind, reporter.token);
        }
    }

    fn report_to(&mut self, file: FileId, kind: AsyncEventType, element: u64) {
        if let Kind::AsyncEvents { waiting, .. } = self.files.kind_mut(file) {
            waiting.push_back(AsyncEventDesc {
                element,
                event_type: kind.0,
                reserved: 0,
            });
            self.files.signal(file);
        }
    }

    /// Reports that a shared receive queue fell below its limit, once.
    pub(super) fn check_limit(&mut self, id: ObjectId) {
        let Ok(srq) = self.objects.srq(id) else {
            return;
        };
        if srq.ring.waiting(&self.memory) < srq.limit {
            srq.limit = 0;
            let reporter = srq.reporter;
            self.report(reporter, AsyncEventType::SRQ_LIMIT_REACHED);
        }
    }
}
