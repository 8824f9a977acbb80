// The Mutex of redis-semaphore: polls every 10 ms, gives up after 10 s; a ttl of 10 s that is refreshed while held.

const { Mutex } = require("redis-semaphore");
const { serve } = require("./worker.js");

serve((redis) => {
  const mutex = new Mutex(redis, "peers:redis-semaphore");
  return { take: () => mutex.acquire(), give: () => mutex.release() };
});
