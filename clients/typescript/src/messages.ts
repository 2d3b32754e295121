/**
 * The messages between a client and a server.
 *
 * @module
 */

/** The content of a request, without the fields that a connection adds. */
export interface SessionRequest {
  readonly type: string;
  readonly data?: Readonly<Record<string, unknown>>;
  /** Further arguments of `step`; version 0 does not carry them. */
  readonly arguments?: Readonly<Record<string, unknown>>;
}

/** A request of version 1. Omitted keys have their defaults. */
export interface Request extends SessionRequest {
  readonly session?: number;
  readonly id?: number;
  readonly ack?: number;
}

/** An answer of version 1. */
export interface Answer {
  readonly type: string;
  readonly session: number | null;
  readonly id: number | null;
  readonly data: Readonly<Record<string, unknown>> | null;
}

/** The answer to a request of a session. */
export interface Reply {
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** The place in the queue of a session that waits for a slot; 1 is the next. */
export interface Queued {
  readonly position: number;
  readonly length: number;
}
