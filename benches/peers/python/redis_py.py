"""The Lock of redis-py: polls every 100 ms; one client a process, a Lock a thread."""

from functools import cache

from redis import Redis

from worker import TTL, serve


@cache
def client(port):
    return Redis(port=port)


def open_lock(port):
    lock = client(port).lock("peers:redis-py", timeout=TTL)
    return lock.acquire, lock.release


serve(open_lock)
