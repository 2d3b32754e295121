// One episode after another in one session, and what came of each request, within bounds.

const MOST_ENTRIES = 2000;
const MOST_CHARACTERS = 24_000_000; // of what entries hold of observations; then the oldest lose it
const LARGEST_SNAPSHOT = 350_000; // characters of base64, of what is kept to fork from

/** What is known of one request.
 * @typedef {Object} Entry
 * @property {number} number from 1, never used again
 * @property {"reset"|"step"|"restore"} kind
 * @property {number} episode
 * @property {number} step 0 is the reset
 * @property {Object} request the arguments of a reset, or the action
 * @property {Object|null} answer the data of the observation; null where it failed or was let go
 * @property {Object|null} state
 * @property {Object|null} rendering
 * @property {Object|null} view
 * @property {Object|null} error
 * @property {string|null} snapshot
 * @property {number} milliseconds from the request to its answer
 * @property {number} time seconds since the epoch
 * @property {string[]} troubles why the state, a drawing or the like could not be had
 * @property {boolean} isLetGo its observation was dropped to keep within bounds
 */

export class Game extends EventTarget {
  entries = [];
  episode = 0;
  step = 0;
  isBusy = false;
  isOver = true; // nothing can be stepped: no episode has begun, or it has ended
  #abilities;
  #session;
  #numbers = 0;
  #characters = 0;
  #hasView;

  constructor(session, abilities, hasView) {
    super();
    this.#session = session;
    this.#abilities = abilities;
    this.#hasView = hasView;
  }

  get session() {
    return this.#session;
  }

  get last() {
    return this.entries.at(-1) ?? null;
  }

  /** The last entry that has shown something. */
  get shown() {
    return this.entries.findLast((entry) => entry.answer) ?? null;
  }

  reset(args) {
    return this.#carryOut("reset", args, () => this.#session.reset(args));
  }

  take(action) {
    return this.#carryOut("step", action, () => this.#session.step(action));
  }

  /** Go on from where another game stood, with what came before. */
  async restore(entry, before) {
    this.entries = before.filter((one) => one.number <= entry.number);
    this.#numbers = entry.number;
    this.#characters = this.entries.reduce((sum, one) => sum + (one.isLetGo ? 0 : one.size), 0);
    return this.#carryOut("restore", {}, async () => {
      await this.#session.restore(entry.snapshot);
      this.episode = entry.episode - 1;
      return entry.answer;
    }, entry.step);
  }

  async message(message) {
    const { action } = await this.#session.view(message);
    return this.take(action);
  }

  async #carryOut(kind, request, ask, step = 0) {
    if (this.isBusy) throw new Error("a request is under way");
    this.isBusy = true;
    this.dispatchEvent(new Event("busy"));
    const entry = this.#begun(kind, request);
    const began = performance.now();
    try {
      entry.answer = await ask();
      entry.milliseconds = performance.now() - began;
      this.#count(entry, kind, step);
      await this.#look(entry);
    } catch (error) {
      entry.milliseconds ??= performance.now() - began;
      entry.error = { ...error.data, message: error.message, code: error.code ?? error.name };
      entry.episode = this.episode;
      entry.step = this.step;
      throw error;
    } finally {
      this.isBusy = false;
      this.#keep(entry);
      this.dispatchEvent(new CustomEvent("entry", { detail: entry }));
    }
    return entry;
  }

  #begun(kind, request) {
    this.#numbers += 1;
    return {
      number: this.#numbers, kind, request, episode: 0, step: 0, answer: null, state: null,
      rendering: null, view: null, error: null, snapshot: null, milliseconds: null,
      time: Date.now() / 1000, isLetGo: false, troubles: [],
    };
  }

  #count(entry, kind, step) {
    if (kind === "step") this.step += 1;
    else [this.episode, this.step] = [this.episode + 1, step];
    entry.episode = this.episode;
    entry.step = this.step;
    this.isOver = Boolean(entry.answer.done);
  }

  /** Ask for what there is to see beside the observation. What fails is no failure of the step, and
   * is said beside it. */
  async #look(entry) {
    const asked = { state: this.#session.state() };
    if (this.#hasView) asked.view = this.#session.view();
    if (this.#abilities.render) asked.rendering = this.#session.render();
    if (this.#abilities.snapshot) asked.snapshot = this.#session.snapshot();
    const names = Object.keys(asked);
    const told = await Promise.allSettled(Object.values(asked));
    told.forEach(({ status, value, reason }, place) => {
      if (status === "fulfilled") entry[names[place]] = value;
      else if (reason.code !== "NOT_SUPPORTED") entry.troubles.push(`${names[place]}: ${reason.message}`);
    });
    const snapshot = entry.snapshot?.snapshot ?? null;
    entry.snapshot = snapshot && snapshot.length <= LARGEST_SNAPSHOT ? snapshot : null;
  }

  /** Keep an entry, and let go of what the oldest hold where it becomes too much. */
  #keep(entry) {
    entry.size = sizeOf(entry);
    this.#characters += entry.size;
    this.entries.push(entry);
    while (this.entries.length > MOST_ENTRIES) this.#letGo(this.entries.shift());
    for (const old of this.entries) {
      if (this.#characters <= MOST_CHARACTERS || old === entry) break;
      this.#letGo(old);
    }
  }

  #letGo(entry) {
    if (entry.isLetGo) return;
    this.#characters -= entry.size;
    const { reward, done, truncated } = entry.answer ?? {};
    entry.answer = entry.answer && { observation: null, reward, done, truncated };
    entry.state = entry.rendering = entry.view = entry.snapshot = null;
    entry.isLetGo = true;
  }
}

function sizeOf(entry) {
  const { answer, state, rendering, view, snapshot } = entry;
  return JSON.stringify([answer, state, rendering, view]).length + (snapshot?.length ?? 0);
}

/** What each step of an entry's episode has added, up to it, for a plot. Rewards of the kind
 * "cumulative" are what has been earned by then, and not what a step adds. */
export function rewardsUpTo(entries, entry, kind) {
  if (!entry) return [];
  let before = 0;
  return entries
    .filter((one) => one.episode === entry.episode && one.number <= entry.number)
    .filter((one) => one.answer && one.kind !== "restore") // which shows again what was shown
    .map(({ step, answer: { reward = null } }) => {
      if (kind !== "cumulative" || reward === null) return { step, reward };
      const added = reward - before;
      before = reward;
      return { step, reward: added };
    });
}
