// Every request and what came of it: to search, to look back at, to fork from, to keep as a
// recording, to play again, and to compare with another.

import { rewardsUpTo } from "./game.js";
import { element, release } from "./parts.js";
import { readRecording, writeRecording } from "./recording.js";
import { renderObservation } from "./view.js";

const MOST_ROWS = 500; // that are in the page; the others are found by searching
const WORDS = 120; // characters of a summary
const PACE_MS = 700;

export class History {
  entries = [];
  #about;
  #do;
  #game = null;
  #note = "";
  #current = null;
  #recording = null; // a file that is looked at, in place of the game
  #playing = null;
  #rows = element("tbody");
  #count = element("p", { class: "muted", role: "status" });
  #search = element("input", { id: "history-search", type: "search", placeholder: "Search" });
  #compare = element("div", { class: "beside", hidden: true });
  #file = element("input", { type: "file", accept: ".jsonl", hidden: true, "aria-label": "A recording" });
  #buttons = {};

  constructor(about, { show, fork, replay }) {
    this.#about = about;
    this.#do = { show, fork, replay };
    this.#search.addEventListener("input", () => this.#list());
    this.#file.addEventListener("change", () => this.#open());
    const button = (name, words, click, title) => {
      const label = /\w/.test(words) ? null : title; // a sign alone says nothing to who listens
      this.#buttons[name] = element("button", { type: "button", click, title, "aria-label": label }, words);
      return this.#buttons[name];
    };
    this.element = element("section", { class: "card", "aria-label": "History" },
      element("header", {}, element("h2", {}, "History"), this.#count),
      element("div", { class: "row" },
        element("label", { for: "history-search", class: "unseen" }, "Search the history"), this.#search,
        button("back", "◀", () => this.#move(-1), "The step before"),
        button("play", "Play", () => this.#play(), "Show one step after the other"),
        button("on", "▶", () => this.#move(1), "The next step"),
        button("export", "Export", () => this.#export(), "Keep it as a recording"),
        button("open", "Open a recording", () => this.#file.click()),
        button("again", "Play it again here", () => this.#do.replay(this.#recording.entries)),
        button("close", "Back to the session", () => this.#closeRecording())),
      this.#file,
      element("div", { class: "history", tabindex: "0", role: "region", "aria-label": "Steps" },
        element("table", { class: "list" },
          element("thead", {}, element("tr", {}, ...["Step", "What was asked", "Reward", "ms", ""].map((name) => element("th", { scope: "col" }, name)))),
          this.#rows)),
      this.#compare);
    this.#list();
  }

  /** Show what a game does, from now on. */
  follow(game, note = "") {
    this.#game = game;
    this.#note = note;
    this.#closeRecording();
    game.addEventListener("entry", () => game === this.#game && !this.#recording && this.#list());
    this.#list();
  }

  /** Say which entry is shown. */
  mark(entry) {
    this.#current = entry;
    for (const row of this.#rows.children) row.classList.toggle("current", row.dataset.number === String(entry?.number));
    this.#drawCompared();
    this.#arm();
  }

  get #shown() {
    return this.#recording?.entries ?? this.#game?.entries ?? [];
  }

  #list() {
    this.entries = this.#shown;
    const words = this.#search.value.trim().toLowerCase();
    const found = words ? this.entries.filter((entry) => textOf(entry).includes(words)) : this.entries;
    const listed = found.slice(-MOST_ROWS).reverse();
    this.#rows.replaceChildren(...listed.map((entry) => this.#row(entry)));
    const of = found.length === listed.length ? "" : `, the last ${listed.length} are listed`;
    const where = this.#recording ? `recording ${this.#recording.name}: ` : this.#note && `${this.#note}; `;
    this.#count.textContent = `${where}${found.length} of ${this.entries.length} requests${of}`;
    this.#arm();
  }

  #row(entry) {
    const look = () => this.#do.show(entry);
    const canFork = entry.snapshot && !this.#recording;
    return element("tr", { "data-number": entry.number, class: entry === this.#current ? "current" : null },
      element("td", {}, element("button", { type: "button", click: look, disabled: !entry.answer, "aria-label": `Look at ${nameOf(entry)}` }, nameOf(entry))),
      element("td", { class: "text" }, summaryOf(entry.request), entry.error && element("div", { class: "bad" }, entry.error.message)),
      element("td", { class: "number" }, entry.answer ? numeral(entry.answer.reward) : ""),
      element("td", { class: "number" }, entry.milliseconds === null ? "" : entry.milliseconds.toFixed(1)),
      element("td", {}, canFork && element("button", { type: "button", click: () => this.#do.fork(entry), title: "Go on from here in a new session" }, "Fork")));
  }

  #arm() {
    const { back, play, on, export: keep, again, close } = this.#buttons;
    const seen = this.entries.filter((entry) => entry.answer);
    const place = seen.indexOf(this.#current);
    back.disabled = place <= 0;
    on.disabled = place < 0 || place === seen.length - 1;
    play.disabled = seen.length < 2;
    play.textContent = this.#playing ? "Pause" : "Play";
    keep.disabled = this.entries.length === 0;
    again.hidden = close.hidden = !this.#recording;
    again.disabled = this.#about.mode !== "simulation";
  }

  // ------------------------------------------------------------------ looking back

  #move(by) {
    const seen = this.entries.filter((entry) => entry.answer);
    const next = seen[seen.indexOf(this.#current) + by];
    if (next) this.#do.show(next);
    return Boolean(next);
  }

  #play() {
    if (this.#playing) return this.#pause();
    if (this.#current === this.entries.findLast((entry) => entry.answer)) this.#do.show(this.entries.find((entry) => entry.answer));
    this.#playing = setInterval(() => this.#move(1) || this.#pause(), PACE_MS);
    this.#arm();
  }

  #pause() {
    clearInterval(this.#playing);
    this.#playing = null;
    this.#arm();
  }

  // ------------------------------------------------------------------ recordings

  #export() {
    const text = writeRecording(this.#about.metadata.name, this.#game?.session.id ?? "none", this.entries);
    const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "application/jsonl" })), download: `${this.#about.metadata.name}.jsonl` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  async #open() {
    const [file] = this.#file.files;
    this.#file.value = "";
    if (!file) return;
    try {
      this.#recording = { name: file.name, entries: readRecording(await file.text()) };
    } catch (error) {
      this.#count.textContent = `${file.name} cannot be read: ${error.message}`;
      return;
    }
    this.#search.value = "";
    this.#list();
    this.#do.show(this.entries.find((entry) => entry.answer) ?? null);
  }

  #closeRecording() {
    if (!this.#recording) return;
    this.#recording = null;
    this.#compare.hidden = true;
    this.#list();
    this.#do.show(this.entries.findLast((entry) => entry.answer) ?? null);
  }

  /** Beside a recording's step, the one of the session at the same place. */
  #drawCompared() {
    release(this.#compare);
    const entry = this.#current;
    const own = this.#recording && entry && this.#game?.entries.findLast((one) => one.answer && one.step === entry.step);
    this.#compare.hidden = !own;
    if (!own) return this.#compare.replaceChildren();
    const kind = this.#about.reward?.kind;
    this.#compare.replaceChildren(
      side(`The recording, ${nameOf(entry)}`, entry, this.entries, kind),
      side(`This session, ${nameOf(own)}`, own, this.#game.entries, kind));
  }
}

function side(title, entry, entries, kind) {
  const total = rewardsUpTo(entries, entry, kind).reduce((sum, one) => sum + (one.reward ?? 0), 0);
  return element("section", { "aria-label": title }, element("h3", {}, title),
    element("p", { class: "muted" }, `reward ${numeral(entry.answer.reward)}, so far ${numeral(total)}`),
    renderObservation(entry.answer.observation ?? {}, { rendering: entry.rendering, html: entry.view?.html ?? null }));
}

const nameOf = ({ kind, episode, step }) => (kind === "step" ? `${episode}.${step}` : `${episode}.${step} ${kind}`);

const numeral = (value) => (typeof value === "number" ? String(Math.round(value * 1e6) / 1e6) : "–");

function summaryOf(request) {
  const text = JSON.stringify(request) ?? "";
  return text.length > WORDS ? `${text.slice(0, WORDS)}…` : text;
}

function textOf(entry) {
  entry.searched ??= JSON.stringify([entry.kind, entry.request, entry.answer?.observation, entry.error]).toLowerCase().slice(0, 20_000);
  return `${nameOf(entry)} ${entry.searched}`;
}
