// What a terminal would show of a text: colours and other renditions (SGR of ECMA-48), lines that
// are written over (carriage return, backspace, erase in line). All other sequences are dropped.

import { element } from "./parts.js";

// A control sequence, with its parameters and its final letter; a string to the terminal, such as
// the title of its window; another sequence; a lone escape.
const SEQUENCE =
  /(?:\x1b\[|\x9b)([0-?]*)[ -/]*([@-~])?|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?/y;
const TAB = 8;
const NORMAL = Object.freeze({ marks: Object.freeze([]) });

// The 16 colours of text on a dark screen, where each but black has a contrast of 4.5 and more; and
// those of the ground, on which text is light or dark as can be read.
const COLOURS = [
  "6b7280 ef6b73 8cc570 e5c07b 6cb2f0 cf8be6 5cc2cf c8ccd4",
  "8a919e ff8a92 a9dd8f f5d791 8fc9ff e2a8f5 84dce8 ffffff",
].flatMap((row) => row.split(" ").map(rgb));
const GROUNDS = [
  "2c313a 9c2f38 2f6b2a 7a5a12 1f5a9c 7a3a94 176b77 c8ccd4",
  "4a515d d9606a 8cc570 e5c07b 6cb2f0 cf8be6 5cc2cf ffffff",
].flatMap((row) => row.split(" ").map(rgb));
const DARK = rgb("14171c");
const LIGHT = rgb("e4e7ec");
const LEVELS = [0, 95, 135, 175, 215, 255]; // of red, green and blue in the cube of 256 colours

// What each parameter of SGR switches on, and off.
const ON = {
  1: "bold",
  2: "dim",
  3: "italic",
  4: "underline",
  7: "inverse",
  9: "struck",
  21: "underline",
};
const OFF = {
  22: ["bold", "dim"],
  23: ["italic"],
  24: ["underline"],
  27: ["inverse"],
  29: ["struck"],
};

// The text as spans, for a <pre class="view-screen">.
export function spansOf(text) {
  const lines = linesOf(text);
  const spans = document.createDocumentFragment();
  lines.forEach((line, index) => {
    const end = index < lines.length - 1 ? "\n" : "";
    for (const run of runsOf(line)) spans.append(spanOf(run));
    spans.append(end);
  });
  return spans;
}

// Lines of cells, {sign, style}; cells that look alike share one style.
export function linesOf(text) {
  const screen = { lines: [[]], column: 0, style: NORMAL };
  for (let at = 0; at < text.length;) at += read(screen, text, at);
  return screen.lines;
}

// Takes in what stands at a place of the text, and returns its length.
function read(screen, text, at) {
  const code = text.codePointAt(at);
  if (code === 0x1b || code === 0x9b) {
    SEQUENCE.lastIndex = at;
    const [sequence, parameters, letter] = SEQUENCE.exec(text);
    if (letter === "m") screen.style = styled(screen.style, parameters);
    if (letter === "K") erase(screen, parameters);
    return sequence.length;
  }
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) control(screen, code);
  else put(screen, String.fromCodePoint(code));
  return code > 0xffff ? 2 : 1;
}

function control(screen, code) {
  if (code === 0x0a) {
    screen.lines.push([]);
    screen.column = 0;
  }
  if (code === 0x0d) screen.column = 0;
  if (code === 0x08) screen.column = Math.max(0, screen.column - 1);
  if (code === 0x09)
    do put(screen, " ");
    while (screen.column % TAB !== 0);
}

function put(screen, sign) {
  const line = screen.lines[screen.lines.length - 1];
  if (/[\p{M}\u200d]/u.test(sign) && screen.column > 0) {
    line[screen.column - 1] = {
      ...line[screen.column - 1],
      sign: line[screen.column - 1].sign + sign,
    };
    return;
  }
  line[screen.column] = { sign, style: screen.style };
  screen.column += 1;
}

function erase(screen, parameters) {
  const line = screen.lines[screen.lines.length - 1];
  const [from, to] = { 1: [0, screen.column], 2: [0, line.length] }[parameters] ?? [
    screen.column,
    line.length,
  ];
  for (let column = from; column < to && column < line.length; column++)
    line[column] = { sign: " ", style: NORMAL };
  if (to === line.length) line.length = Math.min(line.length, screen.column);
}

// ------------------------------------------------------------------ renditions

function styled(before, parameters) {
  let style = before;
  const numbers = parameters.split(";");
  for (let at = 0; at < numbers.length; at++) {
    const [code, ...details] = numbers[at].split(":").map(Number);
    if (code !== 38 && code !== 48) {
      style = switched(style, code, details);
      continue;
    }
    // Both 38;2;r;g;b and 38:2::r:g:b are in use.
    const inline = details.length > 0;
    const [mode, ...rest] = inline ? details : numbers.slice(at + 1).map(Number);
    const taken = mode === 2 ? 3 : 1;
    const colour = colourOf(mode, inline ? rest.slice(-taken) : rest.slice(0, taken));
    style = { ...style, [code === 38 ? "colour" : "ground"]: colour };
    if (!inline) at += taken + 1;
  }
  return style;
}

function switched(style, code, details) {
  if (code === 0) return NORMAL;
  if (code === 4 && details[0] === 0) return without(style, ["underline"]);
  if (ON[code]) return { ...style, marks: [...new Set([...style.marks, ON[code]])] };
  if (OFF[code]) return without(style, OFF[code]);
  if (code === 39) return { ...style, colour: undefined };
  if (code === 49) return { ...style, ground: undefined };
  const [key, index] = sixteen(code);
  return key ? { ...style, [key]: (key === "ground" ? GROUNDS : COLOURS)[index] } : style;
}

const without = (style, marks) => ({
  ...style,
  marks: style.marks.filter((one) => !marks.includes(one)),
});

function sixteen(code) {
  if (code >= 30 && code <= 37) return ["colour", code - 30];
  if (code >= 40 && code <= 47) return ["ground", code - 40];
  if (code >= 90 && code <= 97) return ["colour", code - 82];
  if (code >= 100 && code <= 107) return ["ground", code - 92];
  return [];
}

function colourOf(mode, numbers) {
  const [first, second, third] = numbers.map((number) => Math.min(255, Math.floor(number) || 0));
  if (mode === 2) return [first ?? 0, second ?? 0, third ?? 0];
  return mode === 5 && first !== undefined ? ofPalette(first) : undefined;
}

function ofPalette(index) {
  if (index < 16) return COLOURS[index];
  if (index >= 232) return Array(3).fill(8 + 10 * (index - 232));
  const place = index - 16;
  return [Math.floor(place / 36), Math.floor(place / 6) % 6, place % 6].map(
    (level) => LEVELS[level],
  );
}

function rgb(hexadecimal) {
  return [0, 2, 4].map((at) => parseInt(hexadecimal.slice(at, at + 2), 16));
}

// ------------------------------------------------------------------ spans

// Neighbours of one style, as {text, style}.
function runsOf(line) {
  const runs = [];
  for (const { sign, style } of line) {
    const last = runs[runs.length - 1];
    if (last?.style === style) last.text += sign;
    else runs.push({ text: sign, style });
  }
  return runs;
}

function spanOf({ text, style }) {
  if (style === NORMAL) return text;
  const span = element(
    "span",
    { class: style.marks.map((mark) => `ansi-${mark}`).join(" ") || null },
    text,
  );
  const isInverse = style.marks.includes("inverse");
  const [colour, ground] = isInverse
    ? [style.ground ?? DARK, style.colour ?? LIGHT]
    : [style.colour, style.ground];
  const shown = ground && (!colour || colour === COLOURS[0]) ? against(ground) : colour;
  if (shown) span.style.color = css(shown);
  if (ground) span.style.backgroundColor = css(ground);
  return span;
}

// What can be read on a ground: where nothing else is asked for, or black, which is grey elsewhere.
function against([red, green, blue]) {
  return 0.3 * red + 0.59 * green + 0.11 * blue > 128 ? DARK : LIGHT;
}

const css = (colour) => `rgb(${colour.join(", ")})`;
