/**
 * Detection of silent connections, whose packets are dropped without a close.
 *
 * Web pages cannot send pings. Therefore a connection is watched while an answer is awaited: after a
 * third of the limit without a frame the server is sent a request that it answers at once. If another
 * two thirds pass without a frame, the connection is given up.
 *
 * @module
 */

/** The connection that is watched. */
export interface Watched {
  /** Return whether an answer is awaited. Silence means nothing otherwise. */
  isAwaiting(): boolean;
  /** Send a request that the server answers at once. */
  probe(): void;
  /** End the connection: nothing came. */
  giveUp(): void;
}

const PERIODS = 3; // of a limit
const LONGEST_TIMER_MS = 2 ** 31 - 1; // a longer one fires at once
/** Frames that came while the timers stood still, as on a laptop that slept, are read first. */
const READ_FIRST_MS = 50;

/** Watches a connection while an answer is awaited. */
export class Keepalive {
  readonly #watched: Watched;
  readonly #periodMs: number;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isHeard = false;
  #silentPeriods = 0;

  /** @param limitS - Seconds of silence after which the connection is given up. */
  constructor(watched: Watched, limitS: number) {
    this.#watched = watched;
    const periodMs = (limitS * 1000) / PERIODS;
    this.#periodMs = periodMs > LONGEST_TIMER_MS ? Infinity : periodMs;
  }

  /** Note a sign of life of the server. */
  heard(): void {
    this.#isHeard = true;
  }

  /** Note that an answer is awaited from now on. */
  start(): void {
    if (this.#timer !== undefined || this.#periodMs === Infinity) return;
    this.#isHeard = false;
    this.#silentPeriods = 0;
    this.#wait();
  }

  /** Stop watching. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #wait(): void {
    this.#timer = setTimeout(() => this.#look(), this.#periodMs);
  }

  #look(): void {
    this.#timer = undefined;
    if (!this.#watched.isAwaiting()) return;
    this.#silentPeriods = this.#isHeard ? 0 : this.#silentPeriods + 1;
    this.#isHeard = false;
    if (this.#silentPeriods >= PERIODS) {
      this.#timer = setTimeout(() => this.#decide(), READ_FIRST_MS);
      return;
    }
    this.#wait(); // before the probe, which is awaited too
    if (this.#silentPeriods > 0) this.#watched.probe();
  }

  #decide(): void {
    this.#timer = undefined;
    if (!this.#watched.isAwaiting()) return;
    if (this.#isHeard) this.start();
    else this.#watched.giveUp();
  }
}
