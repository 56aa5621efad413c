// Shared part of the Node peer programs, with the same command line and the same tally as harness.py.

import { openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const SLOT_BYTES = 8;
const MOST_WORKERS = 2;
const JOBS_PER_BULK_CALL = 1000;
const MILLISECONDS_BETWEEN_PACED_JOBS = 10;
// The timetable of `offered`, that of bench/offered_client.py.
const JOBS_PER_OFFERED_CALL = 50;
const MICROSECONDS_BETWEEN_OFFERED_CALLS = 10_000;
// Node has no memory-mapped files, and a write per job would be measured as part of the peer.
const MILLISECONDS_BETWEEN_COUNT_WRITES = 2;
const MESSAGE = "a small message, about as long as the arguments of a real job";

export async function run(peer) {
  const [command, url, ...rest] = process.argv.slice(2);
  if (command === "work") {
    await peer.work(url, countingHandler(rest[0], Number(rest[1])), rest[2]);
    return;
  }
  await peer.open(url);
  const jobs = Number(rest[0]);
  if (command === "one") console.log(await secondsOneByOne(peer, jobs));
  else if (command === "bulk") console.log(await secondsInBulk(peer, jobs));
  else if (command === "paced") await enqueuePaced(peer, jobs);
  else if (command === "offered") await enqueueOffered(peer, jobs, Number(rest[1]));
  else if (command === "install") await peer.install();
  else throw new Error(`unknown command ${command}`);
  await peer.close();
}

async function secondsOneByOne(peer, jobs) {
  const started = performance.now();
  for (let number = 0; number < jobs; number++) await peer.enqueueOne(payload());
  return (performance.now() - started) / 1000;
}

async function secondsInBulk(peer, jobs) {
  const started = performance.now();
  for (let first = 0; first < jobs; first += JOBS_PER_BULK_CALL) {
    const length = Math.min(JOBS_PER_BULK_CALL, jobs - first);
    await peer.enqueueMany(Array.from({ length }, () => payload()));
  }
  return (performance.now() - started) / 1000;
}

async function enqueuePaced(peer, jobs) {
  const started = performance.now();
  for (let number = 0; number < jobs; number++) {
    await sleep(Math.max(0, started + number * MILLISECONDS_BETWEEN_PACED_JOBS - performance.now()));
    await peer.enqueueOne(payload(microseconds()));
  }
}

async function enqueueOffered(peer, jobs, begin) {
  const length = JOBS_PER_OFFERED_CALL;
  for (let call = 0; call < jobs / length; call++) {
    const instant = begin + call * MICROSECONDS_BETWEEN_OFFERED_CALLS;
    await sleep(Math.max(0, (instant - microseconds()) / 1000));
    await peer.enqueueMany(Array.from({ length }, () => payload(instant)));
  }
}

function countingHandler(path, worker) {
  const file = openSync(path, "r+");
  let executed = 0;
  let written = 0;
  let sampled = 0;

  function writeCount() {
    if (written === executed) return;
    writeSlot(file, worker, executed);
    written = executed;
  }
  setInterval(writeCount, MILLISECONDS_BETWEEN_COUNT_WRITES);

  return function handle({ sent }) {
    executed += 1;
    if (sent) writeSlot(file, MOST_WORKERS + sampled++, microseconds() - sent);
    // The driver takes the time of the first handler from the first count it sees.
    if (executed === 1) writeCount();
  };
}

function writeSlot(file, slot, value) {
  const bytes = Buffer.alloc(SLOT_BYTES);
  bytes.writeBigUInt64LE(BigInt(value));
  writeSync(file, bytes, 0, SLOT_BYTES, slot * SLOT_BYTES);
}

function payload(sent = 0) {
  return { sent, message: MESSAGE };
}

function microseconds() {
  // The monotonic clock is one clock for all processes of a machine, so two readings can be subtracted.
  return Number(process.hrtime.bigint() / 1000n);
}
