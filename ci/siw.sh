# shellcheck shell=bash
# Builds siw (soft iWARP), which Debian's kernels leave out, from Debian's kernel source and headers. Needs lib.sh and
# packages.sh. Sourced, not run.

# Sets guest_siw_cpio to an archive with /lib/modules/siw.ko for a kernel release. Only 6.1 and 6.12 are known to work.
build_siw() {
    local release=$1 work log=$vm_dir/siw-build-$1.log series base kbuild
    case $release in
    6.12.*+deb12-amd64) series=6.12 base=${release%-amd64} kbuild=${release%-amd64} ;;
    6.1.0-*-amd64) series=6.1 base=${release%-amd64} kbuild=6.1 ;;
    *) die "$EXIT_SKIP" "siw is built for bookworm's 6.1 and 6.12 kernels only, not for $release" ;;
    esac
    guest_siw_cpio=$vm_dir/siw-$release-$(sha256sum <"$repo/ci/siw.sh" | cut -c1-16).cpio
    [[ ! -e $guest_siw_cpio ]] || return 0
    "$repo/ci/deps.sh" siw

    work=$(mktemp -d "$run_dir/work.XXXXXX")
    unpack_siw_source "$release" "$series" "$base" "$kbuild" "$work"
    say "building siw.ko"
    if ! compile_siw "$release" "$work" >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        die "$EXIT_SKIP" "siw.ko cannot be built here; all of the output is in $log"
    fi
    mkdir -p "$work/root/usr/lib/modules"
    ln -s usr/lib "$work/root/lib"
    cp "$work/siw/siw.ko" "$work/root/usr/lib/modules/"
    make_cpio "$work/root" "$guest_siw_cpio"
    rm -rf "$work"
}

# Leaves siw's source in FOLDER/siw and the kernel's headers in FOLDER/usr:
# unpack_siw_source RELEASE SERIES BASE KBUILD FOLDER
unpack_siw_source() {
    local release=$1 series=$2 base=$3 kbuild=$4 folder=$5 version debs deb
    # The source has to be that of the kernel, to the patch level: a private structure may have changed in between.
    version=$(private_apt stable apt-cache show "linux-headers-$release" | sed -n 's/^Version: //p' | head -n 1)
    debs=$(fetch_packages stable "linux-headers-$release" "linux-headers-$base-common" "linux-kbuild-$kbuild" \
        "linux-source-$series=$version")
    for deb in $debs; do
        dpkg-deb -x "$deb" "$folder"
    done
    say "unpacking siw out of linux-source-$series ($version)"
    mkdir "$folder/siw"
    tar -xf "$folder/usr/src/linux-source-$series.tar.xz" -C "$folder/siw" --strip-components=5 \
        "linux-source-$series/drivers/infiniband/sw/siw"
    rm "$folder/usr/src/linux-source-$series.tar.xz"
}

# compile_siw RELEASE FOLDER
compile_siw() {
    local src=$2/usr/src headers=$2/usr/src/linux-headers-$1
    sed -i "s|/usr/src/|$src/|" "$headers/Makefile"
    # With a vmlinux in place the build would make BTF out of it, which wants pahole.
    rm -f "$headers/vmlinux"
    make -C "$headers" M="$2/siw" CONFIG_RDMA_SIW=m CC=gcc modules
}
