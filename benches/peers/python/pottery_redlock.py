"""The Redlock of pottery, over one server: polls at random within 200 ms; a Redlock a thread."""

from functools import cache

from pottery import Redlock
from redis import Redis

from worker import TTL, serve


@cache
def client(port):
    return Redis(port=port)


def open_lock(port):
    lock = Redlock(key="peers:pottery", masters={client(port)}, auto_release_time=TTL)
    return lock.acquire, lock.release


serve(open_lock)
