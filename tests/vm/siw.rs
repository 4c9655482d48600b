//! siw, software iWARP: what is otherwise than on rxe, and which of the other tests hold here as
//! well.

mod connections;
mod failures;
mod requests;

use rdmacm::{Driver, Qp, QpState, Result};

use crate::environment;
use crate::harness::Test;

/// The tests of this module.
fn tests() -> Vec<Test> {
    [connections::tests(), failures::tests(), requests::tests()]
        .into_iter()
        .flatten()
        .collect()
}

/// Whether the device under test is one.
pub fn is_under_test() -> bool {
    environment::context().device().driver() == Driver::Siw
}

/// Checks that a queue pair is in the error state. Linux 6.1 does not tell the state of siw's.
fn assert_is_over(qp: &Qp) -> Result<()> {
    let expected = match environment::kernel() < (6, 2) {
        true => QpState::Reset,
        false => QpState::Error,
    };
    assert_eq!(qp.query_state()?, expected);
    Ok(())
}

/// The tests that hold on siw: this module's, and those of `others` that speak of no datagrams, no
/// immediate data, no atomics, no GIDs of addresses and no events of InfiniBand's handshake.
pub fn choose(others: Vec<Test>) -> Vec<Test> {
    others
        .into_iter()
        .filter(is_shared)
        .chain(tests())
        .collect()
}

/// Whether a test holds on siw as well.
pub fn is_shared(test: &Test) -> bool {
    SHARED.iter().any(|shared| test.name().starts_with(shared))
}

const SHARED: [&str; 93] = [
    "self_test::",
    "guide::",
    "streams::basics::",
    "streams::ends::",
    "streams::forked::",
    "streams::killed::",
    "streams::mapped::",
    "streams::queue_pairs::while_",
    "streams::queue_pairs::by_what_the_peer_writes",
    "streams::zero_copy::",
    "streams::crowds::",
    // Where a connect is dropped, siw's kernel waits long in destroying the queue pair.
    "tokio::echoes_of_many_sizes",
    "tokio::a_",
    "tokio::halves_become_one_again",
    "tokio::cancelled::reads_and_writes",
    "tokio::waking::a_writer_that_is_blocked",
    "tokio::zero_copy::",
    "device_test::",
    "table::",
    "traffic::messages::sends_of_any_size",
    "traffic::messages::writes_of_any_size",
    "traffic::messages::reads_of_any_size",
    "traffic::messages::several_segments",
    "traffic::messages::messages_beyond_any_size_are_refused",
    "traffic::queues::full_exactly_at_the_depth",
    "traffic::queues::a_dropped_batch_posts_nothing",
    "traffic::queues::unsignaled_requests_complete_silently",
    "traffic::queues::signal_all_signals_all",
    "traffic::queues::posting_after_destroy_is_refused",
    "traffic::completions::arming_loses_no_wake_up",
    "traffic::completions::an_event_is_due_only_after_arming",
    "traffic::completions::events_name_their_queue",
    "traffic::completions::an_unread_event_holds_no_queue",
    "traffic::completions::no_completion_comes_twice",
    "traffic::failures::reads_take_turns",
    "traffic::threads::",
    "traffic::crowds::a_storm_of_clients",
    "traffic::first_use::",
    "traffic::endpoint::messages_of_any_size",
    "traffic::endpoint::a_timeout_holds_and_harms_nothing",
    "traffic::endpoint::receives_before_accepting",
    "traffic::endpoint::batches_and_waiting_calls_mix",
    "traffic::endpoint::the_end_of_a_connection_is_told_again_and_again",
    "traffic::endpoint::what_was_sent_before_the_end_arrives",
    "traffic::events::destroying_does_not_wait_for_events",
    "traffic::events::a_request_survives_its_listener",
    "traffic::events::unread_events_of_destroyed_ids_are_gone",
    "traffic::events::events_outlive_their_channel",
    "traffic::events::migration_takes_unread_events_along",
    "traffic::addresses::ipv6_connects",
    "traffic::addresses::wildcards_have_a_port_and_no_device",
    "traffic::device::all_share_context_and_protection_domain",
    "verbs::async_events::a_port_goes_down",
    "verbs::depths::what_siw",
    "cm_behaviours::sync::",
    "cm_behaviours::options::options_that_come_too_late_are_refused",
    "cm_behaviours::options::a_shared_port_and_a_family_of_its_own",
    "addr_info::addresses_in_text_connect",
    "addr_info::an_unknown_host_is_told_in_the_resolvers_words",
    "sync_ids::each_call_of_a_connection_ends",
    "sync_ids::an_endpoint_out_of_address_information_connects",
    "sync_ids::each_accepted_connection_has_the_same_size",
    "sync_ids::receives_come_from_a_shared_queue",
    "sync_ids::a_rejection_ends_all_that_waits",
    "sync_ids::both_disconnect_at_once",
    "sync_ids::each_wait_ends_in_time",
    "sync_ids::whoever_waits_is_woken_by_the_end_of_the_id",
    "sync_ids::an_id_goes_over_to_a_channel_and_back",
    "bad_situations::addresses::local_addresses",
    "bad_situations::connecting::",
    "bad_situations::sizes::requests",
    "bad_situations::memory::",
    "bad_situations::restricted::limits",
    "bad_situations::restricted::without_privileges",
    "bad_situations::restricted::closed_nodes",
    "bad_situations::processes::",
    "bad_situations::peers_vanish::right_after_connecting",
    "bad_situations::peers_vanish::while_idle",
    "bad_situations::peers_vanish::while_writing_and_reading_much",
    "teardown::answers::",
    "teardown::stop_early::",
    "teardown::race::",
    "interop::rping::",
    "interop::connected::ucmatose",
    "interop::connected::rdma_server_and_client",
    "interop::streams::",
    "two_hosts::programs::ucmatose",
    "two_hosts::streams::",
    "loopback::random_requests_of_all_kinds",
    "loopback::what_is_not_there_is_named",
    "endurance::removal::what_nobody",
    "endurance::removal::waits_end",
    "endurance::removal::a_wildcard",
];
