/**
 * A program that runs the calls of another program, so that the tests of the Python client also
 * test this client. Calls arrive as lines of JSON, and results are written as lines of JSON.
 *
 *     > {"call": 1, "op": "connect", "url": "http://...", "codec": "msgpack", "options": {}}
 *     < {"call": 1, "value": {"client": 1, "version": 1}}
 *     > {"call": 2, "op": "step", "client": 1, "args": [{"message": "hi"}, {"timeoutS": 1}]}
 *     < {"call": 2, "error": {"name": "ValidationFailed", "message": "...", ...}}
 *     > {"cancel": 2}
 */

import { createInterface } from "node:readline";
import { EnvClient, json, OpenEnvError, ServerError, StepTimeout } from "../src/index.ts";
import type { Codec, ConnectOptions, Fields } from "../src/index.ts";
import { fromBase64, readJson, writeJson } from "../src/json.ts";
import { msgpack } from "../src/msgpack.ts";

interface Asked {
  readonly call: number;
  readonly cancel?: number;
  readonly op: string;
  readonly client: number;
  readonly url: string;
  readonly codec: string;
  readonly options: ConnectOptions;
  readonly args: unknown[];
}

/** Called with each frame of version 1, before it is read. */
let onFrame = (): void => {};

function watched(codec: Codec): Codec {
  return {
    ...codec,
    decode(frame) {
      onFrame();
      return codec.decode(frame);
    },
  };
}

const CODECS: Readonly<Record<string, ConnectOptions["codecs"]>> = {
  msgpack: [watched(msgpack)],
  json: [watched(json)],
  none: [],
};

const clients = new Map<number, EnvClient>();
const timeouts = new Map<number, StepTimeout>();
const cancels = new Map<number, AbortController>();

function tell(value: unknown): void {
  process.stdout.write(`${writeJson(value, { keepNaN: true, asLists: true })}\n`);
}

function entered(client: EnvClient): unknown {
  clients.set(clients.size + 1, client);
  return { client: clients.size, version: client.version };
}

async function play(asked: Asked, signal: AbortSignal): Promise<unknown> {
  if (asked.op === "connect") {
    const { url, codec, options } = asked;
    const onQueue: ConnectOptions["onQueue"] = (queued) => tell({ queued });
    const codecs = CODECS[codec] ?? [];
    return entered(await EnvClient.connect(url, { ...options, codecs, onQueue }));
  }
  if (asked.op === "late") return timeouts.get(asked.args[0] as number)?.late?.();
  const client = clients.get(asked.client);
  if (client === undefined) throw new Error(`there is no client ${asked.client}`);
  if (asked.op === "newSession") return entered(client.newSession());
  if (asked.op === "bounce") {
    const { observation } = await client.step(asked.args[0] as Fields);
    const { what } = asked.args[1] as Fields;
    return client.step({ what, value: observation["value"] });
  }
  if (asked.op === "restored") {
    const snapshot = await client.snapshot();
    const first = await client.step(asked.args[0] as Fields);
    const state = await client.restore(snapshot);
    return [first, state, await client.step(asked.args[0] as Fields)];
  }
  if (asked.op === "stepAbortedAsItComes") {
    const [action, turns] = asked.args as [Fields, number];
    return stepAbortedAsItComes(client, action, turns);
  }
  const methods = client as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;
  if (asked.op === "together") {
    const calls = asked.args as [string, ...unknown[]][];
    return Promise.all(calls.map(([method, ...given]) => methods[method]?.(...given)));
  }
  const args = [...asked.args];
  if (asked.op === "restore") args[0] = fromBase64(args[0] as string);
  const takesOptions = asked.op !== "close";
  if (takesOptions) {
    const own = asked.op === "step" || asked.op === "callTool" ? args.pop() : {};
    args.push({ ...(own as object), signal });
  }
  return methods[asked.op]?.(...args);
}

/** Abort a step in the turn in which its answer is read, and repeat it if it was aborted. */
async function stepAbortedAsItComes(
  client: EnvClient,
  action: Fields,
  turns: number,
): Promise<unknown> {
  const controller = new AbortController();
  const abortAfter = (left: number): void => {
    if (left === 0) controller.abort();
    else queueMicrotask(() => abortAfter(left - 1));
  };
  onFrame = () => {
    onFrame = () => {};
    abortAfter(turns);
  };
  try {
    return { result: await client.step(action, { signal: controller.signal }), isAborted: false };
  } catch (error) {
    if ((error as Error).name !== "AbortError") throw error;
    return { result: await client.step(action), isAborted: true };
  }
}

function described(error: unknown, call: number): unknown {
  if (!(error instanceof OpenEnvError)) {
    const { name, message, stack } = error as Error;
    return { name, message, stack };
  }
  const { name, message } = error;
  if (error instanceof StepTimeout) {
    timeouts.set(call, error);
    return { name, message, timeout_s: error.timeoutS, is_running: error.isRunning };
  }
  return error instanceof ServerError ? { name, message, data: error.data } : { name, message };
}

for await (const line of createInterface({ input: process.stdin })) {
  const asked = readJson(line) as Asked;
  if (asked.cancel !== undefined) {
    cancels.get(asked.cancel)?.abort();
    continue;
  }
  const { call } = asked;
  const controller = new AbortController();
  cancels.set(call, controller);
  play(asked, controller.signal)
    .then(
      (value) => tell({ call, value: value ?? null }),
      (error: unknown) => tell({ call, error: described(error, call) }),
    )
    .finally(() => cancels.delete(call));
}
