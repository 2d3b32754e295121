/**
 * JSON, with integers of any size, and arrays and bytes as base64.
 *
 * @module
 */

import { NDArray, dtypeOf } from "./arrays.ts";

/** Options for values that JSON cannot represent. */
export interface JsonOptions {
  /** Write NaN and infinity in the form that version 0 servers read; by default as null. */
  readonly keepNaN?: boolean;
  /** Write arrays as nested lists; by default as objects with dtype, shape and data. */
  readonly asLists?: boolean;
}

/** Write a value as JSON. Values that `JSON.stringify` omits, such as undefined, are omitted. */
export function writeJson(value: unknown, options: JsonOptions = {}): string {
  return write(value, options) ?? "null";
}

function write(value: unknown, options: JsonOptions): string | undefined {
  switch (typeof value) {
    case "bigint":
      return value.toString();
    case "number":
      if (Number.isFinite(value)) return Object.is(value, -0) ? "-0.0" : String(value);
      return options.keepNaN ? String(value) : "null";
    case "string":
      if (!value.isWellFormed()) throw new TypeError("a lone surrogate is no text");
      return JSON.stringify(value);
    case "object":
      return value === null ? "null" : writeObject(value, options);
    case "boolean":
      return String(value);
    case "undefined":
      return undefined;
    default:
      throw new TypeError(`a ${typeof value} cannot be sent`);
  }
}

function writeObject(value: object, options: JsonOptions): string | undefined {
  if (Array.isArray(value)) {
    return `[${value.map((item) => write(item, options) ?? "null").join(",")}]`;
  }
  if (value instanceof NDArray) return writeArray(value, options);
  if (value instanceof Uint8Array) return JSON.stringify(toBase64(value));
  if (ArrayBuffer.isView(value)) {
    if (dtypeOf(value) === undefined) throw new TypeError("a DataView cannot be sent");
    return writeArray(new NDArray(value as Int8Array), options);
  }
  if ("toJSON" in value && typeof value.toJSON === "function") {
    return write(value.toJSON(), options);
  }
  const fields: string[] = [];
  for (const [key, item] of Object.entries(value)) {
    const written = write(item, options);
    if (written !== undefined) fields.push(`${write(key, options)}:${written}`);
  }
  return `{${fields.join(",")}}`;
}

function writeArray(array: NDArray, options: JsonOptions): string {
  if (options.asLists) return writeJson(array.toLists(), options);
  const { dtype, shape } = array;
  return JSON.stringify({ dtype, shape, data: toBase64(array.toBytes()) });
}

const MAY_BE_BIG = /[0-9]{16}/;
const INTEGER = /^-?[0-9]+$/;

/** Read JSON. Integers that are not safe become bigints; arrays become {@link NDArray}. */
export function readJson(text: string): unknown {
  const hasBig = MAY_BE_BIG.test(text);
  if (!hasBig && !text.includes('"dtype"')) return JSON.parse(text);
  return JSON.parse(text, function (_key, value: unknown, context?: { source?: string }): unknown {
    if (typeof value === "number") {
      const source = context?.source;
      const isBig = source !== undefined && !Number.isSafeInteger(value) && INTEGER.test(source);
      return isBig ? BigInt(source) : value;
    }
    return isArrayObject(value)
      ? NDArray.fromBytes(value.dtype, value.shape, fromBase64(value.data))
      : value;
  } as (key: string, value: unknown) => unknown);
}

interface ArrayObject {
  dtype: string;
  shape: number[];
  data: string;
}

const DTYPE = /^[<>|][biufcUSVmM]/;

function isArrayObject(value: unknown): value is ArrayObject {
  if (typeof value !== "object" || value === null || !("dtype" in value)) return false;
  const { dtype, shape, data } = value as Partial<ArrayObject>;
  return (
    typeof dtype === "string" &&
    DTYPE.test(dtype) &&
    Array.isArray(shape) &&
    typeof data === "string" &&
    Object.keys(value).length === 3
  );
}

const PIECE = 0x8000; // characters per call of `String.fromCharCode`

/** Encode bytes as base64 (RFC 4648, section 4). */
export function toBase64(bytes: Uint8Array): string {
  const pieces: string[] = [];
  for (let at = 0; at < bytes.length; at += PIECE) {
    pieces.push(String.fromCharCode(...bytes.subarray(at, at + PIECE)));
  }
  return btoa(pieces.join(""));
}

/** Decode base64. */
export function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
