# Runs in the guest: perftest's programs and ours by turns, and prints microseconds a message.
# messages.sh ROUNDS

address=$RDMACM_TEST_ADDR device=$RDMACM_TEST_DEVICE

# theirs PROGRAM COLUMN ARGUMENT...: the column that the client prints.
theirs() {
    program=$1 column=$2
    shift 2
    timeout 60 "$program" -d "$device" -F "$@" >/dev/null 2>&1 &
    sleep 1
    timeout 60 "$program" -d "$device" -F "$@" "$address" 2>/dev/null |
        awk -v column="$column" '$1 ~ /^[0-9]+$/ && NF >= 5 { print column == "rate" ? 1 / $NF : $column }'
    wait
}

# ours TEST SIZE COUNT [-e]
ours() {
    timeout 60 /opt/messages server "$address" "$@" >/dev/null &
    timeout 60 /opt/messages client "$address" "$@"
    wait
}

median() { tr ' ' '\n' | grep . | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# compare TITLE 'THEIRS' 'OURS'
compare() {
    c= r= round=0
    while [ $round -lt "$rounds" ]; do
        c="$c $(theirs $2)" r="$r $(ours $3)" round=$((round + 1))
    done
    echo "$(echo "$c" | median) $(echo "$r" | median) $1" |
        awk '{ c = $1; r = $2; $1 = $2 = ""; printf "%9.2f %9.2f %7.2f %s\n", c, r, r / c, $0 }'
}

rounds=$1
printf '%9s %9s %7s   microseconds a message, median of %s rounds\n' C rdmacm ratio "$rounds"
compare 'send_bw, 4096 bytes, by events' 'ib_send_bw rate -n 2000 -s 4096 -e' 'send_bw 4096 2000 -e'
compare 'send_bw, 4096 bytes, polling' 'ib_send_bw rate -n 2000 -s 4096' 'send_bw 4096 2000'
compare 'write_bw, 4096 bytes, polling' 'ib_write_bw rate -n 5000 -s 4096' 'write_bw 4096 5000'
compare 'send_lat, 64 bytes, polling' 'ib_send_lat 6 -n 200 -s 64' 'send_lat 64 200'
