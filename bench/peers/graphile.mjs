// graphile-worker, as bench/pg_node.py asks it: `node graphile.mjs '{"url": .., "schema": .., "phases": [..], ..}'`.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { answer, fill, order, payload, report, timed, worked } from "./bench.mjs";

const settings = {
  connectionString: order.url,
  schema: order.schema,
  logger: new Logger(() => () => {}),
  maxPoolSize: order.callers + 4,
  crontab: "",
  noHandleSignals: true,
};
const utils = await makeWorkerUtils(settings);
await utils.migrate();

async function bulk(first, size) {
  await utils.addJobs(Array.from({ length: size }, (_, n) => ({ identifier: "bench", payload: payload(first + n) })));
  return size;
}

// A batch is a local queue with acks sent together, which several jobs at once must fill.
const batched = order.batch > 1
  ? { localQueue: { size: order.batch }, completeJobBatchDelay: 0, concurrentJobs: Math.max(24, order.callers) }
  : { concurrentJobs: order.callers };

async function work() {
  await fill(order.count + order.warm, bulk);
  return worked(order.count, order.warm, async (tally, done) => {
    const taskList = { bench: async () => tally() };
    const runner = await run({ ...settings, preset: { worker: batched }, taskList });
    await done;
    await runner.stop();
  });
}

async function put(n) {
  await utils.addJob("bench", payload(n));
  return 1;
}

for (let n = 0; n < order.warm; n++) await put(n);
const found = await report({
  put: () => timed(order.count, put),
  bulk: () => timed(order.count, (done) => bulk(done, order.bulk)),
  work,
});
await utils.release();
answer(found);
