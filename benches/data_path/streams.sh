# Runs in the guest: the C program and ours by turns, and prints microseconds a transfer.
# streams.sh ROUNDS

address=$RDMACM_TEST_ADDR port=7400

# measure PROGRAM SIZE TRANSFERS ITERATIONS OPTION...: what the client prints for a transfer.
measure() {
    program=$1 size=$2 transfers=$3 iterations=$4
    shift 4
    port=$((port + 1))
    timeout 100 "$program" -p $port -S "$size" -C "$transfers" -I "$iterations" "$@" >/dev/null 2>&1 &
    sleep 1
    timeout 100 "$program" -s "$address" -p $port -S "$size" -C "$transfers" -I "$iterations" "$@" 2>/dev/null |
        awk '$NF ~ /^[0-9.]+$/ && NF >= 7 { print $NF }'
    wait
}

median() { tr ' ' '\n' | grep . | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# row TITLE SIZE TRANSFERS ITERATIONS
row() {
    c1= c2= r1= r2= round=0
    while [ $round -lt "$rounds" ]; do
        c1="$c1 $(measure rstream "$2" "$3" "$4")" r1="$r1 $(measure /opt/rstream "$2" "$3" "$4")"
        c2="$c2 $(measure rstream "$2" "$3" "$4" -T b)" r2="$r2 $(measure /opt/rstream "$2" "$3" "$4" -T b)"
        round=$((round + 1))
    done
    echo "$(echo "$c1" | median) $(echo "$c2" | median) $(echo "$r1" | median) $(echo "$r2" | median) $1" |
        awk '{ c = $1 < $2 ? $1 : $2; title = $5; for (i = 6; i <= NF; i++) title = title " " $i
               printf "%9.2f %9.2f %9.2f %9.2f %8.2f   %s\n", $1, $2, $3, $4, $4 / c, title }'
}

rounds=$1
echo "microseconds a transfer, median of $rounds rounds; the ratio is of ours, blocking, to the better one of C's"
printf '%9s %9s %9s %9s %8s\n' C 'C -T b' rdmacm '-T b' ratio
row '64 bytes there and back, for each way' 64 1 500
row '64 KiB, 20 one after the other' 65536 20 10

# What the kernel alone takes: writes of the same size, which nobody copies or waits for.
device=$RDMACM_TEST_DEVICE
timeout 100 ib_write_bw -d "$device" -F -n 200 -s 65536 >/dev/null 2>&1 &
sleep 1
timeout 100 ib_write_bw -d "$device" -F -n 200 -s 65536 "$address" 2>/dev/null |
    awk '$1 ~ /^[0-9]+$/ && NF >= 5 { printf "%9.2f   64 KiB by perftest\47s ib_write_bw, which neither copies nor tells: the bound of the kernel\n", 1 / $NF }'
wait
