// What the scripts of this folder share: they obey lines on standard input, as ../src/process.rs lists them.
// A script hands over `openLock(redis)`, which makes what one task needs: two async functions, take and give.

const { createInterface } = require("node:readline");
const Redis = require("ioredis");

const TTL = 30_000;
const now = () => process.hrtime.bigint();

async function serve(openLock) {
  // One connection a process, as ioredis is meant to be used; tasks share it.
  const redis = new Redis(Number(process.argv[2]), "127.0.0.1");
  const own = openLock(redis);
  await redis.ping();
  console.log("ready");
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(await obey(line.split(" "), redis, openLock, own));
  }
  process.exit(0);
}

async function obey([order, ...numbers], redis, openLock, own) {
  const start = now();
  const after = (ms) => start + BigInt(ms) * 1_000_000n;
  switch (order) {
    case "cycle": {
      const cycles = await count(own, after(numbers[0]));
      return `${cycles} ${now() - start}`;
    }
    case "sections": {
      const tasks = Array.from({ length: Number(numbers[0]) }, () => count(openLock(redis), after(numbers[1])));
      return (await Promise.all(tasks)).join(" ");
    }
    case "take":
      await own.take();
      return `${now()}`;
    case "give":
      await own.give();
      return `${start}`;
  }
}

async function count({ take, give }, end) {
  for (let sections = 0; ; sections += 1) {
    await take();
    await give();
    if (now() >= end) return sections;
  }
}

module.exports = { serve, TTL };
