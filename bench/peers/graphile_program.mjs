// Graphile Worker, either one job per claim or with its local queue and batched completion.

import { Logger, makeWorkerUtils, run as startWorker, runMigrations } from "graphile-worker";
import { run } from "./harness.mjs";

const quiet = new Logger(() => () => {});

const CONFIGURATIONS = {
  single: { concurrentJobs: 24, maxPoolSize: 26 },
  batched: {
    concurrentJobs: 96,
    maxPoolSize: 10,
    localQueue: { size: 1000 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};

const peer = {
  async open(url) {
    this.url = url;
    this.utils = await makeWorkerUtils({ connectionString: url, logger: quiet });
  },
  async close() {
    await this.utils.release();
  },
  async install() {
    await runMigrations({ connectionString: this.url, logger: quiet });
  },
  async enqueueOne(payload) {
    await this.utils.addJob("bench", payload);
  },
  async enqueueMany(payloads) {
    await this.utils.addJobs(payloads.map((payload) => ({ identifier: "bench", payload })));
  },
  async work(url, handle, configuration) {
    const worker = { connectionString: url, logger: quiet, ...CONFIGURATIONS[configuration] };
    await startWorker({ preset: { worker }, taskList: { bench: async (payload) => handle(payload) } });
  },
};

await run(peer);
