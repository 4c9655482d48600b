# shellcheck shell=bash
# Builds static programs for the guest. Sourced, not run.

target=x86_64-unknown-linux-gnu

# glibc's static archive comes with libc6-dev, so no further Rust target is needed. The flag goes to the target only:
# naming it keeps build scripts and macros of dependencies dynamic. The guest has to hold all programs in memory, so the
# debug information, nine tenths of them, stays out.
static_cargo() {
    CARGO_PROFILE_DEV_STRIP=debuginfo \
        CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static" \
        cargo "$@" --target "$target"
}

# static_examples NAME...: builds examples, all in one go.
static_examples() {
    # A failed build must not pass for one whose result is there from an earlier run.
    (cd "$repo" && static_cargo build --quiet "${@/#/--example=}" >&2)
}

# static_example NAME: prints the path of the built example.
static_example() {
    static_examples "$1" || return
    built_example "$1"
}

# built_example NAME: prints the path of an example that is built already.
built_example() { echo "${CARGO_TARGET_DIR:-$repo/target}/$target/debug/examples/$1"; }

# The names of all examples. Cargo knows them: a folder may hold several.
example_names() {
    (cd "$repo" && cargo metadata --quiet --no-deps --format-version 1) |
        grep -o '"kind":\["example"\],"crate_types":\["bin"\],"name":"[^"]*' | sed 's/.*"//'
}

# Prints the path of the built VM tests.
static_vm_tests() {
    local messages
    messages=$(cd "$repo" && static_cargo test --quiet --no-run --test vm --message-format json-render-diagnostics) || return
    sed -n 's/.*"name":"vm".*"executable":"\([^"]*\)".*/\1/p' <<<"$messages" | tail -n 1
}

# static_bench NAME: builds a program of benches/data_path as for release and prints its path.
static_bench() {
    local messages
    messages=$(cd "$repo" && static_cargo bench --quiet --no-run --bench "$1" --message-format json-render-diagnostics) || return
    sed -n 's/.*"name":"'"$1"'".*"executable":"\([^"]*\)".*/\1/p' <<<"$messages" | tail -n 1
}

# Compiles a C program against the guest's own libibverbs, whose headers few hosts have, and against the guest's C
# library, since the host's may be newer: c_bench NAME. Prints the program's path. Needs packages.sh.
c_bench() {
    local root=$vm_dir/c-root program=$vm_dir/c-$1 debs deb
    debs=$(fetch_packages stable libibverbs-dev libibverbs1 libc6-dev libc6 linux-libc-dev) || return
    if [[ ! -d $root ]]; then
        rm -rf "$root.part"
        mkdir -p "$root.part"
        for deb in $debs; do
            dpkg-deb -x "$deb" "$root.part" || return
        done
        mv "$root.part" "$root"
    fi
    # What libibverbs itself needs is in the guest.
    cc --sysroot="$root" -O2 -Wall -o "$program" "$repo/benches/data_path/$1.c" -libverbs \
        -Wl,--allow-shlib-undefined || return
    echo "$program"
}
