/**
 * Version 0: a socket with one session, whose answers come in the order of the requests.
 *
 * @module
 */

import { isObject, type Frame } from "./codec.ts";
import { closes, errorOf, NotSupported, ProtocolError, SessionLost } from "./errors.ts";
import type { OpenEnvError } from "./errors.ts";
import { readJson, writeJson } from "./json.ts";
import { withResolvers } from "./promises.ts";
import { Call, type Ask, type Seat, type Tenant } from "./seat.ts";
import { SilenceWatch } from "./silence.ts";
import type { Socket } from "./socket.ts";

const TYPES: ReadonlySet<string> = new Set(["reset", "step", "state", "mcp"]);

/** The session of a socket of version 0. */
export class Single implements Seat {
  readonly version = 0;
  readonly capabilities: ReadonlySet<string> = new Set();
  over: OpenEnvError | undefined;
  readonly #socket: Socket;
  readonly #tenant: Tenant;
  readonly #calls: { readonly call: Call; readonly type: string }[] = [];
  readonly #silence: SilenceWatch;
  readonly #closed = withResolvers<void>();
  #isClosing = false;

  /**
   * @param isThere - Asks by other means whether the server answers: in this version a request is
   * answered only after those before it.
   * @param silenceS - Seconds of silence, where an answer is awaited, after which it is lost.
   */
  constructor(socket: Socket, tenant: Tenant, isThere: () => Promise<boolean>, silenceS: number) {
    this.#socket = socket;
    this.#tenant = tenant;
    this.#silence = new SilenceWatch(
      {
        isAwaiting: () => this.#calls.length > 0,
        probe: () => {
          void isThere().then((is) => {
            if (is && !this.#isForsaken) this.#silence.heard();
          });
        },
        giveUp: () => {
          const why = `the connection to the server was lost (nothing came for ${silenceS} s)`;
          this.#end(new SessionLost(why));
          this.#socket.close();
        },
      },
      silenceS,
    );
    socket.listen({
      onFrame: (frame) => this.#take(frame),
      onClose: (code, reason) => {
        const why = [code, reason].filter(Boolean).join(" ");
        this.#end(new SessionLost(`the connection to the server was lost (${why})`));
        this.#closed.resolve();
      },
    });
  }

  ask({ type, data }: Ask): Call {
    const call = new Call();
    if (this.over !== undefined) {
      call.reject(this.over);
    } else if (!TYPES.has(type)) {
      call.reject(new NotSupported(`version 0 of the protocol has no ${type}`));
    } else {
      try {
        const message = type === "state" ? { type } : { type, data: data ?? {} };
        this.#socket.send(writeJson(message, { keepNaN: true, asLists: true }));
        this.#calls.push({ call, type });
        this.#silence.start();
      } catch (error) {
        call.reject(error);
      }
    }
    return call;
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    if (this.over === undefined) this.#socket.send('{"type":"close"}');
    await this.#closed.promise;
  }

  /** Give the socket up, whatever the server says. */
  abandon(): void {
    this.#isClosing = true;
    this.#socket.close();
  }

  /**
   * Its caller has given up a request, and waits for the answer to a `reset` behind it. Then there is
   * nothing to lose: a server may be there, and this connection not.
   */
  get #isForsaken(): boolean {
    const isReset = (one: { type: string; call: Call }): boolean =>
      one.type === "reset" && !one.call.isGivenUp;
    return this.#calls[0]?.call.isGivenUp === true && this.#calls.some(isReset);
  }

  #take(frame: Frame): void {
    this.#silence.heard();
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
    this.#socket.close();
  }

  #end(why: OpenEnvError): void {
    if (this.over !== undefined) return;
    this.over = why;
    this.#silence.stop();
    for (const { call } of this.#calls.splice(0)) call.reject(why);
    if (!this.#isClosing) this.#tenant.onOver(why);
  }
}
