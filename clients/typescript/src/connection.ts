/**
 * Version 1: a connection that carries many sessions and outlives its transport.
 *
 * @module
 */

import { answersIn, isObject, type Codec, type Frame } from "./codec.ts";
import {
  AuthenticationError,
  closes,
  ConnectError,
  errorOf,
  MessageTooLarge,
  PermissionRefused,
  ProtocolError,
  SessionLost,
  StepTimeout,
  type OpenEnvError,
} from "./errors.ts";
import type { Answer, Queued, Request, SessionRequest } from "./messages.ts";
import { PendingCall, type Session, type SessionListener } from "./session.ts";
import { sleep } from "./timing.ts";
import { Keepalive } from "./transports/keepalive.ts";
import type { WebSocketTransport } from "./transports/websocket.ts";

/** Close codes of failures; with any other code, a side has ended the connection on purpose. */
const ACCIDENTS: ReadonlySet<number> = new Set([1006, 1011, 1013, 1014]);
const SILENT = 1006; // the code of a broken socket
/** The client acknowledges an answer of at least this size at once. */
const LARGE_BYTES = 2 ** 16;
const HELLO_LIMIT_S = 10;
const FIRST_PAUSE_S = 0.05;
const LONGEST_PAUSE_S = 5;

/** The content of the server's first frame. */
interface Hello {
  readonly connection: string;
  readonly token: string;
  readonly graceS: number;
  readonly server: string;
  readonly siblings: boolean;
  readonly maxMessageBytes: number | undefined;
  readonly capabilities: ReadonlySet<string>;
}

/** A request that waits for the next frame. */
interface Unsent {
  readonly request: Request;
  /** Called if the request cannot be sent, because it cannot be written or is too large. */
  readonly fail: (error: unknown) => void;
}

/** The connection cannot be resumed; the message says why. */
class CannotResume extends Error {}

/** A connection of version 1. */
export class SessionConnection {
  readonly capabilities: ReadonlySet<string>;
  /** The reason why the connection is over; undefined while it is open. */
  over: OpenEnvError | undefined;
  readonly #codec: Codec;
  readonly #reopen: () => Promise<WebSocketTransport>;
  readonly #hello: Hello;
  #transport: WebSocketTransport | undefined;
  readonly #sessions = new Map<number, RemoteSession>();
  #lastSession = -1;
  #unsent: Unsent[] = [];
  #isFlushing = false;
  /** The resend buffer: unacknowledged frames, which follow the `#acknowledged` earlier ones. */
  #kept: Frame[] = [];
  #acknowledged = 0;
  #received = 1; // the hello
  #gone: string | undefined;
  readonly #keepalive: Keepalive;
  #probes = 0;
  /**
   * Transports that were given up. Closing one would end all sessions on the server, unless the
   * server knows that the connection continues on another transport.
   */
  #stale: WebSocketTransport[] = [];

  private constructor(
    codec: Codec,
    reopen: () => Promise<WebSocketTransport>,
    transport: WebSocketTransport,
    hello: Hello,
    silenceS: number,
  ) {
    this.#codec = codec;
    this.#reopen = reopen;
    this.#hello = hello;
    this.capabilities = hello.capabilities;
    this.#keepalive = new Keepalive(
      {
        isAwaiting: () => [...this.#sessions.values()].some((session) => session.isAwaiting),
        probe: () => this.#probe(),
        giveUp: () => this.#giveUp(silenceS),
      },
      silenceS,
    );
    this.#adopt(transport);
  }

  /**
   * Wait for the server's hello on a transport that was opened for version 1.
   *
   * @param reopen - Opens another transport to the same server if this one breaks.
   * @param silenceS - Seconds of silence, while an answer is awaited, until the transport is given up.
   */
  static async greeted(
    codec: Codec,
    transport: WebSocketTransport,
    reopen: () => Promise<WebSocketTransport>,
    timeoutS: number,
    silenceS: number,
  ): Promise<SessionConnection> {
    try {
      const hello = helloIn(answersIn(codec, await transport.receive(timeoutS)));
      return new SessionConnection(codec, reopen, transport, hello, silenceS);
    } catch (error) {
      transport.close();
      throw error;
    }
  }

  /** Return a new session; its first request opens it. */
  open(listener: SessionListener, opening: Readonly<Record<string, unknown>>): RemoteSession {
    const session = new RemoteSession(this, ++this.#lastSession, listener, opening);
    this.#sessions.set(session.number, session);
    return session;
  }

  /** Send a request with the next frame, which carries all requests of one turn. */
  send(request: Request, fail: (error: unknown) => void): void {
    this.#unsent.push({ request, fail });
    if (this.#transport !== undefined) this.#keepalive.start();
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    queueMicrotask(() => {
      this.#isFlushing = false;
      this.#flush();
    });
  }

  /** Write a request without sending it. */
  encode(request: Request): Frame {
    return this.#codec.encode(request);
  }

  /** Remove a session that is over. */
  forget(session: RemoteSession): void {
    this.#sessions.delete(session.number);
  }

  /** End the connection and all its sessions. */
  close(why: OpenEnvError = new SessionLost("the client was closed")): void {
    this.#flush();
    const transport = this.#transport;
    this.#end(why);
    transport?.close();
  }

  // ---------------------------------------------------------------- sending

  #flush(): void {
    if (this.#transport === undefined || this.over !== undefined) return; // it may still be resumed
    const unsent = this.#unsent;
    this.#unsent = [];
    const limit = this.#hello.maxMessageBytes ?? Infinity;
    let parts: Frame[] = [];
    let size = 0;
    for (const { request, fail } of unsent) {
      let part: Frame;
      let partSize: number;
      try {
        const isFirst = parts.length === 0;
        part = this.#codec.encode(isFirst ? { ...request, ack: this.#received } : request);
        partSize = sizeOf(part) + 8; // plus the array around it
        if (partSize > limit) throw tooLarge(partSize, limit);
      } catch (error) {
        fail(error);
        continue;
      }
      if (size + partSize > limit && parts.length > 0) {
        this.#sendFrame(this.#joined(parts));
        parts = [];
        size = 0;
      }
      parts.push(part);
      size += partSize;
    }
    if (parts.length > 0) this.#sendFrame(this.#joined(parts));
  }

  #joined(parts: readonly Frame[]): Frame {
    return parts.length === 1 && parts[0] !== undefined ? parts[0] : this.#codec.join(parts);
  }

  #sendFrame(frame: Frame): void {
    this.#kept.push(frame);
    this.#transport?.send(frame);
  }

  // ---------------------------------------------------------------- receiving

  #adopt(transport: WebSocketTransport): void {
    this.#transport = transport;
    for (const stale of this.#stale.splice(0)) stale.close();
    this.#keepalive.start();
    transport.attach({
      onFrame: (frame) => {
        if (this.#transport === transport) this.#take(frame);
      },
      onClosed: (code, reason) => {
        if (this.#transport === transport) this.#broken(code, reason);
      },
    });
  }

  #take(frame: Frame): void {
    this.#received += 1;
    this.#keepalive.heard();
    try {
      for (const answer of answersIn(this.#codec, frame)) this.#heed(answer);
    } catch (error) {
      this.close(error instanceof ProtocolError ? error : new ProtocolError(String(error)));
      return;
    }
    if (sizeOf(frame) >= LARGE_BYTES) {
      this.#sendFrame(this.#codec.encode({ type: "ack", ack: this.#received }));
    }
  }

  #heed(answer: Answer): void {
    if (answer.session !== null) {
      this.#sessions.get(answer.session)?.heed(answer);
    } else if (answer.type === "ack") {
      this.#acknowledge(countIn(answer));
    } else if (answer.type === "gone") {
      this.#gone = String(answer.data?.["reason"]);
    } else if (answer.type === "error") {
      const words = String(answer.data?.["message"]);
      throw new ProtocolError(`the server could not read a frame: ${words}`);
    }
  }

  #acknowledge(count: number): void {
    const fresh = count - this.#acknowledged;
    if (fresh > this.#kept.length) {
      throw new ProtocolError(`the server has ${count} frames, of fewer that were sent`);
    }
    if (fresh > 0) {
      this.#kept.splice(0, fresh);
      this.#acknowledged = count;
    }
  }

  // ---------------------------------------------------------------- silence

  /** Close a session that was never opened, because any server answers that at once. */
  #probe(): void {
    if (this.#probes === 0) this.#probes = ++this.#lastSession;
    this.send({ type: "close", session: this.#probes, id: 1 }, () => {});
  }

  #giveUp(silenceS: number): void {
    const transport = this.#transport;
    if (transport === undefined || this.over !== undefined) return;
    this.#stale.push(transport);
    this.#broken(SILENT, `nothing came for ${silenceS} s`);
  }

  // ---------------------------------------------------------------- resuming

  #broken(code: number, reason: string): void {
    this.#transport = undefined;
    this.#keepalive.stop();
    const how = [code, reason].filter(Boolean).join(" ");
    const lost = `the connection to the server was lost (${how})`;
    const mayResume = this.#gone === undefined && this.#hello.graceS > 0 && ACCIDENTS.has(code);
    if (!mayResume) {
      this.#end(new SessionLost(this.#gone === undefined ? lost : `${lost}: ${this.#gone}`));
      return;
    }
    void this.#resume(lost);
  }

  async #resume(lost: string): Promise<void> {
    const patience = performance.now() + this.#hello.graceS * 1000;
    let pauseS = FIRST_PAUSE_S;
    while (this.over === undefined) {
      try {
        await this.#resumeOnce();
        return;
      } catch (error) {
        const isFinal =
          error instanceof CannotResume ||
          error instanceof ProtocolError ||
          error instanceof AuthenticationError ||
          error instanceof PermissionRefused;
        if (isFinal || performance.now() + pauseS * 1000 > patience) {
          this.#end(new SessionLost(`${lost}: ${(error as Error).message}`, { cause: error }));
          return;
        }
      }
      await sleep(pauseS * (0.5 + Math.random() / 2));
      pauseS = Math.min(2 * pauseS, LONGEST_PAUSE_S);
    }
  }

  async #resumeOnce(): Promise<void> {
    const transport = await this.#reopen();
    let isAsked = false;
    try {
      if (transport.protocol !== this.#codec.name) {
        throw new CannotResume("the server does not speak version 1 any more");
      }
      const hello = helloIn(answersIn(this.#codec, await transport.receive(HELLO_LIMIT_S)));
      if (hello.server !== this.#hello.server) {
        if (!this.#hello.siblings) throw new CannotResume("the server has been restarted");
        throw new ConnectError("another process of the server answered");
      }
      const { connection, token } = this.#hello;
      const data = { connection, token, received: this.#received };
      isAsked = true;
      transport.send(this.#codec.encode({ type: "resume", data }));
      const [answer] = answersIn(this.#codec, await transport.receive(HELLO_LIMIT_S));
      if (answer?.type === "error") throw new CannotResume(String(answer.data?.["message"]));
      if (answer?.type !== "resumed") {
        throw new ProtocolError(`the server answered resume with ${answer?.type}`);
      }
      if (this.over !== undefined) throw new CannotResume("the client was closed");
      const count = countIn(answer);
      if (count < this.#acknowledged) throw new ProtocolError("the server asks for what it had");
      this.#acknowledge(count);
      for (const frame of this.#kept) transport.send(frame);
      this.#adopt(transport);
      this.#flush();
    } catch (error) {
      if (isAsked) this.#stale.push(transport);
      else transport.close();
      throw error;
    }
  }

  #end(why: OpenEnvError): void {
    if (this.over !== undefined) return;
    this.over = why;
    this.#transport = undefined;
    this.#keepalive.stop();
    for (const stale of this.#stale.splice(0)) stale.close();
    this.#kept = [];
    for (const { fail } of this.#unsent.splice(0)) fail(why);
    for (const session of [...this.#sessions.values()]) session.end(why);
  }
}

/** A session of a connection of version 1. */
export class RemoteSession implements Session {
  readonly version = 1;
  readonly number: number;
  over: OpenEnvError | undefined;
  readonly #connection: SessionConnection;
  readonly #listener: SessionListener;
  readonly #opening: Readonly<Record<string, unknown>>;
  readonly #calls = new Map<number, PendingCall>();
  #lastId = 0;
  #closing: PromiseWithResolvers<void> | undefined;

  constructor(
    connection: SessionConnection,
    number: number,
    listener: SessionListener,
    opening: Readonly<Record<string, unknown>>,
  ) {
    this.#connection = connection;
    this.number = number;
    this.#listener = listener;
    this.#opening = opening;
  }

  get capabilities(): ReadonlySet<string> {
    return this.#connection.capabilities;
  }

  /** True if an answer is outstanding, even if its caller has given up. */
  get isAwaiting(): boolean {
    return this.#calls.size > 0 || (this.#closing !== undefined && this.over === undefined);
  }

  send(request: SessionRequest): PendingCall {
    const call = new PendingCall();
    if (this.over !== undefined) {
      call.reject(this.over);
      return call;
    }
    const session = this.number;
    if (this.#lastId === 0) {
      this.#connection.send({ type: "open", session, data: this.#opening }, (e) => call.reject(e));
    }
    const id = ++this.#lastId;
    this.#calls.set(id, call);
    this.#connection.send({ ...request, session, id }, (error) => {
      this.#calls.delete(id);
      call.reject(error);
    });
    return call;
  }

  encode({ type, data = {}, arguments: given = {} }: SessionRequest): Frame {
    const { timeout_s: _, ...kept } = given;
    return this.#connection.encode({ type, data, arguments: kept });
  }

  async close(): Promise<void> {
    if (this.#lastId === 0) this.end(new SessionLost("the client was closed"));
    if (this.over !== undefined) return;
    if (this.#closing === undefined) {
      this.#closing = Promise.withResolvers<void>();
      this.#connection.send({ type: "close", session: this.number, id: ++this.#lastId }, () => {});
    }
    await this.#closing.promise;
  }

  /** Handle an answer for this session. */
  heed({ type, id, data }: Answer): void {
    if (type === "queued") {
      this.#listener.onQueued(data as unknown as Queued);
    } else if (type === "closed") {
      this.end(new SessionLost("the client was closed"));
    } else if (type === "error") {
      this.#heedError(id, data ?? {});
    } else if (id !== null && id !== 0) {
      if (data === null) throw new ProtocolError(`the server sent ${type} without data`);
      this.#calls.get(id)?.resolve({ type, data });
      this.#calls.delete(id);
    }
  }

  #heedError(id: number | null, data: Readonly<Record<string, unknown>>): void {
    const error = errorOf(data);
    const call = this.#calls.get(id ?? 0);
    if (error instanceof StepTimeout && error.isRunning) {
      call?.onOverdue(error); // the step's own answer follows
      return;
    }
    call?.reject(error);
    this.#calls.delete(id ?? 0);
    if (id === 0) {
      this.end(error); // the session could not be opened
    } else if (closes(data) && this.#closing === undefined) {
      this.#connection.send({ type: "close", session: this.number, id: ++this.#lastId }, () => {});
      this.end(error);
    }
  }

  /** End the session, and reject its pending calls. */
  end(why: OpenEnvError): void {
    if (this.over !== undefined) return;
    this.over = why;
    this.#connection.forget(this);
    for (const call of this.#calls.values()) call.reject(why);
    this.#calls.clear();
    if (this.#closing === undefined) this.#listener.onOver(why);
    else this.#closing.resolve();
  }
}

// ------------------------------------------------------------------ frames

function helloIn(answers: readonly Answer[]): Hello {
  const [answer, ...others] = answers;
  const data = answer?.data;
  if (answer?.type !== "hello" || others.length > 0 || !isObject(data)) {
    throw new ProtocolError("the server's first frame is no hello");
  }
  const text = (name: string): string => (typeof data[name] === "string" ? data[name] : "");
  const number = (name: string): number | undefined =>
    typeof data[name] === "number" ? data[name] : undefined;
  const capabilities = Array.isArray(data["capabilities"]) ? data["capabilities"] : [];
  return {
    connection: text("connection"),
    token: text("resume_token"),
    graceS: number("grace_s") ?? 0,
    server: text("server"),
    siblings: data["siblings"] === true,
    maxMessageBytes: number("max_message_bytes"),
    capabilities: new Set(capabilities.filter((one) => typeof one === "string")),
  };
}

function countIn(answer: Answer): number {
  const received = answer.data?.["received"];
  if (typeof received !== "number" || !Number.isSafeInteger(received)) {
    throw new ProtocolError(`the server sent ${answer.type} without a count`);
  }
  return received;
}

function sizeOf(frame: Frame): number {
  // A character takes at most three bytes; only the size of long texts is exact.
  if (typeof frame !== "string") return frame.length;
  return frame.length < 2 ** 12 ? frame.length : new TextEncoder().encode(frame).length;
}

function tooLarge(size: number, limit: number): MessageTooLarge {
  const words = `the request takes ${size} bytes, and the server takes ${limit}`;
  return new MessageTooLarge(words, "TOO_LARGE", { size, limit });
}
