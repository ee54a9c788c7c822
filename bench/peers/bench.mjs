// What the Node peers share: the order they are given, a clock for calls and one for workers, the WAL's length.
import pg from "pg";

export const order = JSON.parse(process.argv[2]);

const admin = new pg.Client({ connectionString: order.url });

export const payload = (n) => ({ n: 10000 + (n % 90000) });

async function wal() {
  const { rows } = await admin.query("select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8 as bytes");
  return rows[0].bytes;
}

const seconds = () => performance.now() / 1000;

// Steps one after the other until all are done or the time is up; a step answers how many tasks it did.
export async function timed(count, step) {
  const before = await wal();
  const start = seconds();
  let done = 0;
  while (done < count && seconds() - start < order.limit) {
    const did = await step(done);
    if (!did) throw new Error(`only ${done} of ${count} tasks were there`);
    done += did;
  }
  const spent = seconds() - start;
  return { rate: done / spent, wal: ((await wal()) - before) / done };
}

// Tasks for a phase that is not about puts, and what the planner should know of them.
export async function fill(count, bulk) {
  for (let first = 0; first < count; first += order.bulk) await bulk(first, Math.min(order.bulk, count - first));
  await admin.query("analyze");
}

// A worker: its clock starts when the first tasks have been handled and ends at the last.
// `work` gets a function to call for every task, and a promise that is kept when it is enough.
export async function worked(count, warm, work) {
  const before = await wal();
  let handled = 0, start = 0, end = 0, enough;
  const done = new Promise((resolve) => (enough = resolve));
  const tally = () => {
    handled += 1;
    if (handled === warm) start = seconds();
    else if (handled > warm) {
      end = seconds();
      if (handled >= warm + count || end - start > order.limit) enough();
    }
  };
  await work(tally, done);
  return { rate: (handled - warm) / (end - start), wal: ((await wal()) - before) / handled };
}

export async function report(phases) {
  await admin.connect();
  const found = {};
  for (const name of order.phases) {
    if (phases[name]) found[name] = await phases[name]();
  }
  return found;
}

// Timers that a peer leaves behind would keep the process for seconds.
export function answer(found) {
  process.stdout.write(JSON.stringify(found) + "\n", () => process.exit(0));
}
