import assert from "node:assert/strict";
import { test } from "node:test";
import { NDArray } from "../src/arrays.ts";
import { json, type Codec } from "../src/codec.ts";
import { readJson, writeJson } from "../src/json.ts";
import type { Request } from "../src/messages.ts";
import { msgpack } from "../src/msgpack.ts";

/** Bytes in the notation of docs/protocol/. */
function bytes(hexadecimal: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(Buffer.from(hexadecimal.replaceAll(/\s/g, ""), "hex"));
}

const STEP: Request = { type: "step", data: { to: 3 }, id: 2, session: 7 };
const STEP_BYTES = `84 a474797065 a473746570 a464617461 81a2746f03 a26964 02 a773657373696f6e 07`;
const ARRAY_BYTES = `c71901 02037c7531 0200000000000000 0200000000000000 01020304`;
const BIG_BYTES = `c71402 3138343436373434303733373039353531363136`;

test("a request in MessagePack is the bytes that the specification shows", () => {
  assert.deepEqual(msgpack.encode(STEP), bytes(STEP_BYTES));
});

test("a request in JSON is the text that the specification shows", () => {
  assert.equal(json.encode(STEP), '{"type":"step","data":{"to":3},"id":2,"session":7}');
});

test("an array in MessagePack is the bytes that the specification shows", () => {
  const array = new NDArray(new Uint8Array([1, 2, 3, 4]), [2, 2]);
  const written = msgpack.encode({ type: "a", data: { b: array } });
  assert.deepEqual(written.slice(-28), bytes(ARRAY_BYTES));
  assert.deepEqual(msgpack.decode(bytes(ARRAY_BYTES)), array);
});

test("an integer beyond 64 bits is the bytes that the specification shows", () => {
  const written = msgpack.encode({ type: "a", data: { b: 2n ** 64n } });
  assert.deepEqual(written.slice(-23), bytes(BIG_BYTES));
  assert.equal(msgpack.decode(bytes(BIG_BYTES)), 2n ** 64n);
});

test("a frame of many requests is an array", () => {
  const parts = [msgpack.encode(STEP), msgpack.encode(STEP)];
  assert.deepEqual(msgpack.decode(msgpack.join(parts)), [STEP, STEP]);
  assert.deepEqual(json.decode(json.join([json.encode(STEP), json.encode(STEP)])), [STEP, STEP]);
});

const VALUES: readonly unknown[] = [
  null,
  true,
  0,
  -1,
  2 ** 31,
  2 ** 40,
  Number.MAX_SAFE_INTEGER,
  Number.MIN_SAFE_INTEGER,
  2n ** 53n,
  2n ** 63n,
  -(2n ** 63n),
  2n ** 200n,
  0.1,
  1e300,
  "é ☃ 🤖 \u2028 \0 \t",
  [1, [2, { a: [] }]],
  { a: { b: null } },
  new NDArray(new Float32Array([1, 2, 3, 4, 5, 6]), [1, 2, 3]),
  new NDArray(new BigInt64Array([-(2n ** 63n), 2n ** 63n - 1n])),
  new NDArray(new Uint8Array([0, 60]), [1], "<f2"),
  new NDArray(new Uint8Array(0), [0, 3]),
  new NDArray(new Int16Array([5]), []),
];

for (const codec of [msgpack, json]) {
  test(`values survive ${codec.name}`, () => {
    for (const value of VALUES) {
      assert.deepEqual(there(codec, value), value);
    }
  });
}

function there(codec: Codec, value: unknown): unknown {
  const message = codec.decode(codec.encode({ type: "a", data: { value } }));
  return (message as { data: { value: unknown } }).data.value;
}

test("what JSON has no form for is written as the version says", () => {
  assert.equal(writeJson([NaN, Infinity, -0, undefined]), "[null,null,-0.0,null]");
  assert.equal(writeJson([NaN, -Infinity], { keepNaN: true }), "[NaN,-Infinity]");
  assert.equal(writeJson({ a: undefined, b: 1 }), '{"b":1}');
  const array = new NDArray(new Uint8Array([1, 0, 1, 1]), [2, 2], "|b1");
  assert.equal(writeJson(array, { asLists: true }), "[[true,false],[true,true]]");
  assert.equal(writeJson(new Uint8Array([255, 254])), '"//4="');
  assert.ok(Number.isNaN(there(msgpack, NaN)));
});

test("an object that only looks like an array is left as it is", () => {
  const text = '{"dtype":"animal","shape":[1],"data":"AQ=="}';
  assert.deepEqual(readJson(text), { dtype: "animal", shape: [1], data: "AQ==" });
});

test("an array of the other byte order is turned round", () => {
  const array = NDArray.fromBytes(">i4", [2], bytes("00000001 00000002"));
  assert.deepEqual([array.dtype, [...array.data]], ["<i4", [1, 2]]);
});

test("elements that are not as many as the shape says are refused", () => {
  assert.throws(() => new NDArray(new Uint8Array(3), [2, 2]), /takes 4 bytes, not 3/);
  assert.throws(() => NDArray.fromBytes("<f8", [1], new Uint8Array(7)), RangeError);
});

test("what cannot be sent is refused", () => {
  for (const codec of [msgpack, json]) {
    for (const value of ["\ud800", () => 1, Symbol("a"), new DataView(new ArrayBuffer(1))]) {
      assert.throws(() => there(codec, value), TypeError);
    }
  }
});
