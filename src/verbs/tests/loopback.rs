//! The example `verbs_loopback` on the scripted kernel: random requests of all kinds, with every byte
//! checked.

#[path = "../../../examples/verbs_loopback/loopback/mod.rs"]
mod program;

use rdmacm_mlx5_device::Config;

use super::card::open;
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

/// Runs the example over the card made of software.
fn run_on_card(config: Config, options: Options) {
    let (twin, context) = open(config);
    let seed = options.seed;
    if let Err(error) = run(context, &options) {
        let violations = twin.card().violations();
        panic!("seed {seed}: {error}; the card says: {violations:?}");
    }
    twin.assert_clean();
}

/// Over each form of card and kernel, with completions polled and waited for, and with a queue pair's
/// own receives and shared ones. `ci/mlx5` runs more of it, and what the environment has a part in.
#[test]
fn on_mlx5_as_well() {
    let plain = Config::default;
    let configs = [
        plain(),
        Config {
            has_static_uars: true,
            ..plain()
        },
        Config {
            bf_reg_size: 0,
            ..plain()
        },
        Config {
            cqe_version: 0,
            ..plain()
        },
        Config {
            is_infiniband: true,
            ..plain()
        },
    ];
    let full = std::env::var_os("RDMACM_TEST_FULL").is_some();
    for seed in 0..if full { 20 } else { 1 } {
        for (events, srq) in [(false, false), (true, false), (false, true)] {
            for config in &configs {
                let options = Options {
                    seed,
                    operations: if full { 2000 } else { 200 },
                    events,
                    srq,
                    ..Options::default()
                };
                println!("{config:?} {options:?}");
                run_on_card(config.clone(), options);
            }
        }
    }
}
