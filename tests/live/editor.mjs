// An editor made of the official TypeScript SDK. It gets its task as JSON in its first argument, and prints what it saw:
//   sdk: folder of the package · command, args, env: the agent to start, or url, protocols: the server to connect to
//   cwd, prompt, answer: "allow_once" …, or "wait": leave the question open until it is withdrawn
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const task = JSON.parse(process.argv[2]);
const load = (path) => import(pathToFileURL(`${task.sdk}/dist/${path}`).href);
const acp = await load("v1/stable/acp.js");
const seen = { text: "", replayed: "", questions: [], withdrawn: 0, kinds: [] };
let replaying = false;

async function stream() {
  if (task.url) {
    const { createWebSocketStream } = await load("transports/ws-stream.js");
    return [createWebSocketStream(task.url, { protocols: task.protocols }), () => {}];
  }
  const child = spawn(task.command, task.args, { env: task.env, stdio: ["pipe", "pipe", "inherit"] });
  const end = () => new Promise((ended) => (child.on("exit", ended), child.stdin.end()));
  return [acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)), end];
}

const [connection, end] = await stream();
await acp
  .client({ name: "editor" })
  .onRequest(acp.methods.client.session.requestPermission, async ({ params, signal }) => {
    seen.questions.push(params.toolCall.title);
    if (task.answer === "wait") {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      seen.withdrawn += 1;
      return { outcome: { outcome: "cancelled" } };
    }
    const option = params.options.find((one) => one.kind === task.answer);
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  })
  .onNotification(acp.methods.client.session.update, ({ params: { update } }) => {
    seen.kinds.push(update.sessionUpdate);
    if (update.sessionUpdate !== "agent_message_chunk") return;
    if (replaying) seen.replayed += update.content.text;
    else seen.text += update.content.text;
  })
  .connectWith(connection, async (agent) => {
    const { agent: methods } = acp.methods;
    const hello = await agent.request(methods.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
    seen.agent = hello.agentInfo.name;
    const { sessionId, configOptions } = await agent.request(methods.session.new, { cwd: task.cwd, mcpServers: [] });
    seen.options = configOptions.map((option) => option.id);
    const prompt = [{ type: "text", text: task.prompt }];
    if (task.image) prompt.push({ type: "image", data: task.image, mimeType: "image/png" });
    seen.stop = (await agent.request(methods.session.prompt, { sessionId, prompt })).stopReason;
    seen.listed = (await agent.request(methods.session.list, {})).sessions.length;
    await agent.request(methods.session.close, { sessionId });
    replaying = true;
    await agent.request(methods.session.load, { sessionId, cwd: task.cwd, mcpServers: [] });
  });
await end();
console.log(JSON.stringify({ ...seen, kinds: [...new Set(seen.kinds)].sort() }));
process.exit(0);
