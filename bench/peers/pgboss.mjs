// pg-boss, as bench/pg_node.py asks it: `node pgboss.mjs '{"url": .., "schema": .., "phases": [..], ..}'`.
import { PgBoss } from "pg-boss";
import { answer, fill, order, payload, report, timed, worked } from "./bench.mjs";

const QUEUE = "bench";
const boss = new PgBoss({ connectionString: order.url, schema: order.schema, max: order.callers + 1 });
boss.on("error", (error) => {
  throw error;
});
await boss.start();
await boss.createQueue(QUEUE);

async function put(n) {
  await boss.send(QUEUE, payload(n));
  return 1;
}

async function bulk(first, size) {
  await boss.insert(QUEUE, Array.from({ length: size }, (_, n) => ({ data: payload(first + n) })));
  return size;
}

// Its own worker waits between two polls, so its two calls are made without one.
async function work() {
  await fill(order.count + order.warm, bulk);
  return worked(order.count, order.warm, async (tally, done) => {
    let enough = false;
    done.then(() => (enough = true));
    const loop = async () => {
      while (!enough) {
        const jobs = await boss.fetch(QUEUE, { batchSize: order.batch });
        if (!jobs.length) break;
        await boss.complete(QUEUE, jobs.map((job) => job.id));
        jobs.forEach(tally);
      }
    };
    await Promise.all(Array.from({ length: order.callers }, loop));
  });
}

const held = [];

async function take() {
  await fill(order.count, bulk);
  return timed(order.count, async () => {
    const [job] = await boss.fetch(QUEUE);
    if (!job) return 0;
    held.push(job.id);
    return 1;
  });
}

async function ack() {
  return timed(held.length, async (done) => {
    await boss.complete(QUEUE, held[done]);
    return 1;
  });
}

for (let n = 0; n < order.warm; n++) {
  await put(n);
  const [job] = await boss.fetch(QUEUE);
  await boss.complete(QUEUE, job.id);
}
const found = await report({
  put: () => timed(order.count, put),
  bulk: () => timed(order.count, (done) => bulk(done, order.bulk)),
  work,
  take,
  ack,
});
await boss.stop({ graceful: false });
answer(found);
