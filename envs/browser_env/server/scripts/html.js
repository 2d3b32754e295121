// The document's HTML without parts that are useless to a reader: scripts, styles, comments,
// invisible elements, and most attributes.
((most) => {
  const LEFT_OUT = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "LINK", "META", "BASE"]);
  const KEPT = new Set([
    "alt", "aria-label", "checked", "disabled", "for", "href", "id", "label", "max", "min",
    "multiple", "name", "placeholder", "readonly", "role", "selected", "src", "title", "type",
    "value",
  ]);
  const VOID = new Set(["AREA", "BR", "COL", "EMBED", "HR", "IMG", "INPUT", "SOURCE", "WBR"]);
  const parts = [];
  let length = 0;
  const put = (text) => {
    if (length < most) parts.push(text.slice(0, most - length));
    length += text.length;
  };
  const escaped = (text) =>
    text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const state = (element) => {
    const now = {}; // false omits an attribute
    if (element instanceof HTMLInputElement) {
      if (element.type === "checkbox" || element.type === "radio") now.checked = element.checked;
      else now.value = element.type === "password" ? false : element.value;
    } else if (element instanceof HTMLOptionElement) now.selected = element.selected;
    return now;
  };
  const attributes = (element) => {
    const now = state(element);
    const written = {};
    for (const { name, value } of element.attributes) {
      if (KEPT.has(name) || (name.startsWith("aria-") && value)) written[name] = value;
    }
    for (const [name, value] of Object.entries(now)) {
      if (value === false) delete written[name];
      else written[name] = value === true ? "" : value;
    }
    return Object.entries(written)
      .map(([name, value]) => {
        const short = value.length > 300 ? value.slice(0, 300) + "…" : value;
        return ` ${name}="${escaped(short).replaceAll('"', "&quot;")}"`;
      })
      .join("");
  };
  const write = (node) => {
    if (node.nodeType === Node.TEXT_NODE) {
      const text = node.data.replace(/\s+/g, " ");
      if (text !== " ") put(escaped(text));
      return;
    }
    if (node.nodeType !== Node.ELEMENT_NODE || LEFT_OUT.has(node.tagName)) return;
    if (node.tagName !== "OPTION" && node.checkVisibility && !node.checkVisibility()) return;
    const tag = node.localName;
    put(`<${tag}${attributes(node)}>`);
    if (node.tagName === "TEXTAREA") put(escaped(node.value));
    else if (node.tagName !== "svg" && node.tagName !== "SVG") {
      for (const child of node.childNodes) write(child);
    }
    if (!VOID.has(node.tagName)) put(`</${tag}>`);
  };
  if (document.body) write(document.body);
  return [parts.join(""), length];
})(MOST);
