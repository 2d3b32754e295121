/**
 * WebSocket connections, and the reasons why one cannot be opened.
 *
 * @module
 */

import type { Frame } from "../codec.ts";
import { ConnectError, refusalOf } from "../errors.ts";

/** The address of a server, and how to connect to it. */
export interface Address {
  /** The URL, such as `http://localhost:8000`. */
  readonly url: string;
  readonly apiKey: string | undefined;
  readonly timeoutS: number;
}

/** The receiver of a transport's frames. */
export interface Receiver {
  onFrame(frame: Frame): void;
  /** Called when the transport has closed; `code` is a close code of RFC 6455. */
  onClosed(code: number, reason: string): void;
}

const BROKEN = 1006; // RFC 6455: the connection ended without a close frame
const CLOSE_FOLLOWS_MS = 100;

interface Ended {
  readonly code: number;
  readonly reason: string;
}

/** An open WebSocket. It keeps frames until a receiver is attached, or `receive` reads them. */
export class WebSocketTransport {
  readonly protocol: string;
  readonly #socket: WebSocket;
  #receiver: Receiver | undefined;
  #early: Frame[] = [];
  #ended: Ended | undefined;
  #wake: () => void = () => {};

  constructor(socket: WebSocket) {
    this.#socket = socket;
    this.protocol = socket.protocol;
    socket.onmessage = ({ data }) => {
      const frame: Frame = typeof data === "string" ? data : new Uint8Array(data as ArrayBuffer);
      if (this.#receiver === undefined) this.#early.push(frame);
      else this.#receiver.onFrame(frame);
      this.#wake();
    };
    socket.onclose = ({ code, reason }) => this.#end(code, reason);
    // A close event follows, except in some versions of Node 22.
    socket.onerror = () => setTimeout(() => this.#end(BROKEN, ""), CLOSE_FOLLOWS_MS);
  }

  #end(code: number, reason: string): void {
    if (this.#ended !== undefined) return;
    this.#ended = { code, reason };
    this.#receiver?.onClosed(code, reason);
    this.#wake();
  }

  /**
   * Wait for the next frame, before a receiver is attached.
   *
   * @throws ConnectError - No frame came in time, or the socket is closed.
   */
  async receive(timeoutS: number): Promise<Frame> {
    if (this.#early.length === 0 && this.#ended === undefined) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      const timer = setTimeout(resolve, timeoutS * 1000);
      await promise;
      clearTimeout(timer);
    }
    const frame = this.#early.shift();
    if (frame !== undefined) return frame;
    if (this.#ended === undefined) {
      throw new ConnectError(`the server was silent for ${timeoutS} s`);
    }
    const { code, reason } = this.#ended;
    throw new ConnectError(`the server closed the socket (${[code, reason].join(" ").trim()})`);
  }

  /** Pass all frames to a receiver from now on, the kept ones first. */
  attach(receiver: Receiver): void {
    this.#receiver = receiver;
    for (const frame of this.#early.splice(0)) receiver.onFrame(frame);
    if (this.#ended !== undefined) receiver.onClosed(this.#ended.code, this.#ended.reason);
  }

  send(frame: Frame): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(frame);
  }

  /** Close the socket with code 1000; web pages may only send this code or private codes. */
  close(): void {
    this.#socket.close(1000);
  }
}

/**
 * Open a WebSocket at `/ws` of a server.
 *
 * @param subprotocols - The subprotocols of version 1 to offer. If the server chooses none, the
 * connection has version 0 and no `protocol`.
 * @throws ConnectError - The WebSocket cannot be opened; a subclass if the server says why.
 */
export async function openTransport(
  address: Address,
  subprotocols: readonly string[],
): Promise<WebSocketTransport> {
  try {
    return await opened(address, subprotocols);
  } catch (error) {
    const refusal = await refusalAt(address);
    if (refusal instanceof ConnectError) throw refusal;
    if (!refusal.isThere || subprotocols.length === 0) throw error;
  }
  // If the server chooses no subprotocol, the browser or Node refuses the socket. But the failure may
  // be temporary, so the client tries version 1 again before version 0.
  try {
    return await opened(address, subprotocols);
  } catch {
    return await opened(address, []);
  }
}

/** Open another WebSocket for a connection of version 1, with the same subprotocol. */
export async function reopenTransport(
  address: Address,
  subprotocol: string,
): Promise<WebSocketTransport> {
  try {
    return await opened(address, [subprotocol]);
  } catch (error) {
    const refusal = await refusalAt(address);
    throw refusal instanceof ConnectError ? refusal : error;
  }
}

/** True in Node, whose WebSocket takes headers. In browsers, the key is sent as a subprotocol. */
const TAKES_HEADERS =
  (globalThis as { process?: { versions?: { node?: string } } }).process?.versions?.node !==
  undefined;

function socketAt({ url, apiKey }: Address, subprotocols: readonly string[]): WebSocket {
  const protocols = [...subprotocols];
  if (apiKey !== undefined && TAKES_HEADERS) {
    const init = { protocols, headers: { "X-API-Key": apiKey } };
    return new WebSocket(routeUrl(url, "ws"), init as unknown as string[]);
  }
  if (apiKey !== undefined) protocols.push(`openenv.key.${base64Url(apiKey)}`);
  return new WebSocket(routeUrl(url, "ws"), protocols);
}

function opened(address: Address, subprotocols: readonly string[]): Promise<WebSocketTransport> {
  const { url, timeoutS } = address;
  const socket = socketAt(address, subprotocols);
  socket.binaryType = "arraybuffer";
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      socket.onerror = socket.onclose = null;
      socket.close();
      reject(new ConnectError(`the server at ${url} did not answer within ${timeoutS} s`));
    }, timeoutS * 1000);
    socket.onopen = () => {
      clearTimeout(timer);
      resolve(new WebSocketTransport(socket));
    };
    socket.onerror = socket.onclose = () => {
      clearTimeout(timer);
      reject(new ConnectError(`no WebSocket could be opened at ${routeUrl(url, "ws")}`));
    };
  });
}

/** Ask by HTTP why a handshake failed, which a WebSocket does not reveal, or if a server exists. */
async function refusalAt(address: Address): Promise<ConnectError | { isThere: boolean }> {
  const { url, apiKey, timeoutS } = address;
  let response: Response;
  try {
    const headers = apiKey === undefined ? {} : { "X-API-Key": apiKey };
    const signal = AbortSignal.timeout(timeoutS * 1000);
    response = await fetch(routeUrl(url, "http"), { headers, signal, redirect: "manual" });
  } catch {
    // No server, or, on a web page, a server whose answers the page may not read.
    return { isThere: !TAKES_HEADERS };
  }
  try {
    const body = (await response.json()) as { code?: unknown; detail?: unknown };
    if ("code" in body) return refusalOf(response.status, String(body.detail));
  } catch {
    // not an answer of an OpenEnv server
  }
  return { isThere: true };
}

/**
 * Ask by HTTP whether a server answers. If a web page may not ask, the result is true.
 *
 * @param timeoutS - Seconds to wait for an answer.
 */
export async function isHealthy(address: Address, timeoutS: number): Promise<boolean> {
  const options: RequestInit = { mode: "no-cors", cache: "no-store", redirect: "manual" };
  const signal = AbortSignal.timeout(timeoutS * 1000);
  try {
    const response = await fetch(routeUrl(address.url, "http", "health"), { ...options, signal });
    await response.body?.cancel();
    return true;
  } catch {
    return !signal.aborted && !TAKES_HEADERS;
  }
}

/** Routes that servers print, with which an address may end. */
const PAGES = /\/(docs|health|mcp|web|ws)$/i;

/** Return the URL of a route of a server, for WebSocket or HTTP. */
export function routeUrl(url: string, scheme: "ws" | "http", route = "ws"): string {
  const target = parsed(url);
  const isSecure = target.protocol === "https:" || target.protocol === "wss:";
  if (!isSecure && target.protocol !== "http:" && target.protocol !== "ws:") {
    throw new ConnectError(`${url} is no address of a server; expected http://HOST:PORT`);
  }
  target.protocol = isSecure ? `${scheme}s:` : `${scheme}:`;
  const root = target.pathname.replace(/\/+$/, "").replace(PAGES, "");
  target.pathname = `${root.replace(/\/+$/, "")}/${route}`;
  target.search = target.hash = "";
  return target.href;
}

/** Parse an address. An address without a scheme, such as `localhost:8000`, means HTTP. */
function parsed(url: string): URL {
  const text = url.trim();
  try {
    return new URL(text.includes("://") ? text : `http://${text}`);
  } catch {
    throw new ConnectError(`${url} is no address of a server; expected http://HOST:PORT`);
  }
}

function base64Url(text: string): string {
  const bytes = new TextEncoder().encode(text);
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}
