/**
 * Detection of silent connections, whose packets are dropped without a close.
 *
 * Web pages cannot send pings. Therefore a connection is watched while an answer is awaited: after a
 * third of the limit without a frame, the client sends a request that the server answers at once.
 * If another two thirds pass without a frame, the client gives the connection up.
 *
 * @module
 */

/** The watched connection. */
export interface Watched {
  /** Return whether an answer is awaited. Otherwise silence is no sign of a failure. */
  isAwaiting(): boolean;
  /** Send a request that the server answers at once. */
  probe(): void;
  /** End the connection after too much silence. */
  giveUp(): void;
}

const PERIODS = 3; // per limit
const LONGEST_TIMER_MS = 2 ** 31 - 1; // a longer timer fires at once
/** Time to read frames that arrived while the timers stood still, as on a sleeping laptop. */
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

  /** Record that a frame has come from the server. */
  heard(): void {
    this.#isHeard = true;
  }

  /** Start watching, because an answer is awaited. */
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
    this.#wait(); // before the probe, which also awaits an answer
    if (this.#silentPeriods > 0) this.#watched.probe();
  }

  #decide(): void {
    this.#timer = undefined;
    if (!this.#watched.isAwaiting()) return;
    if (this.#isHeard) this.start();
    else this.#watched.giveUp();
  }
}
