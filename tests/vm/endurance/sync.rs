//! Ids that wait for their steps, up to the connection.

use std::net::SocketAddr;
use std::thread;

use rdmacm::{ConnParam, PortSpace, QpAttr, Result, SyncId};

use crate::pair::PATIENCE;

/// A client and a server, connected, which wait for ever.
pub fn connect_over(address: SocketAddr) -> Result<(SyncId, SyncId)> {
    let mut listener = SyncId::create(PortSpace::Tcp)?;
    listener.bind_addr(address)?;
    listener.set_request_attr(QpAttr::default());
    listener.set_timeout(Some(PATIENCE));
    listener.listen(0)?;
    let peer = listener.id().local_addr().expect("it listens");
    thread::scope(|scope| {
        let accepting = scope.spawn(move || {
            let mut server = listener.get_request()?;
            server.accept(&ConnParam::new())?;
            server.set_timeout(None);
            Ok(server)
        });
        let connected = client(peer).and_then(|mut client| {
            client.connect(&ConnParam::new())?;
            Ok(client)
        });
        let accepted: Result<SyncId> = accepting.join().expect("the server does not panic");
        Ok((connected?, accepted?))
    })
}

/// An id that is about to connect.
pub fn client(peer: SocketAddr) -> Result<SyncId> {
    let mut id = SyncId::create(PortSpace::Tcp)?;
    id.resolve_addr(None, peer, PATIENCE)?;
    id.resolve_route(PATIENCE)?;
    id.create_qp(&QpAttr::default())?;
    Ok(id)
}
