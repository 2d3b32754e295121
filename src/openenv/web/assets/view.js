// Shows an observation: what the environment draws, then each field as what it is.
//
// Observations are hostile. They become text nodes, canvases, and pictures from blobs; as HTML they
// are shown in a sandboxed frame only (frames.js).

import { spansOf } from "./ansi.js";
import { arrayOf, viewOfArray, viewOfPicture } from "./arrays.js";
import { viewOfBoard, viewOfChat, viewOfChess, viewOfTable, scrolling } from "./boards.js";
import { frame } from "./frames.js";
import { hasControls, isSvg, isWireArray, kindOf, mediaTypeOf, shapeOf } from "./kinds.js";
import {
  LARGEST_PIECE,
  LONGEST_TEXT,
  appendSome,
  appendText,
  asText,
  copyButton,
  count,
  cut,
  element,
  isObject,
  note,
  release,
} from "./parts.js";
import { bytesOf, viewOfAddress, viewOfFile, viewOfSvg } from "./pictures.js";
import { renderTree } from "./tree.js";
import { marked } from "./vendor/marked.esm.js";

export { frame, kindOf, release };

const MOST_FIELDS = 200;
const MOST_WORDS = 60; // entries of a list that are shown unasked
const LONGEST_SCREEN = 200_000; // characters of a terminal's output, of which each is a cell
const LONGEST_NAME = 200;
const LONG = 3000; // characters of a text that scrolls by itself

const INLINE = new Set(["number", "boolean", "string", "list"]);
const AS_IT_IS = new Set(["text", "json"]); // kinds whose raw value would look the same

// Shows the fields of an observation.
//
// rendering: null, or what the environment's render() gave: {text}, {array} or {media_type, bytes}.
// html: null, or a fragment of HTML that the environment made. legalNames: the fields that list
// what may be done next.
export function renderObservation(
  observation,
  { rendering = null, html = null, legalNames = [] } = {},
) {
  const fields = isObject(observation) ? observation : { observation };
  const view = element("div", { class: "view" });
  if (rendering !== null && rendering.text !== "")
    view.append(sectionOf("rendering", () => viewOfRendering(rendering)));
  if (html !== null && html !== "") view.append(sectionOf("html", () => frame(html)));
  const all = Object.entries(fields).map(([name, value]) =>
    fieldOf(name, value, fields, { rendering, legalNames }),
  );
  const filled = all.filter(({ kind }) => kind !== "empty");
  view.append(...inlineList(filled.filter(({ kind }) => INLINE.has(kind))));
  const large = filled.filter(({ kind }) => !INLINE.has(kind));
  const more = appendSome(view, large, sectionOfField, { first: MOST_FIELDS, noun: "fields" });
  if (more) view.append(more);
  view.append(...emptyLine(all.filter(({ kind }) => kind === "empty")));
  return view;
}

function fieldOf(name, value, fields, { rendering, legalNames }) {
  const shape = shapeBeside(name, value, fields);
  if (shape !== null) return { name, value, shape, kind: "array" };
  let kind = kindOf(name, value);
  // What the environment draws itself is better than our drawing.
  if (kind === "chess" && rendering !== null) kind = "string";
  if (kind === "array" && [...legalNames].includes(name) && !isWireArray(value)) kind = "list";
  return { name, value, kind };
}

// The shape of a flat list of numbers, where a field beside it has it: `screen`, `screen_shape`.
function shapeBeside(name, value, fields) {
  const shape = Object.hasOwn(fields, `${name}_shape`) ? fields[`${name}_shape`] : null;
  if (!Array.isArray(value) || !Array.isArray(shape) || shape.length < 2) return null;
  const isShape = shape.every((length) => Number.isInteger(length) && length > 0);
  const total = shape.reduce((product, length) => product * length, 1);
  return isShape && total === value.length && shapeOf(value)?.length === 1 ? shape : null;
}

// ------------------------------------------------------------------ what the environment draws

// A rendering, or a frame of HTML: large, and without a name.
function sectionOf(kind, build) {
  const label = kind === "html" ? "What the environment shows" : "What the environment draws";
  return element(
    "section",
    { class: "view-first", "data-kind": kind, "aria-label": label },
    attempt(build, null),
  );
}

function viewOfRendering(rendering) {
  if (typeof rendering.bytes === "string") return viewOfBytes("rendering", rendering);
  if (isWireArray(rendering.array)) return viewOfPicture("rendering", arrayOf(rendering.array));
  if (Array.isArray(rendering.array)) {
    const shape = shapeOf(rendering.array);
    return viewOfPicture("rendering", { ...arrayOf(rendering.array, shape), dtype: "uint8" });
  }
  const text = String(rendering.text ?? "");
  if (isSvg(text)) return viewOfSvg("rendering", text);
  return hasControls(text) ? viewOfScreen("rendering", text) : viewOfLines("rendering", text);
}

// ------------------------------------------------------------------ fields

function inlineList(fields) {
  if (fields.length === 0) return [];
  const list = element("dl", { class: "view-values" });
  const more = appendSome(list, fields, inlineField, { first: MOST_FIELDS, noun: "fields" });
  return more === null ? [list] : [list, more];
}

function inlineField({ name, value, kind }) {
  const shown = element(
    "dd",
    {},
    kind === "list" ? wordsOf(value) : element("span", { class: `view-${kind}` }, String(value)),
  );
  shown.append(copyButton(name, value));
  return element(
    "div",
    { "data-kind": kind, "data-name": name },
    element("dt", {}, cut(name, LONGEST_NAME)),
    shown,
  );
}

function wordsOf(list) {
  const words = element("span", { class: "view-words" });
  const more = appendSome(
    words,
    list,
    (word) => element("span", { class: "view-word" }, String(word)),
    { first: MOST_WORDS },
  );
  return more === null ? words : element("span", {}, words, " ", more);
}

function emptyLine(fields) {
  if (fields.length === 0) return [];
  const names = fields.slice(0, MOST_FIELDS).map(({ name }) => cut(name, LONGEST_NAME));
  const rest = fields.length - names.length;
  return [note(`empty: ${names.join(", ")}${rest ? `, and ${count(rest)} more` : ""}`)];
}

function sectionOfField(field) {
  const { name, value, kind } = field;
  const body = element(
    "div",
    { class: "view-body" },
    attempt(() => viewOf(field), value),
  );
  const title = cut(name, LONGEST_NAME);
  const header = element("header", {}, element("h4", {}, title));
  if (!AS_IT_IS.has(kind)) header.append(rawButton(title, body, value));
  header.append(copyButton(name, value));
  return element(
    "section",
    { class: "view-field", "data-kind": kind, "data-name": name, "aria-label": title },
    header,
    body,
  );
}

// Shows the value as it came instead of what was made of it, and back.
function rawButton(title, body, value) {
  const made = body.firstChild;
  let raw = null;
  const button = element(
    "button",
    {
      type: "button",
      class: "view-raw",
      "aria-pressed": "false",
      "aria-label": `raw ${title}`,
      click: turn,
    },
    "raw",
  );
  function turn() {
    const wantsRaw = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(wantsRaw));
    if (raw === null) body.append((raw = rawOf(value)));
    made.hidden = wantsRaw;
    raw.hidden = !wantsRaw;
  }
  return button;
}

const rawOf = (value) => (typeof value === "string" ? viewOfText("raw", value) : renderTree(value));

// What a view cannot make of hostile or broken data is shown as it came.
function attempt(build, value) {
  try {
    return build();
  } catch (error) {
    const words = note(
      `This cannot be shown as what it seems to be: ${cut(String(error?.message ?? error), 200)}`,
    );
    return value === null ? words : element("div", {}, words, rawOf(value));
  }
}

function viewOf({ name, value, kind, shape }) {
  const build = BUILDERS[kind] ?? (() => renderTree(value));
  return build(name, value, shape);
}

const BUILDERS = {
  text: viewOfText,
  terminal: viewOfScreen,
  markdown: viewOfMarkdown,
  html: (name, text) => frame(text, { title: cut(name, LONGEST_NAME) }),
  svg: (name, value) => (isObject(value) ? viewOfBytes(name, value) : viewOfSvg(name, value)),
  image: viewOfImage,
  array: (name, value, shape) => viewOfArray(name, arrayOf(value, shape ?? shapeOf(value))),
  board: viewOfBoard,
  chess: (name, fen) => viewOfChess(fen),
  table: viewOfTable,
  chat: viewOfChat,
  json: (name, value) => renderTree(value),
};

// ------------------------------------------------------------------ text

function viewOfText(name, text) {
  if (isAligned(text)) return viewOfLines(name, text);
  const prose = filledText(element("div", { class: "view-text" }), text);
  return text.length > LONG ? scrolling(cut(name, LONGEST_NAME), prose) : prose;
}

// Text whose columns matter: it scrolls instead of being wrapped.
function viewOfLines(name, text) {
  return scrolling(
    cut(name, LONGEST_NAME),
    filledText(element("pre", { class: "view-text view-mono" }), text),
  );
}

function filledText(target, text) {
  appendText(target, text);
  return target;
}

// Tables, drawings, code: what has columns within its lines, or lines that are indented or equal.
function isAligned(text) {
  const lines = text
    .slice(0, 4000)
    .split("\n")
    .filter((line) => line.trim() !== "");
  if (lines.length < 2) return false;
  if (/[\u2500-\u259f]/.test(text.slice(0, 4000))) return true;
  const aligned = lines.filter((line) => /\S(?: {2,}|\t)\S|^(?: {2}|\t)/.test(line)).length;
  const isGrid = lines.length > 2 && lines.every((line) => line.length === lines[0].length);
  return aligned >= 2 || isGrid;
}

function viewOfScreen(name, text) {
  const screen = element("pre", { class: "view-screen" });
  const shown = text.slice(0, LONGEST_TEXT);
  screen.append(spansOf(shown));
  if (shown.length === text.length) return scrolling(cut(name, LONGEST_NAME), screen);
  const longest = Math.min(text.length, LONGEST_SCREEN);
  const rest = element(
    "button",
    { type: "button", class: "view-more", click: showMore },
    `show ${longest < text.length ? "" : "all "}${count(longest)} characters`,
  );
  function showMore() {
    screen.replaceChildren(spansOf(text.slice(0, longest)));
    rest.replaceWith(
      ...(longest < text.length
        ? [note(`${count(text.length - longest)} characters more: see raw`)]
        : []),
    );
  }
  return element("div", {}, scrolling(cut(name, LONGEST_NAME), screen), rest);
}

function viewOfMarkdown(name, text) {
  const shown = frame(marked.parse(text.slice(0, LONGEST_TEXT), { async: false }), {
    title: cut(name, LONGEST_NAME),
    themed: true,
  });
  if (text.length <= LONGEST_TEXT) return shown;
  return element(
    "div",
    {},
    shown,
    note(`the first ${count(LONGEST_TEXT)} of ${count(text.length)} characters: see raw`),
  );
}

// ------------------------------------------------------------------ files

function viewOfImage(name, value) {
  if (isObject(value)) return viewOfBytes(name, value);
  const mediaType = mediaTypeOf(value);
  if (!value.startsWith("data:")) return viewOfFile(name, mediaType, value, value);
  const encoded = /^data:[^,]{0,100};base64,/i.exec(value);
  if (encoded)
    return viewOfBytes(name, { media_type: mediaType, bytes: value.slice(encoded[0].length) });
  if (value.length > LARGEST_PIECE)
    throw new RangeError(`it has ${count(value.length)} characters`);
  return viewOfAddress(name, mediaType, value);
}

function viewOfBytes(name, { media_type: mediaType, bytes }) {
  if (!/^image\/[\w.+-]+$/i.test(mediaType))
    throw new TypeError(`${cut(asText(mediaType), 80)} is no picture`);
  if (/^image\/svg\+xml$/i.test(mediaType))
    return viewOfSvg(name, new TextDecoder().decode(bytesOf(bytes)));
  return viewOfFile(name, mediaType.toLowerCase(), bytes, bytes);
}
