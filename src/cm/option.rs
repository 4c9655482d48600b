//! Options of an id.

use rdmacm_kernel_abi::ucma::{self, IbOption, IdOption, OptionLevel};
use zerocopy::IntoBytes;

use super::id::Stage;
use super::{CmId, PathRecord, explain};
use crate::error::{Error, ErrorKind, Result};

/// Acknowledgements are waited for up to 4.096 µs · 2^31.
const LONGEST_ACK_TIMEOUT: u8 = 31;

impl CmId {
    /// Sets the type of service of the connection's packets: on RoCE the traffic class of the IP
    /// header, the lower two bits of which are for congestion. Before the route is resolved.
    ///
    /// # Errors
    ///
    /// When it is too late: the route is resolved, and the kernel would accept the option without
    /// effect.
    #[doc(alias("rdma_set_option", "RDMA_OPTION_ID_TOS"))]
    pub fn set_type_of_service(&self, type_of_service: u8) -> Result<()> {
        let operation = "set_type_of_service";
        if self.state().route_resolved {
            return Err(too_late(operation, "before the route is resolved"));
        }
        self.set_id_option(operation, IdOption::TOS, &[type_of_service])
    }

    /// Lets the id share its port with others that allow it too, as `SO_REUSEADDR`. Once one of
    /// them listens, no other can be bound any more. Before the id is bound.
    ///
    /// # Errors
    ///
    /// When it is too late.
    #[doc(alias("rdma_set_option", "RDMA_OPTION_ID_REUSEADDR"))]
    pub fn set_reuse_addr(&self, reuse: bool) -> Result<()> {
        self.set_before_bind("set_reuse_addr", IdOption::REUSEADDR, reuse)
    }

    /// Keeps an id that is bound to the IPv6 wildcard to IPv6, so that another can be bound to the
    /// port with IPv4. Before the id is bound.
    ///
    /// # Errors
    ///
    /// When it is too late.
    #[doc(alias("rdma_set_option", "RDMA_OPTION_ID_AFONLY"))]
    pub fn set_only_own_family(&self, only: bool) -> Result<()> {
        self.set_before_bind("set_only_own_family", IdOption::AFONLY, only)
    }

    /// Sets how long the queue pair waits for an acknowledgement before it repeats a packet:
    /// 4.096 µs · 2^`exponent`, 0 to 31; 0 waits for ever. Before the id connects or accepts.
    ///
    /// # Errors
    ///
    /// Larger exponents; datagrams, which have no acknowledgements; when it is too late.
    #[doc(alias("rdma_set_option", "RDMA_OPTION_ID_ACK_TIMEOUT"))]
    pub fn set_ack_timeout(&self, exponent: u8) -> Result<()> {
        let operation = "set_ack_timeout";
        if exponent > LONGEST_ACK_TIMEOUT {
            return Err(Error::invalid(
                operation,
                format!("the exponent is {exponent}; the most is {LONGEST_ACK_TIMEOUT}"),
            ));
        }
        if self.is_datagram() {
            return Err(Error::invalid(operation, "datagrams are not acknowledged"));
        }
        if self.state().stage != Stage::New {
            return Err(too_late(operation, "before the id connects or accepts"));
        }
        self.set_id_option(operation, IdOption::ACK_TIMEOUT, &[exponent])
    }

    /// Gives the id its route, in place of [`CmId::resolve_route`]: the event
    /// [`RouteResolved`](super::Event::RouteResolved) follows. The kernel takes the first path
    /// that is primary and leads both ways.
    ///
    /// # Errors
    ///
    /// An id whose address is not resolved or whose route is; no usable path among the records.
    #[doc(alias("rdma_set_option", "RDMA_OPTION_IB_PATH"))]
    pub fn set_path(&self, paths: &[PathRecord]) -> Result<()> {
        let operation = "set_path";
        if paths.is_empty() {
            return Err(Error::invalid(operation, "no path record was given"));
        }
        self.state().binding(operation)?;
        let records: Vec<_> = paths.iter().map(|path| path.to_kernel()).collect();
        self.set_option(
            operation,
            OptionLevel::IB,
            IbOption::PATH.0,
            records.as_bytes(),
        )
        .map_err(explain::set_path)?;
        self.state().route_resolved = true;
        Ok(())
    }

    /// The kernel accepts such options later as well, without effect.
    fn set_before_bind(&self, operation: &'static str, option: IdOption, on: bool) -> Result<()> {
        if self.state().local.is_some() {
            return Err(too_late(operation, "before the id is bound"));
        }
        self.set_id_option(operation, option, i32::from(on).as_bytes())
    }

    fn set_id_option(&self, operation: &'static str, option: IdOption, value: &[u8]) -> Result<()> {
        self.set_option(operation, OptionLevel::ID, option.0, value)
    }

    fn set_option(
        &self,
        operation: &'static str,
        level: OptionLevel,
        name: u32,
        value: &[u8],
    ) -> Result<()> {
        let state = self.state();
        state.check_alive(operation)?;
        let request = ucma::SetOption {
            id: self.handle(),
            level: level.0,
            optname: name,
            optlen: value.len() as u32,
            ..Default::default()
        };
        state
            .channel
            .set_option(&request, value)
            .map_err(|error| Error::from_os(operation, &error))
    }
}

fn too_late(operation: &'static str, when: &str) -> Error {
    Error::new(
        operation,
        ErrorKind::InvalidState,
        format!("it is too late: set it {when}"),
    )
}
