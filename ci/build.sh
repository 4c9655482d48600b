# shellcheck shell=bash
# Builds static programs for the guest. Sourced, not run.

target=x86_64-unknown-linux-gnu

# glibc's static archive comes with libc6-dev, so no further Rust target is needed. The flag goes to the target only:
# naming it keeps build scripts and macros of dependencies dynamic.
static_cargo() {
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static" \
        cargo "$@" --target "$target"
}

# static_example NAME: prints the path of the built example.
static_example() {
    (cd "$repo" && static_cargo build --quiet --example "$1" >&2)
    echo "$repo/target/$target/debug/examples/$1"
}

# Prints the path of the built VM tests.
static_vm_tests() {
    (cd "$repo" && static_cargo test --quiet --no-run --test vm --message-format json 2>/dev/null) |
        sed -n 's/.*"name":"vm".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}
