// The sessions of the server, live, and what one of them does, as it does it.

import { element } from "./parts.js";
import { entryOf } from "./recording.js";
import { Stage } from "./stage.js";
import { socketAddress, subprotocols } from "./wire.js";

const MOST_EVENTS = 500; // of the session that is followed
const LISTED = 12; // of them, as rows
const PAUSE_MS = 2000; // before another attempt to connect

export class Watch {
  #key;
  #socket = null;
  #followed = null;
  #entries = [];
  #missed = 0;
  #isShown = false;
  #facts = element("dl", { class: "facts" });
  #rows = element("tbody");
  #status = element("p", { class: "muted", role: "status" });
  #events = element("ol", { class: "muted", "aria-label": "What it did last" });
  #stage;
  #following = element("section", { class: "card", hidden: true, "aria-label": "The session that is followed" });

  constructor(key, kind) {
    this.#key = key;
    this.#stage = new Stage(kind);
    this.#following.append(
      element("header", {}, element("h2", {}, "Following"), element("button", { type: "button", click: () => this.#follow(null) }, "Stop")),
      this.#stage.element, this.#events);
    this.element = element("div", { class: "pane" },
      element("section", { class: "card", "aria-label": "Sessions" },
        element("header", {}, element("h2", {}, "Sessions"), this.#status), this.#facts,
        element("div", { class: "history", tabindex: "0", role: "region", "aria-label": "The sessions of this server" },
          element("table", { class: "list" },
            element("thead", {}, element("tr", {}, ...["Session", "State", "Steps", "Age", "Idle", ""].map((name) => element("th", { scope: "col" }, name)))),
            this.#rows))),
      this.#following);
  }

  shown() {
    this.#isShown = true;
    this.#connect();
  }

  hidden() {
    this.#isShown = false;
    this.#socket?.close(1000);
  }

  #connect() {
    const socket = new WebSocket(socketAddress("watch"), subprotocols(this.#key, "openenv.watch"));
    this.#socket = socket;
    socket.onopen = () => {
      this.#status.textContent = "live";
      if (this.#followed) this.#ask(this.#followed);
    };
    socket.onmessage = ({ data }) => this.#take(JSON.parse(data));
    socket.onclose = ({ code, reason }) => {
      if (!this.#isShown || socket !== this.#socket) return;
      this.#status.textContent = code === 4403 ? "this key may not watch" : `not connected: ${reason || code}`;
      if (code !== 4403) setTimeout(() => this.#isShown && this.#connect(), PAUSE_MS);
    };
  }

  #ask(sessionId) {
    this.#socket.send(JSON.stringify(sessionId ? { type: "follow", data: { session_id: sessionId } } : { type: "unfollow" }));
  }

  #follow(sessionId) {
    this.#followed = sessionId;
    this.#entries = [];
    this.#missed = 0;
    this.#following.hidden = !sessionId;
    this.#stage.show(null, [], true);
    this.#events.replaceChildren();
    this.#ask(sessionId);
  }

  #take({ type, data }) {
    if (type === "sessions") this.#list(data);
    else if (type === "event") this.#event(data);
    else if (type === "missed") this.#note(`${(this.#missed += data.events)} events were missed: this page is too slow for them`);
    else if (type === "omitted") this.#note(`an event of ${data.bytes} bytes is too large to be watched`);
    else if (type === "ended") this.#note("the session has ended");
    else if (type === "error") this.#note(data.message);
    else if (type === "following") this.#note(`following session ${data.session_id}, from step ${data.steps}`);
  }

  #list(data) {
    this.#facts.replaceChildren(...[
      ["environment", data.environment], ["sessions", `${data.active} of ${data.max_sessions}`],
      ["waiting", data.queue], ["steps", data.steps], ["steps/s", data.steps_per_s.toFixed(1)],
      ...(data.trouble ? [["state", "degraded"]] : []),
    ].map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, String(value)))));
    const focused = this.#rows.contains(document.activeElement) ? document.activeElement.dataset.session : null;
    this.#rows.replaceChildren(...data.sessions.map((one) => this.#row(one, data.time)));
    if (focused) this.#rows.querySelector(`[data-session="${CSS.escape(focused)}"]`)?.focus();
    if (data.total > data.sessions.length) this.#status.textContent = `live; the ${data.sessions.length} busiest of ${data.total}`;
  }

  #row(session, now) {
    const id = session.session_id;
    const state = session.is_overdue ? "overdue" : session.is_busy ? "busy" : session.phase;
    return element("tr", { class: id === this.#followed ? "current" : null },
      element("td", { class: "text" }, id), element("td", {}, state),
      element("td", { class: "number" }, String(session.steps)),
      element("td", { class: "number" }, spell(now - session.created_at)),
      element("td", { class: "number" }, spell(session.idle_s)),
      element("td", {}, element("button", { type: "button", "data-session": id, "aria-label": `Follow session ${id}`, click: () => this.#follow(id) }, "Follow")));
  }

  #event(event) {
    const entry = entryOf(event, this.#entries.length ? this.#entries.at(-1).number : 0);
    this.#entries.push(entry);
    if (this.#entries.length > MOST_EVENTS) this.#entries.shift();
    if (entry.answer) this.#stage.show(entry, this.#entries, true);
    const said = entry.error ? `: ${entry.error.message}` : `, reward ${entry.answer?.reward ?? "none"}`;
    this.#note(`${entry.kind} ${entry.episode}.${entry.step}${said}`);
  }

  #note(words) {
    this.#events.prepend(element("li", {}, words));
    while (this.#events.children.length > LISTED) this.#events.lastChild.remove();
  }
}

function spell(seconds) {
  if (seconds < 60) return `${seconds.toFixed(0)} s`;
  return seconds < 3600 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
