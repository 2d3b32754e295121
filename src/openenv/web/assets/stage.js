// What one step has shown: the observation, the state, the frames as they came, and the rewards.

import { rewardsUpTo } from "./game.js";
import { asText, element, release } from "./parts.js";
import { RewardPlot } from "./plot.js";
import { renderTree } from "./tree.js";
import { renderObservation } from "./view.js";

const MOST_OF_FRAMES = 200_000; // characters
const VIEWS = { view: "View", state: "State", raw: "Frames" };

export class Stage {
  #facts = element("dl", { class: "facts" });
  #shown = element("div", { class: "shown", role: "tabpanel", tabindex: "0", "aria-label": "What is shown" });
  #tabs = element("div", { class: "tabs", role: "tablist", "aria-label": "Ways to look at it" });
  #plot = new RewardPlot();
  #title = element("h2", {}, "Nothing to see yet");
  #chosen = "view";
  #kind;
  #entry = null;
  #before = null;

  constructor(kind) {
    this.#kind = kind;
    for (const [id, words] of Object.entries(VIEWS)) {
      this.#tabs.append(element("button", {
        type: "button", role: "tab", "data-view": id, "aria-selected": String(id === this.#chosen),
        click: () => this.#choose(id), keydown: (event) => this.#turn(event),
      }, words));
    }
    this.element = element("section", { class: "card", "aria-label": "Environment" },
      element("header", {}, this.#title), this.#facts, this.#plot.element, this.#tabs, this.#shown);
    this.#plot.element.hidden = true;
  }

  /** Show an entry of a game; `isLive` where it is the last one. */
  show(entry, entries, isLive) {
    this.#entry = entry;
    this.#before = entry && (entries.findLast((one) => one.number < entry.number && one.answer && one.episode === entry.episode) ?? null);
    this.#title.textContent = titleOf(entry, isLive);
    this.#facts.replaceChildren(...factsOf(entry, rewardsUpTo(entries, entry, this.#kind)).map(fact));
    this.#plot.element.hidden = !entry;
    this.#plot.set(rewardsUpTo(entries, entry, this.#kind));
    this.#draw();
  }

  #choose(id) {
    this.#chosen = id;
    for (const tab of this.#tabs.children) {
      tab.setAttribute("aria-selected", String(tab.dataset.view === id));
      tab.tabIndex = tab.dataset.view === id ? 0 : -1;
    }
    this.#draw();
  }

  #turn(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.stopPropagation();
    const tabs = [...this.#tabs.children];
    const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
    this.#choose(next.dataset.view);
    next.focus();
  }

  #draw() {
    release(this.#shown);
    const troubles = (this.#entry?.troubles ?? []).map((words) => element("p", { class: "message bad" }, words));
    this.#shown.replaceChildren(...troubles, ...[this.#content()].filter(Boolean));
  }

  #content() {
    const entry = this.#entry;
    if (!entry?.answer) return null;
    if (entry.isLetGo) return element("p", { class: "muted" }, "What this step showed was let go, to keep the page small.");
    if (this.#chosen === "state") return renderTree(entry.state ?? null, { previous: this.#before?.state ?? undefined, open: true });
    if (this.#chosen === "raw") return framesOf(entry);
    return renderObservation(entry.answer.observation, { rendering: entry.rendering, html: entry.view?.html ?? null });
  }
}

function titleOf(entry, isLive) {
  if (!entry) return "Nothing to see yet";
  if (!entry.episode) return `Step ${entry.step}`; // of an episode whose beginning nobody saw
  const place = entry.step === 0 ? `Episode ${entry.episode}, its beginning` : `Episode ${entry.episode}, step ${entry.step}`;
  return isLive ? place : `${place} (looking back)`;
}

function factsOf(entry, rewards) {
  if (!entry?.answer) return [];
  const { reward, done, truncated, reward_info: parts } = entry.answer;
  const total = rewards.reduce((sum, one) => sum + (one.reward ?? 0), 0);
  const facts = [["reward", reward === null || reward === undefined ? "none" : numeral(reward)], ["so far", numeral(total)]];
  for (const [name, value] of Object.entries(parts?.components ?? {})) facts.push([name, numeral(value)]);
  if (parts?.unscored) facts.push(["unscored", parts.unscored]);
  facts.push(["episode", truncated ? "truncated" : done ? "over" : "goes on"]);
  if (entry.milliseconds !== null) facts.push(["answered in", `${entry.milliseconds.toFixed(entry.milliseconds < 10 ? 1 : 0)} ms`]);
  return facts;
}

const fact = ([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value));

const numeral = (value) => (typeof value === "number" ? String(Math.round(value * 1e6) / 1e6) : String(value));

function framesOf({ kind, request, answer, state, error }) {
  const frames = { [kind]: request, answer, state, ...(error ? { error } : {}) };
  return element("pre", { class: "raw" }, asText(frames).slice(0, MOST_OF_FRAMES));
}
