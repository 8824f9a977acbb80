"""The Lock of redis-py counts beside others: redis_py.py PORT SECTIONS. A release that is not its own raises."""

import sys
import time

from redis import Redis

redis = Redis(port=int(sys.argv[1]), decode_responses=True)
redis.incr("ready")
while int(redis.get("ready")) < 4:
    time.sleep(0.002)
for _ in range(int(sys.argv[2])):
    with redis.lock("k", timeout=30, sleep=0.005):
        n = int(redis.get("n") or 0)
        time.sleep(0.001)
        redis.set("n", n + 1)
        redis.rpush("order", "redis-py")
    time.sleep(0.003)
