/**
 * Codecs of version 1: messages to frames, and back.
 *
 * @module
 */

import { ProtocolError } from "./errors.ts";
import { readJson, writeJson } from "./json.ts";
import type { Answer, Request } from "./messages.ts";

/** The content of a WebSocket message. */
export type Frame = string | Uint8Array<ArrayBuffer>;

/** Return whether two frames are equal. */
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
  /** Join written requests into one frame. */
  join(requests: readonly Frame[]): Frame;
  /** Read a frame. */
  decode(frame: Frame): unknown;
}

/** The codec `openenv.v1.json`, which is readable and needs no other package. */
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
 * Read the answers in a frame.
 *
 * @throws ProtocolError - The frame breaks the protocol.
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

/** Return whether a value is an object, not an array or null. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
