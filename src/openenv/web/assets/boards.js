// What has rows: boards, tables, conversations.

import { columnsOf, mediaTypeOf, ranksOf, speakerOf } from "./kinds.js";
import {
  appendSome,
  appendText,
  asText,
  compact,
  cut,
  element,
  isScalar,
  note,
  unseen,
} from "./parts.js";
import { viewOfFile } from "./pictures.js";
import { renderTree } from "./tree.js";

const FIRST_ROWS = 200;
const FIRST_MESSAGES = 100;
const LONGEST_CELL = 500;

// The filled forms of both colours: the outlined ones are too thin to be told apart.
const PIECES = {
  k: ["king", "♚"],
  q: ["queen", "♛"],
  r: ["rook", "♜"],
  b: ["bishop", "♝"],
  n: ["knight", "♞"],
  p: ["pawn", "♟"],
};
const AS_TEXT = "\ufe0e"; // else a pawn is an emoji on some systems

// ------------------------------------------------------------------ boards

export function viewOfChess(fen) {
  const ranks = ranksOf(fen);
  const files = [..."abcdefgh"];
  const rows = ranks.map((rank, index) =>
    element(
      "tr",
      {},
      element("th", {}, String(8 - index)),
      ...[...rank].map((letter, file) =>
        element("td", { class: (index + file) % 2 ? "chess-dark" : null }, pieceOf(letter)),
      ),
    ),
  );
  const names = element("tr", {}, element("th"), ...files.map((file) => element("th", {}, file)));
  return element(
    "figure",
    { class: "view-picture" },
    element(
      "table",
      { class: "chess-board", role: "img", "aria-label": inWords(ranks, fen) },
      element("tbody", {}, ...rows, names),
    ),
    element("figcaption", { class: "view-mono" }, fen),
  );
}

function pieceOf(letter) {
  if (letter === " ") return null;
  const colour = letter === letter.toUpperCase() ? "white" : "black";
  return element("span", { class: `chess-${colour}` }, PIECES[letter.toLowerCase()][1] + AS_TEXT);
}

function inWords(ranks, fen) {
  const places = { white: [], black: [] };
  ranks.forEach((rank, index) =>
    [...rank].forEach((letter, file) => {
      if (letter === " ") return;
      const colour = letter === letter.toUpperCase() ? "white" : "black";
      places[colour].push(`${PIECES[letter.toLowerCase()][0]} ${"abcdefgh"[file]}${8 - index}`);
    }),
  );
  const toMove = fen.split(" ")[1] === "b" ? "black" : "white";
  return `Chess board, ${toMove} to move. White: ${places.white.join(", ")}. Black: ${places.black.join(", ")}.`;
}

// A small grid of numbers or of signs.
export function viewOfBoard(name, rows) {
  const cell = (value) => {
    const text = typeof value === "number" ? compact(value) : String(value ?? "");
    const isNothing = value === 0 || value === null || value === false || text.trim() === "";
    return element("td", { class: isNothing ? "board-nothing" : null }, text);
  };
  const label = `${cut(name, 80)}: ${rows.length} rows of ${rows[0].length}`;
  return scrolling(
    label,
    element(
      "table",
      { class: "board", "aria-label": label },
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell)))),
    ),
  );
}

// ------------------------------------------------------------------ tables

export function viewOfTable(name, rows) {
  const columns = columnsOf(rows.slice(0, FIRST_ROWS));
  const isOfNumbers = (column) =>
    rows.slice(0, 20).every((row) => typeof (row[column] ?? 0) === "number");
  const numeric = new Set(columns.filter(isOfNumbers));
  const head = columns.map((column) =>
    element("th", { scope: "col", class: numeric.has(column) ? "number" : null }, cut(column, 80)),
  );
  const body = element("tbody");
  const more = appendSome(
    body,
    rows,
    (row) => element("tr", {}, ...columns.map((column) => cellOf(row, column, numeric))),
    { first: FIRST_ROWS, noun: "rows" },
  );
  const label = `${cut(name, 80)}: ${rows.length} rows`;
  const table = element(
    "table",
    { class: "view-table", "aria-label": label },
    element("thead", {}, element("tr", {}, ...head)),
    body,
  );
  return element("div", {}, scrolling(label, table), more);
}

function cellOf(row, column, numeric) {
  const value = Object.hasOwn(row, column) ? row[column] : null;
  const text = value === null ? "" : isScalar(value) ? String(value) : asText(value);
  return element("td", { class: numeric.has(column) ? "number" : null }, cut(text, LONGEST_CELL));
}

// What may be wider than the page scrolls by itself, by the keyboard too.
export function scrolling(label, ...content) {
  return element(
    "div",
    { class: "view-scrolling", tabindex: "0", role: "region", "aria-label": label },
    ...content,
  );
}

// ------------------------------------------------------------------ conversations

export function viewOfChat(name, messages) {
  const list = element("ol", {
    class: "chat",
    "aria-label": `${cut(name, 80)}: ${messages.length} messages`,
  });
  const more = appendSome(list, messages, bubbleOf, { first: FIRST_MESSAGES, noun: "messages" });
  return element("div", {}, list, more);
}

const VOICES = {
  user: "user",
  human: "user",
  assistant: "assistant",
  ai: "assistant",
  model: "assistant",
  tool: "tool",
  function: "tool",
};

function bubbleOf(message) {
  const speaker = String(speakerOf(message));
  const voice = Object.hasOwn(VOICES, speaker) ? VOICES[speaker] : "other";
  const bubble = element(
    "li",
    { class: `chat-message chat-${voice}` },
    element("span", { class: "chat-speaker" }, cut(speaker, 80), unseen(":")),
  );
  const parts = Array.isArray(message.content) ? message.content : [message.content ?? ""];
  for (const part of parts.slice(0, FIRST_MESSAGES)) bubble.append(partOf(part));
  if (message.tool_calls) bubble.append(renderTree(message.tool_calls));
  return bubble;
}

// A part of a message: text, or a picture as OpenAI's and Anthropic's messages have it.
function partOf(part) {
  const text = typeof part === "string" ? part : part?.text;
  if (typeof text === "string") {
    const shown = element("div", { class: "view-text" });
    appendText(shown, text, 5000);
    return shown;
  }
  const picture = pictureIn(part);
  if (picture !== null) return viewOfFile("picture in a message", ...picture, part);
  const address = addressIn(part);
  if (typeof address !== "string" || !/^https?:/i.test(address)) return renderTree(part);
  return note(`a picture elsewhere, which is not loaded: ${cut(address, LONGEST_CELL)}`);
}

const addressIn = (part) => part?.image_url?.url ?? part?.image_url ?? part?.image;

function pictureIn(part) {
  const address = addressIn(part);
  if (typeof address === "string" && mediaTypeOf(address) !== null) {
    const base64 = /^data:[^,]{0,100};base64,/i.exec(address);
    if (base64 || !address.startsWith("data:"))
      return [mediaTypeOf(address), address.slice(base64?.[0].length ?? 0)];
  }
  const { type, media_type: mediaType, data } = part?.source ?? {};
  const isPicture =
    type === "base64" && /^image\/[\w.+-]+$/.test(mediaType) && typeof data === "string";
  return isPicture ? [mediaType, data] : null;
}
