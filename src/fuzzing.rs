//! What the programs in `fuzz` call with any bytes.
//!
//! A target takes the bytes as what the kernel or a peer said, has the library work with it, and
//! checks what comes out against the bytes. It panics when that is wrong. Each is with the code that
//! it tries; most put a kernel there that answers from the bytes (`sys::hostile`).
//!
//! Bytes that once found a fault, and some that lead far, are in `fuzz/corpus`. Tests try them all.

pub use crate::cm::fuzzing::{cm_events, path_service, peer_data};
pub use crate::device::fuzzing::{device_events, device_list, device_queries};
pub use crate::fastpath::mlx5_completions;
pub use crate::stream::fuzzing::{datagram_headers, stream_messages};
pub use crate::verbs::fuzzing::{
    mlx5_device, reply_path, rxe_completions, rxe_queues, siw_completions, siw_queues,
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    type Target = fn(&[u8]);

    /// By the names of the programs.
    const TARGETS: &[(&str, Target)] = &[
        ("cm_events", super::cm_events),
        ("datagram_headers", super::datagram_headers),
        ("device_events", super::device_events),
        ("device_list", super::device_list),
        ("device_queries", super::device_queries),
        ("mlx5_completions", super::mlx5_completions),
        ("mlx5_device", super::mlx5_device),
        ("path_service", super::path_service),
        ("peer_data", super::peer_data),
        ("reply_path", super::reply_path),
        ("rxe_completions", super::rxe_completions),
        ("rxe_queues", super::rxe_queues),
        ("siw_completions", super::siw_completions),
        ("siw_queues", super::siw_queues),
        ("stream_messages", super::stream_messages),
    ];

    fn names_in(folder: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        entries.map(|entry| name(entry.unwrap())).collect()
    }

    #[test]
    fn the_corpus_of_each_target_is_survived() {
        let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
        let names: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(names_in(&fuzz.join("corpus")), names);
        let programs = names.iter().map(|name| format!("{name}.rs")).collect();
        assert_eq!(names_in(&fuzz.join("fuzz_targets")), programs);
        for (name, target) in TARGETS {
            let folder = fuzz.join("corpus").join(name);
            for file in names_in(&folder) {
                println!("{name}/{file}");
                target(&fs::read(folder.join(file)).unwrap());
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            for (_, target) in TARGETS {
                target(&bytes);
            }
        }
    }
}
