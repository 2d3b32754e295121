/**
 * Sessions with environments.
 *
 * @module
 */

import { Connection, type ConnectOptions } from "./connection.ts";
import {
  NotSupported,
  ProtocolError,
  ResponseTimeout,
  ServerError,
  SessionLost,
  StepTimeout,
  ToolFailed,
  closes,
  type OpenEnvError,
} from "./errors.ts";
import { isObject } from "./codec.ts";
import { fromBase64 } from "./json.ts";
import { NDArray } from "./arrays.ts";
import type { Ask, Call, Place, Reply, Seat, Tenant } from "./seat.ts";

/** The fields of an action, an observation or a state, where nothing more is known of them. */
export type Fields = Record<string, unknown>;

/** What `reset` or `step` came to. */
export interface StepResult<Observation = Fields> {
  readonly observation: Observation;
  /** Null where there is none. */
  readonly reward: number | boolean | null;
  /** The episode is over. */
  readonly done: boolean;
  /** It was cut off by a limit outside the task. */
  readonly truncated: boolean;
  /** What the environment notes beside the observation. */
  readonly metadata: Fields;
  /** Diagnostics. */
  readonly info: Fields | undefined;
  /** What is known of the reward beside the number. */
  readonly rewardInfo: Fields | undefined;
  /** Names of arguments that were passed, and that nobody took. */
  readonly ignoredArguments: readonly string[];
}

/** A tool that an environment offers. */
export interface Tool {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of its arguments. */
  readonly inputSchema: Fields;
}

/** What shows people where an episode stands. */
export type Rendering =
  string | NDArray | { readonly mediaType: string; readonly bytes: Uint8Array };

/** How one request is made. */
export interface CallOptions {
  /**
   * Give up when it is aborted. The server is not told: there is nothing in the protocol to tell
   * it by. What the episode has come to is then not known, and the session waits for a `reset`.
   */
  readonly signal?: AbortSignal;
}

/** How one step is made. */
export interface StepOptions extends CallOptions {
  /** Its deadline, in seconds. The server keeps it in version 1, this client in version 0. */
  readonly timeoutS?: number;
  /** Further arguments of the environment's `step`; version 0 carries none. */
  readonly arguments?: Fields;
}

const DEADLINE_SLACK_S = 0.25; // the server is given so much longer to say that it is over
const QUEUE_HEARTBEAT_S = 5; // a server that has a queue says so often where one stands in it
const CLOSE_LIMIT_S = 5;
const RESET_HINT = "call reset() to begin a new episode";

/** Requests after which it is known where the episode stands, and those that do not change that. */
const BEGINNINGS: ReadonlySet<string> = new Set(["reset", "restore"]);
const READINGS: ReadonlySet<string> = new Set(["state", "snapshot", "render"]);

/**
 * A session with an environment that a server has.
 *
 * Calls may be made before others have been answered: they are served in order. A session whose
 * episode is lost throws {@link SessionLost} until `reset`, which opens another if need be.
 *
 * @example
 * ```ts
 * await using env = await EnvClient.connect<{ message: string }>("http://localhost:8000");
 * await env.reset({ seed: 1 });
 * const { reward } = await env.step({ message: "hello" });
 * ```
 *
 * @typeParam Action - The fields of an action.
 * @typeParam Observation - The fields of an observation.
 * @typeParam State - The fields of the state.
 */
export class EnvClient<
  Action extends object = Fields,
  Observation = Fields,
  State = Fields,
> implements AsyncDisposable {
  readonly #connection: Connection;
  #seat: Promise<Seat> | undefined;
  #current: Seat | undefined;
  #lost: string | undefined;
  #closes = 0;
  /** Told when a place in the server's queue has come. */
  readonly #waiting = new Set<() => void>();

  /**
   * Begin a session of a connection; its first request opens it.
   *
   * @internal
   */
  constructor(connection: Connection) {
    this.#connection = connection;
    connection.enter(this);
  }

  /**
   * Connect to a server, for one session at first.
   *
   * @param url - Of the server, such as `http://localhost:8000`.
   * @throws ConnectError - No server answers there, or it does not let this client in.
   */
  static async connect<Action extends object = Fields, Observation = Fields, State = Fields>(
    url: string,
    options: ConnectOptions = {},
  ): Promise<EnvClient<Action, Observation, State>> {
    const connection = new Connection(url, options);
    const client = new EnvClient<Action, Observation, State>(connection);
    try {
      await client.#seated();
    } catch (error) {
      connection.leave(client);
      throw error;
    }
    return client;
  }

  /** Another session with the same server, by the same connection where that can have many. */
  newSession(): EnvClient<Action, Observation, State> {
    return new EnvClient(this.#connection);
  }

  /** The version of the protocol that is spoken; undefined without a connection. */
  get version(): 0 | 1 | undefined {
    return this.#current?.version;
  }

  /** What the server has said that it can do; nothing in version 0. */
  get capabilities(): ReadonlySet<string> {
    return this.#current?.capabilities ?? new Set();
  }

  /**
   * Begin an episode.
   *
   * @param args - Arguments of the environment's `reset`, such as `seed` and `episode_id`.
   */
  async reset(args: Fields = {}, options: CallOptions = {}): Promise<StepResult<Observation>> {
    const ask = { type: "reset", data: args };
    const closes = this.#closes;
    let reply: Reply;
    try {
      reply = await this.#exchange(ask, options);
    } catch (error) {
      // A connection may have broken while nothing was asked. A reset loses nothing by it.
      if (!(error instanceof SessionLost) || closes !== this.#closes) throw error;
      reply = await this.#exchange(ask, options);
    }
    return resultOf(reply);
  }

  /**
   * Take a step.
   *
   * @throws StepTimeout - Its `timeoutS` is over. Where it goes on, `late()` waits for its answer;
   * until that was taken, or a `reset`, no other step can be taken.
   * @throws ValidationFailed - The action does not fit; the environment has not seen it.
   * @throws ExecutionFailed - The environment raised.
   * @throws SessionLost - The episode is gone, or its state unknown.
   */
  async step(action: Action, options: StepOptions = {}): Promise<StepResult<Observation>> {
    const { timeoutS, arguments: given = {} } = options;
    const passed = timeoutS === undefined ? given : { ...given, timeout_s: timeoutS };
    this.#check("step");
    const seat = await this.#seated();
    const data = { ...action } as Fields;
    const ask =
      seat.version === 0 ? { type: "step", data } : { type: "step", data, arguments: passed };
    const result = resultOf<Observation>(await this.#exchange(ask, options, timeoutS));
    if (seat.version === 1) return result;
    return { ...result, ignoredArguments: [...result.ignoredArguments, ...Object.keys(given)] };
  }

  /** The state of the episode. */
  async state(options: CallOptions = {}): Promise<State> {
    return (await this.#exchange({ type: "state" }, options)).data as State;
  }

  /**
   * Where the episode stands, for people: text, SVG, pixels or the bytes of an image.
   *
   * @throws NotSupported - The server is too old for it.
   */
  async render(options: CallOptions = {}): Promise<Rendering> {
    this.#check("render");
    const seat = await this.#seated();
    if (!seat.capabilities.has("render")) {
      throw new NotSupported("the server is too old to render, or speaks version 0");
    }
    const { data } = await this.#exchange({ type: "render" }, options);
    if (typeof data["text"] === "string") return data["text"];
    if (data["array"] instanceof NDArray) return data["array"];
    return { mediaType: String(data["media_type"]), bytes: bytesIn(data["bytes"]) };
  }

  /** Bytes to which `restore` goes back, in this session or another one. */
  async snapshot(options: CallOptions = {}): Promise<Uint8Array> {
    return bytesIn((await this.#exchange({ type: "snapshot" }, options)).data["snapshot"]);
  }

  /** Go back to a snapshot; gives the state. */
  async restore(snapshot: Uint8Array, options: CallOptions = {}): Promise<State> {
    return (await this.#exchange({ type: "restore", data: { snapshot } }, options)).data as State;
  }

  /** The tools that the environment offers. */
  async listTools(options: CallOptions = {}): Promise<Tool[]> {
    const result = await this.#rpc("tools/list", {}, options);
    const tools = isObject(result) ? result["tools"] : undefined;
    if (!Array.isArray(tools)) throw new ProtocolError("the server's answer lists no tools");
    return tools.map(toolOf);
  }

  /**
   * Call a tool, and give what it returned: its plain value, or else its text, or else its content
   * blocks.
   *
   * @throws ToolFailed - The tool failed, does not take these arguments, or does not exist.
   */
  async callTool(name: string, args: Fields = {}, options: CallOptions = {}): Promise<unknown> {
    return valueOf(await this.#rpc("tools/call", { name, arguments: args }, options, name), name);
  }

  /** End the session, and the connection with its last one. Safe to repeat. */
  async close(): Promise<void> {
    this.#closes += 1;
    const seat = this.#seat;
    this.#seat = this.#current = undefined;
    this.#lost ??= seat === undefined ? undefined : "the client was closed";
    this.#connection.leave(this);
    if (seat === undefined) return;
    try {
      await within(CLOSE_LIMIT_S, (await seat).close());
    } catch {
      // it is over, or was never there
    } finally {
      this.#connection.closeIfEmpty();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  // ---------------------------------------------------------------- one request

  async #exchange(ask: Ask, { signal }: CallOptions, timeoutS?: number): Promise<Reply> {
    signal?.throwIfAborted();
    const closes = this.#closes;
    this.#check(ask.type);
    const seat = await this.#seated();
    if (closes !== this.#closes) throw new SessionLost(`the client was closed; ${RESET_HINT}`);
    this.#check(ask.type);
    const call = seat.ask(ask);
    const before = this.#lost;
    if (BEGINNINGS.has(ask.type)) this.#lost = undefined; // what follows it in order may be sent
    try {
      return await this.#settled(call, ask, seat, signal, timeoutS);
    } catch (error) {
      if (BEGINNINGS.has(ask.type)) {
        this.#lost ??= error instanceof ServerError ? before : `a ${ask.type} was not answered`;
      }
      throw error instanceof SessionLost ? this.#hinted(error) : error;
    }
  }

  #check(type: string): void {
    if (this.#lost !== undefined && !BEGINNINGS.has(type)) {
      const isOver = this.#current === undefined || this.#current.over !== undefined;
      if (isOver || !READINGS.has(type)) throw new SessionLost(`${this.#lost}; ${RESET_HINT}`);
    }
  }

  #hinted(error: SessionLost): SessionLost {
    const words = error.message.endsWith(RESET_HINT)
      ? error.message
      : `${error.message}; ${RESET_HINT}`;
    return new SessionLost(words, { cause: error });
  }

  /** Wait for the answer, as long as its caller does. */
  #settled(
    call: Call,
    ask: Ask,
    seat: Seat,
    signal: AbortSignal | undefined,
    timeoutS: number | undefined,
  ): Promise<Reply> {
    return new Promise<Reply>((resolve, reject) => {
      const { messageTimeoutS } = this.#connection.options;
      const slackS = seat.version === 1 ? DEADLINE_SLACK_S : 0;
      const limitS = timeoutS === undefined ? messageTimeoutS : timeoutS + slackS;
      let timer: ReturnType<typeof setTimeout> | undefined;
      const wait = (seconds: number): void => {
        clearTimeout(timer);
        if (seconds < Infinity) timer = setTimeout(giveUp, seconds * 1000);
      };
      const giveUp = (): void => {
        const error =
          timeoutS === undefined
            ? new ResponseTimeout(`no answer to a ${ask.type} within ${limitS} s`)
            : new StepTimeout(`the step took longer than its ${timeoutS} s`, timeoutS, true);
        leave(() => reject(this.#unanswered(call, ask, error)));
      };
      const queued = (): void => wait(Math.max(limitS, messageTimeoutS, 2 * QUEUE_HEARTBEAT_S));
      const abort = (): void => {
        this.#unanswered(call, ask, undefined);
        leave(() => reject(signal?.reason));
      };
      const leave = (settle: () => void): void => {
        clearTimeout(timer);
        this.#waiting.delete(queued);
        signal?.removeEventListener("abort", abort);
        settle();
      };
      call.onOverdue = (error) => leave(() => reject(this.#unanswered(call, ask, error)));
      call.reply.then(
        (reply) => leave(() => resolve(reply)),
        (error: unknown) => leave(() => reject(error)),
      );
      this.#waiting.add(queued);
      signal?.addEventListener("abort", abort);
      wait(limitS);
    });
  }

  /** Note that nobody waits for an answer any more, unless its caller asks for it. */
  #unanswered<E extends OpenEnvError | undefined>(call: Call, ask: Ask, error: E): E {
    call.isGivenUp = true;
    if (READINGS.has(ask.type)) return error;
    const lost = `a ${ask.type} was not answered before its caller stopped waiting`;
    this.#lost = lost;
    if (error instanceof StepTimeout) {
      error.late = async () => {
        const reply = await call.reply;
        if (this.#lost === lost) this.#lost = undefined;
        return resultOf(reply);
      };
    }
    return error;
  }

  async #rpc(method: string, params: Fields, options: CallOptions, tool = ""): Promise<unknown> {
    const data = { jsonrpc: "2.0", id: 1, method, params };
    const { data: response } = await this.#exchange({ type: "mcp", data }, options);
    const error = response["error"];
    if (!isObject(error)) return response["result"];
    const message = String(error["message"]);
    if (message === NO_TOOLS) throw new NotSupported("the environment has no tools");
    const more = isObject(error["data"]) ? error["data"] : {};
    throw new ToolFailed(message, tool, undefined, more);
  }

  // ---------------------------------------------------------------- the seat

  /** The session, opened if need be. */
  async #seated(): Promise<Seat> {
    this.#seat ??= this.#open();
    return this.#seat;
  }

  async #open(): Promise<Seat> {
    this.#connection.enter(this);
    const tenant: Tenant = {
      onQueued: (place) => this.#queued(place),
      onOver: (why) => {
        if (this.#current !== seat) return;
        this.#seat = this.#current = undefined;
        // A server that is full, say, ends no episode: it is asked again by the next call.
        const isRefusal = why instanceof ServerError && why.code !== "SESSION_ERROR";
        if (!isRefusal) this.#lost ??= endOf(why);
      },
    };
    let seat: Seat | undefined;
    try {
      seat = await this.#connection.seat(tenant);
    } catch (error) {
      this.#seat = undefined;
      throw error;
    }
    this.#current = seat;
    if (seat.over !== undefined) this.#seat = undefined; // whoever waits for it is told why
    return seat;
  }

  #queued(place: Place): void {
    for (const told of this.#waiting) told();
    this.#connection.options.onQueue?.(place);
  }
}

const NO_TOOLS = "Environment does not support MCP";

function endOf(why: OpenEnvError): string {
  const isEnded = why instanceof ServerError && closes(why.data);
  return isEnded ? `the server ended the session (${why.message})` : why.message;
}

/** Wait for a promise, but no longer than so many seconds. */
async function within(seconds: number, promise: Promise<void>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, seconds * 1000);
  });
  await Promise.race([promise, over]).finally(() => clearTimeout(timer));
}

// ------------------------------------------------------------------ answers

/** What version 0 has no field for stands in the metadata; in version 1 beside them. */
function resultOf<Observation>({ type, data }: Reply): StepResult<Observation> {
  if (type !== "observation") throw new ProtocolError(`the server answered with ${type}`);
  const metadata = isObject(data["metadata"]) ? data["metadata"] : {};
  const done = data["done"] === true;
  const said = (name: string): unknown => data[name] ?? metadata[name];
  const fields = (name: string): Fields | undefined => {
    const value = said(name);
    return isObject(value) ? value : undefined;
  };
  const ignored = said("ignored_arguments");
  return {
    observation: data["observation"] as Observation,
    reward: (data["reward"] ?? null) as number | boolean | null,
    done,
    truncated: done && said("truncated") === true,
    metadata,
    info: fields("info"),
    rewardInfo: fields("reward_info"),
    ignoredArguments: Array.isArray(ignored) ? ignored.map(String) : [],
  };
}

function bytesIn(value: unknown): Uint8Array {
  if (value instanceof Uint8Array) return value;
  if (typeof value === "string") return fromBase64(value);
  throw new ProtocolError("the server sent no bytes where some belong");
}

function toolOf(tool: unknown): Tool {
  if (!isObject(tool) || typeof tool["name"] !== "string") {
    throw new ProtocolError("the server's list of tools holds something else");
  }
  const schema = tool["input_schema"] ?? tool["inputSchema"];
  return {
    name: tool["name"],
    description: typeof tool["description"] === "string" ? tool["description"] : "",
    inputSchema: isObject(schema) ? schema : {},
  };
}

/** The plain value of what a tool gave, in either form. */
function valueOf(result: unknown, name: string): unknown {
  if (!isObject(result)) return result;
  if ("tool_name" in result && "error" in result) {
    const error = result["error"];
    if (isObject(error)) {
      throw new ToolFailed(String(error["message"]), name, String(error["error_type"]));
    }
    return valueOf(result["result"], name);
  }
  const content = result["content"];
  if (!Array.isArray(content) || !("is_error" in result)) return result;
  const texts = content.filter(isObject).map((block) => block["text"]);
  const text = texts.filter((one) => typeof one === "string").join("\n");
  if (result["is_error"] === true) throw new ToolFailed(text, name);
  const plain = result["data"] ?? null;
  if (plain !== null || content.length === 0) return plain;
  return texts.every((one) => typeof one === "string") ? text : content;
}
