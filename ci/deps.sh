#!/usr/bin/env bash
# Installs what the VM runner and the static test binaries need on the host, and nothing else.
#
# usage: ci/deps.sh [siw]
#
# Debian and Ubuntu only. Without root it prints the command to run and exits 69. Every installation is simulated
# first: one that would touch the C library is refused.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# What to look for, and the package that brings it. A path is looked for as a file, a name as a program.
base_needs=(
    qemu-system-x86_64:qemu-system-x86
    cpio:cpio
    depmod:kmod
    xz:xz-utils
    zstd:zstd
    flock:util-linux
    cc:gcc
    /usr/include/stdio.h:libc6-dev
    /usr/include/linux/types.h:linux-libc-dev
    /etc/ssl/certs/ca-certificates.crt:ca-certificates
    /usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring
)
# For `ci/vm --device siw`, which compiles one kernel module.
siw_needs=(gcc:gcc make:make /usr/lib/x86_64-linux-gnu/libelf.so.1:libelf1)

# Prints the packages for the needs given as arguments that are not met.
missing_packages() {
    local need probe
    for need in "$@"; do
        probe=${need%%:*}
        case $probe in
        /*) [[ -e $probe ]] || printf '%s\n' "${need#*:}" ;;
        *) have "$probe" || printf '%s\n' "${need#*:}" ;;
        esac
    done
}

# Fails when installing the packages would change the C library; says aloud what would be removed.
check_simulation() {
    local plan
    plan=$(apt-get install -s --no-install-recommends "$@")
    if grep -Eq '^(Inst|Remv) libc6 ' <<<"$plan"; then
        die "$EXIT_NO_DEPS" "refused: installing $* would change libc6 on this host"
    fi
    local removed
    removed=$(sed -n 's/^Remv \([^ ]*\).*/\1/p' <<<"$plan" | tr '\n' ' ')
    [[ -z $removed ]] || say "note: this REMOVES from the host: $removed"
}

main() {
    export PATH=$PATH:/usr/sbin:/sbin
    local needs=("${base_needs[@]}")
    [[ ${1-} != siw ]] || needs+=("${siw_needs[@]}")

    local packages
    mapfile -t packages < <(missing_packages "${needs[@]}" | sort -u)
    ((${#packages[@]})) || return 0

    local command="apt-get install --no-install-recommends ${packages[*]}"
    if ! have apt-get; then
        die "$EXIT_NO_DEPS" "missing, and this is neither Debian nor Ubuntu (Debian's names): ${packages[*]}"
    fi
    if ((EUID != 0)); then
        die "$EXIT_NO_DEPS" "missing: ${packages[*]}; as root run: $command"
    fi

    export DEBIAN_FRONTEND=noninteractive
    # An apt list that is empty or old names versions that are gone: refresh it when the plan cannot be made from it.
    if ! apt-get install -s --no-install-recommends "${packages[@]}" >/dev/null 2>&1; then
        say "refreshing the apt index"
        apt-get update -qq >&2
    fi
    check_simulation "${packages[@]}"
    say "installing ${packages[*]}"
    local try
    for try in 1 2; do
        if apt-get install -y -q --no-install-recommends "${packages[@]}" >"$vm_dir/deps.log" 2>&1; then
            return 0
        fi
        ((try == 2)) || apt-get update -qq >&2
    done
    tail -n 20 "$vm_dir/deps.log" >&2
    die "$EXIT_NO_DEPS" "apt-get could not install: ${packages[*]}"
}

mkdir -p "$vm_dir"
main "$@"
