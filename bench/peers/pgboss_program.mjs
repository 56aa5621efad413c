// pg-boss: batches of 1000, fetched without a pause while they are full; NOTIFY wakes an idle worker.

import { PgBoss } from "pg-boss";
import { run } from "./harness.mjs";

const peer = {
  async open(url) {
    // Only workers supervise queues and schedules; a producer that did so too would slow them down.
    this.boss = new PgBoss({ connectionString: url, supervise: false, schedule: false });
    await this.boss.start();
  },
  async close() {
    await this.boss.stop({ graceful: false });
  },
  async install() {
    await this.boss.createQueue("bench", { notify: true });
  },
  async enqueueOne(payload) {
    await this.boss.send("bench", payload);
  },
  async enqueueMany(payloads) {
    await this.boss.insert("bench", payloads.map((data) => ({ data })));
  },
  async work(url, handle) {
    const boss = new PgBoss({ connectionString: url, useListenNotify: true });
    boss.on("error", (error) => console.error(error));
    await boss.start();
    await boss.work("bench", { batchSize: 1000, burstWhenBatchFull: true }, async (jobs) => {
      for (const job of jobs) handle(job.data);
    });
  },
};

await run(peer);
