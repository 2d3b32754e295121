// README, schemas and code to begin with, with this server's own address in it.

import { element } from "./parts.js";
import { renderTree } from "./tree.js";
import { renderObservation } from "./view.js";

export function showDocs(about) {
  const { metadata, schemas, tools, reward } = about;
  const described = [
    ["version", metadata.version], ["author", metadata.author], ["mode", about.mode],
    ["rewards", reward && `${reward.kind}${reward.range ? `, from ${reward.range[0]} to ${reward.range[1]}` : ""}`],
  ].filter(([, value]) => value);
  return {
    element: element("div", { class: "panes" },
      element("div", { class: "pane" },
        card("Quick start", ...about.snippets.map((one) => snippet(one, baseAddress()))),
        card("Schemas", ...Object.entries(schemas).map(([name, schema]) => folded(name, schema)), ...(tools ?? []).map((tool) => folded(`tool ${tool.name}`, tool)))),
      element("div", { class: "pane" },
        card(metadata.name, element("p", {}, metadata.description),
          element("dl", { class: "facts" }, ...described.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
          metadata.readme_content ? renderObservation({ readme: metadata.readme_content }) : element("p", { class: "muted" }, "It has no README."))),
    ),
  };
}

/** The address of the server that this page is of, as others reach it. */
function baseAddress() {
  return new URL("..", document.baseURI).href.replace(/\/$/, "");
}

function snippet({ label, code, note }, base) {
  const text = code.replaceAll("{base_url}", base).trimEnd();
  const copy = element("button", {
    type: "button", "aria-label": `Copy ${label}`,
    click: async () => {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    },
  }, "Copy");
  return element("article", { class: "snippet" },
    element("header", {}, element("h3", {}, label), copy),
    note && element("p", { class: "muted" }, note),
    element("pre", { tabindex: "0" }, text));
}

function folded(name, value) {
  return element("details", {}, element("summary", {}, name), renderTree(value, { open: true }));
}

function card(title, ...children) {
  return element("section", { class: "card", "aria-label": title }, element("header", {}, element("h2", {}, title)), ...children.filter(Boolean));
}
