# Runs in the guest: the programs by turns, and prints what a transfer takes.
# streams.sh ROUNDS

address=$RDMACM_TEST_ADDR device=$RDMACM_TEST_DEVICE port=7400 events=/sys/kernel/tracing

# The kernel notes each system call of one process, by a clock that counts instructions.
[ -e $events/trace ] || mount -t tracefs tracefs $events
echo x86-tsc >$events/trace_clock
echo 8192 >$events/buffer_size_kb
echo 0 >$events/tracing_on
for event in raw_syscalls/sys_enter raw_syscalls/sys_exit sched/sched_switch; do
    echo 1 >$events/events/$event/enable
done

# traced COMMAND...: system calls of a command, and its instructions outside of them.
traced() {
    echo >$events/trace
    sh -c "echo \$\$ | tee /tmp/traced >$events/set_event_pid; echo 1 >$events/tracing_on; exec \"\$@\"" sh "$@" >/dev/null 2>&1
    echo 0 >$events/tracing_on
    echo >$events/set_event_pid
    awk -v pid="$(cat /tmp/traced)" -f /opt/user_time.awk <$events/trace
}

# serve PROGRAM OPTION...: starts a server, which ends with its client.
serve() {
    port=$((port + 1))
    timeout 100 "$@" -p $port >/dev/null 2>&1 &
    sleep 1
}

# measure SIZE TRANSFERS ITERATIONS PROGRAM OPTION...: microseconds of a transfer, which the client prints last.
measure() {
    sizes="-S $1 -C $2 -I $3"
    shift 3
    # shellcheck disable=SC2086  # several words
    set -- "$@" $sizes
    serve "$@"
    timeout 100 "$@" -s "$address" -p $port 2>/dev/null | awk '$NF ~ /^[0-9.]+$/ { print $NF }'
    wait
}

# counted SIZE TRANSFERS ITERATIONS PROGRAM OPTION...: of a client. It sends as many messages as it receives.
counted() {
    sizes="-S $1 -C $2 -I $3"
    shift 3
    # shellcheck disable=SC2086
    set -- "$@" $sizes
    serve "$@"
    traced "$@" -s "$address" -p $port
    wait
}

# count SIZE TRANSFERS FEW MANY PROGRAM OPTION...: system calls of a message, and instructions without what each call takes
# on its way into the kernel and back. What is not of messages is in both runs.
count() {
    size=$1 transfers=$2 few=$3 many=$4
    shift 4
    echo "$(counted "$size" "$transfers" "$few" "$@") $(counted "$size" "$transfers" "$many" "$@")" |
        awk -v messages=$(((many - few) * transfers)) -v way="$way" \
            '{ calls = $3 - $1; printf "%.2f %.0f", calls / messages, ($4 - $2 - calls * way) / messages }'
}

median() { tr ' ' '\n' | grep . | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# line MICROSECONDS BEST 'CALLS INSTRUCTIONS' TITLE
line() {
    echo "$1 $2 ${3:-- -}" | awk -v title="$4" '{ printf "%9.2f %7.2f %7s %13s   %s\n", $1, $1 / $2, $3, $4, title }'
}

# table TITLE SIZE TRANSFERS ITERATIONS SPINNING FEW MANY: iterations of those that wait and, since they take long and nobody
# would wait so, of those that spin; and of those whose system calls are counted.
table() {
    c1='' c2='' r1='' r2='' t='' round=0 few=$6 many=$7
    while [ $round -lt "$rounds" ]; do
        c1="$c1 $(measure "$2" "$3" "$5" rstream)" r1="$r1 $(measure "$2" "$3" "$5" /opt/rstream)"
        c2="$c2 $(measure "$2" "$3" "$4" rstream -T b)" r2="$r2 $(measure "$2" "$3" "$4" /opt/rstream -T b)"
        t="$t $(measure "$2" "$3" "$4" /opt/streams)"
        round=$((round + 1))
    done
    c1=$(echo "$c1" | median) c2=$(echo "$c2" | median)
    best=$(printf '%s\n' "$c1" "$c2" | sort -n | head -n 1)
    echo "$1"
    printf '%9s %7s %7s %13s\n' 'us' ratio calls instructions
    line "$c1" "$best" '' 'rstream in C'
    line "$c2" "$best" "$(count "$2" "$3" "$few" "$many" rstream -T b)" 'rstream -T b in C'
    line "$(echo "$r1" | median)" "$best" '' 'rstream'
    line "$(echo "$r2" | median)" "$best" "$(count "$2" "$3" "$few" "$many" /opt/rstream -T b)" 'rstream -T b'
    line "$(echo "$t" | median)" "$best" "$(count "$2" "$3" "$few" "$many" /opt/streams)" 'tasks of tokio'
}

# bound MICROSECONDS TITLE: what programs take that have no stream to keep, wait for events as well and copy nothing.
bound() { line "$1" "$best" '' "$2"; }

ping_pong() {
    set -- ibv_rc_pingpong -d "$device" -g 0 -e "$@"
    timeout 100 "$@" >/dev/null 2>&1 &
    sleep 1
    timeout 100 "$@" "$address" 2>/dev/null | awk '$NF == "usec/iter" { print $(NF - 1) / 2 }'
    wait
}

one_way() {
    set -- ib_send_bw -d "$device" -F -e "$@"
    timeout 100 "$@" >/dev/null 2>&1 &
    sleep 1
    timeout 100 "$@" "$address" 2>/dev/null | awk '$1 ~ /^[0-9]+$/ && NF >= 5 { print 1 / $NF }'
    wait
}

rounds=$1
# The clock counts each repetition of an instruction that repeats itself, which a processor does not.
export GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1073741824
# Also the instructions by which the calls are noted.
way=$(echo "$(traced /opt/streams --calls 1000) $(traced /opt/streams --calls 3000)" | awk '{ print ($4 - $2) / ($3 - $1) }')
cat <<END
us: microseconds of a transfer, median of $rounds rounds; ratio: to the better one of C's
calls: system calls of sending a message and receiving one
instructions: in user space meanwhile, the timer's interrupts included, by the clock between the notes that the kernel makes of
system calls; $way a call are subtracted, for the way into the kernel and back
Programs without -T b look again and again, as long as the other takes: what they do of it is not counted. Copies in user space
are made without rep movsb, in all programs.

END
table '64 bytes there and back, for each way' 64 1 2000 100 100 600
bound "$(ping_pong -s 64 -n 2000)" 'ibv_rc_pingpong -e, which keeps no stream: near the bound of the kernel'
echo
table '64 KiB, 20 one after the other' 65536 20 15 5 2 6
bound "$(one_way -s 65536 -n 300)" "perftest's ib_send_bw -e, which copies nothing: near the bound of the kernel"
