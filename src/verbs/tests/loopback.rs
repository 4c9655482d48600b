//! The example `verbs_loopback` on the scripted kernel: random requests of all kinds, with every byte
//! checked.

#[path = "../../../examples/verbs_loopback/loopback/mod.rs"]
mod program;

use super::context;
use crate::sys::twin::Twin;
use program::{Options, run};

#[test]
fn random_requests_do_what_they_are_to_do() {
    for seed in 0..if cfg!(miri) { 1 } else { 12 } {
        let twin = Twin::new();
        let options = Options {
            seed,
            operations: if cfg!(miri) { 20 } else { 1000 },
            events: seed % 2 == 1,
            srq: seed % 3 == 1,
            depth: 4 << (seed % 4),
            ..Options::default()
        };
        let report = run(context(&twin), &options).unwrap();
        assert!(report.operations() >= options.operations as u64);
        twin.assert_clean();
        if cfg!(miri) {
            continue;
        }
        let table = report.table();
        for kind in [
            "send with invalidate",
            "fetch and add",
            "bind window",
            "flush",
        ] {
            assert!(table.contains(kind), "{table}");
        }
    }
}
