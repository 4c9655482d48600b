//! Compares the registered layouts and numbers with the C headers of the machine.
//!
//! For each header a C program that prints sizes, offsets and values is generated, compiled and
//! run. `KERNEL_ABI_INCLUDE` names a further directory of headers that is searched first, for
//! comparing with headers newer than the machine's.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rdmacm_kernel_abi::layout::{self, Layout};
use rdmacm_kernel_abi::number::{self, Number};

/// Headers of other packages than the kernel's: without them their items are not compared.
const OPTIONAL_HEADERS: &[(&str, &str)] = &[
    ("infiniband/ib.h", "of librdmacm-dev"),
    ("infiniband/mlx5dv.h", "of libibverbs-dev"),
    ("infiniband/sa.h", "of libibverbs-dev"),
    ("infiniband/verbs.h", "of libibverbs-dev"),
    ("rdma/rdma_cma.h", "of librdmacm-dev"),
];

/// Structures that no header declares.
const UNDECLARED: &[(&str, &str)] = &[
    ("DoorbellRecord", "defined by the mlx5 device"),
    (
        "XrcSeg",
        "in a header of the mlx5 provider that is not installed",
    ),
];

/// C names of structures, fields (`struct x.field`) and numbers that Linux 6.1 does not have yet.
const NEWER: &[(&str, &str)] = &[
    ("struct ib_user_service_rec", "service resolution"),
    ("struct rdma_ucm_ib_service", "service resolution"),
    ("struct rdma_ucm_resolve_ib_service", "service resolution"),
    (
        "struct rdma_ucm_query_ib_service_resp",
        "service resolution",
    ),
    ("struct rdma_ucm_write_cm_event", "events written by users"),
    ("struct rxe_send_wr.wr.flush", "flush and atomic write"),
    (
        "struct ib_uverbs_query_port_resp_ex.active_speed_ex",
        "speeds beyond 8 bits",
    ),
    (
        "struct mlx5_ib_query_device_resp.reg_c0",
        "metadata register",
    ),
    ("UVERBS_OBJECT_DMAH", "DMA handles"),
    ("UVERBS_ATTR_GET_CONTEXT_FD_ARR", "several context files"),
    (
        "UVERBS_ATTR_CREATE_CQ_BUFFER_VA",
        "completion queues in user memory",
    ),
    (
        "UVERBS_ATTR_CREATE_CQ_BUFFER_LENGTH",
        "completion queues in user memory",
    ),
    (
        "UVERBS_ATTR_CREATE_CQ_BUFFER_FD",
        "completion queues in user memory",
    ),
    (
        "UVERBS_ATTR_CREATE_CQ_BUFFER_OFFSET",
        "completion queues in user memory",
    ),
    ("UVERBS_METHOD_REG_MR", "registration by ioctl"),
    ("UVERBS_ATTR_REG_MR_HANDLE", "registration by ioctl"),
    ("UVERBS_ATTR_REG_MR_PD_HANDLE", "registration by ioctl"),
    ("UVERBS_ATTR_REG_MR_DMA_HANDLE", "registration by ioctl"),
    ("UVERBS_ATTR_REG_MR_IOVA", "registration by ioctl"),
    ("UVERBS_ATTR_REG_MR_ADDR", "registration by ioctl"),
    ("UVERBS_ATTR_REG_MR_LENGTH", "registration by ioctl"),
    ("UVERBS_ATTR_REG_MR_ACCESS_FLAGS", "registration by ioctl"),
    ("UVERBS_ATTR_REG_MR_FD", "registration by ioctl"),
    ("UVERBS_ATTR_REG_MR_FD_OFFSET", "registration by ioctl"),
    ("UVERBS_ATTR_REG_MR_RESP_LKEY", "registration by ioctl"),
    ("UVERBS_ATTR_REG_MR_RESP_RKEY", "registration by ioctl"),
    ("IB_UVERBS_ACCESS_FLUSH_GLOBAL", "flush and atomic write"),
    (
        "IB_UVERBS_ACCESS_FLUSH_PERSISTENT",
        "flush and atomic write",
    ),
    ("IB_UVERBS_CORE_SUPPORT_ROBUST_UDATA", "strict driver data"),
    ("RDMA_DRIVER_MANA", "new driver"),
    ("RDMA_DRIVER_IONIC", "new driver"),
    ("IB_UVERBS_DEVICE_FLUSH_GLOBAL", "flush and atomic write"),
    (
        "IB_UVERBS_DEVICE_FLUSH_PERSISTENT",
        "flush and atomic write",
    ),
    ("IB_UVERBS_DEVICE_ATOMIC_WRITE", "flush and atomic write"),
    ("IB_UVERBS_WC_FLUSH", "flush and atomic write"),
    ("IB_UVERBS_WC_ATOMIC_WRITE", "flush and atomic write"),
    ("IB_UVERBS_WR_FLUSH", "flush and atomic write"),
    ("IB_UVERBS_WR_ATOMIC_WRITE", "flush and atomic write"),
    ("IB_FLUSH_GLOBAL", "flush and atomic write"),
    ("IB_FLUSH_PERSISTENT", "flush and atomic write"),
    ("IB_FLUSH_RANGE", "flush and atomic write"),
    ("IB_FLUSH_MR", "flush and atomic write"),
    (
        "MLX5_IB_QUERY_DEV_RESP_FLAGS_OOO_DP",
        "out of order placement",
    ),
    ("MLX5_IB_MODIFY_QP_OOO_DP", "out of order placement"),
    ("RDMA_NLDEV_CMD_MONITOR", "new netlink number"),
    (
        "RDMA_NLDEV_SYS_ATTR_PRIVILEGED_QKEY_MODE",
        "new netlink number",
    ),
    ("RDMA_NLDEV_ATTR_RES_SUBTYPE", "new netlink number"),
    ("RDMA_NLDEV_ATTR_DEV_TYPE", "new netlink number"),
    ("RDMA_NLDEV_ATTR_PARENT_NAME", "new netlink number"),
    ("RDMA_NLDEV_ATTR_NAME_ASSIGN_TYPE", "new netlink number"),
    ("RDMA_NLDEV_ATTR_EVENT_TYPE", "new netlink number"),
    ("RDMA_NLDEV_SYS_ATTR_MONITOR_MODE", "new netlink number"),
    ("RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE", "service resolution"),
    ("RDMA_USER_CM_CMD_WRITE_CM_EVENT", "events written by users"),
    ("RDMA_USER_CM_QUERY_IB_SERVICE", "service resolution"),
    ("RDMA_USER_CM_IB_SERVICE_FLAG_ID", "service resolution"),
    ("RDMA_USER_CM_IB_SERVICE_FLAG_NAME", "service resolution"),
    ("RDMA_USER_CM_IB_SERVICE_NAME_SIZE", "service resolution"),
];

#[test]
fn headers_agree() {
    let compiler = Compiler::new();
    let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
    for layout in layout::all() {
        match layout.c_name {
            Some(_) => groups
                .entry(layout.header)
                .or_default()
                .layouts
                .push(layout),
            None => {
                let name = short(layout.rust_name);
                let why = reason(UNDECLARED, name);
                let why = why.unwrap_or_else(|| panic!("{name} has no C name: say why"));
                println!("not compared: {name}: {why}");
            }
        }
    }
    for number in number::all() {
        groups
            .entry(number.header)
            .or_default()
            .numbers
            .push(number);
    }

    let mut skipped = Vec::new();
    let mut errors = Vec::new();
    let mut compared = 0;
    for (header, group) in &groups {
        if let Some(why) = reason(OPTIONAL_HEADERS, header)
            && !compiler.accepts(header, "")
        {
            let count = group.layouts.len() + group.numbers.len();
            println!("not compared: {count} items of {header}, {why}");
            continue;
        }
        let known = |name: &str, expression: &str| {
            if reason(NEWER, name).is_none() {
                return true;
            }
            compiler.accepts(header, &format!("sizeof({expression})"))
        };
        let program = Program::new(header, group, &known, &mut skipped);
        let output = compiler.run(header, &program.text);
        compared += program.compare(&output, &mut errors);
    }
    for name in &skipped {
        println!("not compared: {name}: {}", reason(NEWER, name).unwrap());
    }
    println!(
        "{compared} facts compared, {} not in these headers",
        skipped.len()
    );
    assert!(
        errors.is_empty(),
        "different from the headers:\n{}",
        errors.join("\n")
    );
    assert!(compared > 1000, "only {compared} facts compared");
}

/// An excuse for an item that is gone would hide a typo in a new one.
#[test]
fn excuses_are_current() {
    let mut names = BTreeSet::new();
    for layout in layout::all() {
        names.insert(short(layout.rust_name).to_string());
        if let Some(c) = layout.c_name {
            names.insert(c.to_string());
            names.insert(c_path(layout));
            for field in layout.fields.iter().filter_map(|f| f.c) {
                names.insert(format!("{}.{field}", c_path(layout)));
            }
        }
        names.insert(layout.header.to_string());
    }
    for number in number::all() {
        names.insert(number.c.to_string());
        names.insert(number.header.to_string());
    }
    for (name, _) in OPTIONAL_HEADERS.iter().chain(UNDECLARED).chain(NEWER) {
        assert!(names.contains(*name), "{name} is excused but not declared");
    }
}

/// Every structure and every table of numbers in the sources must be in the registry.
#[test]
fn registry_is_complete() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut missing = Vec::new();
    let mut found = 0;
    for file in rust_files(&source) {
        let module = module_of(file.strip_prefix(&source).unwrap());
        if module == "rdmacm_kernel_abi::macros" {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let mut structures: BTreeMap<&str, usize> = BTreeMap::new();
        for (i, line) in lines.iter().enumerate() {
            let rest = &lines[i + 1..];
            if line.starts_with("#[repr(C") {
                if let Some(name) = next_word(rest, "pub struct ") {
                    *structures.entry(name).or_default() += 1;
                }
            } else if line.starts_with("open_enum!") || line.starts_with("flag_bits!") {
                found += 1;
                let name = next_word(rest, "pub struct ").expect("a type after the macro");
                if !number::all()
                    .any(|n| is_in(n.rust, &module) && n.rust.contains(&format!("::{name}::")))
                {
                    missing.push(format!("numbers of {module}::{name}"));
                }
            } else if line.starts_with("constants!") {
                found += 1;
                let name = rest
                    .iter()
                    .find_map(|l| l.split_once(" = "))
                    .expect("a constant")
                    .0;
                if !number::all().any(|n| is_in(n.rust, &module) && short(n.rust) == name) {
                    missing.push(format!("numbers around {module}::{name}"));
                }
            }
        }
        for (name, count) in structures {
            found += count;
            let registered = layout::all()
                .filter(|l| is_in(l.rust_name, &module) && short(l.rust_name) == name)
                .count();
            if registered != count {
                missing.push(format!(
                    "{module}::{name}: {count} declared, {registered} registered"
                ));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "not in the registry:\n{}",
        missing.join("\n")
    );
    assert!(found > 200, "the scan found only {found} declarations");
}

#[derive(Default)]
struct Group {
    layouts: Vec<&'static Layout>,
    numbers: Vec<&'static Number>,
}

/// What a line of the C program's output must be.
struct Fact {
    what: String,
    /// Accepted values; a structure may be shorter by fields its header does not have.
    expected: Vec<u64>,
}

struct Program {
    text: String,
    facts: Vec<Fact>,
}

impl Program {
    fn new(
        header: &str,
        group: &Group,
        known: &dyn Fn(&str, &str) -> bool,
        skipped: &mut Vec<String>,
    ) -> Self {
        let mut facts = Vec::new();
        let mut body = String::new();
        let mut fact = |expression: String, what: String, expected: Vec<u64>| {
            writeln!(
                body,
                "    printf(\"%llu\\n\", (unsigned long long)({expression}));"
            )
            .unwrap();
            facts.push(Fact { what, expected });
        };
        for layout in &group.layouts {
            let c = layout.c_name.unwrap();
            let path = c_path(layout);
            let place = |field: &str| match (layout.c_member, field) {
                (None, field) => field.to_string(),
                (Some(member), "") => member.to_string(),
                (Some(member), field) => format!("{member}.{field}"),
            };
            let value = |field: &str| format!("(({c} *)0)->{}", place(field));
            let whole = if layout.c_member.is_some() {
                value("")
            } else {
                c.to_string()
            };
            if !known(&path, &whole) {
                skipped.push(path);
                continue;
            }
            let mut sizes = vec![layout.size as u64];
            for field in layout.fields {
                let Some(name) = field.c else { continue };
                let full = format!("{path}.{name}");
                if !known(&full, &value(name)) {
                    sizes.push(field.offset as u64);
                    skipped.push(full);
                    continue;
                }
                let mut offset = format!("offsetof({c}, {})", place(name));
                if let Some(member) = layout.c_member {
                    write!(offset, " - offsetof({c}, {member})").unwrap();
                }
                fact(
                    offset,
                    format!("offset of {full}"),
                    vec![field.offset as u64],
                );
                let size = format!("sizeof({})", value(name));
                fact(size, format!("size of {full}"), vec![field.size as u64]);
            }
            fact(format!("sizeof({whole})"), format!("size of {path}"), sizes);
        }
        for number in &group.numbers {
            if !known(number.c, number.c) {
                skipped.push(number.c.to_string());
                continue;
            }
            let what = format!("{} ({})", number.c, number.rust);
            fact(number.c.to_string(), what, vec![number.value]);
        }
        let text = format!(
            "#include <stddef.h>\n#include <stdio.h>\n#include <{header}>\n\
             int main(void) {{\n{body}    return 0;\n}}\n"
        );
        Self { text, facts }
    }

    /// Compares the output and returns the number of facts.
    fn compare(&self, output: &str, errors: &mut Vec<String>) -> usize {
        let values: Vec<u64> = output.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(values.len(), self.facts.len());
        for (fact, value) in self.facts.iter().zip(values) {
            if !fact.expected.contains(&value) {
                errors.push(format!(
                    "{}: {:?} here, {value} in C",
                    fact.what, fact.expected
                ));
            }
        }
        self.facts.len()
    }
}

struct Compiler {
    name: OsString,
    arguments: Vec<OsString>,
    directory: PathBuf,
}

impl Compiler {
    fn new() -> Self {
        let name = env::var_os("CC").unwrap_or_else(|| "cc".into());
        let works = Command::new(&name)
            .arg("--version")
            .output()
            .is_ok_and(|o| o.status.success());
        assert!(
            works,
            "the comparison with C headers needs a C compiler, but {name:?} does not run: \
             install the package build-essential (headers: linux-libc-dev)"
        );
        let mut arguments = vec!["-std=gnu11".into()];
        if let Some(include) = env::var_os("KERNEL_ABI_INCLUDE") {
            arguments.push("-isystem".into());
            arguments.push(include);
        }
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("headers");
        fs::create_dir_all(&directory).unwrap();
        Self {
            name,
            arguments,
            directory,
        }
    }

    /// Whether the header exists and, with it, the expression compiles.
    fn accepts(&self, header: &str, expression: &str) -> bool {
        let source = self.directory.join("probe.c");
        let statement = if expression.is_empty() {
            "0"
        } else {
            expression
        };
        let text = format!(
            "#include <stddef.h>\n#include <{header}>\n\
             int main(void) {{ return !({statement}); }}\n"
        );
        fs::write(&source, text).unwrap();
        let mut command = Command::new(&self.name);
        command
            .args(&self.arguments)
            .arg("-fsyntax-only")
            .arg(&source);
        command.output().unwrap().status.success()
    }

    fn run(&self, header: &str, program: &str) -> String {
        let base = self.directory.join(header.replace(['/', '.'], "_"));
        let source = base.with_extension("c");
        fs::write(&source, program).unwrap();
        let mut command = Command::new(&self.name);
        command
            .args(&self.arguments)
            .arg("-o")
            .arg(&base)
            .arg(&source);
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{header} lacks something that NEWER does not excuse:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let output = Command::new(&base).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }
}

fn reason(list: &[(&'static str, &'static str)], name: &str) -> Option<&'static str> {
    list.iter()
        .find(|(entry, _)| *entry == name)
        .map(|(_, why)| *why)
}

fn short(name: &str) -> &str {
    name.rsplit("::").next().unwrap()
}

fn c_path(layout: &Layout) -> String {
    match (layout.c_name.unwrap(), layout.c_member) {
        (c, None) => c.to_string(),
        (c, Some(member)) => format!("{c}.{member}"),
    }
}

fn is_in(name: &str, module: &str) -> bool {
    name.strip_prefix(module)
        .is_some_and(|rest| rest.starts_with("::"))
}

fn next_word<'a>(lines: &[&'a str], before: &str) -> Option<&'a str> {
    let line = lines.iter().find_map(|line| line.strip_prefix(before))?;
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}

fn module_of(file: &Path) -> String {
    let mut module = String::from("rdmacm_kernel_abi");
    for part in file.with_extension("").iter().filter(|part| *part != "lib") {
        module += "::";
        module += part.to_str().unwrap();
    }
    module
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}
