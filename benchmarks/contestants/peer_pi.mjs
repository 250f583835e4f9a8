// @earendil-works/pi-agent-core: an `Agent` with an async listener and a stream function that, as its own providers do,
// changes one partial message as it goes.
import { DELTA, main } from "./_work.mjs";

const packages = new URL("../../.venv-peers/pi/node_modules/@earendil-works/", import.meta.url);
const { Agent } = await import(new URL("pi-agent-core/dist/index.js", packages));
const { createAssistantMessageEventStream } = await import(new URL("pi-ai/dist/index.js", packages));

const NOTHING = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, totalTokens: 0,
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } };
const MODEL = { id: "fake", name: "fake", api: "fake", provider: "fake", baseUrl: "", reasoning: false, input: ["text"],
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 }, contextWindow: 1e9, maxTokens: 1e6 };
const NOOP = { name: "noop", label: "noop", description: "Do nothing.", parameters: { type: "object", properties: {} },
  execute: async () => {
    await undefined;
    return { content: [{ type: "text", text: "done" }], details: {} };
  } };

function trailing(messages) {
  let at = messages.length;
  while (at > 0 && messages[at - 1].role === "toolResult") at -= 1;
  return messages.length - at;
}

function answer(script, context) {
  const [deltas, calls] = script.answer(trailing(context.messages));
  const stream = createAssistantMessageEventStream();
  const partial = { role: "assistant", content: [], api: "fake", provider: "fake", model: "fake", usage: NOTHING,
    stopReason: calls.length ? "toolUse" : "stop", timestamp: Date.now() };
  queueMicrotask(() => {
    stream.push({ type: "start", partial });
    let contentIndex = 0;
    if (deltas) {
      const block = { type: "text", text: "" };
      partial.content.push(block);
      stream.push({ type: "text_start", contentIndex, partial });
      for (let at = 0; at < deltas; at++) {
        block.text += DELTA;
        stream.push({ type: "text_delta", contentIndex, delta: DELTA, partial });
      }
      stream.push({ type: "text_end", contentIndex, content: block.text, partial });
      contentIndex += 1;
    }
    for (const id of calls) {
      const toolCall = { type: "toolCall", id, name: "noop", arguments: {} };
      partial.content.push(toolCall);
      stream.push({ type: "toolcall_start", contentIndex, partial });
      stream.push({ type: "toolcall_delta", contentIndex, delta: "{}", partial });
      stream.push({ type: "toolcall_end", contentIndex, toolCall, partial });
      contentIndex += 1;
    }
    stream.push({ type: "done", reason: partial.stopReason, message: partial });
  });
  return stream;
}

function make(script) {
  const agent = new Agent({
    initialState: { model: MODEL, tools: [NOOP] },
    streamFn: (_model, context) => answer(script, context),
  });
  agent.subscribe(async (event) => {
    script.events += 1;
    if (event.type === "message_update" && event.assistantMessageEvent.type === "text_delta")
      script.told(event.assistantMessageEvent.delta);
  });
  return agent;
}

async function run(script) {
  const agent = make(script);
  await agent.prompt("go");
  return agent.state.messages.at(-1).content.map((block) => block.text).join("");
}

await main(run, make);
