// The left pane, where the person acts, and the right one, where they see what the environment shows.

import { buildForm, FormInvalid } from "./form.js";
import { Game } from "./game.js";
import { History } from "./history.js";
import { isTyping, keyName, movesOf } from "./moves.js";
import { element } from "./parts.js";
import { Stage } from "./stage.js";

const WAIT_SECONDS = 60;
// Errors that end a session; any other leaves it as it was.
const ENDS = new Set(["SESSION_ERROR", "FACTORY_ERROR", "CAPACITY_REACHED"]);

export class Play {
  #about;
  #connect;
  #game = null;
  #opening = null;
  #moves = [];
  #stage;
  #history;
  #parts = { acts: [] };

  constructor(about, connect) {
    this.#about = about;
    this.#connect = connect;
    this.#stage = new Stage(about.reward?.kind);
    this.#history = new History(about, {
      show: (entry) => this.#look(entry),
      fork: (entry) => this.#fork(entry),
      replay: (entries) => this.#playAgain(entries),
    });
    this.element = this.#built();
    document.addEventListener("keydown", (event) => this.#press(event));
    this.#refresh();
  }

  #built() {
    const { schemas } = this.#about;
    const parts = this.#parts;
    parts.reset = new ResetForm(schemas.reset, () => this.#reset());
    parts.start = element("button", { type: "button", class: "primary", click: () => this.#reset() }, "Start an episode");
    parts.moves = element("div", { class: "moves", role: "group", "aria-label": "Moves" });
    parts.movesCard = card("Moves", parts.moves);
    parts.acting = element("div", { class: "pane" });
    parts.message = element("p", { class: "message", role: "status", hidden: true });
    parts.problem = element("p", { class: "message bad", role: "alert", hidden: true });
    const { can, tools } = this.#about;
    if (can.chat) parts.acting.append(this.#chatCard());
    if (Object.keys(schemas.action).length) parts.acting.append(this.#actionCard());
    if (tools?.length) parts.acting.append(this.#toolsCard());
    return element("div", { class: "panes" },
      element("div", { class: "pane" },
        card("Episode", parts.reset.element, element("div", { class: "row" }, parts.start)),
        parts.problem, parts.message, parts.movesCard, parts.acting),
      element("div", { class: "pane" }, this.#stage.element, this.#history.element));
  }

  // ------------------------------------------------------------------ ways to act

  #actionCard() {
    const form = buildForm(this.#about.schemas.action, { idPrefix: "action", onSubmit: () => this.#act(way) });
    const way = { form, action: (value) => value, button: this.#actButton("Step", () => this.#act(way)) };
    return card("Action", form.element, element("div", { class: "row" }, way.button), this.#rawAction(form));
  }

  /** A form for each tool. What is called is the action that a trainer would send. */
  #toolsCard() {
    const { tools } = this.#about;
    const holder = element("div");
    const about = element("p", { class: "muted" });
    const way = { button: this.#actButton("Call the tool", () => this.#act(way)) };
    const choose = (number) => {
      const { name, description, inputSchema } = tools[number];
      about.textContent = description ?? "";
      way.form = buildForm(inputSchema ?? { type: "object" }, {
        idPrefix: "tool-argument", omit: [], onSubmit: () => this.#act(way),
      });
      way.action = (value) => ({ type: "call_tool", tool_name: name, arguments: value });
      holder.replaceChildren(way.form.isEmpty ? element("p", { class: "muted" }, "It takes no arguments.") : way.form.element);
    };
    const select = element("select", { id: "tool", change: () => choose(Number(select.value)) },
      ...tools.map((tool, number) => element("option", { value: number }, tool.name)));
    choose(0);
    return card("Tools",
      element("div", { class: "row" }, element("label", { for: "tool" }, "Tool"), select),
      about, holder, element("div", { class: "row" }, way.button));
  }

  #chatCard() {
    const input = element("textarea", { id: "chat", rows: 3 });
    const send = () => input.value.trim() && this.#do(async (game) => {
      await game.message({ role: "user", content: input.value });
      input.value = "";
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
    });
    return card("Message", element("label", { for: "chat", class: "unseen" }, "Message"), input,
      element("div", { class: "row" }, this.#actButton("Send", send)));
  }

  #rawAction(form) {
    const input = element("textarea", { id: "raw-action", rows: 4, spellcheck: "false" });
    const send = this.#actButton("Send as it is", () => this.#do((game) => game.take(JSON.parse(input.value))));
    return element("details", {},
      element("summary", { click: () => { input.value ||= JSON.stringify(form.peek() ?? {}, null, 2); } }, "As JSON"),
      element("label", { for: "raw-action", class: "unseen" }, "The action as JSON"), input, send);
  }

  /** A button that can be pressed while an episode goes on. */
  #actButton(words, click) {
    const button = element("button", { type: "button", class: "primary", click }, words);
    this.#parts.acts.push(button);
    return button;
  }

  // ------------------------------------------------------------------ acting

  #reset() {
    const args = valueOrNull(() => this.#parts.reset.value());
    if (args === null) return;
    this.#do((game) => game.reset(args), this.#parts.reset);
  }

  #act({ form, action, button }) {
    if (button.disabled) return;
    const value = valueOrNull(() => form.value());
    if (value !== null) this.#do((game) => game.take(action(value)), form);
  }

  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.element.isConnected) return;
    if (isTyping(event.target) || event.repeat) return;
    const move = this.#moves.find(({ key }) => key === event.key);
    if (!move || this.#cannotStep()) return;
    event.preventDefault();
    this.#do((game) => game.take(move.action));
  }

  /** Do something in the game; what goes wrong is said, at the field where it can be. */
  async #do(act, form = null) {
    this.#say("");
    form?.clearErrors();
    try {
      const game = await this.#playing();
      if (!game.isBusy) await act(game);
    } catch (error) {
      this.#complain(error, form);
    }
    this.#refresh();
  }

  /** The game, begun once, however often it is asked for meanwhile. */
  async #playing() {
    if (this.#game) return this.#game;
    this.#opening ??= this.#newGame().finally(() => { this.#opening = null; });
    const game = await this.#opening;
    if (this.#game !== game) {
      this.#game = game;
      this.#history.follow(game);
    }
    return game;
  }

  /** A game in a session of its own, or in one that there is. */
  async #newGame(own = null) {
    const connection = await this.#connect();
    const session = own ?? await connection.open({
      waitSeconds: connection.capabilities.includes("queue") ? WAIT_SECONDS : 0,
      onQueued: ({ position, length }) => this.#tell(`The server is full: place ${position} of ${length} in the queue.`),
    });
    this.#tell("");
    const game = new Game(session, this.#about.can, connection.capabilities.includes("view"));
    game.addEventListener("busy", () => this.#refresh());
    game.addEventListener("entry", ({ detail }) => this.#look(detail.answer ? detail : game.shown));
    connection.addEventListener("lost", ({ detail }) => this.#lose(game, detail));
    return game;
  }

  /** A connection that is gone took the session with it; a new episode is begun by the person. */
  #lose(game, reason) {
    if (game !== this.#game) return;
    this.#game = null;
    this.#say(`The session is lost: ${reason}. What it showed is kept below; start a new episode to go on.`);
    this.#refresh();
  }

  async #fork(entry) {
    this.#say("");
    try {
      const before = this.#game;
      // A server of one session has no room for another beside it.
      const own = (await this.#connect()).maxSessions === 1 ? before?.session : null;
      const game = await this.#newGame(own);
      await game.restore(entry, this.#history.entries);
      this.#game = game;
      if (!own) before?.session.close().catch(() => {}); // it may be lost already
      this.#history.follow(game, `forked from step ${entry.step} of episode ${entry.episode}`);
      this.#look(game.shown);
    } catch (error) {
      this.#complain(error, null);
    }
    this.#refresh();
  }

  /** Make the requests of a recording again, one after the other, and say where it differs. */
  async #playAgain(entries) {
    for (const { kind, request, answer, step } of entries) {
      if (kind === "restore") {
        this.#say(`The recording goes back at step ${step}, which is played again by openenv replay only.`);
        return;
      }
      const now = await this.#again(kind, request);
      if (now === null) return;
      const [then, again] = [answer, now.answer].map((one) => JSON.stringify([one?.observation, one?.reward, one?.done]));
      if (then !== again) {
        this.#say(`Step ${now.step} came out otherwise than in the recording.`);
        return;
      }
    }
    this.#tell("The recording was played again, and came out the same.");
  }

  async #again(kind, request) {
    try {
      const game = await this.#playing();
      return await (kind === "step" ? game.take(request) : game.reset(request));
    } catch (error) {
      this.#complain(error, null);
      return null;
    } finally {
      this.#refresh();
    }
  }

  // ------------------------------------------------------------------ showing

  /** While a request is under way nothing is disabled, which would take the focus from it: what is
   * pressed meanwhile does nothing. */
  #cannotStep() {
    return !this.#game || this.#game.isOver;
  }

  #look(entry) {
    const game = this.#game;
    this.#stage.show(entry, game?.entries ?? this.#history.entries, entry === game?.shown);
    this.#history.mark(entry);
    this.#refresh();
  }

  #refresh() {
    const cannot = this.#cannotStep();
    const { start, acts, moves, movesCard } = this.#parts;
    if (this.#game?.isBusy) return;
    start.textContent = this.#game?.episode ? "Reset" : "Start an episode";
    for (const button of acts) button.disabled = cannot;
    const shown = this.#game?.shown;
    this.#moves = shown && !this.#game.isOver ? movesOf(shown.answer, shown.view, this.#about.schemas.action) : [];
    movesCard.hidden = this.#moves.length === 0;
    const hadFocus = moves.contains(document.activeElement) ? document.activeElement.textContent : null;
    moves.replaceChildren(...this.#moves.map((move) => this.#moveButton(move, cannot)));
    if (hadFocus) [...moves.children].find((one) => one.textContent === hadFocus)?.focus();
    this.#parts.acting.hidden = !this.#game?.episode;
  }

  #moveButton(move, isDisabled) {
    return element("button", { type: "button", disabled: isDisabled, click: () => this.#do((game) => game.take(move.action)) },
      move.label, move.key && element("kbd", { "aria-hidden": "true" }, keyName(move.key)));
  }

  #complain(error, form) {
    if (error instanceof FormInvalid) return;
    if (this.#game && ENDS.has(error.code)) return this.#lose(this.#game, error.message);
    const errors = error.data?.errors;
    if (form && Array.isArray(errors)) form.setErrors(errors);
    this.#say(error instanceof SyntaxError ? `This is no JSON: ${error.message}` : error.message);
  }

  #say(words) {
    this.#parts.problem.textContent = words;
    this.#parts.problem.hidden = !words;
  }

  #tell(words) {
    this.#parts.message.textContent = words;
    this.#parts.message.hidden = !words;
  }
}

/** Arguments of a reset: those that must be given and the seed in sight, the others folded away. */
class ResetForm {
  #forms;
  #folded = element("details");

  constructor(schema, onSubmit) {
    const names = Object.keys(schema.properties ?? {});
    const inSight = names.filter((name) => name === "seed" || schema.required?.includes(name));
    const others = names.filter((name) => !inSight.includes(name));
    const formOf = (omit, idPrefix) => buildForm(schema, { idPrefix, omit, onSubmit });
    this.#forms = [formOf(others, "reset"), formOf(inSight, "reset-more")];
    const [first, more] = this.#forms;
    this.#folded.append(element("summary", {}, "More arguments"), more.element);
    this.element = element("div", {}, first.element, more.isEmpty ? null : this.#folded);
  }

  value() {
    const [first, more] = this.#forms;
    const value = first.value();
    try {
      return { ...value, ...more.value() };
    } catch (error) {
      this.#folded.open = true; // what is wrong has to be seen
      throw error;
    }
  }

  setErrors(errors) {
    this.#folded.open = true;
    for (const form of this.#forms) form.setErrors(errors);
  }

  clearErrors() {
    for (const form of this.#forms) form.clearErrors();
  }
}

function card(title, ...children) {
  return element("section", { class: "card", "aria-label": title }, element("header", {}, element("h2", {}, title)), ...children);
}

/** What a form holds; null where it says itself what is wrong. */
function valueOrNull(make) {
  try {
    return make();
  } catch (error) {
    if (error instanceof FormInvalid) return null;
    throw error;
  }
}
