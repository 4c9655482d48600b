# shellcheck shell=bash
# Shared by the scripts in ci/: messages, and where things are kept. Sourced, not run.

# The repository, and the folder that holds everything the VM runner downloads and builds.
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
vm_dir=${RDMACM_VM_DIR:-$repo/target/vm}

# Exit codes that mean something to callers; a guest command's own code passes through otherwise.
# shellcheck disable=SC2034  # used by the scripts that source this file
{
    EXIT_USAGE=64       # wrong command line
    EXIT_NO_DEPS=69     # host packages are missing and cannot be installed
    EXIT_GUEST_DIED=70  # the guest died, or its kernel reported a BUG, WARNING, Oops or panic
    EXIT_BROKEN=71      # a step of the script itself failed; the command did not run or its outcome is not known
    EXIT_SKIP=77        # what was asked for cannot be had on this machine; the reason was printed
    EXIT_TIMEOUT=124    # --timeout ran out
}

# Progress goes to stderr: stdout belongs to the command in the guest.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# die CODE MESSAGE...
die() {
    local code=$1
    shift
    say "$*"
    exit "$code"
}

have() { command -v "$1" >/dev/null 2>&1; }

# Quotes its arguments for a POSIX shell, so that they come out of `eval` (or a generated script) as they went in.
quote() {
    local arg out=
    for arg in "$@"; do
        out+=" '${arg//\'/\'\\\'\'}'"
    done
    printf '%s' "${out# }"
}

# Runs a build step once at a time: two `ci/vm` may start together and share one cache.
# with_lock NAME COMMAND...
with_lock() {
    local name=$1 fd
    shift
    mkdir -p "$vm_dir"
    exec {fd}>"$vm_dir/.lock-$name"
    flock "$fd"
    "$@"
    exec {fd}>&-
}

# Removes all but the newest three of the given files or folders: another work tree may share the cache and use one.
prune() {
    # A pattern that nothing matches comes as it is; ls complains and fails then.
    # shellcheck disable=SC2012  # our own file names
    { ls -td "$@" 2>/dev/null || true; } | tail -n +4 | xargs -r rm -rf
}
