// Arrays of numbers: as pictures, heat maps, sparklines, or a few figures.

import { isBoard, isNormalized, isScreen, isWireArray, layoutOf } from "./kinds.js";
import { compact, count, cut, drawn, element, note } from "./parts.js";
import { ROOM, bytesOf, enlarge } from "./pictures.js";

const MOST_FRAMES = 8;
const MOST_ELEMENTS = 50_000_000;
const LARGEST_SIDE = 4096; // pixels of a canvas
const MOST_CELLS = 1_000_000; // of a heat map
const ROOM_OF_FRAME = { width: 168, height: 210 };
const POINTS = 200; // of a sparkline
const FIRST_VALUES = 10;
// From dark blue to yellow; each is lighter than the one before, so that it can be read in grey.
const HEAT = [
  [68, 1, 84],
  [59, 82, 139],
  [33, 145, 140],
  [94, 201, 98],
  [253, 231, 37],
];

// How the elements of each dtype are read: the kind of typed array, and the DataView's word for it.
const ELEMENTS = {
  u1: [Uint8Array, "getUint8"],
  b1: [Uint8Array, "getUint8"],
  i1: [Int8Array, "getInt8"],
  u2: [Uint16Array, "getUint16"],
  i2: [Int16Array, "getInt16"],
  u4: [Uint32Array, "getUint32"],
  i4: [Int32Array, "getInt32"],
  u8: [BigUint64Array, "getBigUint64"],
  i8: [BigInt64Array, "getBigInt64"],
  f2: [null, null],
  f4: [Float32Array, "getFloat32"],
  f8: [Float64Array, "getFloat64"],
};
const NAMES = { b: "bool", u: "uint", i: "int", f: "float" };

// ------------------------------------------------------------------ from what JSON has

// Reads an array: {values, shape, dtype}. `values` is null for a dtype that is no plain number.
export function arrayOf(value, shape) {
  return isWireArray(value) ? ofWire(value) : ofLists(value, shape);
}

function ofLists(list, shape) {
  const flat = list.flat(shape.length).map((number) => number ?? NaN);
  return { values: flat, shape, dtype: flat.every(Number.isInteger) ? "integers" : "numbers" };
}

function ofWire({ dtype, shape, data }) {
  const total = shape.reduce((product, length) => product * length, 1);
  if (!shape.every((length) => Number.isInteger(length) && length >= 0) || total > MOST_ELEMENTS)
    throw new RangeError(`an array of the shape (${cut(String(shape), 80)}) cannot be shown`);
  const [, order, code] = /^([<>|=]?)([biuf][1248])$/.exec(dtype) ?? [];
  if (!ELEMENTS[code]) return { values: null, shape, dtype: cut(dtype, 80) };
  const bytes = bytesOf(data);
  const width = Number(code[1]);
  if (bytes.length !== total * width)
    throw new RangeError(`${bytes.length} bytes are not ${total} elements of ${dtype}`);
  return { values: read(bytes, code, order === ">"), shape, dtype: nameOf(code) };
}

const nameOf = (code) => (code === "b1" ? "bool" : `${NAMES[code[0]]}${code[1] * 8}`);

function read(bytes, code, isBigEndian) {
  if (code === "f2") return readHalves(bytes, isBigEndian);
  const [kind, get] = ELEMENTS[code];
  const numbers = isBigEndian ? readEach(bytes, kind, get) : new kind(bytes.buffer);
  return code[1] === "8" && code[0] !== "f" ? Float64Array.from(numbers, Number) : numbers;
}

function readEach(bytes, kind, get) {
  const view = new DataView(bytes.buffer);
  const numbers = new kind(bytes.length / kind.BYTES_PER_ELEMENT);
  for (let at = 0; at < numbers.length; at++) numbers[at] = view[get](at * kind.BYTES_PER_ELEMENT);
  return numbers;
}

function readHalves(bytes, isBigEndian) {
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 2 }, (_, at) =>
    half(view.getUint16(at * 2, !isBigEndian)),
  );
}

function half(bits) {
  const sign = bits >> 15 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent === 0
    ? sign * fraction * 2 ** -24
    : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

// ------------------------------------------------------------------ which way it is shown

// Shows an array as what it is likely to be.
export function viewOfArray(name, array) {
  const { values, shape } = array;
  if (values === null || values.length === 0) return note(described(array));
  const pixels = asPixels(array);
  if (pixels !== null) return viewOfPixels(name, pixels, layoutOf(shape));
  if (shape.length === 1) return sparkline(name, array);
  if (shape.length === 2 && values.length <= MOST_CELLS) return heatMap(name, array);
  return figures(array);
}

// The values as 0 to 255 where they are likely to be pixels, else null.
function asPixels({ values, shape, dtype }) {
  const layout = layoutOf(shape);
  if (layout === null || isBoard(shape) || !fits(layout)) return null;
  if (dtype === "uint8") return values;
  if (isScreen(values, shape)) return values;
  return shape.length > 2 && isNormalized(values, shape)
    ? values.map((value) => value * 255)
    : null;
}

// Shows an array that is known to be a picture, such as render() gives.
export function viewOfPicture(name, array) {
  const layout = layoutOf(array.shape, 1);
  if (array.dtype !== "uint8" || layout === null || !fits(layout))
    throw new TypeError(`${described(array)} is no picture`);
  return viewOfPixels(name, array.values, layout);
}

const fits = ({ height, width }) => height <= LARGEST_SIDE && width <= LARGEST_SIDE;

const described = ({ dtype, shape }) => `${dtype}, shape (${cut(shape.join(", "), 200)})`;

// ------------------------------------------------------------------ pictures

function viewOfPixels(name, values, layout) {
  const { frames, height, width, channels } = layout;
  const colours = { 1: "grey", 3: "RGB", 4: "RGBA" }[channels];
  const shown = Math.min(frames, MOST_FRAMES);
  const room = frames > 1 ? ROOM_OF_FRAME : ROOM;
  const canvases = Array.from({ length: shown }, (_, index) => {
    const place = frames > 1 ? `, frame ${index + 1} of ${frames}` : "";
    return pictureOf(
      pixelsOf(values, layout, index),
      `${cut(name, 80)}${place}: ${width} by ${height} ${colours} pixels`,
      room,
    );
  });
  const more =
    frames > 1 ? `${shown < frames ? `the first ${shown} of ` : ""}${frames} frames of ` : "";
  return element(
    "figure",
    { class: "view-picture" },
    element("div", { class: "view-strip" }, ...canvases),
    element("figcaption", {}, `${more}${width} × ${height} px, ${colours}`),
  );
}

function pictureOf(image, label, room = ROOM) {
  const canvas = element("canvas", {
    width: image.width,
    height: image.height,
    role: "img",
    "aria-label": label,
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  enlarge(canvas, image.width, image.height, room);
  return canvas;
}

function pixelsOf(values, { height, width, channels, planar }, frame) {
  const area = height * width;
  const image = new ImageData(width, height);
  const start = frame * area * channels;
  const next = planar ? area : 1; // how far apart the channels of a pixel are
  for (let pixel = 0; pixel < area; pixel++) {
    const from = start + (planar ? pixel : pixel * channels);
    const isGrey = channels === 1;
    image.data[pixel * 4] = values[from];
    image.data[pixel * 4 + 1] = values[isGrey ? from : from + next];
    image.data[pixel * 4 + 2] = values[isGrey ? from : from + 2 * next];
    image.data[pixel * 4 + 3] = channels === 4 ? values[from + 3 * next] : 255;
  }
  return image;
}

// ------------------------------------------------------------------ numbers

// Their least, greatest and mean; those that are not finite are counted apart.
export function statisticsOf(values) {
  let [least, greatest, sum, finite] = [Infinity, -Infinity, 0, 0];
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    if (value < least) least = value;
    if (value > greatest) greatest = value;
    sum += value;
    finite += 1;
  }
  return { least, greatest, mean: sum / finite, finite, others: values.length - finite };
}

function statisticsLine(array) {
  const { least, greatest, mean, finite, others } = statisticsOf(array.values);
  const words = finite
    ? [`min ${compact(least)}`, `mean ${compact(mean)}`, `max ${compact(greatest)}`]
    : [];
  if (others) words.push(`${count(others)} not finite`);
  return words.join(" · ");
}

function figures(array) {
  const values = Array.from(array.values.slice(0, FIRST_VALUES), compact);
  const more = array.values.length > FIRST_VALUES ? ", …" : "";
  return element(
    "div",
    {},
    element("p", { class: "view-figures" }, `${described(array)} · ${statisticsLine(array)}`),
    element("p", { class: "view-figures" }, `${values.join(", ")}${more}`),
  );
}

function heatMap(name, array) {
  const [height, width] = array.shape;
  const { least, greatest } = statisticsOf(array.values);
  const image = new ImageData(width, height);
  const span = greatest - least || 1;
  array.values.forEach((value, at) => {
    if (Number.isFinite(value)) image.data.set([...heat((value - least) / span), 255], at * 4);
  });
  const figuresOf = statisticsLine(array);
  const label = `${cut(name, 80)}: ${height} by ${width} numbers as a heat map, ${figuresOf}`;
  const colours = HEAT.map((colour) => `rgb(${colour.join(", ")})`).join(", ");
  const scale = element(
    "span",
    { class: "view-scale" },
    compact(least),
    element("span", {
      class: "view-scale-bar",
      style: `background: linear-gradient(to right, ${colours})`,
    }),
    compact(greatest),
  );
  return element(
    "figure",
    { class: "view-picture" },
    element("div", { class: "view-strip" }, pictureOf(image, label)),
    element("figcaption", {}, scale, ` ${described(array)} · ${statisticsLine(array)}`),
  );
}

function heat(share) {
  const place = share * (HEAT.length - 1);
  const below = Math.min(HEAT.length - 2, Math.floor(place));
  return HEAT[below].map((from, index) => from + (HEAT[below + 1][index] - from) * (place - below));
}

function sparkline(name, array) {
  const path = pathOf(array.values);
  const label = `${cut(name, 80)}: ${count(array.values.length)} numbers, ${statisticsLine(array)}`;
  return element(
    "figure",
    { class: "view-picture" },
    drawn(
      "svg",
      {
        class: "view-sparkline",
        viewBox: `-1 -1 ${POINTS + 2} 42`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": label,
      },
      drawn("path", { d: path, "vector-effect": "non-scaling-stroke" }),
    ),
    element(
      "figcaption",
      {},
      `${count(array.values.length)} ${array.dtype} · ${statisticsLine(array)}`,
    ),
  );
}

// Of many values, the least and the greatest of each stretch, so that no peak is lost.
function pathOf(values) {
  const { least, greatest } = statisticsOf(values);
  const span = greatest - least || 1;
  const stretch = Math.max(1, Math.ceil(values.length / POINTS));
  const x = (at) => ((at / Math.max(1, values.length - 1)) * POINTS).toFixed(2);
  const y = (value) => (40 - ((value - least) / span) * 40).toFixed(2);
  let path = "";
  let isDown = false; // the pen
  for (let at = 0; at < values.length; at += stretch) {
    const some = statisticsOf(values.slice(at, at + stretch));
    const ends =
      some.finite === 0
        ? []
        : some.least === some.greatest
          ? [some.least]
          : [some.least, some.greatest];
    for (const value of ends) {
      path += `${isDown ? "L" : "M"}${x(at)} ${y(value)}`;
      isDown = true;
    }
    if (ends.length === 0) isDown = false;
  }
  return path;
}
