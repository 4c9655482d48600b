//! Tasks that always find something to do let others run.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use ::tokio::task::coop::poll_proceed;

/// Polls until there is something, as often as the task may before it is others' turn.
pub(super) async fn fairly<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    poll_fn(|cx| {
        let fair = ready!(poll_proceed(cx));
        let done = ready!(poll(cx));
        fair.made_progress();
        Poll::Ready(done)
    })
    .await
}
