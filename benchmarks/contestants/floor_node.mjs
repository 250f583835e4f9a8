// The floor on Node: the smallest code that does the same work, with no kernel and no guarantee.
import { DELTA, main } from "./_work.mjs";

async function noop() {
  await undefined;
  return "done";
}

class Loop {
  constructor(provider, subscriber) {
    Object.assign(this, { provider, subscriber, history: [] });
  }
  async prompt(text) {
    this.history.push(["user", text]);
    for (;;) {
      const parts = [];
      const calls = [];
      await this.provider(this.history, async (chunk) => {
        if (chunk.type === "text") {
          parts.push(chunk.text);
          await this.subscriber(["delta", chunk]);
        } else if (chunk.type === "call") calls.push(chunk.id);
      });
      this.history.push(["assistant", parts.join(""), calls]);
      if (calls.length === 0) return parts.join("");
      const results = new Map();
      await Promise.all(calls.map(async (id) => {
        results.set(id, await noop());
        await this.subscriber(["result", id]);
      }));
      for (const id of calls) this.history.push(["result", id, results.get(id)]);
    }
  }
}

function trailing(history) {
  let at = history.length;
  while (at > 0 && history[at - 1][0] === "result") at -= 1;
  return history.length - at;
}

function make(script) {
  const provider = async (history, send) => {
    const [deltas, calls] = script.answer(trailing(history));
    for (let at = 0; at < deltas; at++) await send({ type: "text", text: DELTA });
    for (const id of calls) await send({ type: "call", id });
  };
  return new Loop(provider, async (event) => {
    script.events += 1;
    if (event[0] === "delta") script.told(event[1].text);
  });
}

await main((script) => make(script).prompt("go"), make);
