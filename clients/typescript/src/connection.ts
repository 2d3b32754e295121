/**
 * Where sessions come from.
 *
 * @module
 */

import { json, type Codec } from "./codec.ts";
import { SessionLost } from "./errors.ts";
import type { Place, Seat, Tenant } from "./seat.ts";
import { Single } from "./single.ts";
import { isHealthy, openSocket, reopenSocket, type Address } from "./socket.ts";
import { Trunk } from "./trunk.ts";

const SILENCE_S = 45;

/** How to connect. */
export interface ConnectOptions {
  /** The server's key, where it wants one. */
  readonly apiKey?: string;
  /**
   * The codecs of version 1 to offer, the preferred one first; by default `json`. With none,
   * version 0 is spoken. A server that knows none of them is spoken to in version 0 as well.
   */
  readonly codecs?: readonly Codec[];
  /** Seconds to wait for a connection; 10 by default. */
  readonly connectTimeoutS?: number;
  /** Seconds to wait for an answer; 60 by default. Infinity waits for ever. */
  readonly messageTimeoutS?: number;
  /**
   * Seconds of silence, while an answer is awaited, after which the connection counts as broken: 45
   * by default, Infinity never. Version 1 then goes on by another connection, with nothing lost or
   * done twice; in version 0 the session is lost, unless the server still answers `/health`.
   */
  readonly silenceTimeoutS?: number;
  /** Seconds to wait for a slot of a server that is full; 150 by default, 0 does not wait. */
  readonly queueTimeoutS?: number;
  /** The largest answer to take, in bytes; by default any. */
  readonly maxMessageBytes?: number;
  /** Told where a session stands that waits for a slot. */
  readonly onQueue?: (place: Place) => void;
}

/**
 * A server, and the connection to it: in version 1 one for all sessions, in version 0 one for each.
 * It is opened when a session needs it, and closed with the last one.
 */
export class Connection {
  readonly options: ConnectOptions & { readonly messageTimeoutS: number };
  readonly #address: Address;
  readonly #codecs: readonly Codec[];
  readonly #tenants = new Set<object>();
  #trunk: Promise<Trunk | undefined> | undefined;

  constructor(url: string, options: ConnectOptions = {}) {
    const { apiKey, codecs = [json], connectTimeoutS: timeoutS = 10 } = options;
    this.options = { messageTimeoutS: 60, ...options };
    this.#address = { url, apiKey, timeoutS };
    this.#codecs = codecs;
  }

  /** Note that somebody may ask for a session. */
  enter(tenant: object): void {
    this.#tenants.add(tenant);
  }

  /** Note that somebody is done with it. */
  leave(tenant: object): void {
    this.#tenants.delete(tenant);
  }

  /** Close the connection, where nobody uses it any more. */
  closeIfEmpty(): void {
    if (this.#tenants.size > 0) return;
    const trunk = this.#trunk;
    this.#trunk = undefined;
    trunk?.then(
      (one) => one?.close(new SessionLost("the client was closed")),
      () => {},
    );
  }

  /** A session of its own for somebody, not opened yet. */
  async seat(tenant: Tenant): Promise<Seat> {
    let single: Single | undefined;
    this.#trunk ??= this.#connect(tenant, (made) => (single = made));
    const connecting = this.#trunk;
    let trunk: Trunk | undefined;
    try {
      trunk = await connecting;
    } catch (error) {
      if (this.#trunk === connecting) this.#trunk = undefined;
      throw error;
    }
    if (single !== undefined) return single;
    if (trunk !== undefined && trunk.over === undefined) {
      return trunk.seat(tenant, this.#opening());
    }
    if (this.#trunk === connecting) this.#trunk = undefined;
    return this.seat(tenant);
  }

  /** Connect; in version 0 the socket is somebody's own, and there is no trunk. */
  async #connect(tenant: Tenant, ownSocket: (made: Single) => void): Promise<Trunk | undefined> {
    const offered = this.#codecs.map((codec) => codec.name);
    const socket = await openSocket(this.#address, offered);
    const codec = this.#codecs.find(({ name }) => name === socket.protocol);
    if (codec === undefined) {
      const isThere = () => isHealthy(this.#address, this.#silenceS);
      ownSocket(new Single(socket, tenant, isThere, this.#silenceS));
      return undefined;
    }
    const reopen = () => reopenSocket(this.#address, codec.name);
    return Trunk.greeted(codec, socket, reopen, this.#address.timeoutS, this.#silenceS);
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
