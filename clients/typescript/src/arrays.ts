/**
 * NumPy's arrays, backed by typed arrays.
 *
 * @module
 */

/** The typed arrays that hold elements. */
export type Elements =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | BigUint64Array
  | BigInt64Array
  | Float32Array
  | Float64Array;

type Maker = {
  new (buffer: ArrayBuffer): Elements;
  readonly BYTES_PER_ELEMENT: number;
};

/** The typed array of each dtype without byte order. Booleans are bytes of 0 or 1. */
const MAKERS: Readonly<Record<string, Maker>> = {
  b1: Uint8Array,
  u1: Uint8Array,
  i1: Int8Array,
  u2: Uint16Array,
  i2: Int16Array,
  u4: Uint32Array,
  i4: Int32Array,
  u8: BigUint64Array,
  i8: BigInt64Array,
  f4: Float32Array,
  f8: Float64Array,
};

const DTYPES = new Map<unknown, string>([
  [Uint8Array, "|u1"],
  [Uint8ClampedArray, "|u1"],
  [Int8Array, "|i1"],
  [Uint16Array, "<u2"],
  [Int16Array, "<i2"],
  [Uint32Array, "<u4"],
  [Int32Array, "<i4"],
  [BigUint64Array, "<u8"],
  [BigInt64Array, "<i8"],
  [Float32Array, "<f4"],
  [Float64Array, "<f8"],
]);

const IS_LITTLE = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;

/** Return the dtype of a typed array in NumPy's notation; undefined if there is none. */
export function dtypeOf(array: ArrayBufferView): string | undefined {
  return DTYPES.get(array.constructor);
}

/**
 * An array of any number of axes.
 *
 * @example
 * ```ts
 * const image = new NDArray(new Uint8Array(12), [2, 2, 3]);
 * ```
 */
export class NDArray {
  /** The dtype in NumPy's notation: `<f4`, `|u1`. */
  readonly dtype: string;
  /** The length of each axis. */
  readonly shape: readonly number[];
  /**
   * The elements in C order; the bytes if the dtype has no typed array (half precision, complex
   * numbers, text, times).
   */
  readonly data: Elements;

  /**
   * @param data - The elements.
   * @param shape - The length of each axis; by default there is one axis.
   * @param dtype - The dtype, if `data` are the bytes of a dtype that has no typed array.
   */
  constructor(data: Elements, shape: readonly number[] = [data.length], dtype?: string) {
    const own = dtypeOf(data);
    this.dtype = dtype ?? own ?? "|u1";
    this.shape = shape;
    this.data = data;
    const wanted = shape.reduce((product, axis) => product * axis, itemBytes(this.dtype));
    if (wanted !== data.byteLength) {
      throw new RangeError(
        `shape [${shape.join(", ")}] of ${this.dtype} takes ${wanted} bytes, not ${data.byteLength}`,
      );
    }
  }

  /** Read the elements of a dtype from their bytes, which are copied. */
  static fromBytes(dtype: string, shape: readonly number[], bytes: Uint8Array): NDArray {
    const copy = bytes.slice();
    const order = dtype[0];
    const make = MAKERS[dtype.slice(1)];
    if (make === undefined) return new NDArray(copy, shape, dtype);
    const isForeign = IS_LITTLE ? order === ">" : order === "<";
    if (isForeign) swap(copy, make.BYTES_PER_ELEMENT);
    if (copy.length % make.BYTES_PER_ELEMENT !== 0) {
      throw new RangeError(`${copy.length} bytes are no elements of ${dtype}`);
    }
    const native = isForeign ? `${IS_LITTLE ? "<" : ">"}${dtype.slice(1)}` : dtype;
    return new NDArray(new make(copy.buffer), shape, native);
  }

  /** Return the bytes of the elements, in the byte order of `dtype`. */
  toBytes(): Uint8Array {
    return new Uint8Array(this.data.buffer, this.data.byteOffset, this.data.byteLength);
  }

  /** Return the elements as nested lists. */
  toLists(): unknown {
    const flat: unknown[] = [...this.data].map((x) => (this.dtype === "|b1" ? x === 1 : x));
    let level = flat;
    for (const axis of this.shape.slice(1).reverse()) {
      level = chunks(level, axis);
    }
    return this.shape.length === 0 ? level[0] : level;
  }
}

function itemBytes(dtype: string): number {
  const match = /^[<>|=]([a-zA-Z])(\d+)/.exec(dtype);
  if (match === null) return /^[<>|][mM]/.test(dtype) ? 8 : 1;
  return Number(match[2]) * (match[1] === "U" ? 4 : 1);
}

function swap(bytes: Uint8Array, size: number): void {
  for (let at = 0; at < bytes.length; at += size) bytes.subarray(at, at + size).reverse();
}

function chunks(list: unknown[], size: number): unknown[] {
  const count = size === 0 ? 0 : list.length / size;
  return Array.from({ length: count }, (_, i) => list.slice(i * size, (i + 1) * size));
}
