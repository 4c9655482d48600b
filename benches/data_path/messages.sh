# Runs in the guest: perftest's programs and ours by turns, and prints microseconds a message.
# messages.sh ROUNDS

address=$RDMACM_TEST_ADDR device=$RDMACM_TEST_DEVICE rounds=$1

# Programs that poll share the processor with rxe's workers by whole ticks of 4 ms, so it matters where in a tick one
# starts: each round starts a millisecond later in it, theirs and ours alike.
until_phase() { sleep "1.00$((round % 4))"; }

# theirs PROGRAM COLUMN ARGUMENT...: the column that the client prints.
theirs() {
    program=$1 column=$2
    shift 2
    timeout 60 "$program" -d "$device" -F "$@" >/dev/null 2>&1 &
    until_phase
    timeout 60 "$program" -d "$device" -F "$@" "$address" 2>/dev/null |
        awk -v column="$column" '$1 ~ /^[0-9]+$/ && NF >= 5 { print column == "rate" ? 1 / $NF : $column }'
    wait
}

# ours TEST SIZE COUNT [-e]
ours() {
    timeout 60 /opt/messages server "$address" "$@" >/dev/null &
    until_phase
    timeout 60 /opt/messages client "$address" "$@"
    wait
}

# Nanoseconds that the kernel's own threads have run.
kernel_time() {
    for task in /proc/[0-9]*; do
        case $(cat "$task/comm" 2>/dev/null) in
        kworker* | ksoftirqd*) cat "$task/schedstat" ;;
        esac
    done | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

# measure COMMAND...: the command's output and microseconds of the kernel's threads meanwhile.
measure() {
    before=$(kernel_time)
    echo "$("$@")" "$(kernel_time)" "$before" | awk 'NF == 3 { printf "%s %s ", $1, ($2 - $3) / 1000 }'
}

# compare TITLE MESSAGES 'THEIRS' 'OURS'
compare() {
    round=0
    while [ $round -lt "$rounds" ]; do
        measure theirs $3
        measure ours $4
        echo
        round=$((round + 1))
    done | awk -v title="$1" -v messages="$2" '
        function sort(list, i, j, swap) {
            for (i = 1; i < NR; i++) for (j = i + 1; j <= NR; j++)
                if (list[j] < list[i]) { swap = list[i]; list[i] = list[j]; list[j] = swap }
        }
        function median(list) {
            sort(list)
            return (list[int((NR + 1) / 2)] + list[int(NR / 2) + 1]) / 2
        }
        NF != 4 { bad = 1; exit }
        { c[NR] = $1 + 0; c_kernel[NR] = $2 / messages; r[NR] = $3 + 0; r_kernel[NR] = $4 / messages; ratio[NR] = $3 / $1 }
        END {
            if (bad) { print title ": a program failed"; exit 1 }
            sort(ratio)
            printf "%9.2f %9.2f %7.2f %6.2f to %4.2f %9.2f %7.2f   %s\n", median(c), median(r), median(r) / median(c),
                ratio[1], ratio[NR], median(c_kernel), median(r_kernel), title
        }'
}

printf 'microseconds a message, medians of %s rounds; the least and the most ratio of one round; ' "$rounds"
printf 'how much of them kernel threads ran\n'
printf '%9s %9s %7s %14s %9s %7s\n' C rdmacm ratio 'least to most' 'kernel: C' rdmacm
failed=
compare 'send_bw, 4096 bytes, by events' 2000 'ib_send_bw rate -N -n 2000 -s 4096 -e' 'send_bw 4096 2000 -e' || failed=1
compare 'send_bw, 4096 bytes, polling' 10000 'ib_send_bw rate -N -n 10000 -s 4096' 'send_bw 4096 10000' || failed=1
compare 'write_bw, 4096 bytes, polling' 10000 'ib_write_bw rate -N -n 10000 -s 4096' 'write_bw 4096 10000' || failed=1
# Not by events: ib_send_lat -e has one channel for both queues, looks into the one once an event, and comes to a halt.
compare 'send_lat, 64 bytes, polling' 200 'ib_send_lat 6 -n 100 -s 64' 'send_lat 64 100' || failed=1
[ ! "$failed" ]
