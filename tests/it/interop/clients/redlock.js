// redlock for Node, over one server, counts beside others: redlock.js PORT SECTIONS. A release that is not its own
// is an error.

const Redis = require("ioredis");
const Redlock = require("redlock");

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function main([port, sections]) {
  const redis = new Redis(Number(port), "127.0.0.1");
  const locks = new Redlock([redis], { retryCount: -1, retryDelay: 5, retryJitter: 5 });
  await redis.incr("ready");
  while (Number(await redis.get("ready")) < 4) await sleep(2);
  for (let i = 0; i < Number(sections); i += 1) {
    const held = await locks.lock("k", 30_000);
    const n = Number((await redis.get("n")) ?? 0);
    await sleep(1);
    await redis.set("n", n + 1);
    await redis.rpush("order", "redlock");
    await held.unlock();
    await sleep(3);
  }
  redis.disconnect();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
