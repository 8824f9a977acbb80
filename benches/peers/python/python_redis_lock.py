"""python-redis-lock: waits in BLPOP on a connection of the pool; one client a process, a Lock a thread."""

from functools import cache

from redis import StrictRedis
from redis_lock import Lock

from worker import TTL, serve


@cache
def client(port):
    return StrictRedis(port=port)


def open_lock(port):
    lock = Lock(client(port), "peers:python-redis-lock", expire=TTL)
    return lock.acquire, lock.release


serve(open_lock)
