/**
 * Sessions with environments.
 *
 * @module
 */

import { SessionGroup, type ConnectOptions } from "./session_group.ts";
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
import { isObject, isSameFrame, type Frame } from "./codec.ts";
import { fromBase64 } from "./json.ts";
import { NDArray } from "./arrays.ts";
import type { Queued, Reply, SessionRequest } from "./messages.ts";
import type { PendingCall, Session, SessionListener } from "./session.ts";
import { within } from "./timing.ts";

/** The fields of an action, an observation or a state of unknown type. */
export type Fields = Record<string, unknown>;

/** The result of `reset` or `step`. */
export interface StepResult<Observation = Fields> {
  readonly observation: Observation;
  /** The reward of the step; null if there is none. */
  readonly reward: number | boolean | null;
  /** True if the episode is over. */
  readonly done: boolean;
  /** True if a limit outside the task ended the episode. */
  readonly truncated: boolean;
  /** Annotations of the environment. */
  readonly metadata: Fields;
  /** Diagnostics. */
  readonly info: Fields | undefined;
  /** Details of the reward, such as its components. */
  readonly rewardInfo: Fields | undefined;
  /** Names of the arguments that the environment ignored. */
  readonly ignoredArguments: readonly string[];
}

/** A tool that an environment offers. */
export interface Tool {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of its arguments. */
  readonly inputSchema: Fields;
}

/** A view of the episode for people. */
export type Rendering =
  string | NDArray | { readonly mediaType: string; readonly bytes: Uint8Array };

/** Options of a request. */
export interface CallOptions {
  /**
   * Aborts the call. The server keeps running it, since the protocol has no message to cancel a
   * call. Make the same call again to get its answer; in version 0 the session needs a `reset`.
   */
  readonly signal?: AbortSignal;
}

/** Options of a step. */
export interface StepOptions extends CallOptions {
  /** Deadline in seconds. The server enforces it in version 1, this client in version 0. */
  readonly timeoutS?: number;
  /** Further arguments of the environment's `step`; version 0 does not send them. */
  readonly arguments?: Fields;
}

const DEADLINE_SLACK_S = 0.25; // extra seconds for the server to report the deadline
const QUEUE_HEARTBEAT_S = 5; // the period of a server's messages about the queue
const CLOSE_LIMIT_S = 5;
const RESET_HINT = "call reset() to begin a new episode";
const ASK_AGAIN_HINT = "ask again with the same action to have its answer, or call reset()";

/** Requests that begin an episode (`BEGINNINGS`), or change nothing (`READINGS`). */
const BEGINNINGS: ReadonlySet<string> = new Set(["reset", "restore"]);
const READINGS: ReadonlySet<string> = new Set(["state", "snapshot", "render"]);

/** A request that was sent. */
interface SentRequest {
  readonly request: SessionRequest;
  readonly call: PendingCall;
  readonly session: Session;
  /** The reason why there was no episode before the request; undefined if there was one. */
  readonly before: string | undefined;
  /** The request as written when its caller gave up, since the caller may reuse its objects. */
  frame: Frame | undefined;
}

/** The answer to a request, and the session that gave it. */
interface Answered {
  readonly reply: Reply;
  readonly session: Session;
}

/**
 * A session of an environment on a server.
 *
 * Calls may be made before earlier calls have been answered; the server runs them in order. If the
 * episode is lost, calls throw {@link SessionLost} until `reset`, which opens another session if
 * necessary.
 *
 * The server still runs a call that timed out or was aborted, exactly once. In version 1, the same
 * call with the same arguments waits for that answer instead of being sent; any other step throws
 * {@link SessionLost} until the answer is received, or `reset` has begun another episode.
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
  readonly #group: SessionGroup;
  #session: Promise<Session> | undefined;
  #current: Session | undefined;
  #lost: string | undefined;
  /** Unanswered version 1 requests, in order, without those in `READINGS`. */
  #sent: SentRequest[] = [];
  #closes = 0;
  /** Functions to call when the place in the server's queue changes. */
  readonly #waiting = new Set<() => void>();

  /**
   * Begin a session of a group; its first request opens it.
   *
   * @internal
   */
  constructor(group: SessionGroup) {
    this.#group = group;
    group.enter(this);
  }

  /**
   * Connect to a server and open a session.
   *
   * @param url - The address of the server, such as `http://localhost:8000`.
   * @throws ConnectError - No server answers at the address, or it refuses this client.
   */
  static async connect<Action extends object = Fields, Observation = Fields, State = Fields>(
    url: string,
    options: ConnectOptions = {},
  ): Promise<EnvClient<Action, Observation, State>> {
    const group = new SessionGroup(url, options);
    const client = new EnvClient<Action, Observation, State>(group);
    try {
      await client.#opened();
    } catch (error) {
      group.leave(client);
      throw error;
    }
    return client;
  }

  /** Return another session on the same server; in version 1 it shares the connection. */
  newSession(): EnvClient<Action, Observation, State> {
    return new EnvClient(this.#group);
  }

  /** The protocol version; undefined without a connection. */
  get version(): 0 | 1 | undefined {
    return this.#current?.version;
  }

  /** The capabilities of the server; empty in version 0. */
  get capabilities(): ReadonlySet<string> {
    return this.#current?.capabilities ?? new Set();
  }

  /**
   * Begin an episode.
   *
   * @param args - Arguments of the environment's `reset`, such as `seed` and `episode_id`.
   */
  async reset(args: Fields = {}, options: CallOptions = {}): Promise<StepResult<Observation>> {
    const request = { type: "reset", data: args };
    const closes = this.#closes;
    let answered: Answered;
    try {
      answered = await this.#exchange(request, options);
    } catch (error) {
      // The connection may have broken while it was idle, so a reset is tried once more.
      if (!(error instanceof SessionLost) || closes !== this.#closes) throw error;
      answered = await this.#exchange(request, options);
    }
    return resultOf(answered.reply);
  }

  /**
   * Take a step.
   *
   * @throws StepTimeout - The step took longer than `timeoutS`. If it is still running, `late()` and
   * the same step again wait for its answer; before that, or a `reset`, no other step is possible.
   * @throws ValidationFailed - The action does not fit its model; the environment has not seen it.
   * @throws ExecutionFailed - The environment raised an exception.
   * @throws SessionLost - The episode is lost, or its state is unknown.
   */
  async step(action: Action, options: StepOptions = {}): Promise<StepResult<Observation>> {
    const { timeoutS, arguments: given = {} } = options;
    const passed = timeoutS === undefined ? given : { ...given, timeout_s: timeoutS };
    const request = { type: "step", data: { ...action } as Fields, arguments: passed };
    const { reply, session } = await this.#exchange(request, options, timeoutS);
    const result = resultOf<Observation>(reply);
    if (session.version === 1) return result;
    return { ...result, ignoredArguments: [...result.ignoredArguments, ...Object.keys(given)] };
  }

  /** Read the state of the episode. */
  async state(options: CallOptions = {}): Promise<State> {
    return (await this.#exchange({ type: "state" }, options)).reply.data as State;
  }

  /**
   * Render the episode for people: as text, SVG, pixels or the bytes of an image.
   *
   * @throws NotSupported - The server is too old, or speaks version 0.
   */
  async render(options: CallOptions = {}): Promise<Rendering> {
    const { data } = (await this.#exchange({ type: "render" }, options)).reply;
    if (typeof data["text"] === "string") return data["text"];
    if (data["array"] instanceof NDArray) return data["array"];
    return { mediaType: String(data["media_type"]), bytes: bytesIn(data["bytes"]) };
  }

  /** Store the episode; `restore` continues from the bytes, in this session or another one. */
  async snapshot(options: CallOptions = {}): Promise<Uint8Array> {
    const { reply } = await this.#exchange({ type: "snapshot" }, options);
    return bytesIn(reply.data["snapshot"]);
  }

  /** Continue an episode from a snapshot, and return the state. */
  async restore(snapshot: Uint8Array, options: CallOptions = {}): Promise<State> {
    const { reply } = await this.#exchange({ type: "restore", data: { snapshot } }, options);
    return reply.data as State;
  }

  /** List the tools of the environment. */
  async listTools(options: CallOptions = {}): Promise<Tool[]> {
    const result = await this.#rpc("tools/list", {}, options);
    const tools = isObject(result) ? result["tools"] : undefined;
    if (!Array.isArray(tools)) throw new ProtocolError("the server's answer lists no tools");
    return tools.map(toolOf);
  }

  /**
   * Call a tool and return its result: the value, or else the text, or else the content blocks.
   *
   * @throws ToolFailed - The tool failed, does not take these arguments, or does not exist.
   */
  async callTool(name: string, args: Fields = {}, options: CallOptions = {}): Promise<unknown> {
    return valueOf(await this.#rpc("tools/call", { name, arguments: args }, options, name), name);
  }

  /** End the session; the last session closes the connection. Idempotent. */
  async close(): Promise<void> {
    this.#closes += 1;
    const session = this.#session;
    this.#session = this.#current = undefined;
    this.#sent = [];
    this.#lost ??= session === undefined ? undefined : "the client was closed";
    this.#group.leave(this);
    if (session === undefined) return;
    try {
      await within(CLOSE_LIMIT_S, (await session).close());
    } catch {
      // the session is over, or was never opened
    } finally {
      this.#group.closeIfEmpty();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  // ---------------------------------------------------------------- one request

  /** Send a request, and wait for the answer. Before it is sent, an abort takes effect at once. */
  #exchange(
    request: SessionRequest,
    { signal }: CallOptions,
    timeoutS?: number,
  ): Promise<Answered> {
    if (signal === undefined) return this.#answered(request, () => {}, undefined, timeoutS);
    return new Promise<Answered>((resolve, reject) => {
      const abort = (): void => reject(signal.reason);
      const noteSent = (): void => signal.removeEventListener("abort", abort);
      signal.addEventListener("abort", abort);
      void this.#answered(request, noteSent, signal, timeoutS)
        .then(resolve, reject)
        .finally(noteSent);
    });
  }

  /** Send and settle a request. Calls keep their order, since all await the same promise first. */
  async #answered(
    request: SessionRequest,
    noteSent: () => void,
    signal: AbortSignal | undefined,
    timeoutS: number | undefined,
  ): Promise<Answered> {
    signal?.throwIfAborted();
    const closes = this.#closes;
    this.#findSent(request);
    const session = await this.#opened();
    signal?.throwIfAborted();
    if (closes !== this.#closes) throw new SessionLost(`the client was closed; ${RESET_HINT}`);
    if (request.type === "render" && !session.capabilities.has("render")) {
      throw new NotSupported("the server is too old to render, or speaks version 0");
    }
    const sent = this.#findSent(request) ?? this.#send(request, session);
    noteSent();
    return { reply: await this.#settled(sent, signal, timeoutS), session };
  }

  #send(request: SessionRequest, session: Session): SentRequest {
    const sent = {
      request,
      call: session.send(request),
      session,
      before: this.#lost,
      frame: undefined,
    };
    if (session.version === 1 && !READINGS.has(request.type)) this.#sent.push(sent);
    if (BEGINNINGS.has(request.type)) this.#lost = undefined; // later requests may be sent
    return sent;
  }

  /**
   * Find an equal request whose caller has given up; undefined if there is none.
   *
   * @throws SessionLost - There is no equal request, and the request cannot be sent now.
   */
  #findSent(request: SessionRequest): SentRequest | undefined {
    const givenUp = this.#sent.length === 0 ? [] : this.#givenUp();
    const again = givenUp.find((sent) => isSame(sent, request));
    if (again !== undefined) return again;
    if (this.#lost !== undefined && !BEGINNINGS.has(request.type)) {
      const isOver = this.#current === undefined || this.#current.over !== undefined;
      if (isOver || !READINGS.has(request.type))
        throw new SessionLost(`${this.#lost}; ${RESET_HINT}`);
    }
    if (request.type === "step" && givenUp[0] !== undefined) {
      const why = `${unansweredWords(givenUp[0].request)}, so the state of the episode is unknown`;
      throw new SessionLost(`${why}; ${ASK_AGAIN_HINT}`);
    }
    return undefined;
  }

  /** Return the requests of the running episode whose callers have given up. */
  #givenUp(): SentRequest[] {
    const from = this.#sent.findLastIndex(({ request }) => BEGINNINGS.has(request.type));
    return this.#sent.slice(Math.max(from, 0)).filter(({ call }) => call.isGivenUp);
  }

  /** Record that the caller has the answer. */
  #noteTaken({ request, call }: SentRequest): void {
    const place = this.#sent.findIndex((sent) => sent.call === call);
    if (place === -1) return; // the session is over, or another episode has begun
    if (BEGINNINGS.has(request.type)) {
      this.#sent.splice(0, place + 1); // requests of the previous episode are over
      this.#lost = undefined;
    } else {
      this.#sent.splice(place, 1);
    }
  }

  /** Record that the caller has an error instead of an answer. */
  #noteFailed({ request, call, before }: SentRequest, error: unknown): void {
    this.#sent = this.#sent.filter((sent) => sent.call !== call);
    if (BEGINNINGS.has(request.type)) {
      this.#lost ??= error instanceof ServerError ? before : `a ${request.type} was not answered`;
    }
  }

  #hinted(error: SessionLost): SessionLost {
    const words = error.message.endsWith(RESET_HINT)
      ? error.message
      : `${error.message}; ${RESET_HINT}`;
    return new SessionLost(words, { cause: error });
  }

  /** Wait for the answer until the caller gives up. */
  #settled(
    sent: SentRequest,
    signal: AbortSignal | undefined,
    timeoutS: number | undefined,
  ): Promise<Reply> {
    const { request, call, session } = sent;
    const isAgain = call.isGivenUp;
    call.isGivenUp = false;
    return new Promise<Reply>((resolve, reject) => {
      const { messageTimeoutS } = this.#group.options;
      const slackS = session.version === 1 && !isAgain ? DEADLINE_SLACK_S : 0;
      const limitS = timeoutS === undefined ? messageTimeoutS : timeoutS + slackS;
      let isLeft = false;
      let timer: ReturnType<typeof setTimeout> | undefined;
      const wait = (seconds: number): void => {
        clearTimeout(timer);
        if (seconds < Infinity) timer = setTimeout(giveUp, seconds * 1000);
      };
      const giveUp = (): void => {
        const hint = session.version === 1 ? ASK_AGAIN_HINT : RESET_HINT;
        const words = `the step took longer than its ${timeoutS} s, and may still be running`;
        const error =
          timeoutS === undefined
            ? new ResponseTimeout(`no answer to a ${nameOf(request)} within ${limitS} s`)
            : new StepTimeout(`${words}; ${hint}`, timeoutS, true);
        leave(() => reject(this.#unanswered(sent, error)));
      };
      const queued = (): void => wait(Math.max(limitS, messageTimeoutS, 2 * QUEUE_HEARTBEAT_S));
      const abort = (): void =>
        leave(() => {
          this.#unanswered(sent, undefined);
          reject(signal?.reason);
        });
      // An answer that arrives after the caller has left is kept for an equal request.
      const leave = (settle: () => void): void => {
        if (isLeft) return;
        isLeft = true;
        clearTimeout(timer);
        this.#waiting.delete(queued);
        signal?.removeEventListener("abort", abort);
        settle();
      };
      call.onOverdue = (error) => {
        if (!isAgain) leave(() => reject(this.#unanswered(sent, error))); // else it is known
      };
      const take = (reply: Reply): void => {
        this.#noteTaken(sent);
        resolve(reply);
      };
      const fail = (error: unknown): void => {
        this.#noteFailed(sent, error);
        reject(error instanceof SessionLost ? this.#hinted(error) : error);
      };
      call.reply.then(
        (reply) => leave(() => take(reply)),
        (error: unknown) => leave(() => fail(error)),
      );
      this.#waiting.add(queued);
      signal?.addEventListener("abort", abort);
      wait(limitS);
    });
  }

  /** Record that the caller no longer waits for the answer. */
  #unanswered<E extends OpenEnvError | undefined>(sent: SentRequest, error: E): E {
    const { request, call, session } = sent;
    call.isGivenUp = true;
    if (READINGS.has(request.type)) return error;
    const lost = unansweredWords(request);
    if (session.version === 0) this.#lost = lost;
    else noteFrame(sent);
    if (error instanceof StepTimeout) {
      error.late = async () => {
        try {
          const reply = await call.reply;
          this.#noteTaken(sent);
          if (this.#lost === lost) this.#lost = undefined;
          return resultOf(reply);
        } catch (failure) {
          this.#noteFailed(sent, failure);
          throw failure;
        }
      };
    }
    return error;
  }

  async #rpc(method: string, params: Fields, options: CallOptions, tool = ""): Promise<unknown> {
    const data = { jsonrpc: "2.0", id: 1, method, params };
    const { data: response } = (await this.#exchange({ type: "mcp", data }, options)).reply;
    const error = response["error"];
    if (!isObject(error)) return response["result"];
    const message = String(error["message"]);
    if (message === NO_TOOLS) throw new NotSupported("the environment has no tools");
    const more = isObject(error["data"]) ? error["data"] : {};
    throw new ToolFailed(message, tool, undefined, more);
  }

  // ---------------------------------------------------------------- the session

  /** Return the session; open one if there is none. */
  async #opened(): Promise<Session> {
    this.#session ??= this.#open();
    return this.#session;
  }

  async #open(): Promise<Session> {
    this.#group.enter(this);
    const listener: SessionListener = {
      onQueued: (queued) => this.#noteQueue(queued),
      onOver: (why) => {
        if (this.#current !== session) return;
        this.#session = this.#current = undefined;
        this.#sent = [];
        // A refusal, for example by a full server, ends no episode; the next call tries again.
        const isRefusal = why instanceof ServerError && why.code !== "SESSION_ERROR";
        if (!isRefusal) this.#lost ??= endOf(why);
      },
    };
    let session: Session | undefined;
    try {
      session = await this.#group.open(listener);
    } catch (error) {
      this.#session = undefined;
      throw error;
    }
    this.#current = session;
    if (session.over !== undefined) this.#session = undefined; // the waiting calls get the error
    return session;
  }

  #noteQueue(queued: Queued): void {
    for (const told of this.#waiting) told();
    this.#group.options.onQueue?.(queued);
  }
}

const NO_TOOLS = "Environment does not support MCP";

/** Return the name of a request in error messages. */
function nameOf({ type }: SessionRequest): string {
  return type === "mcp" ? "call of a tool" : type;
}

function unansweredWords(request: SessionRequest): string {
  return `a ${nameOf(request)} was not answered before its caller stopped waiting`;
}

function noteFrame(sent: SentRequest): void {
  try {
    sent.frame ??= sent.session.encode?.(sent.request);
  } catch {
    // The request cannot be written, so it was not sent, and cannot be repeated.
  }
}

/** Return whether a request equals one that was sent before. */
function isSame(
  { request: before, session, frame }: SentRequest,
  request: SessionRequest,
): boolean {
  if (before.type !== request.type || frame === undefined) return false;
  const now = session.encode?.(request);
  return now !== undefined && isSameFrame(frame, now);
}

function endOf(why: OpenEnvError): string {
  const isEnded = why instanceof ServerError && closes(why.data);
  return isEnded ? `the server ended the session (${why.message})` : why.message;
}

// ------------------------------------------------------------------ answers

/** Read a result. Version 0 has some of its fields in the metadata, version 1 outside of it. */
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

/** Return the plain value of a tool's result, in either of its two forms. */
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
