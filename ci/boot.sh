# shellcheck shell=bash
# Boots guests and judges how they ended. Needs lib.sh and guest.sh, and the options that ci/vm parsed. Sourced, not run.

vm_pids=()
judged= # set once the exit code is the command's, or says what became of the guest

clean_up() {
    local code=$? pid
    for pid in ${vm_pids[@]+"${vm_pids[@]}"}; do
        kill "$pid" 2>/dev/null || true # `timeout` passes it on to QEMU
    done
    [[ ! -L $run_dir/wire ]] || rm -rf "$(readlink "$run_dir/wire")"
    rm -rf "$run_dir"
    case $judged$code in
    0 | "$EXIT_USAGE" | "$EXIT_NO_DEPS" | "$EXIT_GUEST_DIED" | "$EXIT_SKIP" | 130 | 143) ;;
    yes*) ;;
    *) die "$EXIT_BROKEN" "a step of this script failed (exit code $code)" ;;
    esac
}

# Sets `accel` to kvm when a guest really boots with it, else to tcg: a /dev/kvm that exists may still not work.
choose_accelerator() {
    local answer=$vm_dir/accel
    [[ ! $icount ]] || accel=tcg
    [[ ! $accel ]] || return 0
    # The answer holds until the host reboots.
    if [[ -r $answer ]] && read -r accel boot <"$answer" && [[ $boot == "$(</proc/sys/kernel/random/boot_id)" ]]; then
        return 0
    fi
    accel=tcg
    if [[ -w /dev/kvm ]]; then
        say "probing KVM by booting with it"
        if "${BASH_SOURCE[-1]}" --accel kvm --device none --timeout 20 -- true >"$vm_dir/kvm-probe.log" 2>&1; then
            accel=kvm
        fi
    fi
    say "guests run with ${accel^^}"
    echo "$accel $(</proc/sys/kernel/random/boot_id)" >"$answer"
}

# Writes the archive that holds what this run adds to the guest: its settings, the command and the files.
# make_run_archive NAME COMMAND-FILE
make_run_archive() {
    local name=$1 root=$run_dir/root-$1 item host guest own=1 peer='' netdev=dummy0 hostname=vm
    if [[ $two ]]; then
        netdev=eth0 hostname=vm-${name,,} peer=2
        [[ $name == A ]] || own=2 peer=1
    fi
    mkdir -p "$root/vm" "$root/opt"
    cp "$2" "$root/vm/command"
    {
        echo "export RDMACM_TEST_ADDR=10.10.0.$own RDMACM_TEST_ADDR6=fd00::$own"
        echo "export RDMACM_TEST_PLAIN_ADDR=10.20.0.1"
        if [[ $device == none ]]; then
            echo "RDMACM_TEST_DEVICE="
        else
            echo "export RDMACM_TEST_DEVICE=${device}0"
        fi
        if [[ $two ]]; then
            echo "export RDMACM_PEER_ADDR=10.10.0.$peer RDMACM_PEER_ADDR6=fd00::$peer VM_NAME=$name"
        fi
        echo "VM_HOSTNAME=$hostname VM_NETDEV=$netdev VM_MTU=$mtu VM_LOSS=$loss VM_WAIT=${two:-0}"
        echo "VM_DEVICE=$device VM_MODULES=$modules VM_NODE_MODE=$node_mode"
        printf 'VM_FETCH='
        quote "$(for item in ${fetches[@]+"${fetches[@]}"}; do printf '%s ' "${item%%:*}"; done)"
        echo
    } >"$root/vm/config"
    for item in ${variables[@]+"${variables[@]}"}; do
        printf 'export %s\n' "${item%%=*}=$(quote "${item#*=}")"
    done >"$root/vm/env"
    for item in ${files[@]+"${files[@]}"}; do
        host=${item%%:*}
        guest=/opt/$(basename "$host")
        [[ $item != *:* ]] || guest=${item#*:}
        mkdir -p "$root${guest%/*}"
        cp -rL --preserve=mode,timestamps "$host" "$root$guest"
    done
    make_cpio "$root" "$run_dir/run-$name.cpio"
    cat "$guest_userland" "$guest_modules_cpio" ${guest_siw_cpio:+"$guest_siw_cpio"} "$run_dir/run-$name.cpio" \
        >"$run_dir/initrd-$name"
    rm -rf "$root" "$run_dir/run-$name.cpio"
}

# Starts a VM in the background; adds its process id to vm_pids. Output goes to the FIFO output-NAME.
# start_vm NAME COMMAND-FILE [QEMU ARGUMENT...]
start_vm() {
    local name=$1 console number=2 item
    make_run_archive "$name" "$2"
    shift 2
    console=$(console_log "$name")
    rm -f "$run_dir"/{output,status,stopped}-"$name" # of an earlier try
    mkfifo "$run_dir/output-$name"
    local arguments=(
        -nodefaults -no-user-config -display none -no-reboot
        -machine q35 -smp "$cpus" -m "$memory"
        -kernel "$guest_kernel" -initrd "$run_dir/initrd-$name"
        -append "console=ttyS0 loglevel=5 mitigations=off nokaslr random.trust_cpu=on no_timer_check tsc=reliable
            cryptomgr.notests oops=panic panic=-1"
        -serial "file:$console"
        -device virtio-serial-pci
        -chardev "file,id=output,path=$run_dir/output-$name" -device virtserialport,chardev=output,nr=1
        -chardev "file,id=status,path=$run_dir/status-$name" -device virtserialport,chardev=status,nr=2
    )
    for item in ${fetches[@]+"${fetches[@]}"}; do
        number=$((number + 1))
        arguments+=(-chardev "file,id=fetch$number,path=$run_dir/fetch-$name-$number"
            -device "virtserialport,chardev=fetch$number,nr=$number")
    done
    if [[ $accel == kvm ]]; then
        arguments+=(-accel kvm -cpu host)
    elif [[ $icount ]]; then
        arguments+=(-accel tcg,thread=single -cpu max,la57=off -icount shift=0,sleep=off)
    else
        arguments+=(-accel tcg,thread=multi -cpu max,la57=off)
    fi
    timeout -k 5 "$timeout" qemu-system-x86_64 "${arguments[@]}" "$@" </dev/null >"$run_dir/qemu-$name.log" 2>&1 &
    vm_pids+=($!)
}

# Where a VM's kernel messages go. Those of a day are kept: a VM may run for hours, and say nothing for long.
console_log() {
    find "$vm_dir" -maxdepth 1 -name 'console-*.log' -mtime +0 -delete 2>/dev/null || true
    echo "$vm_dir/console-${run_dir##*.}-$1.log"
}

# Lines of the kernel's log that mean it has a bug or is in trouble.
kernel_trouble='BUG:|WARNING:|Oops|general protection fault|Kernel panic|KFENCE|UBSAN|KASAN|blocked for more than'
kernel_trouble+='|soft lockup|unregister_netdevice: waiting for'

# QEMU's emulation sometimes loses a race with a kernel that patches its own code while another CPU runs it. No real
# machine ends in this Oops.
emulation_race='Oops: int3:'

# True when that race stopped a VM before any command had started, so that nothing speaks against another try.
# lost_at_boot NAME...
lost_at_boot() {
    local name console lost=1
    [[ $accel == tcg ]] || return 1
    for name in "$@"; do
        console=$vm_dir/console-${run_dir##*.}-$name.log
        ! grep -q '^init: ready' "$console" || return 1
        ! grep -q "$emulation_race" "$console" || lost=0
    done
    ((lost == 0)) || return 1
    say "the guest's kernel died while booting of a race in QEMU's emulation; booting again"
}

# Prints the exit code of a VM that has ended, and says why when it is not the command's own.
# judge NAME CODE-OF-QEMU
judge() {
    local name=$1 qemu=$2 status='' console=$vm_dir/console-${run_dir##*.}-$1.log
    [[ ! -r $run_dir/status-$name ]] || status=$(tr -cd 0-9 <"$run_dir/status-$name")
    if [[ ! -r $console ]]; then
        say "the console log of VM $name is gone, $console: nobody knows what its kernel said"
        echo "$EXIT_BROKEN"
    elif grep -Eq "$kernel_trouble" "$console"; then
        say "the kernel of VM $name is in trouble ($console):"
        grep -E -m 1 -A 60 "$kernel_trouble" "$console" | tr -d '\r' >&2
        ! grep -q "$emulation_race" "$console" || say "(this Oops is a known race in QEMU's emulation: run it again)"
        echo "$EXIT_GUEST_DIED"
    elif [[ $status ]]; then
        echo "$status"
    elif [[ -e $run_dir/stopped-$name ]]; then
        say "VM $name was stopped because the other one had failed"
        echo "$EXIT_GUEST_DIED"
    elif ((qemu == 124 || qemu == 137)); then
        say "VM $name: timeout after $timeout s; its console log is $console"
        echo "$EXIT_TIMEOUT"
    else
        say "VM $name died; the end of its console log, $console:"
        tail -n 60 "$console" | tr -d '\r' >&2
        cat "$run_dir/qemu-$name.log" >&2
        echo "$EXIT_GUEST_DIED"
    fi
}

unpack_fetched() {
    local name=$1 number=2 item target
    for item in ${fetches[@]+"${fetches[@]}"}; do
        number=$((number + 1))
        target=${item#*:}${two:+/$name}
        mkdir -p "$target"
        [[ ! -s $run_dir/fetch-$name-$number ]] || tar -C "$target" -xf "$run_dir/fetch-$name-$number"
    done
}

announce() {
    local about="about 2 s"
    [[ $accel == kvm ]] || about="about 10 s"
    [[ ! $icount ]] || about="about 40 s"
    say "booting $guest_release (${accel^^}${icount:+, icount}${two:+, two VMs}, $about)"
}

# How often a guest is booted when QEMU loses it at boot.
boot_tries=3

run_one() {
    local code try
    if [[ $script ]]; then
        { echo "set -- $(quote ${command[@]+"${command[@]}"})"; cat "$script"; } >"$run_dir/command"
    else
        echo "exec $(quote "${command[@]}")" >"$run_dir/command"
    fi
    announce
    for ((try = 1; try <= boot_tries; try++)); do
        try_one
        lost_at_boot vm || break
    done
    unpack_fetched vm
    code=$(judge vm "$code")
    judged=yes
    exit "$code"
}

# Boots the VM and waits for its end; sets `code` to QEMU's exit code.
try_one() {
    local reader
    code=0
    start_vm vm "$run_dir/command"
    cat "$run_dir/output-vm" &
    reader=$!
    wait "${vm_pids[0]}" || code=$?
    vm_pids=()
    wait "$reader" || true
}

# How long a VM may go on after the other one has failed, in seconds.
grace=15

run_two() {
    local name code result=0 try
    qemu-system-x86_64 -netdev help 2>&1 | grep -qx dgram ||
        die "$EXIT_SKIP" "this QEMU cannot join two VMs by unix sockets (-netdev dgram came with 7.2)"
    announce
    for ((try = 1; try <= boot_tries; try++)); do
        try_two
        lost_at_boot A B || break
    done
    for name in A B; do
        unpack_fetched "$name"
        code=$(judge "$name" "${codes[$name]}")
        ((code == 0)) || say "VM $name: exit code $code"
        ((result != 0)) || result=$code
    done
    judged=yes
    exit "$result"
}

# Boots both VMs and waits for their end; sets `codes` to QEMU's exit codes.
try_two() {
    local wire name peer number=0 code readers=()
    local -A pids=()
    declare -gA codes=([A]=0 [B]=0)
    wire=$(mktemp -d "${TMPDIR:-/tmp}/vm-wire.XXXXXX") # a unix socket's path must be short
    ln -sfn "$wire" "$run_dir/wire"
    for name in A B; do
        [[ $name == A ]] && peer=B || peer=A
        printf '%s\n' "${command[number]}" >"$run_dir/command-$name"
        number=$((number + 1))
        start_vm "$name" "$run_dir/command-$name" \
            -netdev "dgram,id=wire,local.type=unix,local.path=$wire/$name,remote.type=unix,remote.path=$wire/$peer" \
            -device "virtio-net-pci,netdev=wire,mac=52:54:00:00:00:0$number"
        pids[$name]=${vm_pids[-1]}
        sed -u "s/^/$name| /" "$run_dir/output-$name" &
        readers+=($!)
    done
    wait_for_both "${pids[A]}" "${pids[B]}"
    for name in A B; do
        code=0
        wait "${pids[$name]}" || code=$?
        codes[$name]=$code
    done
    vm_pids=()
    wait "${readers[@]}" || true
    rm -rf "$wire"
}

# True when a VM's command has ended, or QEMU has: ended NAME PID
ended() { [[ -s $run_dir/status-$1 ]] || ! kill -0 "$2" 2>/dev/null; }
failed() { [[ $(cat "$run_dir/status-$1" 2>/dev/null) != 0 ]]; }

# Returns when both commands have ended, or one `grace` seconds after the other has failed, and stops the VMs.
# wait_for_both PID-OF-A PID-OF-B
wait_for_both() {
    local a=$1 b=$2 deadline=
    until ended A "$a" && ended B "$b"; do
        if { ended A "$a" && failed A; } || { ended B "$b" && failed B; }; then
            deadline=${deadline:-$((SECONDS + grace))}
            ((SECONDS < deadline)) || break
        fi
        sleep 0.2
    done
    ended A "$a" || touch "$run_dir/stopped-A"
    ended B "$b" || touch "$run_dir/stopped-B"
    sleep 0.2 # what is still on its way through the output ports
    kill "$a" "$b" 2>/dev/null || true
}
