"""python-redis-lock counts beside others: python_redis_lock.py PORT SECTIONS. A release that is not its own raises.

It puts "lock:" before the name. It waits for a signal that only its own kind gives, and looks by itself once
in the time after which its locks end.
"""

import sys
import time

from redis import StrictRedis
from redis_lock import Lock

redis = StrictRedis(port=int(sys.argv[1]), decode_responses=True)
redis.incr("ready")
while int(redis.get("ready")) < 4:
    time.sleep(0.002)
for _ in range(int(sys.argv[2])):
    with Lock(redis, "k", expire=1, auto_renewal=True):
        n = int(redis.get("n") or 0)
        time.sleep(0.001)
        redis.set("n", n + 1)
        redis.rpush("order", "python-redis-lock")
    time.sleep(0.02)
