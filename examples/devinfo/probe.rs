//! Tries each feature of the crate on a device, in the cheapest way: an object is made and taken
//! back. Nothing is sent.

use std::net::IpAddr;

use rdmacm::{
    Access, AtomicCapability, Context, EventChannel, Gid, MwType, PortSpace, Qp, QpAttr, QpType,
    Result, SrqAttr,
};

/// A feature, and whether it works; if not, why.
pub struct Finding {
    pub feature: &'static str,
    pub outcome: Result<String, String>,
}

/// Tries all features. `address` is one of the device's.
pub fn all(context: &Context, address: Option<IpAddr>) -> Vec<Finding> {
    let finding = |feature, outcome: Result<String>| Finding {
        feature,
        outcome: outcome.map_err(|error| error.to_string()),
    };
    let connected = |port_space| match address {
        Some(address) => manage(port_space, address).map_err(|error| error.to_string()),
        None => Err("the device has no IP address".to_owned()),
    };
    vec![
        Finding {
            feature: "connections (rdma_cm)",
            outcome: connected(PortSpace::Tcp),
        },
        Finding {
            feature: "datagrams (rdma_cm)",
            outcome: connected(PortSpace::Udp),
        },
        finding("queue pairs RC", queue_pairs(context, QpType::Rc)),
        finding("queue pairs UC", queue_pairs(context, QpType::Uc)),
        finding("queue pairs UD", queue_pairs(context, QpType::Ud)),
        finding("inline data", inline(context)),
        finding("memory registration", memory(context)),
        finding("completion channels", completions(context)),
        finding("shared receive queues", shared_queue(context)),
        finding("multicast", multicast(context)),
        finding("XRC", xrc(context)),
        finding("asynchronous events", asynchronous(context)),
        Finding {
            feature: "atomic operations",
            outcome: atomics(context),
        },
        finding("memory windows", memory_window(context)),
        finding("memory on demand", memory_on_demand(context)),
    ]
}

fn works() -> Result<String> {
    Ok(String::new())
}

/// Binding is what leads the connection manager to the device.
fn manage(port_space: PortSpace, address: IpAddr) -> Result<String> {
    let channel = EventChannel::open()?;
    let id = channel.create_id(port_space)?;
    id.bind_addr((address, 0))?;
    id.context()?;
    works()
}

/// A queue pair alone: what it was made of stays as long as it does.
fn queue_pair(context: &Context, qp_type: QpType, inline: u32) -> Result<Qp> {
    let pd = context.alloc_pd()?;
    let cq = context.completion_queue(4).build()?;
    let attr = QpAttr::new(&pd)
        .qp_type(qp_type)
        .send_cq(&cq)
        .recv_cq(&cq)
        .max_send_wr(1)
        .max_recv_wr(1)
        .max_inline_data(inline);
    pd.create_qp(&attr)
}

fn queue_pairs(context: &Context, qp_type: QpType) -> Result<String> {
    queue_pair(context, qp_type, 0)?;
    works()
}

fn inline(context: &Context) -> Result<String> {
    let qp = queue_pair(context, QpType::Rc, 16)?;
    let granted = qp.capabilities().max_inline_data;
    Ok(format!("{granted} bytes where 16 were asked for"))
}

fn memory(context: &Context) -> Result<String> {
    let pd = context.alloc_pd()?;
    pd.alloc(
        4096,
        Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE,
    )?;
    works()
}

fn completions(context: &Context) -> Result<String> {
    let channel = context.completion_channel()?;
    context.completion_queue(1).channel(&channel).build()?;
    works()
}

fn shared_queue(context: &Context) -> Result<String> {
    let pd = context.alloc_pd()?;
    pd.create_srq(&SrqAttr::default())?;
    works()
}

/// Attaches a queue pair to a group that nobody uses: 239.255.255.255 in the form of a GID.
fn multicast(context: &Context) -> Result<String> {
    let qp = queue_pair(context, QpType::Ud, 0)?;
    let group = Gid([
        0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 255, 255, 255,
    ]);
    qp.attach_multicast(group, 0)?;
    qp.detach_multicast(group, 0)?;
    works()
}

fn xrc(context: &Context) -> Result<String> {
    context.open_xrcd()?;
    works()
}

fn atomics(context: &Context) -> Result<String, String> {
    let attr = context.attr().map_err(|error| error.to_string())?;
    match attr.atomic_capability() {
        AtomicCapability::None => Err("the device has none".to_owned()),
        capability => Ok(format!("{capability:?}")),
    }
}

fn memory_window(context: &Context) -> Result<String> {
    context.alloc_pd()?.alloc_mw(MwType::One)?;
    works()
}

fn memory_on_demand(context: &Context) -> Result<String> {
    let pd = context.alloc_pd()?;
    pd.alloc(4096, Access::LOCAL_WRITE | Access::ON_DEMAND)?;
    works()
}

fn asynchronous(context: &Context) -> Result<String> {
    context.async_events()?;
    works()
}
