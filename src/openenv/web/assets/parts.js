// Small parts of which every view is made. Data become text nodes and harmless attributes here, and
// nothing else: observations are hostile.

export const LONGEST_TEXT = 20_000; // characters that are shown unasked
export const LARGEST_PIECE = 500_000; // characters that enter the document at a time

const SVG = "http://www.w3.org/2000/svg";
const COPIED_FOR_MS = 1500;

// Makes an element. Of the attributes, functions are listeners; null, undefined and false are left
// out. Children are nodes and text.
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(
    ...children.filter((child) => child !== null && child !== undefined && child !== false),
  );
  return made;
}

// Text for those who listen to the page instead of looking at it.
export const unseen = (text) => element("span", { class: "view-unseen" }, text);

export const note = (...text) => element("p", { class: "view-note" }, ...text);

// ------------------------------------------------------------------ what outlives its element

const held = new WeakMap();

// Says what has to be undone when an element is thrown away.
export function hold(owner, undo) {
  owner.setAttribute("data-held", "");
  held.set(owner, [...(held.get(owner) ?? []), undo]);
}

// Undoes it, for an element and all below it. To be called on whatever a view returned, once it
// is no longer shown.
export function release(root) {
  for (const owner of [root, ...root.querySelectorAll("[data-held]")]) {
    for (const undo of held.get(owner) ?? []) undo();
    held.delete(owner);
    owner.removeAttribute("data-held");
  }
}

export function blobAddress(owner, blob) {
  const address = URL.createObjectURL(blob);
  hold(owner, () => URL.revokeObjectURL(address));
  return address;
}

// ------------------------------------------------------------------ little by little

// Appends a text, or its beginning with a button that shows more of it.
export function appendText(target, text, limit = LONGEST_TEXT) {
  const end = boundary(text, limit);
  target.append(text.slice(0, end));
  if (end === text.length) return;
  const rest = text.slice(end);
  const button = moreButton(
    rest.length <= LARGEST_PIECE
      ? `show all ${count(text.length)} characters`
      : `show more; ${count(rest.length)} characters are left`,
    () => {
      button.remove();
      appendText(target, rest, LARGEST_PIECE);
      settle(target);
    },
  );
  target.append(button);
}

// Where a text may be cut: not between the halves of a character.
function boundary(text, limit) {
  if (text.length <= limit) return text.length;
  const last = text.charCodeAt(limit - 1);
  return last >= 0xd800 && last < 0xdc00 ? limit - 1 : limit;
}

// Appends what `build` makes of each item; of many the first, and returns a button for more of
// them, to be put where it belongs. Null where all are there.
export function appendSome(target, items, build, { first = 200, noun = "items" } = {}) {
  let shown = 0;
  const add = (number) => {
    const batch = items.slice(shown, shown + number);
    target.append(...batch.map((item, index) => build(item, shown + index)));
    shown += batch.length;
  };
  add(first);
  if (shown === items.length) return null;
  const label = () => `show more; ${count(items.length - shown)} ${noun} are left`;
  const button = moreButton(label(), () => {
    add(Math.max(first, 200));
    button.textContent = label();
    if (shown < items.length) return;
    button.remove();
    settle(target);
  });
  return button;
}

export function moreButton(label, press) {
  return element("button", { type: "button", class: "view-more", click: press }, label);
}

// Gives the focus of a button that is gone to what it has filled.
function settle(target) {
  if (!target.hasAttribute("tabindex")) target.setAttribute("tabindex", "-1");
  target.focus({ preventScroll: true });
}

// ------------------------------------------------------------------ copies

export function copyButton(name, value) {
  const label = `copy ${cut(name, 80)}`;
  const button = element(
    "button",
    { type: "button", class: "view-copy", "aria-label": label, title: label, click: copy },
    drawn(
      "svg",
      { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" },
      drawn("path", { d: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z" }),
    ),
  );
  async function copy() {
    say(button, (await wasCopied(asText(value))) ? "copied" : "could not be copied", label);
  }
  return button;
}

function say(button, words, label) {
  const said = element("span", { class: "view-said", role: "status" }, words);
  button.querySelector(".view-said")?.remove();
  button.append(said);
  button.setAttribute("aria-label", words);
  setTimeout(() => {
    said.remove();
    button.setAttribute("aria-label", label);
  }, COPIED_FOR_MS);
}

async function wasCopied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return wasCopiedTheOldWay(text); // pages that came by plain HTTP have no clipboard
  }
}

function wasCopiedTheOldWay(text) {
  const area = element("textarea", { class: "view-unseen", "aria-hidden": "true" });
  const before = document.activeElement;
  area.value = text;
  document.body.append(area);
  area.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    area.remove();
    before?.focus({ preventScroll: true });
  }
}

// ------------------------------------------------------------------ words

// Any value as text: strings as they are, all else as JSON.
export function asText(value) {
  if (typeof value === "string") return value;
  try {
    return JSON.stringify(value, null, 2) ?? String(value);
  } catch {
    return "(nested too deeply to be written down)";
  }
}

export function cut(text, length) {
  const end = boundary(text, length);
  return end === text.length ? text : `${text.slice(0, end)}…`;
}

export const count = (number) => number.toLocaleString("en-US");

// A number in as few digits as tell it from its neighbours.
export function compact(number) {
  if (!Number.isFinite(number)) return String(number);
  if (Number.isInteger(number) && Math.abs(number) < 1e6) return String(number);
  const rounded = Number(number.toPrecision(4));
  return Math.abs(rounded) < 1e6 ? String(rounded) : rounded.toExponential();
}

export function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  return bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

export const isObject = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export const isScalar = (value) => value === null || typeof value !== "object";
