//! The steps of a connection's life.

use rdmacm::Event;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    CreateId,
    BindAddr,
    ResolveAddr,
    ResolveRoute,
    CreateQp,
    Connect,
    Disconnect,
    Destroy,
}

impl Step {
    /// The name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::CreateId => "create id",
            Self::BindAddr => "bind addr",
            Self::ResolveAddr => "resolve addr",
            Self::ResolveRoute => "resolve route",
            Self::CreateQp => "create qp",
            Self::Connect => "connect",
            Self::Disconnect => "disconnect",
            Self::Destroy => "destroy",
        }
    }

    /// What is printed when it begins.
    pub fn announcement(self) -> &'static str {
        match self {
            Self::CreateId => "creating id",
            Self::BindAddr => "binding source address",
            Self::ResolveAddr => "resolving address",
            Self::ResolveRoute => "resolving route",
            Self::CreateQp => "creating qp",
            Self::Connect => "connecting",
            Self::Disconnect => "disconnecting",
            Self::Destroy => "destroying id",
        }
    }

    /// Whether the step is over with an event, and not when the call returns.
    pub fn ends_with_event(self) -> bool {
        matches!(
            self,
            Self::ResolveAddr | Self::ResolveRoute | Self::Connect | Self::Disconnect
        )
    }

    /// Whether this is the event that ends the step well.
    pub fn is_ended_by(self, event: &Event) -> bool {
        match self {
            Self::ResolveAddr => matches!(event, Event::AddressResolved(_)),
            Self::ResolveRoute => matches!(event, Event::RouteResolved(_)),
            Self::Connect => matches!(event, Event::Established(_)),
            Self::Disconnect => matches!(event, Event::Disconnected(_)),
            _ => false,
        }
    }

    /// Whether a failure may pass, so that the step is worth another attempt.
    pub fn may_be_retried_after(self, event: &Event) -> bool {
        match self {
            Self::ResolveAddr => matches!(event, Event::AddressError(_)),
            Self::ResolveRoute => matches!(event, Event::RouteError(_)),
            _ => false,
        }
    }
}
