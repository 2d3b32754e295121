// What kind of thing a field holds, from its name and its value.

import { isObject, isScalar } from "./parts.js";

const SHORT = 120; // characters of a text that needs no room of its own
const FEW = 16; // numbers that are read one by one
const BOARD = 12; // rows and columns of what is a board and no picture
const SCREEN = 32; // rows and columns of lists that are pixels
const SMALLEST_PICTURE = 8;
const MOST_COLUMNS = 20;
const ROWS_LOOKED_AT = 100;

const MARKDOWN_NAME = /^(markdown|readme)$|_(md|markdown)$/i;
const HTML_NAME = /^html$|_html$/i;
const TERMINAL_NAME =
  /^(stdout|stderr|output|console|terminal|screen|logs?)$|_(output|stdout|stderr|log)$/i;
const CHOICES_NAME = /^(legal|valid|available|possible)_|_(actions|moves|ids|choices)$/i;
// The first bytes of PNG, JPEG, GIF and WebP in base64, each with its media type.
const MAGIC = [
  ["iVBORw0KGgo", "image/png"],
  ["/9j/", "image/jpeg"],
  ["R0lGOD", "image/gif"],
  ["UklGR", "image/webp"],
];
const SHORTEST_FILE = 32; // characters of base64: no picture is smaller

// Returns one of: empty, number, boolean, string, list, text, terminal, markdown, html, svg, image,
// chess, board, table, chat, array, json.
export function kindOf(name, value) {
  if (isEmpty(value)) return "empty";
  if (typeof value === "string") return kindOfText(name, value);
  if (Array.isArray(value)) return kindOfList(name, value);
  return typeof value === "object" ? kindOfObject(value) : typeof value;
}

export function isEmpty(value) {
  if (value === null || value === undefined || value === "") return true;
  if (Array.isArray(value)) return value.length === 0;
  return isObject(value) && Object.keys(value).length === 0;
}

// ------------------------------------------------------------------ text

function kindOfText(name, text) {
  if (mediaTypeOf(text) !== null) return "image";
  if (isSvg(text)) return "svg";
  if (isFen(text)) return "chess";
  if (hasControls(text)) return "terminal";
  if (isDocument(text) || (HTML_NAME.test(name) && /<\w/.test(text))) return "html";
  if (TERMINAL_NAME.test(name)) return "terminal";
  if (MARKDOWN_NAME.test(name) || isMarkdown(text)) return "markdown";
  return text.length > SHORT || text.includes("\n") ? "text" : "string";
}

// The media type of a picture that is written as a data URL or in base64; null if it is none.
export function mediaTypeOf(text) {
  const address = /^data:(image\/[\w.+-]+)[;,]/i.exec(text.slice(0, 100));
  if (address) return address[1].toLowerCase();
  if (text.length < SHORTEST_FILE || !/^[\w+/=\r\n]+$/.test(text.slice(0, 400))) return null;
  return MAGIC.find(([beginning]) => text.startsWith(beginning))?.[1] ?? null;
}

export function isSvg(text) {
  const beginning = text.slice(0, 2000).trimStart();
  return /^(<\?xml[^]*)?<svg[\s>/]/i.test(beginning);
}

const isDocument = (text) => /^\s*(<!doctype html|<html[\s>])/i.test(text.slice(0, 2000));

// It has what only a terminal understands: escape sequences, lines that are written over.
export const hasControls = (text) => /[\x1b\x9b\b]|\r(?![\n\r])./.test(text);

function isMarkdown(whole) {
  const text = whole.slice(0, 10_000); // so that no text, however contrived, takes long to judge
  if (!text.includes("\n")) return false;
  if (/^(```|~~~)[^\n`]*\n[^]*?^\1\s*$/m.test(text)) return true;
  if (/^\|?[ :]*-{3,}[ :]*\|[-| :]*$/m.test(text) && /\|/.test(text.split("\n", 1)[0])) return true;
  // A comment of Python looks like a heading, but seldom has an empty line after it.
  const headings = text.match(/^#{1,6} [^\n]+\n[ \t]*$/gm) ?? [];
  if (headings.length === 0) return false;
  return headings.length > 1 || /^\s*([-*+]|\d+\.) \S|\*\*\S|\]\(\S+\)|^#{2,6} /m.test(text);
}

// ------------------------------------------------------------------ chess

const FEN =
  /^([pnbrqkPNBRQK1-8]+\/){7}[pnbrqkPNBRQK1-8]+ [wb] (-|[KQkqA-Ha-h]{1,4}) (-|[a-h][36])( \d+ \d+)?$/;

export const isFen = (text) => text.length < 120 && FEN.test(text) && ranksOf(text) !== null;

// The eight ranks of a position, each of eight letters, a space where there is no piece.
export function ranksOf(fen) {
  const ranks = fen
    .split(" ", 1)[0]
    .split("/")
    .map((rank) => rank.replace(/[1-8]/g, (digit) => " ".repeat(Number(digit))));
  return ranks.length === 8 && ranks.every((rank) => rank.length === 8) ? ranks : null;
}

// ------------------------------------------------------------------ lists

function kindOfList(name, list) {
  if (isChat(list)) return "chat";
  if (isTable(list)) return "table";
  const shape = shapeOf(list);
  if (shape !== null) return kindOfNumbers(name, shape);
  if (isGridOfSigns(list)) return "board";
  return list.every(isShort) ? "list" : "json";
}

function kindOfNumbers(name, shape) {
  if (shape.length === 1) return shape[0] <= FEW || CHOICES_NAME.test(name) ? "list" : "array";
  if (isBoard(shape)) return "board";
  return shape.length === 2 || shape.reduce((all, one) => all * one) > 64 ? "array" : "json";
}

export const isBoard = (shape) => shape.length === 2 && shape.every((length) => length <= BOARD);

const isShort = (value) =>
  isScalar(value) && !(typeof value === "string" && (value.length > SHORT || value.includes("\n")));

function isGridOfSigns(list) {
  if (list.length < 2 || list.length > BOARD || !Array.isArray(list[0])) return false;
  const width = list[0].length;
  const isSign = (cell) => isScalar(cell) && String(cell ?? "").length <= 4;
  return (
    width > 1 &&
    width <= BOARD &&
    list.every((row) => Array.isArray(row) && row.length === width && row.every(isSign))
  );
}

// The lengths of nested lists of numbers, where they are rectangular and at most 5 deep; else
// null. JSON's null is NaN, as NumPy writes it, except where there is nothing else.
export function shapeOf(list) {
  const shape = [];
  for (let level = list; Array.isArray(level); level = level[0]) {
    if (level.length === 0 || shape.length === 5) return null;
    shape.push(level.length);
  }
  const seen = { number: false };
  return holdsNumbers(list, shape, 0, seen) && seen.number ? shape : null;
}

function holdsNumbers(level, shape, depth, seen) {
  if (depth < shape.length)
    return (
      Array.isArray(level) &&
      level.length === shape[depth] &&
      level.every((below) => holdsNumbers(below, shape, depth + 1, seen))
    );
  seen.number ||= typeof level === "number";
  return level === null || typeof level === "number";
}

// Who speaks: OpenAI's messages have a role, TextArena's a sender_id.
export const speakerOf = (message) => message.role ?? message.sender ?? message.sender_id;

function isChat(list) {
  return list.every(
    (one) =>
      isObject(one) &&
      ["string", "number"].includes(typeof speakerOf(one)) &&
      (typeof one.content === "string" ||
        Array.isArray(one.content) ||
        one.tool_calls !== undefined),
  );
}

// Rows that have mostly the same columns, which hold mostly scalars.
function isTable(list) {
  if (list.length < 2 || !list.every(isObject)) return false;
  const rows = list.slice(0, ROWS_LOOKED_AT);
  const columns = columnsOf(rows);
  if (columns.length === 0 || columns.length > MOST_COLUMNS) return false;
  const cells = rows.flatMap((row) => Object.values(row));
  const filled = cells.length / (columns.length * rows.length);
  return filled >= 0.6 && cells.filter(isScalar).length >= cells.length * 0.75;
}

export function columnsOf(rows) {
  const columns = new Set();
  for (const row of rows) {
    for (const name of Object.keys(row)) columns.add(name);
    if (columns.size > MOST_COLUMNS) break;
  }
  return [...columns];
}

// ------------------------------------------------------------------ objects

function kindOfObject(value) {
  if (isWireArray(value)) return "array";
  if (typeof value.media_type === "string" && typeof value.bytes === "string") {
    if (/^image\/svg\+xml$/i.test(value.media_type)) return "svg";
    if (/^image\/[\w.+-]+$/i.test(value.media_type)) return "image";
  }
  return "json";
}

// An array as JSON carries it; see openenv.arrays.as_base64.
export const isWireArray = (value) =>
  isObject(value) &&
  typeof value.dtype === "string" &&
  Array.isArray(value.shape) &&
  typeof value.data === "string";

// ------------------------------------------------------------------ pictures in arrays

// How pixels of this shape are laid out, or null where it is no picture's: (h, w), (h, w, 1|3|4),
// (1|3, h, w), and stacks of them. Four planes are taken as four frames, which is far more common
// than RGBA by planes.
export function layoutOf(shape, smallest = SMALLEST_PICTURE) {
  const isPicture = (height, width) => height >= smallest && width >= smallest;
  const is = (length, ...channels) => channels.includes(length);
  const [a, b, c, d] = shape;
  if (shape.length === 2 && isPicture(a, b)) return layout(1, a, b, 1);
  if (shape.length === 3 && is(c, 1, 3, 4) && isPicture(a, b)) return layout(1, a, b, c);
  if (shape.length === 3 && is(a, 1, 3) && isPicture(b, c)) return layout(1, b, c, a, true);
  if (shape.length === 3 && isPicture(b, c)) return layout(a, b, c, 1);
  if (shape.length === 4 && is(d, 1, 3, 4) && isPicture(b, c)) return layout(a, b, c, d);
  if (shape.length === 4 && is(b, 1, 3, 4) && isPicture(c, d)) return layout(a, c, d, b, true);
  return null;
}

const layout = (frames, height, width, channels, planar = false) => ({
  frames,
  height,
  width,
  channels,
  planar,
});

// Other numbers than uint8 are taken for pixels only where they are many, and whole numbers of 0 to
// 255, or fractions. In a single plane of small numbers they mean something else, such as tiles.
export function isScreen(values, shape) {
  const layout = layoutOf(shape, SCREEN);
  if (layout === null || !values.every(isByte)) return false;
  return (
    layout.channels > 1 ||
    values.some((value) => value > BOARD) ||
    values.every((value) => value === 0)
  );
}

export const isNormalized = (values, shape) =>
  layoutOf(shape, SCREEN) !== null && values.every((value) => value >= 0 && value <= 1);

const isByte = (number) => Number.isInteger(number) && number >= 0 && number <= 255;
