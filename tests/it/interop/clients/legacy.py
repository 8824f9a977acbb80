"""An old client of the timestamp protocol, as it is found in the field: SETNX, GET, GETSET, DEL, by its own clock.

legacy.py PORT SECTIONS TTL UNIT CRASHES: TTL in ms, UNIT ms or s, every so many sections it leaves its stamp
behind (0: never). It needs nothing but Python.
"""

import socket
import sys
import time

PORT, SECTIONS, TTL, CRASHES = (int(sys.argv[i]) for i in (1, 2, 3, 5))
UNIT = {"ms": 1000, "s": 1}[sys.argv[4]]


class Redis:
    def __init__(self):
        self.stream = socket.create_connection(("127.0.0.1", PORT)).makefile("rwb")

    def __call__(self, *words):
        words = [str(word).encode() for word in words]
        self.stream.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        self.stream.flush()
        line = self.stream.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            length = int(rest)
            return self.stream.read(length + 2)[:-2].decode() if length >= 0 else None
        if kind == b":":
            return int(rest)
        assert kind == b"+", line
        return rest.decode()


def now():
    return int(time.time() * UNIT)


def is_over(value):
    """One that is no number is somebody else's, and stands."""
    return value.isdigit() and int(value) < now()


def lock(redis):
    while True:
        stamp = now() + TTL * UNIT // 1000 + 1
        if redis("SETNX", "k", stamp):
            return stamp
        value = redis("GET", "k")
        if value is not None and is_over(value):
            stamp = now() + TTL * UNIT // 1000 + 1
            # Whoever finds the old stamp still there was the first.
            before = redis("GETSET", "k", stamp)
            if before is None or is_over(before):
                return stamp
        time.sleep(0.005)


def unlock(redis, stamp):
    if now() < stamp:
        redis("DEL", "k")


redis = Redis()
redis("INCR", "ready")
while int(redis("GET", "ready")) < 4:
    time.sleep(0.002)
for i in range(1, SECTIONS + 1):
    stamp = lock(redis)
    n = int(redis("GET", "n") or 0)
    time.sleep(0.001)
    redis("SET", "n", n + 1)
    redis("RPUSH", "order", "legacy")
    if CRASHES == 0 or i % CRASHES:
        unlock(redis, stamp)
    time.sleep(0.003)
