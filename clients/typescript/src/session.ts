/**
 * The interface of a session, the same for both versions of the protocol.
 *
 * @module
 */

import type { Frame } from "./codec.ts";
import type { OpenEnvError, StepTimeout } from "./errors.ts";
import type { Queued, Reply, SessionRequest } from "./messages.ts";

/** A request that is under way. It is settled once, by the answer, however late that comes. */
export class PendingCall {
  readonly reply: Promise<Reply>;
  /** The caller has stopped waiting. */
  isGivenUp = false;
  /** Called when the step is overdue, and goes on. */
  onOverdue: (error: StepTimeout) => void = () => {};
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: unknown) => void;

  constructor() {
    const { promise, resolve, reject } = Promise.withResolvers<Reply>();
    promise.catch(() => {}); // its caller may have given up
    this.reply = promise;
    this.resolve = resolve;
    this.reject = reject;
  }
}

/** The receiver of a session's events. */
export interface SessionListener {
  onQueued(queued: Queued): void;
  /** The session is over, other than by `close`. */
  onOver(why: OpenEnvError): void;
}

/** A session of a connection. */
export interface Session {
  readonly version: 0 | 1;
  readonly capabilities: ReadonlySet<string>;
  /** Why the session is over; undefined while it is not. */
  readonly over: OpenEnvError | undefined;
  /** Send a request; requests are served in order. */
  send(request: SessionRequest): PendingCall;
  /**
   * Write a request without the parts that differ from call to call. Absent in version 0, which cannot
   * ask again.
   */
  encode?(request: SessionRequest): Frame;
  /** Close the session; settles when the server has. */
  close(): Promise<void>;
}
