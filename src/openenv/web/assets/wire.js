// Version 1 of the protocol, as JSON: one socket, many sessions, gone on with where it breaks.
// docs/concepts/wire.md says what is sent.

const SUBPROTOCOL = "openenv.v1.json";
const KEY_PREFIX = "openenv.key.";
// With any other code a side has left for good.
const ACCIDENTS = new Set([1005, 1006, 1011, 1013, 1014]);
const ATTEMPT_PAUSES_MS = [100, 400, 1000, 2000, 4000];

export class WireError extends Error {
  constructor(data) {
    super([data.message ?? "the server gave no reason", ...detailsOf(data.errors)].join("; "));
    this.name = "WireError";
    this.code = data.code ?? "ERROR";
    this.data = data;
  }
}

/** What was wrong with which field. */
function detailsOf(errors) {
  if (!Array.isArray(errors)) return [];
  return errors.map(({ loc = [], msg }) => (loc.length ? `${loc.join(".")}: ${msg}` : msg));
}

export class ConnectionLost extends Error {
  constructor(reason) {
    super(reason);
    this.name = "ConnectionLost";
  }
}

/** A key as a browser can send it with a WebSocket, which takes no headers. */
export function subprotocols(key, ...own) {
  if (!key) return own;
  const bytes = new TextEncoder().encode(key);
  const text = btoa(String.fromCharCode(...bytes));
  return [...own, KEY_PREFIX + text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")];
}

/** The address of a WebSocket beside the page, wherever a proxy has put it. */
export function socketAddress(path) {
  const address = new URL(path, document.baseURI);
  address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
  return address.href;
}

export class Connection extends EventTarget {
  #socket = null;
  #key;
  #hello = null;
  #received = 0; // frames of the server, the hello included
  #sent = []; // frames that the server has not said to have
  #sentBefore = 0; // frames that it has
  #pending = new Map(); // by "session:id"
  #opening = new Map(); // by session
  #nextSession = 1;
  #isClosed = false;

  constructor(key) {
    super();
    this.#key = key;
  }

  /** Connect. Fails with what the server, or the browser, says. */
  async connect() {
    const { socket, hello } = await this.#greeted();
    this.#hello = hello;
    this.#received = 1;
    this.#use(socket);
    return this;
  }

  get capabilities() {
    return this.#hello?.capabilities ?? [];
  }

  /** How many sessions the server holds. */
  get maxSessions() {
    return this.#hello?.max_sessions ?? 1;
  }

  /** Open a session, waiting for a place if `waitSeconds` says for how long. */
  async open({ waitSeconds = 0, onQueued, record = false } = {}) {
    const number = this.#nextSession++;
    const data = {};
    if (waitSeconds) data.queue_timeout_s = waitSeconds;
    if (record) data.record = true;
    const opened = new Promise((resolve, reject) => {
      this.#opening.set(number, { resolve, reject, onQueued });
    });
    this.#send({ type: "open", session: number, ...(Object.keys(data).length ? { data } : {}) });
    const { session_id: id } = await opened;
    return new Session(this, number, id);
  }

  /** Ask for something; the promise has the data of the answer. */
  ask(session, id, message) {
    const answer = new Promise((resolve, reject) => {
      this.#pending.set(`${session}:${id}`, { resolve, reject });
    });
    this.#send({ ...message, session, id });
    return answer;
  }

  close() {
    this.#lose("the page was left"); // it may be come back to
  }

  #send(message) {
    if (this.#isClosed) throw new ConnectionLost("the connection is closed");
    const frame = JSON.stringify({ ...message, ack: this.#received });
    this.#sent.push(frame);
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(frame);
  }

  /** A new socket that the server has greeted. */
  #greeted() {
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(socketAddress("../ws"), subprotocols(this.#key, SUBPROTOCOL));
      socket.onmessage = (event) => {
        const hello = JSON.parse(event.data);
        if (hello.type === "hello") resolve({ socket, hello: hello.data });
        else reject(new ConnectionLost("the server's first frame is no hello"));
      };
      socket.onclose = (event) => {
        reject(new ConnectionLost(event.reason || "the server cannot be reached"));
      };
    });
  }

  #use(socket) {
    this.#socket = socket;
    socket.onmessage = (event) => {
      this.#received += 1;
      this.#take(event.data);
    };
    socket.onclose = (event) => {
      if (socket !== this.#socket || this.#isClosed) return;
      if (ACCIDENTS.has(event.code)) this.#goOn();
      else this.#lose(event.reason || `the server closed the connection (${event.code})`);
    };
  }

  #take(text) {
    const frame = JSON.parse(text);
    for (const message of Array.isArray(frame) ? frame : [frame]) this.#answer(message);
  }

  #answer({ type, session, id, data }) {
    if (type === "ack") {
      this.#forgetSent(data.received);
    } else if (type === "gone") {
      this.#lose(`the server goes away: ${data.reason}`);
    } else if (type === "opened") {
      this.#settle(this.#opening, session, data);
    } else if (type === "queued") {
      this.#opening.get(session)?.onQueued?.(data);
    } else if (type === "error") {
      this.#fail(session, id, data);
    } else {
      this.#settle(this.#pending, `${session}:${id}`, data);
    }
  }

  #settle(waiting, key, data) {
    waiting.get(key)?.resolve(data);
    waiting.delete(key);
  }

  #fail(session, id, data) {
    const error = new WireError(data);
    // A step that goes on past its deadline is answered once more, later.
    if (data.code === "STEP_TIMEOUT" && data.is_running) return;
    const [waiting, key] = id ? [this.#pending, `${session}:${id}`] : [this.#opening, session];
    waiting.get(key)?.reject(error);
    waiting.delete(key);
  }

  #forgetSent(received) {
    this.#sent.splice(0, Math.max(0, received - this.#sentBefore));
    this.#sentBefore = Math.max(this.#sentBefore, received);
  }

  /** Go on by another socket: each side sends again what the other lacks. */
  async #goOn() {
    this.dispatchEvent(new Event("interrupted"));
    const deadline = performance.now() + 1000 * (this.#hello.grace_s ?? 0);
    for (let attempt = 0; performance.now() < deadline && !this.#isClosed; attempt++) {
      const pause = ATTEMPT_PAUSES_MS[Math.min(attempt, ATTEMPT_PAUSES_MS.length - 1)];
      await new Promise((resolve) => setTimeout(resolve, pause));
      let greeted;
      try {
        greeted = await this.#greeted();
      } catch {
        continue;
      }
      if (greeted.hello.server !== this.#hello.server) {
        greeted.socket.close(1000);
        return this.#lose("the server was started anew, and knows nothing of this session");
      }
      const refused = await this.#resume(greeted.socket);
      if (refused === null) return this.dispatchEvent(new Event("resumed"));
      if (refused) return this.#lose(refused);
    }
    this.#lose("the connection broke, and the server could not be reached in time");
  }

  /** Ask a server to go on. Gives null where it does, what it says where it does not, and "" where
   * this socket broke too. */
  #resume(socket) {
    return new Promise((resolve) => {
      socket.onclose = () => resolve("");
      socket.onmessage = (event) => {
        const { type, data } = JSON.parse(event.data);
        if (type !== "resumed") return resolve(data?.message ?? "the session is gone");
        this.#forgetSent(data.received);
        this.#use(socket);
        for (const frame of this.#sent) socket.send(frame);
        resolve(null);
      };
      const { connection, resume_token: token } = this.#hello;
      const resume = { connection, token, received: this.#received };
      socket.send(JSON.stringify({ type: "resume", data: resume }));
    });
  }

  #lose(reason) {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#socket?.close(1000);
    this.#end(new ConnectionLost(reason));
    this.dispatchEvent(new CustomEvent("lost", { detail: reason }));
  }

  #end(error) {
    for (const waiting of [this.#pending, this.#opening]) {
      for (const { reject } of waiting.values()) reject(error);
      waiting.clear();
    }
  }
}

/** One session: its requests are served in their order. */
export class Session {
  #connection;
  #number;
  #id = 0;

  constructor(connection, number, id) {
    this.#connection = connection;
    this.#number = number;
    this.id = id;
  }

  #ask(message) {
    this.#id += 1;
    return this.#connection.ask(this.#number, this.#id, message);
  }

  reset(args) {
    return this.#ask({ type: "reset", data: args });
  }

  step(action) {
    return this.#ask({ type: "step", data: action });
  }

  state() {
    return this.#ask({ type: "state" });
  }

  render() {
    return this.#ask({ type: "render" });
  }

  view(message) {
    return this.#ask({ type: "view", ...(message === undefined ? {} : { data: { message } }) });
  }

  snapshot() {
    return this.#ask({ type: "snapshot" });
  }

  restore(snapshot) {
    return this.#ask({ type: "restore", data: { snapshot } });
  }

  /** Call a method of MCP. */
  async mcp(method, params) {
    const request = { jsonrpc: "2.0", id: this.#id + 1, method, ...(params ? { params } : {}) };
    const response = await this.#ask({ type: "mcp", data: request });
    if (response.error) throw new WireError({ code: "MCP", ...response.error });
    return response.result;
  }

  close() {
    return this.#ask({ type: "close" });
  }
}
