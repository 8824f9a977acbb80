"""What the scripts of this folder share: they obey lines on standard input, as ../src/process.rs lists them.

A script hands over `open_lock(port)`, which makes what one thread needs: two functions, take and give.
"""

import sys
import threading
from time import monotonic_ns

TTL = 30


def serve(open_lock):
    port = int(sys.argv[1])
    take, give = open_lock(port)
    say("ready")
    for line in sys.stdin:
        order, *numbers = line.split()
        if order == "cycle":
            start = monotonic_ns()
            cycles = count(take, give, start + int(numbers[0]) * 1_000_000)
            say(f"{cycles} {monotonic_ns() - start}")
        elif order == "sections":
            say(" ".join(map(str, contend(open_lock, port, *map(int, numbers)))))
        elif order == "take":
            take()
            say(monotonic_ns())
        elif order == "give":
            called = monotonic_ns()
            give()
            say(called)


def contend(open_lock, port, threads, ms):
    locks = [open_lock(port) for _ in range(threads)]
    end = monotonic_ns() + ms * 1_000_000
    counts = [0] * threads

    def run(i):
        counts[i] = count(*locks[i], end)

    running = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return counts


def count(take, give, end):
    sections = 0
    while True:
        take()
        give()
        if monotonic_ns() >= end:
            return sections
        sections += 1


def say(line):
    print(line, flush=True)
