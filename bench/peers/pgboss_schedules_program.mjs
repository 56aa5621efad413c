// pg-boss: cron schedules, each due every minute, checked at the shortest configurable interval: once a second.
//
//   pgboss_schedules_program.mjs install  URL
//   pgboss_schedules_program.mjs register URL SCHEDULES  prints the seconds it took
//   pgboss_schedules_program.mjs run      URL TALLY      runs until it is stopped

import { PgBoss } from "pg-boss";

const QUEUE = "bench";

async function start(url, options) {
  const boss = new PgBoss({ connectionString: url, ...options });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return boss;
}

async function register(boss, schedules) {
  const started = performance.now();
  for (let number = 0; number < schedules; number++) {
    await boss.schedule(QUEUE, "* * * * *", { number }, { key: `close-${number}`, tz: "UTC" });
  }
  return (performance.now() - started) / 1000;
}

const [command, url, argument] = process.argv.slice(2);
if (command === "run") {
  await start(url, { cronMonitorIntervalSeconds: 1, cronWorkerIntervalSeconds: 1, useListenNotify: true });
} else {
  const boss = await start(url, { supervise: false, schedule: false });
  if (command === "install") await boss.createQueue(QUEUE);
  else if (command === "register") console.log(await register(boss, Number(argument)));
  else throw new Error(`unknown command ${command}`);
  await boss.stop({ graceful: false });
}
