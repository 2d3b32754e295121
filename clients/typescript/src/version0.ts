/**
 * Version 0: a connection with one session, whose answers come in the order of the requests.
 *
 * @module
 */

import { isObject, type Frame } from "./codec.ts";
import { closes, errorOf, NotSupported, ProtocolError, SessionLost } from "./errors.ts";
import type { OpenEnvError } from "./errors.ts";
import { readJson, writeJson } from "./json.ts";
import type { SessionRequest } from "./messages.ts";
import { PendingCall, type Session, type SessionListener } from "./session.ts";
import { Keepalive } from "./transports/keepalive.ts";
import type { WebSocketTransport } from "./transports/websocket.ts";

const TYPES: ReadonlySet<string> = new Set(["reset", "step", "state", "mcp"]);

/** The session of a connection of version 0. */
export class Version0Session implements Session {
  readonly version = 0;
  readonly capabilities: ReadonlySet<string> = new Set();
  over: OpenEnvError | undefined;
  readonly #transport: WebSocketTransport;
  readonly #listener: SessionListener;
  readonly #calls: { readonly call: PendingCall; readonly type: string }[] = [];
  readonly #keepalive: Keepalive;
  readonly #closed = Promise.withResolvers<void>();
  #isClosing = false;

  /**
   * @param isThere - Asks by HTTP whether the server answers, because a request on this connection
   * would wait for the earlier ones.
   * @param silenceS - Seconds of silence, while an answer is awaited, until the session is lost.
   */
  constructor(
    transport: WebSocketTransport,
    listener: SessionListener,
    isThere: () => Promise<boolean>,
    silenceS: number,
  ) {
    this.#transport = transport;
    this.#listener = listener;
    this.#keepalive = new Keepalive(
      {
        isAwaiting: () => this.#calls.length > 0,
        probe: () => {
          void isThere().then((is) => {
            if (is && !this.#isForsaken) this.#keepalive.heard();
          });
        },
        giveUp: () => {
          const why = `the connection to the server was lost (nothing came for ${silenceS} s)`;
          this.#end(new SessionLost(why));
          this.#transport.close();
        },
      },
      silenceS,
    );
    transport.attach({
      onFrame: (frame) => this.#take(frame),
      onClosed: (code, reason) => {
        const why = [code, reason].filter(Boolean).join(" ");
        this.#end(new SessionLost(`the connection to the server was lost (${why})`));
        this.#closed.resolve();
      },
    });
  }

  send({ type, data }: SessionRequest): PendingCall {
    const call = new PendingCall();
    if (this.over !== undefined) {
      call.reject(this.over);
    } else if (!TYPES.has(type)) {
      call.reject(new NotSupported(`version 0 of the protocol has no ${type}`));
    } else {
      try {
        const message = type === "state" ? { type } : { type, data: data ?? {} };
        this.#transport.send(writeJson(message, { keepNaN: true, asLists: true }));
        this.#calls.push({ call, type });
        this.#keepalive.start();
      } catch (error) {
        call.reject(error);
      }
    }
    return call;
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    if (this.over === undefined) this.#transport.send('{"type":"close"}');
    await this.#closed.promise;
  }

  /**
   * True if the caller has given up a request and waits for the answer to a later `reset`. Then
   * ending the connection loses nothing, and the connection may be broken although the server runs.
   */
  get #isForsaken(): boolean {
    const isReset = (one: { type: string; call: PendingCall }): boolean =>
      one.type === "reset" && !one.call.isGivenUp;
    return this.#calls[0]?.call.isGivenUp === true && this.#calls.some(isReset);
  }

  #take(frame: Frame): void {
    this.#keepalive.heard();
    if (this.over !== undefined) return;
    let message: unknown;
    try {
      message = typeof frame === "string" ? readJson(frame) : undefined;
    } catch {
      message = undefined;
    }
    if (!isObject(message) || typeof message["type"] !== "string" || !isObject(message["data"])) {
      this.#break("the server sent a frame that is no answer");
      return;
    }
    const { type, data } = message as { type: string; data: Record<string, unknown> };
    const call = this.#calls.shift()?.call;
    if (type === "error") {
      const error = errorOf(data);
      call?.reject(error);
      if (closes(data)) this.#end(error);
      else if (call === undefined)
        this.#break(`the server sent an error unasked: ${error.message}`);
    } else if (call === undefined) {
      this.#break(`the server sent ${type}, which nobody asked for`);
    } else {
      call.resolve({ type, data });
    }
  }

  #break(why: string): void {
    this.#end(new ProtocolError(why));
    this.#transport.close();
  }

  #end(why: OpenEnvError): void {
    if (this.over !== undefined) return;
    this.over = why;
    this.#keepalive.stop();
    for (const { call } of this.#calls.splice(0)) call.reject(why);
    if (!this.#isClosing) this.#listener.onOver(why);
  }
}
