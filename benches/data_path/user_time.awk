# Of a trace of the kernel's events: how many system calls a thread made, and how much of the clock it spent outside of them
# while it had the processor. Usage: awk -v pid=PID -f user_time.awk <trace

/ sys_exit: | sys_enter: | sched_switch: / {
    for (i = 1; i <= NF && $i !~ /^(sys_exit|sys_enter|sched_switch):$/; i++) {
        flags = time
        time = $i
    }
    if ($i == "sys_exit:") {
        is_outside = 1
        since = time
        # Another one is to run first: the thread is still in the kernel when it is switched off.
        has_processor = flags !~ /N/
    } else if ($i == "sys_enter:") {
        calls++
        if (is_outside) outside += time - since
        is_outside = 0
    } else if (is_outside && $0 ~ " next_pid=" pid " ") {
        since = time
        has_processor = 1
    } else if (is_outside && has_processor) {
        outside += time - since
        has_processor = 0
    }
}

END { print calls + 0, outside + 0 }
