//! The table from C names to Rust names is complete, and what it names answers to the C name in
//! the search of the documentation. That the items exist is checked by rustdoc, whose links they are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TABLE: &str = include_str!("../docs/c-names.md");

/// What librdmacm.so.1 exports, by the version of the symbols.
const EXPORTS: &[(&str, &[&str])] = &[
    (
        "RDMACM_1.0",
        &[
            "rdma_create_event_channel",
            "rdma_destroy_event_channel",
            "rdma_create_id",
            "rdma_destroy_id",
            "rdma_bind_addr",
            "rdma_resolve_addr",
            "rdma_resolve_route",
            "rdma_create_qp",
            "rdma_create_qp_ex",
            "rdma_destroy_qp",
            "rdma_connect",
            "rdma_listen",
            "rdma_accept",
            "rdma_reject",
            "rdma_notify",
            "rdma_disconnect",
            "rdma_get_cm_event",
            "rdma_ack_cm_event",
            "rdma_get_src_port",
            "rdma_get_dst_port",
            "rdma_join_multicast",
            "rdma_leave_multicast",
            "rdma_get_devices",
            "rdma_free_devices",
            "rdma_event_str",
            "rdma_set_option",
            "rdma_migrate_id",
            "rdma_getaddrinfo",
            "rdma_freeaddrinfo",
            "rdma_get_request",
            "rdma_create_ep",
            "rdma_destroy_ep",
            "rdma_create_srq",
            "rdma_create_srq_ex",
            "rdma_destroy_srq",
            "rsocket",
            "rbind",
            "rlisten",
            "raccept",
            "rconnect",
            "rshutdown",
            "rclose",
            "rrecv",
            "rrecvfrom",
            "rrecvmsg",
            "rsend",
            "rsendto",
            "rsendmsg",
            "rread",
            "rreadv",
            "rwrite",
            "rwritev",
            "rpoll",
            "rselect",
            "rgetpeername",
            "rgetsockname",
            "rsetsockopt",
            "rgetsockopt",
            "rfcntl",
            "riomap",
            "riounmap",
            "riowrite",
        ],
    ),
    ("RDMACM_1.1", &["rdma_join_multicast_ex"]),
    ("RDMACM_1.2", &["rdma_establish", "rdma_init_qp_attr"]),
    (
        "RDMACM_1.3",
        &[
            "rdma_get_remote_ece",
            "rdma_reject_ece",
            "rdma_set_local_ece",
        ],
    ),
    (
        "RDMACM_1.4",
        &[
            "rdma_query_addrinfo",
            "rdma_resolve_addrinfo",
            "rdma_write_cm_event",
        ],
    ),
    (
        "RDMACM_1.5",
        &["repoll_create", "repoll_ctl", "repoll_wait"],
    ),
];

/// What the headers rdma/rdma_cma.h and rdma/rdma_verbs.h define as functions.
const INLINE: &[&str] = &[
    "rdma_get_local_addr",
    "rdma_get_peer_addr",
    "rdma_seterrno",
    "rdma_reg_msgs",
    "rdma_reg_read",
    "rdma_reg_write",
    "rdma_dereg_mr",
    "rdma_post_recvv",
    "rdma_post_sendv",
    "rdma_post_readv",
    "rdma_post_writev",
    "rdma_post_recv",
    "rdma_post_send",
    "rdma_post_read",
    "rdma_post_write",
    "rdma_post_ud_send",
    "rdma_get_send_comp",
    "rdma_get_recv_comp",
];

/// Constants and types of rdma/rdma_cma.h that programs use.
const OTHERS: &[&str] = &[
    "RDMA_CM_EVENT_ADDR_RESOLVED",
    "RDMA_CM_EVENT_ADDR_ERROR",
    "RDMA_CM_EVENT_ROUTE_RESOLVED",
    "RDMA_CM_EVENT_ROUTE_ERROR",
    "RDMA_CM_EVENT_CONNECT_REQUEST",
    "RDMA_CM_EVENT_CONNECT_RESPONSE",
    "RDMA_CM_EVENT_CONNECT_ERROR",
    "RDMA_CM_EVENT_UNREACHABLE",
    "RDMA_CM_EVENT_REJECTED",
    "RDMA_CM_EVENT_ESTABLISHED",
    "RDMA_CM_EVENT_DISCONNECTED",
    "RDMA_CM_EVENT_DEVICE_REMOVAL",
    "RDMA_CM_EVENT_MULTICAST_JOIN",
    "RDMA_CM_EVENT_MULTICAST_ERROR",
    "RDMA_CM_EVENT_ADDR_CHANGE",
    "RDMA_CM_EVENT_TIMEWAIT_EXIT",
    "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
    "RDMA_CM_EVENT_ADDRINFO_ERROR",
    "RDMA_CM_EVENT_USER",
    "RDMA_CM_EVENT_INTERNAL",
    "RDMA_PS_TCP",
    "RDMA_PS_UDP",
    "RDMA_PS_IB",
    "RDMA_PS_IPOIB",
    "RDMA_OPTION_ID_TOS",
    "RDMA_OPTION_ID_REUSEADDR",
    "RDMA_OPTION_ID_AFONLY",
    "RDMA_OPTION_ID_ACK_TIMEOUT",
    "RDMA_OPTION_IB_PATH",
    "RAI_PASSIVE",
    "RAI_NUMERICHOST",
    "RAI_NOROUTE",
    "RAI_FAMILY",
    "RAI_SA",
    "RAI_DNS",
    "RDMA_MC_JOIN_FLAG_FULLMEMBER",
    "RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER",
    "RDMA_MAX_RESP_RES",
    "RDMA_MAX_INIT_DEPTH",
    "RDMA_UDP_QKEY",
    "rdma_cm_id",
    "rdma_event_channel",
    "rdma_cm_event",
    "rdma_conn_param",
    "rdma_ud_param",
    "rdma_addrinfo",
    "rdma_addr",
    "rdma_ib_addr",
    "rdma_route",
    "rdma_cm_join_mc_attr_ex",
    "ibv_ece",
    "ibv_path_data",
    "sockaddr_ib",
];

const LATER: &str = "streams: not there yet";

/// What a row can wait for.
const CONDITIONS: &[&str] = &["Linux 6.18 or newer", "RoCE", "InfiniBand", "XRC hardware"];

struct Row {
    c_name: &'static str,
    items: Vec<&'static str>,
    works: &'static str,
}

/// The rows of librdmacm's names.
fn rows() -> Vec<Row> {
    let (librdmacm, _) = parts();
    cells_of(librdmacm)
        .map(|cells| {
            let ["", c_name, items, works, _difference, ""] = cells[..] else {
                panic!("not four cells: {cells:?}");
            };
            Row {
                c_name: c_name.trim_matches('`'),
                items: quoted(items),
                works,
            }
        })
        .collect()
}

/// The tables of librdmacm's names, and those of fields and verbs, which are not complete.
fn parts() -> (&'static str, &'static str) {
    TABLE.split_once("\n# Fields\n").expect("the fields")
}

fn cells_of(tables: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = tables.lines().filter(|line| line.starts_with("| `"));
    lines.map(|line| line.split('|').map(str::trim).collect())
}

/// The names within backquotes.
fn quoted(cell: &'static str) -> Vec<&'static str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn each_name_has_one_row() {
    let exports = EXPORTS.iter().flat_map(|(_version, names)| *names);
    let wanted: BTreeSet<&str> = exports.chain(INLINE).chain(OTHERS).copied().collect();
    let mut found = BTreeSet::new();
    for row in rows() {
        assert!(found.insert(row.c_name), "{} comes twice", row.c_name);
    }
    let missing: Vec<_> = wanted.difference(&found).collect();
    let unknown: Vec<_> = found.difference(&wanted).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "missing: {missing:?}, unknown: {unknown:?}"
    );
}

#[test]
fn each_row_works_or_says_what_it_waits_for() {
    for row in rows() {
        let waits_for = |part: &str| {
            let mut conditions = CONDITIONS.iter();
            part == "everywhere" || conditions.any(|condition| part.contains(condition))
        };
        let says = match row.works {
            LATER => row.items.is_empty(),
            works => !row.items.is_empty() && works.split("; ").all(waits_for),
        };
        assert!(says, "{}: {:?} {}", row.c_name, row.items, row.works);
    }
}

#[test]
fn each_item_answers_to_the_c_name() {
    let aliases = aliases();
    let mut silent = Vec::new();
    for row in rows() {
        let answering = aliases.get(row.c_name);
        for item in row.items {
            if !answering.is_some_and(|items| items.iter().any(|known| known == item)) {
                silent.push(format!("{item} lacks #[doc(alias = \"{}\")]", row.c_name));
            }
        }
    }
    assert!(silent.is_empty(), "\n{}", silent.join("\n"));
}

#[test]
fn each_verb_is_found_by_its_c_name() {
    let aliases = aliases();
    let (_, verbs) = parts().1.split_once("\n# Verbs\n").expect("the verbs");
    let mut rows = 0;
    for cells in cells_of(verbs) {
        let ["", c_names, items, _difference, ""] = cells[..] else {
            panic!("not three cells: {cells:?}");
        };
        let items = quoted(items);
        for c_name in quoted(c_names) {
            let answering = aliases.get(c_name).map(Vec::as_slice).unwrap_or_default();
            let is_named = |item: &String| items.contains(&item.as_str());
            assert!(answering.iter().any(is_named), "{c_name}: {items:?}");
        }
        rows += 1;
    }
    assert!(rows > 0);
}

/// Where the C library is installed, its exports are those of the list, up to its age.
#[test]
fn the_list_is_that_of_the_library() {
    let Some(exported) = exports_of_this_machine() else {
        eprintln!("no librdmacm.so.1 or no nm on this machine: nothing to compare with");
        return;
    };
    assert!(!exported.is_empty());
    for (version, names) in EXPORTS {
        let there: BTreeSet<&str> = exported
            .iter()
            .filter(|(_, of)| of == version)
            .map(|(name, _)| name.as_str())
            .collect();
        // A version comes with all its symbols or not at all.
        if !there.is_empty() {
            assert_eq!(there, names.iter().copied().collect(), "{version}");
        }
    }
    let newest = EXPORTS.last().expect("a version").0;
    for (name, version) in &exported {
        let is_listed = EXPORTS.iter().any(|(listed, _)| listed == version);
        assert!(is_listed, "{name} is of {version}, newer than {newest}");
    }
}

/// The functions and their versions.
fn exports_of_this_machine() -> Option<Vec<(String, String)>> {
    let folders = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
    ];
    let library = folders
        .iter()
        .map(|folder| Path::new(folder).join("librdmacm.so.1"))
        .find(|path| path.exists())?;
    let nm = Command::new("nm")
        .args(["-D", "--defined-only", "--with-symbol-versions"])
        .arg(library)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(nm.stdout).ok()?;
    let symbols = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, symbol) = (words.next()?, words.next()?);
        let (name, version) = symbol.split_once("@@")?;
        (kind == "T").then(|| (name.to_owned(), version.to_owned()))
    });
    Some(symbols.collect())
}

/// The items that carry each alias: `Type::item`, or `item` alone.
fn aliases() -> BTreeMap<String, Vec<String>> {
    let mut aliases: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let text = fs::read_to_string(&file).expect("a source file");
        let mut container = String::new();
        let mut pending: Vec<String> = Vec::new();
        let mut within_attribute = false;
        for line in text.lines() {
            let code = line.trim();
            let begins = code.starts_with("#[doc(alias");
            if begins || within_attribute {
                pending.extend(code.split('"').skip(1).step_by(2).map(str::to_owned));
                within_attribute = !code.ends_with(']');
                continue;
            }
            if code.is_empty() || code.starts_with("//") || code.starts_with('#') {
                continue;
            }
            let is_outermost = !line.starts_with(' ');
            let item = match is_outermost {
                true => identifier(code),
                false => format!("{container}::{}", identifier(code)),
            };
            for alias in pending.drain(..) {
                aliases.entry(alias).or_default().push(item.clone());
            }
            if is_outermost && code.ends_with('{') {
                container = identifier(code);
            }
        }
    }
    aliases
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries
        .flat_map(|entry| {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => sources(&path),
                false => vec![path],
            }
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// What a line defines, or what an `impl` is for.
fn identifier(code: &str) -> String {
    const BEFORE: &[&str] = &[
        "pub", "unsafe", "const", "fn", "struct", "enum", "type", "impl",
    ];
    let code = code.split_once(" for ").map_or(code, |(_, kind)| kind);
    let code = match code.strip_prefix("impl<") {
        Some(rest) => rest.split_once("> ").map_or(rest, |(_, kind)| kind),
        None => code,
    };
    code.split(|at: char| !at.is_alphanumeric() && at != '_')
        .find(|word| !BEFORE.contains(word))
        .unwrap_or_default()
        .to_owned()
}
