/**
 * The codec `openenv.v1.msgpack`, which needs the package `@msgpack/msgpack`. It carries arrays and
 * bytes unencoded.
 *
 * @example
 * ```ts
 * import { EnvClient } from "openenv-client";
 * import { msgpack } from "openenv-client/msgpack";
 *
 * await using env = await EnvClient.connect("http://localhost:8000", { codecs: [msgpack] });
 * ```
 *
 * @module
 */

import { Decoder, Encoder, ExtData, ExtensionCodec } from "@msgpack/msgpack";
import { NDArray, dtypeOf } from "./arrays.ts";
import type { Codec, Frame } from "./codec.ts";
import { ProtocolError } from "./errors.ts";

const ARRAY = 1;
const BIG_INTEGER = 2;
const ARRAY_32 = 0xdd; // the head of an array with a four-byte length

const extensionCodec = new ExtensionCodec();
extensionCodec.register({ type: ARRAY, encode: () => null, decode: unpackArray });
extensionCodec.register({
  type: BIG_INTEGER,
  encode: () => null,
  decode: (digits) => BigInt(new TextDecoder().decode(digits)),
});

const encoder = new Encoder({
  extensionCodec,
  useBigInt64: true,
  ignoreUndefined: true,
  maxDepth: 1000,
});
const decoder = new Decoder({ extensionCodec, useBigInt64: true });

/** The codec `openenv.v1.msgpack`. */
export const msgpack: Codec = {
  name: "openenv.v1.msgpack",
  encode: (request) => encoder.encode(toWire(request)) as Uint8Array<ArrayBuffer>,
  join(requests) {
    const parts = requests as readonly Uint8Array[];
    const frame = new Uint8Array(parts.reduce((size, part) => size + part.length, 5));
    frame[0] = ARRAY_32;
    new DataView(frame.buffer).setUint32(1, parts.length);
    let at = 5;
    for (const part of parts) {
      frame.set(part, at);
      at += part.length;
    }
    return frame;
  },
  decode(frame: Frame) {
    if (typeof frame === "string") throw new ProtocolError("the server sent a text frame");
    return fromWire(decoder.decode(frame));
  },
};

const MAX_32 = 2 ** 32;
const MIN_32 = -(2 ** 31);

/** Convert a value to a form that the encoder writes correctly. */
function toWire(value: unknown): unknown {
  if (typeof value === "number") {
    // The encoder writes a number beyond 32 bits as floating point, but a bigint as an integer.
    const isWide = Number.isSafeInteger(value) && (value >= MAX_32 || value < MIN_32);
    return isWide ? BigInt(value) : value;
  }
  if (typeof value === "bigint") {
    if (value >= -(2n ** 63n) && value < 2n ** 64n) return value;
    return new ExtData(BIG_INTEGER, new TextEncoder().encode(value.toString()));
  }
  if (typeof value === "string") {
    if (!value.isWellFormed()) throw new TypeError("a lone surrogate is no text");
    return value;
  }
  if (typeof value === "function" || typeof value === "symbol") {
    throw new TypeError(`a ${typeof value} cannot be sent`);
  }
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return value;
  if (value instanceof NDArray) return new ExtData(ARRAY, packArray(value));
  if (ArrayBuffer.isView(value)) {
    if (dtypeOf(value) === undefined) throw new TypeError("a DataView cannot be sent");
    return new ExtData(ARRAY, packArray(new NDArray(value as Int8Array)));
  }
  if (Array.isArray(value)) return value.map(toWire);
  if ("toJSON" in value && typeof value.toJSON === "function") return toWire(value.toJSON());
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, toWire(item)]));
}

/** Convert bigints that are exact as numbers to numbers. */
function fromWire(value: unknown): unknown {
  if (typeof value === "bigint") {
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : value;
  }
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return value;
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) {
      if (typeof item === "bigint" || typeof item === "object") value[index] = fromWire(item);
    }
  } else if (!(value instanceof NDArray)) {
    const fields = value as Record<string, unknown>;
    for (const [key, item] of Object.entries(fields)) {
      if (typeof item === "bigint" || typeof item === "object") fields[key] = fromWire(item);
    }
  }
  return value;
}

/** Write an array as the data of its extension. */
function packArray(array: NDArray): Uint8Array<ArrayBuffer> {
  const dtype = new TextEncoder().encode(array.dtype);
  const elements = array.toBytes();
  const head = 2 + dtype.length + 8 * array.shape.length;
  const packed = new Uint8Array(head + elements.length);
  packed[0] = array.shape.length;
  packed[1] = dtype.length;
  packed.set(dtype, 2);
  const view = new DataView(packed.buffer);
  array.shape.forEach((axis, i) => view.setBigUint64(2 + dtype.length + 8 * i, BigInt(axis), true));
  packed.set(elements, head);
  return packed;
}

function unpackArray(packed: Uint8Array): NDArray {
  const [axes = 0, length = 0] = packed;
  const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  const dtype = new TextDecoder().decode(packed.subarray(2, 2 + length));
  const shape = Array.from({ length: axes }, (_, i) =>
    Number(view.getBigUint64(2 + length + 8 * i, true)),
  );
  return NDArray.fromBytes(dtype, shape, packed.subarray(2 + length + 8 * axes));
}
