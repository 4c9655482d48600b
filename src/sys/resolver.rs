//! The system's name resolver.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr::{self, NonNull};

use libc::{addrinfo, c_int};

/// What is wanted of the resolver.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct NameQuery<'a> {
    pub node: Option<&'a CStr>,
    pub service: Option<&'a CStr>,
    /// Addresses to listen on.
    pub is_passive: bool,
    /// The node is an address in text: no name server is asked.
    pub is_numeric: bool,
    pub wants_canonical_name: bool,
    /// `AF_INET` or `AF_INET6`; 0 for both.
    pub family: c_int,
    /// Services of UDP, not of TCP.
    pub is_datagram: bool,
}

/// What the resolver found: at least one address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub addresses: Vec<SocketAddr>,
    pub canonical_name: Option<String>,
}

/// The resolver's refusal, which has numbers of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolverError {
    /// An `EAI_` number.
    pub code: c_int,
    /// The errno, where the operating system refused something to the resolver.
    pub errno: Option<i32>,
}

impl fmt::Display for ResolverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: any number has a text, which is static and ends with NUL.
        let text = unsafe { CStr::from_ptr(libc::gai_strerror(self.code)) };
        write!(f, "{} (EAI {})", text.to_string_lossy(), self.code)
    }
}

/// Asks the system's resolver. Blocks as long as name servers do.
pub(crate) fn resolve_name(query: &NameQuery<'_>) -> Result<Resolved, ResolverError> {
    let (kind, protocol) = match query.is_datagram {
        false => (libc::SOCK_STREAM, libc::IPPROTO_TCP),
        true => (libc::SOCK_DGRAM, libc::IPPROTO_UDP),
    };
    let flags = [
        (query.is_passive, libc::AI_PASSIVE),
        (query.is_numeric, libc::AI_NUMERICHOST),
        // The resolver refuses to name what was not asked for by name.
        (
            query.wants_canonical_name && query.node.is_some(),
            libc::AI_CANONNAME,
        ),
    ];
    let flags = flags.iter().filter(|(is_set, _)| *is_set);
    let hints = addrinfo {
        ai_flags: flags.fold(0, |flags, (_, flag)| flags | flag),
        ai_family: query.family,
        ai_socktype: kind,
        ai_protocol: protocol,
        ai_addrlen: 0,
        ai_addr: ptr::null_mut(),
        ai_canonname: ptr::null_mut(),
        ai_next: ptr::null_mut(),
    };
    let list = List::resolve(query.node, query.service, &hints)?;
    let addresses: Vec<_> = list.iter().filter_map(socket_addr).collect();
    if addresses.is_empty() {
        // No resolver is known to do that, and callers count on one address.
        return Err(ResolverError {
            code: libc::EAI_NODATA,
            errno: None,
        });
    }
    Ok(Resolved {
        addresses,
        canonical_name: list.iter().find_map(canonical_name),
    })
}

/// The resolver's answer, which it wants back.
struct List(NonNull<addrinfo>);

impl List {
    fn resolve(
        node: Option<&CStr>,
        service: Option<&CStr>,
        hints: &addrinfo,
    ) -> Result<Self, ResolverError> {
        let text = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
        let mut found = MaybeUninit::new(ptr::null_mut());
        // SAFETY: the texts end with NUL or are absent, the hints are whole with their pointers
        // null, and all of them outlive the call, as does the room for the answer.
        let code =
            unsafe { libc::getaddrinfo(text(node), text(service), hints, found.as_mut_ptr()) };
        if code != 0 {
            let errno = match code {
                libc::EAI_SYSTEM => io::Error::last_os_error().raw_os_error(),
                _ => None,
            };
            return Err(ResolverError { code, errno });
        }
        // SAFETY: it was initialised as null, and the resolver may have put a list there.
        let found = NonNull::new(unsafe { found.assume_init() });
        found.map(Self).ok_or(ResolverError {
            code: libc::EAI_NODATA,
            errno: None,
        })
    }

    fn iter(&self) -> impl Iterator<Item = &addrinfo> {
        // SAFETY: the list is the resolver's and stays until this is dropped; nothing changes it.
        let first = unsafe { self.0.as_ref() };
        // SAFETY: each entry points to the next one of the same list, the last to none.
        std::iter::successors(Some(first), |entry| unsafe { entry.ai_next.as_ref() })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list came from the resolver and is given back once.
        unsafe { libc::freeaddrinfo(self.0.as_ptr()) };
    }
}

/// The address in an entry; `None` for a family that was not asked for.
fn socket_addr(entry: &addrinfo) -> Option<SocketAddr> {
    match entry.ai_family {
        libc::AF_INET => {
            let v4: libc::sockaddr_in = read(entry)?;
            let ip = u32::from_be(v4.sin_addr.s_addr).into();
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            let v6: libc::sockaddr_in6 = read(entry)?;
            let flow = u32::from_be(v6.sin6_flowinfo);
            let (ip, port) = (v6.sin6_addr.s6_addr.into(), u16::from_be(v6.sin6_port));
            Some(SocketAddrV6::new(ip, port, flow, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// An address structure, which is made of plain numbers.
fn read<T: Copy>(entry: &addrinfo) -> Option<T> {
    let is_whole = entry.ai_addrlen as usize >= size_of::<T>();
    if !is_whole || entry.ai_addr.is_null() {
        return None;
    }
    // SAFETY: the resolver put `ai_addrlen` bytes there, enough for the structure, in which every
    // bit pattern is a value; alignment is not assumed.
    Some(unsafe { ptr::read_unaligned(entry.ai_addr.cast()) })
}

fn canonical_name(entry: &addrinfo) -> Option<String> {
    let name = NonNull::new(entry.ai_canonname)?;
    // SAFETY: the resolver put a text there that ends with NUL and lives as long as the entry.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    Some(name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMERIC: NameQuery<'static> = NameQuery {
        node: None,
        service: Some(c"7471"),
        is_passive: false,
        is_numeric: true,
        wants_canonical_name: false,
        family: 0,
        is_datagram: false,
    };

    fn addresses(query: NameQuery<'_>) -> Vec<SocketAddr> {
        resolve_name(&query).unwrap().addresses
    }

    #[test]
    fn text_becomes_an_address_once() {
        for (node, wanted) in [
            (c"10.1.2.3", "10.1.2.3:7471"),
            (c"2001:db8::7", "[2001:db8::7]:7471"),
        ] {
            let node = Some(node);
            let found = addresses(NameQuery { node, ..NUMERIC });
            assert_eq!(found, [wanted.parse().unwrap()]);
        }
    }

    #[test]
    fn a_scope_is_kept() {
        let node = Some(c"fe80::1%1");
        let SocketAddr::V6(found) = addresses(NameQuery { node, ..NUMERIC })[0] else {
            panic!("not an IPv6 address");
        };
        assert_eq!(found.scope_id(), 1);
    }

    #[test]
    fn no_node_is_any_address_or_the_loopback_one() {
        let family = libc::AF_INET;
        let query = NameQuery { family, ..NUMERIC };
        assert_eq!(addresses(query), ["127.0.0.1:7471".parse().unwrap()]);
        let is_passive = true;
        let any = addresses(NameQuery {
            is_passive,
            ..query
        });
        assert_eq!(any, ["0.0.0.0:7471".parse().unwrap()]);
    }

    #[test]
    fn a_refusal_has_the_resolvers_number_and_text() {
        let node = Some(c"no.such.host.invalid");
        let error = resolve_name(&NameQuery { node, ..NUMERIC }).unwrap_err();
        assert_eq!((error.code, error.errno), (libc::EAI_NONAME, None));
        assert!(error.to_string().ends_with("(EAI -2)"));
        assert!(error.to_string().len() > "(EAI -2)".len() + 4);
    }

    #[test]
    fn the_canonical_name_is_told_when_asked_for() {
        let named = NameQuery {
            node: Some(c"10.1.2.3"),
            wants_canonical_name: true,
            ..NUMERIC
        };
        let name = resolve_name(&named).unwrap().canonical_name;
        assert_eq!(name.as_deref(), Some("10.1.2.3"));
        // Not for what has no name.
        let nameless = NameQuery {
            node: None,
            ..named
        };
        assert_eq!(resolve_name(&nameless).unwrap().canonical_name, None);
    }
}
