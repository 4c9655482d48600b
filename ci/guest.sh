# shellcheck shell=bash
# Builds the guest: a kernel, its modules and a small userland, all out of Debian packages that are unpacked and never
# installed. Needs lib.sh and packages.sh. Sourced, not run.
#
# The guest's root is a chain of cpio archives that the kernel unpacks one over the other: the programs (the same for
# every kernel), the modules (one per kernel), and what one run adds.

# dash, because busybox's shell prefers its own `ip` and `tc` to those in the PATH.
guest_programs=(busybox-static dash bash strace iproute2 rdmacm-utils ibverbs-utils perftest)
guest_libraries=(ibverbs-providers libibverbs1 librdmacm1)

# Which modules init loads, in groups; a leading `?` marks one that some kernels do not have.
# rdma_rxe asks for the crc32 algorithm at run time and does not name the module as a dependency.
guest_modules() {
    case $1 in
    core) echo virtio_pci virtio_console dummy ;;
    net) echo virtio_net sch_netem ;;
    rdma) echo ?crc32_generic ib_core ib_cm iw_cm rdma_cm ib_uverbs ib_umad rdma_ucm rdma_rxe ;;
    siw) echo ?crc32c_generic ?libcrc32c ;; # siw itself comes from siw.sh
    spare) echo veth ?bridge ;; # for `modprobe` by hand
    esac
}

# Packs a folder as an uncompressed cpio archive owned by root: make_cpio FOLDER FILE
make_cpio() {
    (cd "$1" && find . -mindepth 1 | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) >"$2.part"
    mv "$2.part" "$2"
}

# Sets guest_userland to the archive with the guest's programs.
build_userland() {
    local debs key work deb
    refresh_source stable || die "$EXIT_SKIP" "no Debian package index: the network or the mirror is not reachable"
    debs=$(remember stable "userland-$(sha256sum <"$repo/ci/guest.sh" | cut -c1-16)" fetch_userland)
    key=$({ echo "$debs"; cat "$repo/ci/guest.sh" "$repo"/ci/guest/*; } | sha256sum | cut -c1-16)
    guest_userland=$vm_dir/userland-$key.cpio
    [[ ! -e $guest_userland ]] || return 0

    say "building the guest's programs"
    prune "$vm_dir"/userland-*.cpio
    work=$(mktemp -d "$run_dir/work.XXXXXX")
    mkdir -p "$work"/{programs,libraries,root}
    for deb in $debs; do
        case ${deb##*/} in
        lib* | zlib*) dpkg-deb -x "$deb" "$work/libraries" ;;
        ibverbs-providers_*) dpkg-deb -x "$deb" "$work/libraries" ;;
        *) dpkg-deb -x "$deb" "$work/programs" ;;
        esac
    done
    fill_root "$work/programs" "$work/libraries" "$work/root"
    make_cpio "$work/root" "$guest_userland"
    rm -rf "$work"
}

# Downloads the programs and the libraries they need, without the packages that only installation scripts use; prints
# the .deb files.
fetch_userland() {
    local names
    names=$(package_closure stable "${guest_programs[@]}" "${guest_libraries[@]}" |
        grep -Ex "lib.*|zlib1g|$(IFS='|'; echo "${guest_programs[*]}|${guest_libraries[*]}")" |
        grep -Ev -- '-common$|^libpam|^libsemanage')
    # shellcheck disable=SC2086  # a list of names
    fetch_packages stable $names
}

# fill_root PROGRAMS LIBRARIES ROOT
fill_root() {
    local programs=$1 libraries=$2 root=$3 libdir=usr/lib/x86_64-linux-gnu dir applet
    mkdir -p "$root"/{dev,proc,sys,run,tmp,root,opt,vm,etc,var,usr/bin,usr/sbin,usr/lib64,"$libdir"}
    chmod 1777 "$root/tmp"
    ln -s ../run "$root/var/run"
    for dir in bin sbin lib lib64; do
        ln -s "usr/$dir" "$root/$dir"
    done
    for dir in bin sbin usr/bin usr/sbin; do
        [[ -d $programs/$dir ]] || continue
        cp -a "$programs/$dir/." "$root/usr/${dir#usr/}/"
    done

    # Providers are loaded by name, so no program's list of libraries mentions them.
    mkdir -p "$root/etc/libibverbs.d" "$root/$libdir/libibverbs"
    cp "$libraries"/etc/libibverbs.d/{rxe,siw}.driver "$root/etc/libibverbs.d/"
    cp -L "$libraries/$libdir"/libibverbs/lib{rxe,siw}-*.so "$root/$libdir/libibverbs/"
    cp -a "$libraries/$libdir/rsocket" "$root/$libdir/"
    copy_libraries "$libraries" "$root" "$root/$libdir"
    cp -L "$libraries/lib/x86_64-linux-gnu/libgcc_s.so.1" "$root/$libdir/" # dlopened by glibc for pthread_exit

    ln -sf dash "$root/usr/bin/sh"
    for applet in $("$root/bin/busybox" --list); do
        [[ -e $root/usr/bin/$applet || -e $root/usr/sbin/$applet ]] || ln -s busybox "$root/usr/bin/$applet"
    done
    install -m 755 "$repo/ci/guest/init" "$root/init"
    install -m 755 "$repo"/ci/guest/{wait-peer,setuidgid} "$root/usr/bin/"
    printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n' >"$root/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
    printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
    printf 'passwd: files\ngroup: files\nhosts: files\n' >"$root/etc/nsswitch.conf"
}

# Copies the shared libraries that the programs below ROOT need, as the unpacked dynamic loader finds them.
# copy_libraries LIBRARIES ROOT TARGET
copy_libraries() {
    local libraries=$1 root=$2 target=$3 loader program path search listing
    loader=$(find "$libraries" -name 'ld-linux-x86-64.so.2' -type f | head -n 1)
    search=$libraries/lib/x86_64-linux-gnu:$libraries/usr/lib/x86_64-linux-gnu
    while read -r program; do
        # Static programs and scripts are none of the loader's business.
        listing=$("$loader" --library-path "$search" --list "$program" 2>&1) || continue
        if grep -q 'not found' <<<"$listing"; then
            die "$EXIT_GUEST_DIED" "a library of $program is missing: $(grep 'not found' <<<"$listing")"
        fi
        sed -n 's/.*=> \([^ ]*\) (.*/\1/p' <<<"$listing"
    done < <(find "$root/usr" -type f \( -perm -u+x -o -name '*.so*' \)) | sort -u |
        while read -r path; do
            cp -Ln "$path" "$target/"
        done
    install -m 755 "$loader" "$root/usr/lib64/ld-linux-x86-64.so.2"
}

# Sets guest_kernel (a bzImage), guest_modules_cpio and guest_release for a kernel series such as 6.12.
build_kernel() {
    local series=$1 found source dir key work
    found=$(find_kernel "$series") ||
        die "$EXIT_SKIP" "no kernel $series in the reachable Debian suites (${package_sources[*]})"
    read -r source guest_release <<<"$found"
    key=$(sha256sum <"$repo/ci/guest.sh" | cut -c1-16)
    dir=$vm_dir/kernel-$guest_release-$key
    guest_kernel=$dir/vmlinuz
    guest_modules_cpio=$dir/modules.cpio
    [[ ! -e $guest_modules_cpio ]] || return 0

    prune "$vm_dir/kernel-$guest_release"-*
    work=$(mktemp -d "$run_dir/work.XXXXXX")
    mkdir -p "$dir" "$work"/{package,root}
    unpack_kernel "$source" "$guest_release" "$work/package"
    say "building the guest's kernel and modules ($guest_release)"
    cp "$work/package/boot/vmlinuz-$guest_release" "$guest_kernel" 2>/dev/null ||
        cp "$work/package/lib/modules/$guest_release/vmlinuz" "$guest_kernel"
    pick_modules "$guest_release" "$work/package" "$work/root"
    make_cpio "$work/root" "$guest_modules_cpio"
    rm -rf "$work"
}

# Unpacks a kernel's image and modules: unpack_kernel SOURCE RELEASE FOLDER
unpack_kernel() {
    local source=$1 release=$2 folder=$3 names deb debs
    # In newer suites linux-image is empty and depends on packages for the image, the modules and what describes them.
    names=$(private_apt "$source" apt-cache depends --no-recommends --no-suggests "linux-image-$release" |
        sed -n "s/^ *Depends: \(linux-\(base\|binary\|modules\)-$release\)$/\1/p")
    # shellcheck disable=SC2086  # a list of names
    debs=$(fetch_packages "$source" "linux-image-$release" $names)
    for deb in $debs; do
        dpkg-deb --fsys-tarfile "$deb" |
            tar -x -C "$folder" --wildcards --exclude='./usr/share' --exclude='./boot/System.map*'
    done
    [[ -e $folder/lib ]] || ln -s usr/lib "$folder/lib"
}

# Copies the modules that the guest uses, uncompressed, and writes the lists that init loads them by.
# pick_modules RELEASE PACKAGE ROOT
pick_modules() {
    local release=$1 package=$2 root=$3 group name path paths target
    depmod -b "$package" "$release"
    mkdir -p "$root/usr/lib/modules/$release"
    ln -s usr/lib "$root/lib" # as in the archive with the programs, or this one would replace that link by a folder
    cp "$package/lib/modules/$release"/modules.{order,builtin,builtin.modinfo} "$root/lib/modules/$release/"
    for group in core net rdma siw spare; do
        for name in $(guest_modules "$group"); do
            if ! paths=$(modprobe -d "$package" -S "$release" --show-depends "${name#\?}" 2>&1); then
                [[ $name == \?* ]] || die "$EXIT_GUEST_DIED" "kernel $release has no module $name: $paths"
                continue
            fi
            sed -n 's/^insmod \([^ ]*\).*/\1/p' <<<"$paths" | while read -r path; do
                target=/lib/modules/${path#*/lib/modules/}
                target=${target%.xz}
                target=${target%.zst}
                mkdir -p "$root${target%/*}"
                case $path in
                *.xz) xz -dc "$path" >"$root$target" ;;
                *.zst) zstd -qdc "$path" >"$root$target" ;;
                *) cp "$path" "$root$target" ;;
                esac
                echo "$target"
            done
        done | awk '!seen[$0]++' >"$root/lib/modules/load-$group"
    done
    # A module belongs to the first group that names it: none is loaded twice.
    local loaded=$root/lib/modules/load-core
    for group in net rdma siw; do
        path=$root/lib/modules/load-$group
        grep -vxFf "$loaded" "$path" >"$path.new" || true
        mv "$path.new" "$path"
    done
    depmod -b "$root" "$release"
}
