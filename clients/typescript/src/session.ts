/**
 * The interface of a session, the same for both versions of the protocol.
 *
 * @module
 */

import type { Frame } from "./codec.ts";
import type { OpenEnvError, StepTimeout } from "./errors.ts";
import type { Queued, Reply, SessionRequest } from "./messages.ts";

/** A pending request. The answer settles it once, even if the answer comes late. */
export class PendingCall {
  readonly reply: Promise<Reply>;
  /** True if the caller has stopped waiting. */
  isGivenUp = false;
  /** Called when the step is overdue and still running. */
  onOverdue: (error: StepTimeout) => void = () => {};
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: unknown) => void;

  constructor() {
    const { promise, resolve, reject } = Promise.withResolvers<Reply>();
    promise.catch(() => {}); // the caller may have given up
    this.reply = promise;
    this.resolve = resolve;
    this.reject = reject;
  }
}

/** The receiver of a session's events. */
export interface SessionListener {
  onQueued(queued: Queued): void;
  /** Called when the session is over, except by `close`. */
  onOver(why: OpenEnvError): void;
}

/** A session of a connection. */
export interface Session {
  readonly version: 0 | 1;
  readonly capabilities: ReadonlySet<string>;
  /** The reason why the session is over; undefined while it is open. */
  readonly over: OpenEnvError | undefined;
  /** Send a request; requests are served in order. */
  send(request: SessionRequest): PendingCall;
  /**
   * Write a request without the parts that differ from call to call. Absent in version 0, which
   * cannot repeat a request.
   */
  encode?(request: SessionRequest): Frame;
  /** Close the session; settles when the server has closed it. */
  close(): Promise<void>;
}
