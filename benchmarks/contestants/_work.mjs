// The same work and the same proof as `_work.py`, for contestants on Node. CPU includes the JIT's and the GC's threads.
import { readFileSync } from "node:fs";
import { performance } from "node:perf_hooks";

export const DELTA = "abcd";
export const TURNS = 5;

export class Script {
  constructor(workload, size) {
    Object.assign(this, { workload, size, asked: 0, events: 0, deltas: 0, characters: 0, results_seen: 0 });
  }
  answer(results) {
    this.asked += 1;
    this.results_seen += results;
    if (this.workload === "deltas") return [this.size, []];
    if (this.workload === "parallel")
      return this.asked === 1 ? [0, Array.from({ length: this.size }, (_, at) => `c${at}`)] : [1, []];
    return [1, this.asked < this.size ? [`c${this.asked}`] : []];
  }
  told(text) {
    this.deltas += 1;
    this.characters += text.length;
  }
}

function expected(workload, size) {
  if (workload === "turns") return [2 * size - 1, size, 4 * size, size - 1];
  if (workload === "deltas") return [size, size, 4 * size, 0];
  if (workload === "parallel") return [size + 1, 1, 4, size];
  if (workload === "fanout") return expected("turns", TURNS).map((count) => count * size);
  return [0, 0, 0, 0];
}

const kept = [];
async function work(run, make, workload, size) {
  if (workload === "idle") {
    for (let at = 0; at < size; at++) kept.push(make(new Script("turns", 1)));
    return [0, 0, 0, 0];
  }
  const runs = workload === "fanout" ? size : 1;
  const scripts = Array.from({ length: runs }, () =>
    workload === "fanout" ? new Script("turns", TURNS) : new Script(workload, size));
  const texts = await Promise.all(scripts.map(run));
  const wanted = workload === "deltas" ? DELTA.repeat(size) : DELTA;
  if (texts.some((text) => text !== wanted)) throw new Error(`${workload} ${size}: the final text is not the one`);
  return ["events", "deltas", "characters", "results_seen"].map((name) =>
    scripts.reduce((sum, script) => sum + script[name], 0));
}

function resident() {
  return (Number(readFileSync("/proc/self/statm", "utf8").split(" ")[1]) * 4096) / 1024;
}

export async function main(run, make) {
  const [workload, size] = [process.argv[2], Number(process.argv[3])];
  await work(run, make, workload, Math.min(size, 20));
  global.gc?.();
  const before = resident();
  const cpu = process.cpuUsage();
  const began = performance.now();
  const proof = await work(run, make, workload, size);
  const wall = performance.now() - began;
  const used = process.cpuUsage(cpu);
  const wanted = expected(workload, size);
  const done = proof.every((count, at) => (at === 0 ? count >= wanted[at] : count === wanted[at]));
  if (!done) throw new Error(`${workload} ${size}: counted ${proof}, not ${wanted}: the work was not done`);
  console.log(JSON.stringify({
    workload, size, cpu: (used.user + used.system) / 1e6 / size, wall: wall / 1e3 / size,
    memory: (resident() - before) / size, peak: process.resourceUsage().maxRSS / 1024, events: proof[0],
  }));
}
