/**
 * One session of a connection, whichever version is spoken.
 *
 * @module
 */

import type { Frame } from "./codec.ts";
import type { OpenEnvError, StepTimeout } from "./errors.ts";
import { withResolvers } from "./promises.ts";

/** What is asked of a session. */
export interface Ask {
  readonly type: string;
  readonly data?: Readonly<Record<string, unknown>>;
  /** Further arguments of `step`; version 0 does not carry them. */
  readonly arguments?: Readonly<Record<string, unknown>>;
}

/** What a request came to. */
export interface Reply {
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** A request that is under way. It is settled once, by the answer, however late that comes. */
export class Call {
  readonly reply: Promise<Reply>;
  /** Its caller waits no more. */
  isGivenUp = false;
  /** Told that the step is overdue, and goes on. */
  onOverdue: (error: StepTimeout) => void = () => {};
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: unknown) => void;

  constructor() {
    const { promise, resolve, reject } = withResolvers<Reply>();
    promise.catch(() => {}); // its caller may have given up
    this.reply = promise;
    this.resolve = resolve;
    this.reject = reject;
  }
}

/** Where a session stands that waits for a slot; 1 is the next. */
export interface Place {
  readonly position: number;
  readonly length: number;
}

/** Whoever has a session. */
export interface Tenant {
  onQueued(place: Place): void;
  /** The session is over, other than by `close`. */
  onOver(why: OpenEnvError): void;
}

/** One session of a connection. */
export interface Seat {
  readonly version: 0 | 1;
  readonly capabilities: ReadonlySet<string>;
  /** Why it is over; undefined while it is not. */
  readonly over: OpenEnvError | undefined;
  /** Ask; requests are served in order. */
  ask(ask: Ask): Call;
  /**
   * What is asked for, as it is sent, without what differs from one time to the next. Version 0, whose
   * answers have no numbers, has nothing to ask again by.
   */
  written?(ask: Ask): Frame;
  /** Close the session; settles when the server has. */
  close(): Promise<void>;
}
