// HTML of others, in a frame in which nothing runs, loads, or leads anywhere.
//
// The fence is the sandbox without scripts, forms, popups and navigation of the page, and the
// document's own policy, which allows inline styles and data URLs only. Before that, what would be
// stopped is taken out where it can be found: links would lead the frame itself to addresses of
// this server, which no policy forbids, and hints such as preconnect are subject to no policy.
// The frame has this page's origin so that its height can be read; with no script in it, that
// gives it nothing.

import { element, hold } from "./parts.js";

const POLICY =
  "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:; form-action 'none'; base-uri 'none'";
const REMOVED =
  "script, noscript, link, base, meta, iframe, frame, frameset, object, embed, applet, fencedframe, template";
const ADDRESSES =
  "href xlink:href action formaction ping src srcset poster background data cite longdesc".split(
    " ",
  );
const LONGEST = 2_000_000; // characters
const HIGHEST = 640; // CSS pixels; more scrolls
const LOWEST = 24;
const SCROLLBAR = 16;
const SHARED = [
  "color-scheme",
  "--bg",
  "--panel",
  "--text",
  "--muted",
  "--line",
  "--accent",
  "--mono",
  "--sans",
];

const THEMED_STYLE = `
  :root { font: 15px/1.55 var(--sans, system-ui, sans-serif); color: var(--text, #1b1f24); background: var(--panel, #fff); overflow-wrap: anywhere; }
  body { margin: 0; padding: 2px 12px; }
  h1, h2, h3, h4, h5, h6 { line-height: 1.25; margin: 1.1em 0 .4em; } h1 { font-size: 1.4em; } h2 { font-size: 1.2em; } h3, h4, h5, h6 { font-size: 1em; }
  p, ul, ol, pre, table, blockquote { margin: .6em 0; }
  a { color: var(--accent, #0b62c4); text-decoration: underline; }
  code, pre { font-family: var(--mono, ui-monospace, monospace); font-size: .92em; }
  pre { padding: .6em .8em; overflow-x: auto; border: 1px solid var(--line, #d8dee4); border-radius: 6px; }
  blockquote { margin-left: 0; padding-left: .8em; border-left: 3px solid var(--line, #d8dee4); color: var(--muted, #59636e); }
  table { border-collapse: collapse; } th, td { padding: .25em .6em; border: 1px solid var(--line, #d8dee4); }
  hr { border: 0; border-top: 1px solid var(--line, #d8dee4); } img { max-width: 100%; }`;
const PLAIN_STYLE =
  ":root { color-scheme: light; background: #fff; color: #1b1f24; font-family: system-ui, sans-serif; }";

// Shows HTML. A themed one takes the colours of this page; others, which bring their own, stand on
// white.
export function frame(html, { title = "HTML of the environment", themed = false } = {}) {
  const made = element("iframe", {
    class: themed ? "view-frame view-frame-themed" : "view-frame",
    sandbox: "allow-same-origin",
    referrerpolicy: "no-referrer",
    title,
    srcdoc: documentOf(html, themed),
    load: () => fit(made),
  });
  made.style.height = `${LOWEST}px`;
  const watching = new ResizeObserver(() => {
    // Not at once: to change what is observed while that is told of is an error.
    if (made.clientWidth !== fitted.get(made)) requestAnimationFrame(() => fit(made));
  });
  watching.observe(made);
  hold(made, () => watching.disconnect());
  return made;
}

// ------------------------------------------------------------------ the document

function documentOf(html, themed) {
  // A document of the parser has no window: nothing in it runs or loads.
  const made = new DOMParser().parseFromString(String(html).slice(0, LONGEST), "text/html");
  for (const one of made.querySelectorAll(REMOVED)) one.remove();
  for (const one of made.querySelectorAll("*")) disarm(one);
  const policy = made.createElement("meta");
  policy.httpEquiv = "Content-Security-Policy";
  policy.content = POLICY;
  const style = made.createElement("style");
  style.textContent = themed ? THEMED_STYLE : PLAIN_STYLE;
  made.head.prepend(policy, style);
  return `<!doctype html>${made.documentElement.outerHTML}`;
}

function disarm(one) {
  for (const { name } of [...one.attributes]) {
    if (/^on/i.test(name)) one.removeAttribute(name);
  }
  for (const name of ADDRESSES) disarmAddress(one, name);
  if (
    /^(animate|set)/i.test(one.localName) &&
    /href/i.test(one.getAttribute("attributeName") ?? "")
  )
    one.remove();
}

// Pictures that are in the document, and references within a drawing, stay.
function disarmAddress(one, name) {
  const address = one.getAttribute(name)?.trim();
  if (address === undefined) return;
  const isLink = ["a", "area"].includes(one.localName);
  if (!isLink && /^(data:image\/|#)/i.test(address)) return;
  if (isLink && !one.hasAttribute("title")) one.setAttribute("title", address);
  one.removeAttribute(name);
}

// ------------------------------------------------------------------ height and colours

const fitted = new WeakMap(); // the width that each frame's height is for

function fit(made) {
  const root = made.contentDocument?.documentElement;
  if (!root || !made.clientWidth) return;
  fitted.set(made, made.clientWidth);
  if (made.classList.contains("view-frame-themed")) takeColours(made, root);
  // In a frame that is higher than its content, that could not be measured.
  made.style.height = `${LOWEST}px`;
  const bar = root.scrollWidth > root.clientWidth ? SCROLLBAR : 0;
  const height = root.scrollHeight + bar + (made.offsetHeight - made.clientHeight);
  made.style.height = `${Math.min(HIGHEST, Math.max(LOWEST, height))}px`;
}

function takeColours(made, root) {
  const colours = getComputedStyle(made);
  for (const name of SHARED) root.style.setProperty(name, colours.getPropertyValue(name));
}

function takeAllColours() {
  for (const made of document.querySelectorAll("iframe.view-frame-themed")) {
    const root = made.contentDocument?.documentElement;
    if (root) takeColours(made, root);
  }
}

// The page's colours change by its own switch, or by the system's.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", takeAllColours);
new MutationObserver(takeAllColours).observe(document.documentElement, {
  attributeFilter: ["class", "style", "data-theme"],
});
