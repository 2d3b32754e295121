// Any JSON as a tree that opens and closes. What is below a closed node is made when it is opened.

import {
  appendSome,
  appendText,
  count,
  cut,
  element,
  isObject,
  isScalar,
  unseen,
} from "./parts.js";

const FIRST = 100; // entries of a node
const LONGEST = 500; // characters of a string
const LONGEST_KEY = 200;
const LONGEST_HINT = 60;
const MOST_HINTS = 8;
const DEEPEST = 20; // levels that are opened at once
const LONGEST_BEFORE = 200;
const MOST_COMPARED = 200_000; // values; what is larger is taken for the same

const UNKNOWN = Symbol("there is nothing to compare with");
const ABSENT = Symbol("it was not there");

// Shows a value. Nodes are open down to a depth of `open`. Where there is a previous value, what
// differs from it is marked.
export function renderTree(value, { previous, open = 1 } = {}) {
  const before = previous === undefined ? UNKNOWN : previous;
  const depth = Math.min(DEEPEST, open === true ? DEEPEST : Number(open));
  return element("ul", { class: "tree" }, entry(null, value, before, depth));
}

function entry(key, value, before, open) {
  const name = key === null ? [] : [keyOf(key), ": "];
  return isScalar(value) ? leaf(name, value, before) : node(name, value, before, open);
}

const keyOf = (key) =>
  element(
    "span",
    { class: typeof key === "number" ? "tree-index" : "tree-key" },
    cut(String(key), LONGEST_KEY),
  );

// ------------------------------------------------------------------ leaves

function leaf(name, value, before) {
  const shown = element("span", { class: `tree-value tree-${typeOf(value)}` });
  appendText(shown, textOf(value), LONGEST);
  const row = element("li", { class: "tree-row" }, ...name, shown);
  if (before !== UNKNOWN && before !== value) mark(row, before);
  return row;
}

const typeOf = (value) => (value === null ? "null" : Array.isArray(value) ? "array" : typeof value);

const textOf = (value) => (typeof value === "string" ? JSON.stringify(value) : String(value));

function mark(row, before) {
  row.classList.add("changed");
  row.title = before === ABSENT ? "is new" : `was ${brief(before)}`;
  row.append(unseen(before === ABSENT ? " (changed: new)" : ` (changed: was ${brief(before)})`));
}

// ------------------------------------------------------------------ nodes

function node(name, value, before, open) {
  const list = Array.isArray(value);
  const entries = list ? [...value.entries()] : Object.entries(value);
  if (entries.length === 0) return emptyNode(name, list, before);
  const details = element(
    "details",
    {},
    element("summary", {}, ...name, element("span", { class: "tree-hint" }, hintOf(entries, list))),
  );
  const row = element("li", { class: "tree-row tree-node" }, details);
  const isOther = before !== UNKNOWN && (before === ABSENT || typeOf(before) !== typeOf(value));
  if (isOther) mark(row, before);
  else if (before !== UNKNOWN && !isSame(value, before)) markInside(row, details);
  const fill = once(() =>
    details.append(...childrenOf(entries, isOther ? UNKNOWN : before, open - 1)),
  );
  details.addEventListener("toggle", () => details.open && fill());
  if (open > 0) {
    fill();
    details.open = true;
  }
  return row;
}

function emptyNode(name, list, before) {
  const row = element(
    "li",
    { class: "tree-row" },
    ...name,
    element("span", { class: "tree-hint" }, list ? "[]" : "{}"),
  );
  if (before === UNKNOWN) return row;
  const wasEmpty =
    !isScalar(before) && Array.isArray(before) === list && Object.keys(before).length === 0;
  if (!wasEmpty) mark(row, before);
  return row;
}

function childrenOf(entries, before, open) {
  const children = element("ul");
  const earlier = (key) => {
    if (before === UNKNOWN) return UNKNOWN;
    return Object.hasOwn(before, key) ? before[key] : ABSENT;
  };
  const more = appendSome(
    children,
    entries,
    ([key, value]) => entry(key, value, earlier(key), open),
    {
      first: FIRST,
      noun: "entries",
    },
  );
  if (before !== UNKNOWN) children.append(...removedFrom(before, entries));
  return more === null ? [children] : [children, more];
}

function removedFrom(before, entries) {
  const keys = new Set(entries.map(([key]) => String(key)));
  const gone = Object.keys(before).filter((key) => !keys.has(key));
  return gone.slice(0, FIRST).map((key) => {
    const old = element("del", { class: "tree-value" }, brief(before[key]));
    const row = element(
      "li",
      { class: "tree-row changed", title: "is gone" },
      keyOf(key),
      ": ",
      old,
    );
    row.append(unseen(" (changed: gone)"));
    return row;
  });
}

function markInside(row, details) {
  row.classList.add("holds-changes");
  details.firstChild.append(unseen(" (changed inside)"));
}

function once(work) {
  let isDone = false;
  return () => {
    if (!isDone) work();
    isDone = true;
  };
}

// What a node holds, in a few words.
function hintOf(entries, list) {
  const words = [];
  let length = 0;
  for (const [key, value] of entries.slice(0, MOST_HINTS)) {
    const word = list ? brief(value, 24) : `${cut(String(key), 24)}: ${brief(value, 24)}`;
    length += word.length;
    if (length > LONGEST_HINT) break;
    words.push(word);
  }
  if (words.length < entries.length) words.push("…");
  const size = count(entries.length);
  return `${list ? `[${size}]` : `{${size}}`} ${words.join(", ")}`;
}

function brief(value, longest = LONGEST_BEFORE) {
  if (Array.isArray(value)) return value.length ? `[${count(value.length)}]` : "[]";
  if (isObject(value))
    return Object.keys(value).length ? `{${count(Object.keys(value).length)}}` : "{}";
  return typeof value === "string" ? JSON.stringify(cut(value, longest)) : String(value);
}

// ------------------------------------------------------------------ comparison

// Whether two values are the same, by a stack of its own: hostile values are nested without end.
function isSame(value, other) {
  const pairs = [[value, other]];
  for (let compared = 0; pairs.length > 0 && compared < MOST_COMPARED; compared++) {
    const [one, two] = pairs.pop();
    if (one === two) continue;
    if (isScalar(one) || isScalar(two) || Array.isArray(one) !== Array.isArray(two)) return false;
    const keys = Object.keys(one);
    if (keys.length !== Object.keys(two).length) return false;
    for (const key of keys) {
      if (!Object.hasOwn(two, key)) return false;
      pairs.push([one[key], two[key]]);
    }
  }
  return true;
}
