// redlock for Node, over one server: polls every 200 ms, plus up to 100 ms at random; gives up after ten tries.

const Redlock = require("redlock");
const { serve, TTL } = require("./worker.js");

serve((redis) => {
  const manager = new Redlock([redis]);
  let held;
  const take = async () => {
    for (;;) {
      try {
        held = await manager.lock("peers:node-redlock", TTL);
        return;
      } catch (error) {
        if (error.name !== "LockError") throw error;
      }
    }
  };
  return { take, give: () => held.unlock() };
});
