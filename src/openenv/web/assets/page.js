// The page: what it knows, which of its parts is shown, and the connection that all of them share.

import { showDocs } from "./docs.js";
import { element } from "./parts.js";
import { Play } from "./play.js";
import { Watch } from "./watch.js";
import { Connection } from "./wire.js";

const KEY = "openenv.key";
const THEME = "openenv.theme";

class Page {
  #main = document.getElementById("main");
  #status = document.getElementById("connection");
  #about = null;
  #connection = null;
  #parts = new Map(); // what was shown once stays, by its name
  #shown = "";

  async start() {
    this.#followTheme();
    await this.#learn();
    window.addEventListener("hashchange", () => this.#show());
    window.addEventListener("pagehide", () => this.#connection?.close());
    this.#listTabs();
    this.#show();
  }

  get key() {
    return sessionStorage.getItem(KEY) ?? "";
  }

  /** Find out what is served; with a key, where one is wanted. */
  async #learn() {
    for (;;) {
      const headers = this.key ? { Authorization: `Bearer ${this.key}` } : {};
      const answer = await fetch("about", { headers });
      if (answer.ok) {
        this.#about = await answer.json();
        document.title = this.#about.title;
        document.getElementById("title").textContent = this.#about.title;
        return;
      }
      if (![401, 403].includes(answer.status)) throw new Error(await reasonOf(answer));
      sessionStorage.setItem(KEY, await this.#askForKey(this.key ? await reasonOf(answer) : ""));
    }
  }

  #askForKey(refused) {
    return new Promise((resolve) => {
      const input = element("input", { id: "key", type: "password", autocomplete: "off", size: 40 });
      const submit = () => input.value && resolve(input.value);
      input.addEventListener("keydown", (event) => event.key === "Enter" && submit());
      this.#main.replaceChildren(
        element("section", { class: "card", "aria-labelledby": "key-title" },
          element("h2", { id: "key-title" }, "This server wants a key"),
          element("p", { class: "muted" }, "An orchestrator's, to play. It is kept until this tab is closed."),
          refused && element("p", { class: "message bad", role: "alert" }, refused),
          element("label", { for: "key" }, "Key"),
          element("div", { class: "row" }, input,
            element("button", { type: "button", class: "primary", click: submit }, "Go on"))),
      );
      input.focus();
    });
  }

  #pages() {
    const { tabs, mode, shows_playground: shows } = this.#about;
    const own = [];
    if (mode === "simulation") own.push({ id: "play", name: "Play" });
    own.push({ id: "watch", name: "Watch" }, { id: "docs", name: "Docs" });
    const custom = tabs.map((tab, number) => ({ id: `tab-${number}`, ...tab }));
    const generated = shows ? own : own.filter(({ id }) => id !== "play");
    const first = custom.filter((tab) => tab.is_primary);
    return [...first, ...generated, ...custom.filter((tab) => !tab.is_primary)];
  }

  #listTabs() {
    document.getElementById("tabs").replaceChildren(
      ...this.#pages().map(({ id, name }) => element("a", { href: `#${id}`, "data-page": id }, name)),
    );
  }

  #show() {
    const pages = this.#pages();
    const wanted = location.hash.slice(1);
    const page = pages.find(({ id }) => id === wanted) ?? pages[0];
    if (page.id === this.#shown) return;
    this.#parts.get(this.#shown)?.hidden?.();
    this.#shown = page.id;
    for (const link of document.querySelectorAll("#tabs a")) {
      if (link.dataset.page === page.id) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (!this.#parts.has(page.id)) this.#parts.set(page.id, this.#made(page));
    const part = this.#parts.get(page.id);
    this.#main.replaceChildren(part.element);
    part.shown?.();
  }

  #made(page) {
    if (page.id === "play") return new Play(this.#about, () => this.connected());
    if (page.id === "watch") return new Watch(this.key, this.#about.reward?.kind);
    if (page.id === "docs") return showDocs(this.#about);
    return { element: element("iframe", { class: "custom", src: page.path, title: page.name }) };
  }

  /** The connection, made when it is first needed, and anew after it was lost. */
  async connected() {
    if (this.#connection) return this.#connection;
    this.#say("connecting…");
    const connection = new Connection(this.key);
    connection.addEventListener("interrupted", () => this.#say("interrupted; going on…", true));
    connection.addEventListener("resumed", () => this.#say("connected"));
    connection.addEventListener("lost", ({ detail }) => {
      this.#connection = null;
      this.#say(`not connected: ${detail}`, true);
    });
    try {
      this.#connection = await connection.connect();
    } catch (error) {
      this.#say(`not connected: ${error.message}`, true);
      throw error;
    }
    this.#say("connected");
    return this.#connection;
  }

  #say(words, isBad = false) {
    this.#status.textContent = words;
    this.#status.classList.toggle("bad", isBad);
  }

  /** Light, dark, or as the system has it. */
  #followTheme() {
    const button = document.getElementById("theme");
    const themes = ["system", "light", "dark"];
    const use = (theme) => {
      if (theme === "system") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = theme;
      button.textContent = `Theme: ${theme}`;
      localStorage.setItem(THEME, theme);
    };
    button.addEventListener("click", () => {
      const now = document.documentElement.dataset.theme ?? "system";
      use(themes[(themes.indexOf(now) + 1) % themes.length]);
    });
    use(themes.includes(localStorage.getItem(THEME)) ? localStorage.getItem(THEME) : "system");
  }
}

async function reasonOf(answer) {
  try {
    const { detail } = await answer.json();
    return typeof detail === "string" ? detail : JSON.stringify(detail);
  } catch {
    return `${answer.status} ${answer.statusText}`;
  }
}

new Page().start().catch((error) => {
  document.getElementById("main").replaceChildren(
    element("p", { class: "message bad", role: "alert" }, `The page cannot be shown: ${error.message}`),
  );
});
