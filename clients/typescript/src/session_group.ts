/**
 * The sessions with one server, and the connections that carry them.
 *
 * @module
 */

import { json, type Codec } from "./codec.ts";
import { SessionLost } from "./errors.ts";
import type { Queued } from "./messages.ts";
import type { Session, SessionListener } from "./session.ts";
import { Version0Session } from "./version0.ts";
import { isHealthy, openTransport, reopenTransport, type Address } from "./transports/websocket.ts";
import { SessionConnection } from "./connection.ts";

const SILENCE_S = 45;

/** Options of a connection. */
export interface ConnectOptions {
  /** The API key, if the server requires one. */
  readonly apiKey?: string;
  /**
   * The codecs of version 1 to offer, the preferred one first; by default `json`. The client uses
   * version 0 if the list is empty or the server knows none of the codecs.
   */
  readonly codecs?: readonly Codec[];
  /** Seconds to wait for a connection; 10 by default. */
  readonly connectTimeoutS?: number;
  /** Seconds to wait for an answer; 60 by default, Infinity for no limit. */
  readonly messageTimeoutS?: number;
  /**
   * Seconds of silence, while an answer is awaited, after which the connection counts as broken; 45
   * by default, Infinity for no limit. Version 1 resumes on another connection, and the server runs
   * each request once. In version 0 the session is lost, unless the server still answers `/health`.
   */
  readonly silenceTimeoutS?: number;
  /** Seconds to wait for a slot of a full server; 150 by default, 0 does not wait. */
  readonly queueTimeoutS?: number;
  /** The largest accepted answer in bytes; by default there is no limit. */
  readonly maxMessageBytes?: number;
  /** Called with the place in the queue of a session that waits for a slot. */
  readonly onQueue?: (queued: Queued) => void;
}

/**
 * The sessions with a server. In version 1 they share a connection; in version 0 each has its own.
 * A connection opens when a session needs it, and closes with its last session.
 */
export class SessionGroup {
  readonly options: ConnectOptions & { readonly messageTimeoutS: number };
  readonly #address: Address;
  readonly #codecs: readonly Codec[];
  readonly #clients = new Set<object>();
  #connection: Promise<SessionConnection | undefined> | undefined;

  constructor(url: string, options: ConnectOptions = {}) {
    const { apiKey, codecs = [json], connectTimeoutS: timeoutS = 10 } = options;
    this.options = { messageTimeoutS: 60, ...options };
    this.#address = { url, apiKey, timeoutS };
    this.#codecs = codecs;
  }

  /** Register a client that may open a session. */
  enter(client: object): void {
    this.#clients.add(client);
  }

  /** Unregister a client, which opens no further session. */
  leave(client: object): void {
    this.#clients.delete(client);
  }

  /** Close the connection if no client is registered. */
  closeIfEmpty(): void {
    if (this.#clients.size > 0) return;
    const connection = this.#connection;
    this.#connection = undefined;
    connection?.then(
      (one) => one?.close(new SessionLost("the client was closed")),
      () => {},
    );
  }

  /** Return a session for a client; its first request opens it. */
  async open(listener: SessionListener): Promise<Session> {
    let version0: Version0Session | undefined;
    this.#connection ??= this.#connect(listener, (made) => (version0 = made));
    const connecting = this.#connection;
    let connection: SessionConnection | undefined;
    try {
      connection = await connecting;
    } catch (error) {
      if (this.#connection === connecting) this.#connection = undefined;
      throw error;
    }
    if (version0 !== undefined) return version0;
    if (connection !== undefined && connection.over === undefined) {
      return connection.open(listener, this.#opening());
    }
    if (this.#connection === connecting) this.#connection = undefined;
    return this.open(listener);
  }

  /** Connect. In version 0 the socket carries one session, which is passed to `takeVersion0`. */
  async #connect(
    listener: SessionListener,
    takeVersion0: (made: Version0Session) => void,
  ): Promise<SessionConnection | undefined> {
    const offered = this.#codecs.map((codec) => codec.name);
    const socket = await openTransport(this.#address, offered);
    const codec = this.#codecs.find(({ name }) => name === socket.protocol);
    if (codec === undefined) {
      const isThere = () => isHealthy(this.#address, this.#silenceS);
      takeVersion0(new Version0Session(socket, listener, isThere, this.#silenceS));
      return undefined;
    }
    const reopen = () => reopenTransport(this.#address, codec.name);
    return SessionConnection.greeted(codec, socket, reopen, this.#address.timeoutS, this.#silenceS);
  }

  get #silenceS(): number {
    return this.options.silenceTimeoutS ?? SILENCE_S;
  }

  #opening(): Record<string, unknown> {
    const { queueTimeoutS = 150, maxMessageBytes } = this.options;
    const opening: Record<string, unknown> = { queue_timeout_s: queueTimeoutS };
    if (maxMessageBytes !== undefined) opening["max_message_bytes"] = maxMessageBytes;
    return opening;
  }
}
