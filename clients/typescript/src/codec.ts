/**
 * Messages of version 1 to frames, and back.
 *
 * @module
 */

import { ProtocolError } from "./errors.ts";
import { readJson, writeJson } from "./json.ts";
import type { Answer, Request } from "./messages.ts";

/** What a frame is in a WebSocket message. */
export type Frame = string | Uint8Array<ArrayBuffer>;

/** Whether two frames are the same. */
export function isSameFrame(one: Frame, other: Frame): boolean {
  if (typeof one === "string" || typeof other === "string") return one === other;
  return one.length === other.length && one.every((byte, place) => byte === other[place]);
}

/** Reads and writes the frames of one subprotocol of version 1. */
export interface Codec {
  /** The WebSocket subprotocol. */
  readonly name: string;
  /** Write one request. */
  encode(request: Request): Frame;
  /** Put requests, which are written already, into one frame. */
  join(requests: readonly Frame[]): Frame;
  /** Read what a frame holds. */
  decode(frame: Frame): unknown;
}

/** `openenv.v1.json`: needs no other package, and can be read along. */
export const json: Codec = {
  name: "openenv.v1.json",
  encode: (request) => writeJson(request),
  join: (requests) => `[${requests.join(",")}]`,
  decode(frame) {
    if (typeof frame !== "string") throw new ProtocolError("the server sent a binary frame");
    return readJson(frame);
  },
};

/**
 * The answers in a frame.
 *
 * @throws ProtocolError - The frame is none that a server may send.
 */
export function answersIn(codec: Codec, frame: Frame): Answer[] {
  let found: unknown;
  try {
    found = codec.decode(frame);
  } catch (error) {
    throw new ProtocolError(`the server sent a frame that cannot be read: ${String(error)}`, {
      cause: error,
    });
  }
  return (Array.isArray(found) ? found : [found]).map(answerOf);
}

function answerOf(message: unknown): Answer {
  if (!isObject(message) || typeof message["type"] !== "string") {
    throw new ProtocolError("the server sent a message without a type");
  }
  const { session = null, id = null, data = null } = message;
  if (!isNumberOrNull(session) || !isNumberOrNull(id) || !(data === null || isObject(data))) {
    throw new ProtocolError(`the server sent a malformed message of type ${message["type"]}`);
  }
  return { type: message["type"], session, id, data };
}

function isNumberOrNull(value: unknown): value is number | null {
  return value === null || typeof value === "number";
}

/** Whether a value is an object of named fields. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
