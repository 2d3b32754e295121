// The connection of the web page, under Node: does what lines of JSON ask, and answers each by one.

import { createInterface } from "node:readline";

const [wire, address] = process.argv.slice(2);
globalThis.document = { baseURI: `${address}/web/` }; // beside which the page looks for its server
const { Connection } = await import(wire);

let connection = null;
let session = null;

class NotConnected extends Error {
  name = "NotConnected";
}

async function opened() {
  if (connection === null) {
    const made = new Connection();
    try {
      await made.connect();
    } catch (error) {
      throw new NotConnected(error.message);
    }
    made.addEventListener("lost", () => {
      if (connection === made) [connection, session] = [null, null];
    });
    connection = made;
  }
  session ??= await connection.open({ waitSeconds: 20 });
  return session;
}

function held() {
  if (session === null) throw Object.assign(new Error("no session"), { name: "ConnectionLost" });
  return session;
}

const does = {
  reset: async (seeds) => (await opened()).reset(seeds),
  step: (action) => held().step(action),
  // As the page does it: the view is asked for before the step is answered.
  step_and_view: (action) => {
    const asked = held();
    return Promise.all([asked.step(action), asked.view()]);
  },
  state: () => held().state(),
  render: () => held().render(),
  view: (message) => held().view(message),
  snapshot: () => held().snapshot(),
  restore: (snapshot) => held().restore(snapshot),
  close: async () => {
    const ended = held();
    await ended.close();
    session = null;
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { op, argument } = JSON.parse(line);
  let said;
  try {
    said = { value: (await does[op](argument ?? undefined)) ?? null };
  } catch (error) {
    const { name, message, data = null } = error;
    if (data?.code === "SESSION_ERROR") session = null; // the next reset opens another one
    said = { error: { name, message, data } };
  }
  process.stdout.write(`${JSON.stringify(said)}\n`);
}
connection?.close();
setTimeout(() => process.exit(), 3000).unref(); // a goodbye that is lost is waited for no longer
