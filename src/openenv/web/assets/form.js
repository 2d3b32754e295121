/**
 * A form for any JSON schema (draft 2020-12, as Pydantic 2 writes it).
 *
 * Schemas, values and errors come from an environment, which may be hostile: all of it gets into
 * the page as text and never as markup, and names of properties are kept in Maps or defined as own
 * properties, so that `__proto__` is a name like any other. A schema that is wrong, endless or of
 * a kind unknown here ends in a box for JSON: the server has the last word in any case.
 *
 * Every kind of field is a class with the same few methods (see `Field`); `classOf` chooses.
 */

/** What `value()` throws; `errors` are of the form that Pydantic has: `[{loc, msg}]`. */
export class FormInvalid extends Error {
  constructor(errors) {
    super(errors.map(({ loc, msg }) => [...loc, msg].join(": ")).join("; "));
    this.name = "FormInvalid";
    this.errors = errors;
  }
}

/**
 * Build a form.
 *
 * options.idPrefix: what ids begin with; by default none is given twice in a page.
 * options.onSubmit: called with the form on Enter in an input, and on Ctrl+Enter anywhere in it.
 * options.omit: top-level properties to leave out; by default `["metadata"]`.
 * options.compact: less space, and help texts for screen readers only.
 *
 * The root's own title and description are left to the page.
 */
export function buildForm(schema, options = {}) {
  const form = new Form(schema, options);
  const api = {
    element: form.element,
    isEmpty: !form.root.isFillable,
    /** The JSON value. Throws FormInvalid, marks the fields and focuses the first of them. */
    value: () => form.value(),
    /** What is filled in so far, without complaints; undefined if nothing is. */
    peek: () => form.peek(),
    /** Show a value; what it lacks is as after `reset`. What does not fit is left empty. */
    setValue: (value) => form.load(value),
    reset: () => form.reset(),
    /** Put errors, as Pydantic gives them, at their fields, in place of those shown before. */
    setErrors: (errors) => form.setErrors(errors),
    clearErrors: () => form.clearErrors(),
    focusFirst: () => focusIn(form.root.element),
  };
  listenForSubmit(form.element, () => options.onSubmit?.(api));
  return api;
}

// ---------------------------------------------------------------- values

/** Nothing was filled in. */
const MISSING = Symbol("missing");
/** Something was filled in, and is wrong; the reading says what. */
const REFUSED = Symbol("refused");

const isValue = (read) => read !== MISSING && read !== REFUSED;
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const list = (value) => (Array.isArray(value) ? value : []);
const entries = (value) => (isObject(value) ? Object.entries(value) : []);
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const isText = (value) => typeof value === "string" && value !== "";
const isEmpty = (value) =>
  value === null || value === "" || (typeof value === "object" && Object.keys(value).length === 0);
const hasDefault = (schema) => Object.hasOwn(schema, "default");

/** Set an own property: assignment to `__proto__` would change the prototype instead. */
function put(object, name, value) {
  const property = { value, enumerable: true, writable: true, configurable: true };
  Object.defineProperty(object, name, property);
}

function without(schema, ...names) {
  return Object.fromEntries(Object.entries(schema).filter(([name]) => !names.includes(name)));
}

/** JSON with sorted names, so that equal values are equal texts. */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (!isObject(value)) return JSON.stringify(value) ?? "null";
  const pairs = Object.entries(value).map(([name, part]) => `${JSON.stringify(name)}:${canonical(part)}`);
  return `{${pairs.sort().join()}}`;
}

/** One pass over the form: the problems found so far, in the order of the fields. */
class Reading {
  problems = [];

  refuse(field, loc, msg) {
    this.problems.push({ field, loc, msg });
    return REFUSED;
  }
}

// ---------------------------------------------------------------- the page

let formsBuilt = 0;

/** An element; strings among the children become text. Attributes that are false are left out. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

function makeButton(text, label, onClick) {
  const button = make("button", { type: "button", class: "form-button", "aria-label": label }, text);
  button.addEventListener("click", onClick);
  return button;
}

/** Tell the fields around that the person changed something that is no control's own value. */
function announceChange(element) {
  element.dispatchEvent(new Event("input", { bubbles: true }));
}

const CONTROLS = "input:not([tabindex='-1']), select, textarea";

function focusIn(element) {
  const controls = [...element.querySelectorAll(CONTROLS)].filter((control) => !control.closest("[hidden]"));
  const first = controls[0] ?? element.querySelector("button:not([disabled])");
  // Of radio buttons, the chosen one stands for the group.
  const chosen = controls.find((control) => control.name && control.name === first.name && control.checked);
  (chosen ?? first)?.focus();
}

function listenForSubmit(element, submit) {
  element.addEventListener("keydown", (event) => {
    // While an input method composes, Enter belongs to it.
    if (event.key !== "Enter" || event.isComposing || event.target.closest("button")) return;
    if (event.target.tagName !== "INPUT" && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    submit();
  });
}

/** Docstrings are broken for a terminal: join their lines, except at blank ones and at lists. */
function reflow(text) {
  const paragraphs = text.trim().split(/\n\s*\n/);
  return paragraphs.map((lines) => lines.replace(/\s*\n\s*(?!\s|[-*] )/g, " ")).join("\n\n");
}

/** `tool_name` as Pydantic titles it: Tool Name. */
function titled(name) {
  const words = name.replace(/_/g, " ").trim().replace(/(^|\s)\p{Ll}/gu, (start) => start.toUpperCase());
  return words || name;
}

// ---------------------------------------------------------------- schemas

const ANNOTATIONS = ["title", "description", "default", "examples", "deprecated"];
const REFERENCES_FOLLOWED = 40;

/** What a reference of the same document points to. */
function lookUp(root, reference) {
  if (!reference.startsWith("#")) return {};
  let found = root;
  for (const part of reference.slice(1).split("/").slice(1)) {
    const name = unescaped(part);
    if (typeof found !== "object" || found === null || !Object.hasOwn(found, name)) return {};
    found = found[name];
  }
  return isObject(found) ? found : {};
}

function unescaped(part) {
  const name = part.replace(/~1/g, "/").replace(/~0/g, "~");
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

const isNull = (schema) =>
  isObject(schema) && (schema.type === "null" || (Object.hasOwn(schema, "const") && schema.const === null));

/**
 * A schema without references, `allOf` and lists of types at its top.
 *
 * Gives the schema; `branches`, if it is a union of two or more; `isNullable`, if null was one of
 * the alternatives to the rest; and the references that were followed.
 */
function resolve(root, raw) {
  const references = [];
  let isNullable = false;
  let schema = isObject(raw) ? raw : {};
  while (references.length < REFERENCES_FOLLOWED) {
    if (typeof schema.$ref === "string") {
      if (references.includes(schema.$ref)) break;
      references.push(schema.$ref);
      schema = { ...lookUp(root, schema.$ref), ...without(schema, "$ref") };
    } else if (list(schema.allOf).length) {
      schema = merged(root, schema);
    } else if (Array.isArray(schema.type)) {
      schema = typesAsUnion(schema);
    } else if (alternatives(schema).length) {
      const branches = alternatives(schema).filter((branch) => !isNull(branch));
      isNullable ||= branches.length < alternatives(schema).length;
      if (branches.length !== 1) return { schema, branches, isNullable, references };
      const [only] = branches.filter(isObject);
      schema = { ...only, ...without(schema, "anyOf", "oneOf", "discriminator") };
    } else {
      return { schema, branches: [], isNullable, references };
    }
  }
  return { schema: {}, branches: [], isNullable, references };
}

/** `anyOf` beside a type or properties only says more about them, which is left to the server. */
function alternatives(schema) {
  if (schema.type !== undefined || schema.properties !== undefined || Object.hasOwn(schema, "const")) return [];
  return withoutIntegers(list(schema.anyOf ?? schema.oneOf));
}

/** In JSON an integer is a number: a choice between the two would be none. */
function withoutIntegers(branches) {
  const isPlain = (type) => (branch) => isObject(branch) && branch.type === type && Object.keys(branch).length === 1;
  return branches.some(isPlain("number")) ? branches.filter((branch) => !isPlain("integer")(branch)) : branches;
}

function typesAsUnion(schema) {
  const types = schema.type.filter((type) => typeof type === "string");
  const rules = without(schema, "type", ...ANNOTATIONS);
  const annotations = without(schema, ...Object.keys(rules), "type");
  return { ...annotations, anyOf: types.map((type) => ({ ...rules, type })) };
}

function merged(root, schema) {
  const own = without(schema, "allOf");
  let whole = {};
  for (const raw of [...schema.allOf.filter(isObject), own]) {
    const part = typeof raw.$ref === "string" ? { ...lookUp(root, raw.$ref), ...without(raw, "$ref") } : raw;
    whole = { ...whole, ...part, ...togetherOf(whole, part) };
  }
  return without(whole, "allOf");
}

function togetherOf(one, other) {
  const together = {};
  if (one.properties && other.properties) together.properties = { ...one.properties, ...other.properties };
  if (one.required && other.required) together.required = [...list(one.required), ...list(other.required)];
  return together;
}

/** The choices of an enum, or of a union of constants; null where the schema is neither. */
function choicesOf(schema, branches) {
  if (list(schema.enum).length) {
    const label = schema.type === "boolean" ? (value) => (value ? "yes" : "no") : choiceLabel;
    return schema.enum.map((value) => ({ value, label: label(value) }));
  }
  const areConstants = branches.every((branch) => isObject(branch) && Object.hasOwn(branch, "const"));
  if (!branches.length || !areConstants) return null;
  return branches.map((branch) => ({
    value: branch.const,
    label: isText(branch.title) ? branch.title : choiceLabel(branch.const),
  }));
}

function choiceLabel(value) {
  if (value === null) return "none";
  if (value === "") return "(empty)";
  return typeof value === "string" ? value : JSON.stringify(value);
}

const TYPE_NAMES = new Map([
  ["string", "text"],
  ["integer", "whole number"],
  ["number", "number"],
  ["boolean", "yes or no"],
  ["array", "list"],
  ["object", "object"],
  ["null", "none"],
]);

/** What Pydantic calls a branch of a type in an error's `loc`. */
const TYPE_TAGS = new Map([
  ["string", /^(constrained-)?str\b|^(url|date|datetime|time|timedelta|uuid|bytes|decimal)$/],
  ["integer", /^(constrained-)?int\b/],
  ["number", /^(constrained-)?(float|int|decimal)\b/],
  ["boolean", /^bool\b/],
  ["array", /^(list|set|frozenset|tuple)\b/],
  ["object", /^dict\b/],
  ["null", /^none\b/i],
]);

/** What looks like a branch's name of Pydantic's making, and like no name of a field. */
const MADE_UP_TAG = /[[(]|^(constrained-)?(str|int|float|bool|none|list|dict|set|tuple)$/;

const constantsOf = (schema) => (Object.hasOwn(schema, "const") ? [schema.const] : list(schema.enum));

/** The property that tells the branches of a union apart, whether or not the schema names it. */
function discriminatorOf(schema, resolved) {
  if (isObject(schema.discriminator) && isText(schema.discriminator.propertyName)) {
    return schema.discriminator.propertyName;
  }
  const [first, ...others] = resolved.map((branch) => new Map(entries(branch.properties)));
  const tells = ([name, property]) =>
    isObject(property) &&
    Object.hasOwn(property, "const") &&
    others.every((properties) => {
      const other = properties.get(name);
      return isObject(other) && Object.hasOwn(other, "const") && other.const !== property.const;
    });
  return others.length && first ? [...first].find(tells)?.[0] : undefined;
}

/** What there is to know of each branch of a union before its fields are built. */
function branchesOf(root, schema, branches, isNullable) {
  const raws = isNullable ? [{ type: "null" }, ...branches] : branches;
  const resolved = raws.map((raw) => resolve(root, raw));
  const objects = resolved.map((branch) => branch.schema).filter((branch) => branch.type !== "null");
  const discriminator = discriminatorOf(schema, objects);
  const found = resolved.map(({ schema: branch, references }, index) => {
    const property = new Map(entries(branch.properties)).get(discriminator);
    const tags = isObject(property) ? constantsOf(resolve(root, property).schema).map(choiceLabel) : [];
    const definitions = references.map((reference) => reference.split("/").at(-1));
    const names = [...tags, branch.title, ...definitions].filter(isText);
    // One constant is said by the choice of the branch; among several the person has to choose.
    const hidden = tags.length === 1 ? discriminator : undefined;
    const label = tags.join(" / ") || names[0] || TYPE_NAMES.get(branch.type) || "JSON";
    return { raw: raws[index], schema: branch, references, label, names, hidden };
  });
  return { discriminator, branches: found.map((branch, index) => ({ ...branch, label: distinct(found, index) })) };
}

function distinct(branches, index) {
  const { label } = branches[index];
  return branches.findIndex((branch) => branch.label === label) === index ? label : `${label} (${index + 1})`;
}

/** Whether an error's `loc` names this branch: `Move`, `int`, `function-after[check(), Move]`. */
function isTagOf(branch, tag) {
  if (typeof tag !== "string") return branch.names.includes(choiceLabel(tag));
  if (branch.names.includes(tag)) return true;
  const inside = /[[(]/.test(tag) ? tag.split(/[^\p{L}\p{N}_]+/u) : [];
  return inside.some((word) => branch.names.includes(word)) || Boolean(TYPE_TAGS.get(branch.schema.type)?.test(tag));
}

const TYPES = new Map([
  ["string", (value) => typeof value === "string"],
  ["integer", Number.isInteger],
  ["number", (value) => typeof value === "number"],
  ["boolean", (value) => typeof value === "boolean"],
  ["array", Array.isArray],
  ["object", isObject],
  ["null", (value) => value === null],
]);

/** Whether a value may be one of a schema: by its type, its constants, and the names it has. */
function fits(root, raw, value, depth = 0) {
  const { schema, branches, isNullable } = resolve(root, raw);
  if (isNullable && value === null) return true;
  if (branches.length) return branches.some((branch) => depth > 4 || fits(root, branch, value, depth + 1));
  const constants = constantsOf(schema);
  if (constants.length && !constants.some((constant) => canonical(constant) === canonical(value))) return false;
  if (TYPES.has(schema.type) && !TYPES.get(schema.type)(value)) return false;
  if (!isObject(value) || depth > 4) return true;
  return propertiesFit(root, schema, value, depth);
}

function propertiesFit(root, schema, value, depth) {
  const properties = new Map(entries(schema.properties));
  const isClosed = schema.additionalProperties === false;
  return (
    list(schema.required).every((name) => Object.hasOwn(value, name)) &&
    Object.entries(value).every(([name, part]) =>
      properties.has(name) ? fits(root, properties.get(name), part, depth + 1) : !isClosed,
    )
  );
}

// ---------------------------------------------------------------- rules

/** "at least 1 and less than 10": what a schema says of a number; "" if nothing. */
function boundsText({ minimum, exclusiveMinimum, maximum, exclusiveMaximum }) {
  const parts = [
    isNumber(minimum) && `at least ${minimum}`,
    isNumber(exclusiveMinimum) && `more than ${exclusiveMinimum}`,
    isNumber(maximum) && `at most ${maximum}`,
    isNumber(exclusiveMaximum) && `less than ${exclusiveMaximum}`,
  ];
  return parts.filter(Boolean).join(" and ");
}

function isWithin(value, { minimum, exclusiveMinimum, maximum, exclusiveMaximum }) {
  return !(
    (isNumber(minimum) && value < minimum) ||
    (isNumber(exclusiveMinimum) && value <= exclusiveMinimum) ||
    (isNumber(maximum) && value > maximum) ||
    (isNumber(exclusiveMaximum) && value >= exclusiveMaximum)
  );
}

const EXACT_ONLY = `not beyond ±${Number.MAX_SAFE_INTEGER}, where a page is not exact`;

/** What is wrong with a number that was written as `text`; null if nothing. */
function numberProblem(schema, text) {
  const value = typeof text === "number" ? text : Number(text);
  if (!Number.isFinite(value) || text === "") return `a number; you gave ${text}`;
  if (schema.type === "integer") {
    if (!Number.isInteger(value)) return `a whole number; you gave ${text}`;
    // Beyond it, neighbours become the same number in a browser, and another one would be sent.
    if (!Number.isSafeInteger(value)) return `${EXACT_ONLY}; you gave ${text}`;
  }
  if (!isWithin(value, schema)) return `${boundsText(schema)}; you gave ${text}`;
  const times = value / schema.multipleOf;
  if (schema.multipleOf > 0 && Math.abs(times - Math.round(times)) > 1e-9) {
    return `a multiple of ${schema.multipleOf}; you gave ${text}`;
  }
  return null;
}

/** What is wrong with the size of a text, a list or an object; null if nothing. */
function sizeProblem(size, least, most, noun) {
  if (!(isNumber(least) && size < least) && !(isNumber(most) && size > most)) return null;
  const bounds = [isNumber(least) && `at least ${least}`, isNumber(most) && `at most ${most}`].filter(Boolean);
  const last = isNumber(most) ? most : least;
  return `${bounds.join(" and ")} ${noun}${last === 1 ? "" : "s"}; you gave ${size}`;
}

function textProblem(schema, text) {
  // As Python and JSON schema count them; `length` would count some twice.
  const problem = sizeProblem([...text].length, schema.minLength, schema.maxLength, "character");
  if (problem) return problem;
  return isText(schema.pattern) && !matches(schema.pattern, text) ? `text that matches ${schema.pattern}` : null;
}

/** Patterns are Rust's or Python's: one that this browser cannot read is left to the server. */
function matches(pattern, text) {
  try {
    // Without the flag, what is unknown would be read as something else: `\z` as the letter.
    return new RegExp(pattern, "u").test(text);
  } catch {
    return true;
  }
}

/** A whole number in a JSON text that a browser would change; undefined if there is none. */
function inexactIntegerIn(text) {
  const bare = text.replace(/"(?:\\.|[^"\\])*"/g, '""');
  const numbers = bare.match(/-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g) ?? [];
  return numbers.find((number) => /^-?\d+$/.test(number) && !Number.isSafeInteger(Number(number)));
}

// ---------------------------------------------------------------- fields

/**
 * Where a field stands:
 *
 * form, schema, title; `branches` and `isNullable` (see `resolve`);
 * name: the property's, if it is one;
 * isRequired: whether it has to be filled in;
 * isElement: it is one of a list or a dictionary, and so has to have a value, be it empty;
 * isUntitled: its label is for screen readers only, as what stands around it says enough;
 * isBare: it is no group of its own, but the content of one;
 * isTop: it is the root;
 * isAsked: the person asked for it, so that it is built however deep it is;
 * hidden: the property that a union's choice of branch sets;
 * chain: the references that lead here, by which recursion is noticed.
 */

/** The contract of all kinds. */
class Field {
  /** Whether there is anything to fill in. */
  isFillable = true;
  /** Whether it has one value only, which is always sent. */
  isFixed = false;
  missingText = "required";

  constructor(place) {
    this.place = place;
    this.form = place.form;
    this.schema = place.schema;
    this.id = this.form.nextId();
    this.form.built += 1;
  }

  /** The value; MISSING or REFUSED if there is none. Problems go into the reading. */
  read(_reading, _loc) {
    return MISSING;
  }

  /** Show a value, of whatever type it is. */
  load(_value) {}

  /** Show nothing. */
  clear() {}

  reset() {
    if (hasDefault(this.schema)) this.load(this.schema.default);
    else this.clear();
  }

  /** The field of a part, by its place in an error's `loc`. */
  child(_key) {
    return undefined;
  }

  /** A place below this one. */
  below(rest) {
    return { form: this.form, chain: this.place.chain, isRequired: true, ...rest };
  }

  retitle(title) {
    this.place = { ...this.place, title };
    this.titleText.textContent = title;
  }

  get isMarkedRequired() {
    const { isRequired, isUntitled, isBare } = this.place;
    return isRequired && !isUntitled && !isBare && !this.isFixed;
  }

  /** Frame a control, with its label before it. */
  frameLine(control, ...beside) {
    control.id = this.id;
    this.control = control;
    if (this.isMarkedRequired) control.setAttribute("aria-required", "true");
    const label = make("label", { for: this.id });
    const name = make("div", { class: this.nameClass }, label);
    const line = make("div", { class: "form-line" }, control, ...beside);
    this.fill(make("div", { class: this.fieldClass }, name), label, line);
    name.append(...this.marks());
  }

  /** Frame buttons of which one is chosen, with their legend before them. */
  frameChoice(buttons) {
    const required = this.isMarkedRequired && "true";
    const legend = make("legend", { class: this.nameClass });
    const attributes = { class: this.fieldClass, role: "radiogroup", "aria-required": required };
    this.control = make("fieldset", attributes, legend);
    this.fill(this.control, legend, buttons);
    legend.append(...this.marks());
  }

  /** Frame several controls as a group, whose legend is the title. */
  frameGroup(...body) {
    const legend = make("legend");
    this.control = this.place.isBare
      ? make("div", { class: "form-bare", role: "group" })
      : make("fieldset", { class: "form-group" }, legend);
    this.fill(this.control, legend, make("div", { class: "form-body" }, ...body));
    legend.append(...this.marks());
  }

  get fieldClass() {
    return this.place.isUntitled ? "form-field form-untitled" : "form-field";
  }

  get nameClass() {
    return this.place.isUntitled ? "form-unseen" : "form-name";
  }

  /** Put title, content, help and errors into an element, which becomes the field's. */
  fill(element, title, content) {
    this.element = element;
    this.titleText = make("span", {}, this.place.title);
    title.append(this.titleText);
    this.errorBox = make("div", { class: "form-problems", id: `${this.id}-errors` });
    this.help = this.makeHelp();
    const isGroup = content.className === "form-body";
    const parts = isGroup ? [this.help, this.errorBox, content] : [content, this.errorBox, this.help];
    element.append(make("div", { class: "form-control" }, ...parts));
    this.describe();
    element.addEventListener("input", () => this.clearErrors());
  }

  makeHelp() {
    const { description } = this.schema;
    if (!isText(description) || this.place.isTop) return null;
    return make("p", { class: "form-help", id: `${this.id}-help` }, reflow(description));
  }

  /** Words after the title. Screen readers have `aria-required` for the first. */
  marks() {
    const marks = [];
    if (this.isMarkedRequired) marks.push(make("span", { class: "form-mark", "aria-hidden": "true" }, "required"));
    if (this.schema.deprecated === true) marks.push(make("span", { class: "form-mark" }, "deprecated"));
    return marks;
  }

  describe() {
    const ids = [this.errorBox.hasChildNodes() && this.errorBox.id, this.help?.id].filter(Boolean);
    if (ids.length) this.control.setAttribute("aria-describedby", ids.join(" "));
    else this.control.removeAttribute("aria-describedby");
  }

  addError(message) {
    this.errorBox.append(make("p", { class: "form-error", role: "alert" }, message));
    this.element.classList.add("form-invalid");
    // Only what holds a value can be invalid, to a screen reader.
    const holdsValue = this.control.matches("input, select, textarea, [role=radiogroup]");
    if (holdsValue) this.control.setAttribute("aria-invalid", "true");
    this.describe();
    this.form.marked.add(this);
  }

  clearErrors() {
    if (!this.form.marked.delete(this)) return;
    this.errorBox.replaceChildren();
    this.element.classList.remove("form-invalid");
    this.control.removeAttribute("aria-invalid");
    this.describe();
  }

  /** What an empty control means: null, an empty text, or nothing. */
  emptyValue() {
    const { isNullable, isRequired, isElement } = this.place;
    const initial = this.schema.default;
    if (isNullable) return isRequired || isElement || initial != null ? null : MISSING;
    if (this.schema.type !== "string") return MISSING;
    // A default that was emptied would come back if nothing were sent.
    return isElement || this.schema.minLength === 0 || isText(initial) ? "" : MISSING;
  }

  /** Whether an empty list or object is left out as other empty fields are. */
  get isLeftOutWhenEmpty() {
    const initial = this.schema.default;
    return !this.place.isRequired && (initial == null || Object.keys(initial).length === 0);
  }
}

/** A constant, shown as text. */
class ConstantField extends Field {
  isFillable = false;
  isFixed = true;

  constructor(place) {
    super(place);
    this.constant = this.schema.type === "null" ? null : this.schema.const;
    this.frameLine(make("output", { class: "form-constant" }, choiceLabel(this.constant)));
  }

  read() {
    return this.constant;
  }
}

class BooleanField extends Field {
  constructor(place) {
    super(place);
    this.input = make("input", { type: "checkbox" });
    this.frameLine(this.input);
    this.element.classList.add("form-boolean");
  }

  /** Off is an answer too: nothing is required of a checkbox. */
  get isMarkedRequired() {
    return false;
  }

  read() {
    return this.input.checked;
  }

  load(value) {
    this.input.checked = value === true;
  }

  clear() {
    this.input.checked = false;
  }
}

const FEW_CHOICES = 5;
const SHORT_CHOICE = 16;

/** One of several values: buttons where they are few and short, else a list to choose from. */
class ChoiceField extends Field {
  missingText = "choose one";

  constructor(place) {
    super(place);
    const choices = choicesOf(this.schema, place.branches);
    const hasNone = choices.some(({ value }) => value === null);
    this.choices = place.isNullable && !hasNone ? [{ value: null, label: "none" }, ...choices] : choices;
    const isShort = this.choices.every(({ label }) => label.length <= SHORT_CHOICE);
    if (isShort && this.choices.length <= FEW_CHOICES && !place.isUntitled) this.frameSegments();
    else this.frameSelect();
  }

  frameSegments() {
    const segments = make("div", { class: "form-segments" });
    this.radios = this.choices.map(({ label }, index) => {
      const id = `${this.id}-${index}`;
      const radio = make("input", { type: "radio", name: this.id, id, value: index });
      segments.append(make("span", { class: "form-segment" }, radio, make("label", { for: id }, label)));
      return radio;
    });
    this.frameChoice(segments);
  }

  frameSelect() {
    const options = this.choices.map(({ label }, index) => make("option", { value: index }, label));
    const nothing = make("option", { value: "" }, this.place.isRequired ? "choose…" : "–");
    this.select = make("select", {}, nothing, ...options);
    this.frameLine(this.select);
  }

  read() {
    const chosen = this.radios ? this.radios.findIndex((radio) => radio.checked) : this.select.selectedIndex - 1;
    return chosen < 0 ? MISSING : this.choices[chosen].value;
  }

  load(value) {
    const wanted = canonical(value ?? null);
    this.show(this.choices.findIndex((choice) => canonical(choice.value) === wanted));
  }

  clear() {
    this.show(-1);
  }

  show(chosen) {
    this.radios?.forEach((radio, index) => (radio.checked = index === chosen));
    if (this.select) this.select.selectedIndex = chosen + 1;
  }
}

const LONGEST_INTEGER_SLIDER = 100;

class NumberField extends Field {
  constructor(place) {
    super(place);
    const { schema } = this;
    const isInteger = schema.type === "integer";
    const step = schema.multipleOf > 0 ? schema.multipleOf : isInteger ? 1 : "any";
    this.input = make("input", {
      type: "number",
      step,
      min: schema.minimum ?? schema.exclusiveMinimum,
      max: schema.maximum ?? schema.exclusiveMaximum,
      // The keypad of a phone may have no minus.
      inputmode: (schema.minimum ?? schema.exclusiveMinimum) >= 0 && (isInteger ? "numeric" : "decimal"),
      autocomplete: "off",
      placeholder: numberPlaceholder(schema, place.isNullable),
    });
    this.slider = sliderFor(schema, isInteger);
    this.frameLine(this.input, this.slider, rangeNote(schema));
    this.element.classList.add("form-number");
    this.slider?.addEventListener("input", () => (this.input.value = this.slider.value));
    this.input.addEventListener("input", () => this.showInSlider());
  }

  showInSlider() {
    if (!this.slider) return;
    this.slider.value = this.input.value;
    this.slider.classList.toggle("form-unset", this.input.value === "");
  }

  read(reading, loc) {
    // What a browser cannot read as a number has an empty value.
    if (this.input.validity.badInput) return reading.refuse(this, loc, "a number");
    if (this.input.value === "") return this.emptyValue();
    const problem = numberProblem(this.schema, this.input.value);
    return problem ? reading.refuse(this, loc, problem) : Number(this.input.value);
  }

  load(value) {
    this.input.value = ["number", "string"].includes(typeof value) ? String(value) : "";
    this.showInSlider();
  }

  clear() {
    this.load(null);
  }
}

/** The slider beside a number; null where it would be of no use. */
function sliderFor(schema, isInteger) {
  const unit = schema.multipleOf > 0 ? schema.multipleOf : isInteger ? 1 : null;
  const low = schema.minimum ?? schema.exclusiveMinimum;
  const high = schema.maximum ?? schema.exclusiveMaximum;
  const span = high - low;
  if (!isNumber(low) || !isNumber(high) || !(span > 0) || (isInteger && span > LONGEST_INTEGER_SLIDER)) return null;
  const step = unit ?? 10 ** Math.floor(Math.log10(span / 100));
  const min = schema.minimum === undefined ? low + step : low;
  const max = schema.maximum === undefined ? high - step : high;
  // For the pointer: by keyboard and to screen readers, the number beside it is the same.
  const unheard = { tabindex: "-1", "aria-hidden": "true" };
  return make("input", { type: "range", class: "form-slider", min, max, step, ...unheard });
}

/** "1 – 10", "> 0"; a browser tells screen readers by itself. */
function rangeNote({ minimum, exclusiveMinimum, maximum, exclusiveMaximum }) {
  const low = isNumber(minimum) ? `≥ ${minimum}` : isNumber(exclusiveMinimum) && `> ${exclusiveMinimum}`;
  const high = isNumber(maximum) ? `≤ ${maximum}` : isNumber(exclusiveMaximum) && `< ${exclusiveMaximum}`;
  if (!low && !high) return null;
  const isClosed = isNumber(minimum) && isNumber(maximum);
  const text = isClosed ? `${minimum} – ${maximum}` : [low, high].filter(Boolean).join(", ");
  return make("span", { class: "form-note", "aria-hidden": "true" }, text);
}

function placeholderOf(schema) {
  const [example] = list(schema.examples);
  return ["string", "number"].includes(typeof example) ? `e.g. ${example}` : null;
}

/** A number that is emptied is its default again, where it may not be null. */
function numberPlaceholder(schema, isNullable) {
  return placeholderOf(schema) ?? (isNumber(schema.default) && !isNullable ? schema.default : null);
}

const LONG_NAMES = ["content", "message", "prompt", "text", "body"];
const CODE_NAMES = ["code", "script", "source"];
const LONG_FORMATS = ["textarea", "multiline", "markdown"];
const LONG_TEXT = 200;

const INPUT_TYPES = new Map([
  ["date", "date"],
  ["time", "time"],
  ["email", "email"],
  ["uri", "url"],
  ["password", "password"],
]);

const INPUT_PROBLEMS = new Map([
  ["email", "an e-mail address, such as name@example.com"],
  ["url", "an address, such as https://example.com/"],
]);

/** The class of the textarea that a text is written in; null where an input will do. */
function areaClass({ schema, name }) {
  if (INPUT_TYPES.has(schema.format) || schema.format === "date-time") return null;
  if (CODE_NAMES.includes(name) || isText(schema.contentMediaType)) return "form-code";
  const isSaidToBe = LONG_FORMATS.includes(schema.format) || schema.ui === "textarea";
  if (isSaidToBe || LONG_NAMES.includes(name)) return "form-long";
  // It may be long, and mostly is not: it begins with one line, and grows.
  return schema.maxLength > LONG_TEXT ? "form-growing" : null;
}

/** What is typed is meant as it stands. */
const EXACT = { autocomplete: "off", autocapitalize: "off", spellcheck: "false" };

class TextField extends Field {
  constructor(place) {
    super(place);
    const placeholder = placeholderOf(this.schema);
    const area = areaClass(place);
    this.input = area
      ? make("textarea", { class: area, rows: 1, spellcheck: area === "form-code" && "false", placeholder })
      : make("input", { ...EXACT, type: this.inputType(), step: this.inputStep(), placeholder });
    this.frameLine(this.input);
  }

  inputType() {
    return INPUT_TYPES.get(this.schema.format) ?? "text";
  }

  inputStep() {
    return this.inputType() === "time" ? "1" : null;
  }

  read(reading, loc) {
    const text = this.input.value === "" ? this.emptyValue() : this.input.value;
    const { badInput, typeMismatch } = this.input.validity;
    if (badInput) return reading.refuse(this, loc, "not complete");
    if (typeof text !== "string") return text;
    const problem = typeMismatch ? INPUT_PROBLEMS.get(this.input.type) : textProblem(this.schema, text);
    return problem ? reading.refuse(this, loc, problem) : text;
  }

  load(value) {
    const text = typeof value === "string" ? value : value == null ? "" : JSON.stringify(value);
    this.input.value = text;
    // An input drops line breaks, and all that is not of its type.
    const isLost = text !== "" && (this.input.value === "" || /[\r\n]/.test(text));
    if (this.input.tagName === "INPUT" && isLost) this.showInTextarea(text);
  }

  showInTextarea(text) {
    const area = make("textarea", { class: "form-growing", rows: 1, id: this.id });
    for (const name of ["aria-required", "aria-describedby"]) {
      if (this.input.hasAttribute(name)) area.setAttribute(name, this.input.getAttribute(name));
    }
    this.input.replaceWith(area);
    this.control = this.input = area;
    area.value = text;
  }

  clear() {
    this.input.value = "";
  }
}

const OFFSET = /(?:Z|[-+]\d\d:?\d\d)$/i;
const FINER_THAN_MILLISECONDS = /\.\d{3}\d/;

/** A moment: shown in the time zone of the page, sent in UTC; RFC 3339 demands an offset. */
class DateTimeField extends TextField {
  isLocal = false;

  constructor(place) {
    super(place);
    this.zone = make("span", { class: "form-note" }, Intl.DateTimeFormat().resolvedOptions().timeZone);
    this.input.after(this.zone);
  }

  inputType() {
    return "datetime-local";
  }

  inputStep() {
    return "1";
  }

  read(reading, loc) {
    const read = super.read(reading, loc);
    if (!isText(read) || this.isLocal || this.input.tagName !== "INPUT") return read;
    return new Date(read).toISOString();
  }

  load(value) {
    // A time that came without an offset goes back without one: its model has no time zones.
    this.isLocal = isText(value) && !OFFSET.test(value);
    this.zone.hidden = this.isLocal;
    const moment = isText(value) && !this.isLocal ? new Date(value) : null;
    const isExact = moment && !Number.isNaN(moment.getTime()) && !FINER_THAN_MILLISECONDS.test(value);
    if (moment && !isExact) this.showInTextarea(value);
    else super.load(moment && this.input.tagName === "INPUT" ? localText(moment) : value);
  }

  clear() {
    super.clear();
    this.isLocal = false;
    this.zone.hidden = false;
  }
}

function localText(moment) {
  const shifted = new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, -1).replace(/\.000$/, "");
}

const JSON_PLACEHOLDERS = new Map([
  ["object", 'JSON, such as {"a": 1}'],
  ["array", "JSON, such as [1, 2]"],
]);

/** Anything, as JSON. */
class JsonField extends Field {
  constructor(place) {
    super(place);
    const placeholder = this.placeholder();
    this.input = make("textarea", { ...EXACT, class: "form-json", rows: 1, placeholder });
    this.frameLine(this.input);
  }

  placeholder() {
    const [example] = list(this.schema.examples);
    if (example !== undefined) return `e.g. ${JSON.stringify(example)}`;
    return JSON_PLACEHOLDERS.get(this.schema.type) ?? "JSON";
  }

  read(reading, loc) {
    const text = this.input.value.trim();
    if (text === "") return this.emptyValue();
    const inexact = inexactIntegerIn(text);
    if (inexact) return reading.refuse(this, loc, `${inexact} is too large to be sent exactly from here`);
    let value;
    try {
      value = JSON.parse(text);
    } catch (error) {
      return reading.refuse(this, loc, notJson(text, error));
    }
    const isRight = TYPES.get(this.schema.type)?.(value) ?? true;
    return isRight ? value : reading.refuse(this, loc, `JSON of a ${TYPE_NAMES.get(this.schema.type)}`);
  }

  load(value) {
    this.input.value = value == null ? "" : JSON.stringify(value, null, 2);
  }

  clear() {
    this.input.value = "";
  }
}

function notJson(text, error) {
  const hint = /^[\p{L}\p{N}_ .,!?-]+$/u.test(text) ? `; text needs quotes: ${JSON.stringify(text)}` : "";
  return `not JSON: ${error.message}${hint}`;
}

// ---------------------------------------------------------------- fields of fields

/** A field that may be there or not, by a checkbox in its legend; built when first asked for. */
class OptionalField extends Field {
  constructor(place, isRecursive) {
    super(place);
    this.isRecursive = isRecursive;
    this.toggle = make("input", { type: "checkbox", id: `${this.id}-toggle` });
    this.content = make("div");
    this.frameGroup(this.content);
    const label = make("label", { for: this.toggle.id }, this.titleText);
    (this.element.querySelector("legend") ?? this.element).prepend(this.toggle, label);
    this.element.classList.add("form-optional");
    this.toggle.addEventListener("change", () => {
      this.form.built = 0;
      this.show(this.toggle.checked);
    });
    this.show(false);
  }

  show(isOn) {
    this.toggle.checked = isOn;
    if (isOn && !this.inner) this.build();
    this.content.replaceChildren(...(isOn ? [this.inner.element] : []));
    this.element.classList.toggle("form-off", !isOn);
  }

  build() {
    const { schema, branches, name, hidden, title } = this.place;
    const bare = without(schema, "description", ...(schema.default === null || this.isRecursive ? ["default"] : []));
    const place = this.below({ schema: bare, branches, name, hidden, title, isBare: true, isNullable: false });
    this.inner = new (classOf(place))(place);
    this.inner.reset();
  }

  read(reading, loc) {
    return this.toggle.checked ? this.inner.read(reading, loc) : this.emptyValue();
  }

  load(value) {
    this.show(value != null);
    if (value != null) this.inner.load(value);
  }

  clear() {
    this.inner = undefined;
    this.show(false);
  }

  reset() {
    this.clear();
    // A default within itself would have no end; left out, it is the server's in any case.
    if (!this.isRecursive && this.schema.default != null) this.load(this.schema.default);
  }

  retitle(title) {
    super.retitle(title);
    this.inner?.retitle(title);
  }

  child(key) {
    return this.toggle.checked ? this.inner.child(key) : undefined;
  }
}

/**
 * One property of an object.
 *
 * It is set once the person touched it, or once it came with a value. One that is neither set nor
 * required is left out, though its default is shown: the server's default then holds, also where
 * it is not in the schema (a factory's) or has changed since, and a recording shows what was
 * chosen and nothing else. What came empty (`null`, `[]`) stays so, where a control that was left
 * empty would be left out.
 */
class Slot {
  isSet = false;

  constructor(name, field, isRequired) {
    this.name = name;
    this.field = field;
    this.isRequired = isRequired;
    field.element.addEventListener("input", () => (this.isSet = true));
  }

  read(reading, loc) {
    if (!this.isSet && !this.isRequired && !this.field.isFixed) return MISSING;
    const value = this.field.read(reading, loc);
    if (this.isRequired) return demand(value, this.field, reading, loc);
    return value === MISSING && isEmpty(this.given) ? this.given : value;
  }

  load(value) {
    this.field.load(value);
    this.isSet = true;
    this.given = value;
  }

  reset() {
    this.field.reset();
    this.isSet = false;
    this.given = undefined;
  }
}

/** A value that must not be missing. */
function demand(value, field, reading, loc) {
  return value === MISSING ? reading.refuse(field, loc, field.missingText) : value;
}

class ObjectField extends Field {
  constructor(place) {
    super(place);
    this.slots = new Map();
    const required = list(this.schema.required);
    for (const [name, schema] of entries(this.schema.properties)) {
      if (!place.omit?.includes(name)) this.addSlot(name, schema, required.includes(name));
    }
    this.rest = this.buildRest();
    const visible = [...this.slots.values()].filter(({ name }) => name !== place.hidden);
    this.isFillable = Boolean(this.rest) || visible.some(({ field }) => field.isFillable);
    this.frameGroup(...visible.map(({ field }) => field.element), ...(this.rest ? [this.rest.element] : []));
  }

  addSlot(name, schema, isRequired) {
    const title = isObject(schema) && isText(schema.title) ? schema.title : titled(name);
    const field = build(this.below({ schema, name, title, isRequired }));
    this.slots.set(name, new Slot(name, field, isRequired));
  }

  /** The rows for properties that have no field of their own. */
  buildRest() {
    const { additionalProperties: more, patternProperties } = this.schema;
    if (!more && !isObject(patternProperties)) return null;
    const schema = without(this.schema, "description", "default", "properties", "required");
    const taken = [...this.slots.keys(), ...list(this.place.omit)];
    return new DictionaryField(this.below({ schema, title: "More", isRequired: false, taken }));
  }

  read(reading, loc) {
    const value = {};
    for (const slot of this.slots.values()) {
      const part = slot.read(reading, [...loc, slot.name]);
      if (isValue(part)) put(value, slot.name, part);
    }
    const rest = this.rest?.read(reading, loc);
    for (const [name, part] of entries(rest)) put(value, name, part);
    return value;
  }

  load(value) {
    const given = new Map(entries(value));
    for (const slot of this.slots.values()) {
      if (given.has(slot.name)) slot.load(given.get(slot.name));
      else slot.reset();
      given.delete(slot.name);
    }
    this.place.omit?.forEach((name) => given.delete(name));
    this.rest?.loadPairs([...given]);
  }

  clear() {
    this.load({});
  }

  child(key) {
    const name = String(key);
    if (name === this.place.hidden) return undefined;
    return this.slots.get(name)?.field ?? this.rest?.child(key);
  }
}

/** Rows of any number, each with a field in it: the part that lists and dictionaries share. */
class RowsField extends Field {
  constructor(place) {
    super(place);
    this.rows = [];
    this.list = make("div", { class: "form-rows" });
    this.addButton = makeButton("+ Add", `Add to ${place.title}`, () => this.addByHand());
    this.tools = make("div", { class: "form-tools" }, this.addButton);
  }

  retitle(title) {
    super.retitle(title);
    this.addButton.setAttribute("aria-label", `Add to ${title}`);
    this.renumber();
  }

  addByHand() {
    this.form.built = 0;
    const row = this.addRow(true);
    focusIn(row.element);
    announceChange(this.list);
  }

  append(row) {
    this.rows.push(row);
    this.list.append(row.element);
    this.renumber();
    return row;
  }

  remove(row) {
    const index = this.rows.indexOf(row);
    this.rows.splice(index, 1);
    row.element.remove();
    this.renumber();
    const next = this.rows[Math.min(index, this.rows.length - 1)];
    (next?.removeButton ?? this.addButton).focus();
    announceChange(this.list);
  }

  empty() {
    this.rows = [];
    this.list.replaceChildren();
    this.renumber();
  }

  /** Bring titles and buttons in line with the order of the rows. */
  renumber() {
    const most = this.schema.maxItems ?? this.schema.maxProperties;
    this.addButton.disabled = isNumber(most) && this.rows.length >= most;
    this.rows.forEach((row, index) => this.renumberRow(row, index));
  }
}

const ROWS_AT_MOST_PREPARED = 40;

class ListField extends RowsField {
  constructor(place) {
    super(place);
    const items = resolve(this.form.schema, this.schema.items);
    this.items = items.schema;
    this.isRecursive = items.references.some((reference) => place.chain.includes(reference));
    const { minItems, maxItems } = this.schema;
    this.isFixedLength = minItems > 0 && minItems === maxItems && maxItems <= ROWS_AT_MOST_PREPARED;
    const itemClass = classOf({ ...place, schema: items.schema, branches: items.branches });
    if (itemClass === NumberField && !items.isNullable) this.offerText();
    this.frameGroup(this.list, this.textLine, this.tools);
    this.addButton.hidden = this.isFixedLength;
    this.empty();
  }

  get noun() {
    return isText(this.items.title) ? this.items.title : this.place.title;
  }

  addRow(isAsked) {
    const title = `${this.noun} ${this.rows.length + 1}`;
    const schema = this.itemSchema(this.rows.length);
    const field = build(this.below({ schema, title, isElement: true, isUntitled: true, isAsked }));
    field.reset();
    const row = { field, element: make("div", { class: "form-row" }, field.element) };
    if (!this.isFixedLength) this.addRowTools(row);
    return this.append(row);
  }

  /** The schema of one item; the boxes of `openenv.spaces` may have bounds for each. */
  itemSchema(index) {
    const { items, low, high } = this.schema;
    if (!isNumber(low?.[index]) && !isNumber(high?.[index])) return items ?? {};
    const minimum = isNumber(low?.[index]) && { minimum: low[index] };
    return { ...items, ...minimum, ...(isNumber(high?.[index]) && { maximum: high[index] }) };
  }

  addRowTools(row) {
    row.upButton = makeButton("↑", "", () => this.move(row, -1));
    row.downButton = makeButton("↓", "", () => this.move(row, 1));
    row.removeButton = makeButton("×", "", () => this.remove(row));
    row.element.append(make("div", { class: "form-row-tools" }, row.upButton, row.downButton, row.removeButton));
  }

  move(row, by) {
    const index = this.rows.indexOf(row);
    const other = this.rows[index + by];
    [this.rows[index], this.rows[index + by]] = [other, row];
    if (by < 0) other.element.before(row.element);
    else other.element.after(row.element);
    this.renumber();
    const button = by < 0 ? row.upButton : row.downButton;
    (button.disabled ? row.removeButton : button).focus();
    announceChange(this.list);
  }

  renumberRow(row, index) {
    const title = `${this.noun} ${index + 1}`;
    row.field.retitle(title);
    if (!row.upButton) return;
    row.upButton.disabled = index === 0;
    row.downButton.disabled = index === this.rows.length - 1;
    row.upButton.setAttribute("aria-label", `Move ${title} up`);
    row.downButton.setAttribute("aria-label", `Move ${title} down`);
    row.removeButton.setAttribute("aria-label", `Remove ${title}`);
  }

  read(reading, loc) {
    const before = reading.problems.length;
    const values = this.isTextShown ? this.readText(reading, loc) : this.readRows(reading, loc);
    if (values === REFUSED || reading.problems.length > before) return REFUSED;
    if (!values.length && this.isLeftOutWhenEmpty) return MISSING;
    const { minItems, maxItems } = this.schema;
    const problem = sizeProblem(values.length, minItems, maxItems, "item") ?? this.repeated(values);
    return problem ? reading.refuse(this, loc, problem) : values;
  }

  readRows(reading, loc) {
    return this.rows.map(({ field }, index) => {
      const at = [...loc, index];
      return demand(field.read(reading, at), field, reading, at);
    });
  }

  repeated(values) {
    if (this.schema.uniqueItems !== true) return null;
    const texts = values.map(canonical);
    const second = texts.findIndex((text, index) => texts.indexOf(text) < index);
    return second < 0 ? null : `each once; ${second + 1} repeats ${texts.indexOf(texts[second]) + 1}`;
  }

  load(value) {
    this.empty();
    if (this.textArea && list(value).length > ROWS_AT_MOST_PREPARED) return this.showText(value);
    this.showRows();
    for (const item of list(value)) this.addRow(true).field.load(item);
  }

  clear() {
    this.empty();
    const isWanted = (this.place.isRequired || this.isFixedLength) && !this.isRecursive;
    const wanted = isWanted ? (this.schema.minItems ?? 0) : 0;
    if (this.textArea && wanted > ROWS_AT_MOST_PREPARED) return this.showText([]);
    this.showRows();
    for (let count = 0; count < Math.min(wanted, ROWS_AT_MOST_PREPARED); count += 1) this.addRow(false);
  }

  child(key) {
    return typeof key === "number" ? this.rows[key]?.field : undefined;
  }

  // Numbers may be written or pasted as one text as well.

  offerText() {
    const id = `${this.id}-text`;
    const placeholder = "1, 2, 3 or [1, 2, 3]";
    this.textArea = make("textarea", { ...EXACT, class: "form-json", id, rows: 1, placeholder });
    const label = make("label", { class: "form-unseen", for: id }, `${this.place.title} as text`);
    this.textLine = make("div", { hidden: true }, label, this.textArea);
    this.textButton = makeButton("As text", `${this.place.title} as text`, () => this.changeView());
    this.tools.append(this.textButton);
  }

  get isTextShown() {
    return Boolean(this.textLine && !this.textLine.hidden);
  }

  showText(values) {
    this.textArea.value = values.filter((value) => value !== "").join(", ");
    this.setView(true);
    this.empty();
  }

  showRows() {
    if (this.textLine) this.setView(false);
  }

  setView(isText) {
    this.textLine.hidden = !isText;
    this.list.hidden = isText;
    this.addButton.hidden = isText || this.isFixedLength;
    this.textButton.textContent = isText ? "As rows" : "As text";
    this.textButton.setAttribute("aria-label", `${this.place.title} ${isText ? "as rows" : "as text"}`);
  }

  changeView() {
    this.form.built = 0;
    if (!this.isTextShown) {
      this.showText(this.rows.map(({ field }) => field.input.value));
      this.textArea.focus();
      return;
    }
    const reading = new Reading();
    const values = this.readText(reading, []);
    this.clearErrors();
    // What is no number at all would be lost in the rows.
    if (values === REFUSED) return reading.problems.slice(0, 1).forEach(({ msg }) => this.addError(msg));
    this.empty();
    this.showRows();
    for (const value of values) this.addRow(true).field.load(value);
    this.textButton.focus();
  }

  readText(reading, loc) {
    const written = splitNumbers(this.textArea.value);
    const problemOf = (item, at) => numberProblem({ ...this.items, ...this.itemSchema(at) }, item);
    const wrong = written.findIndex(problemOf);
    if (wrong < 0) return written.map(Number);
    return reading.refuse(this, loc, `${wrong + 1}: ${problemOf(written[wrong], wrong)}`);
  }
}

/** The numbers in a text, as they are written: a JSON list, or with commas or spaces between. */
function splitNumbers(text) {
  const inner = text.trim().replace(/^\[([^\]]*)\]$/, "$1");
  return inner.split(/[\s,;]+/).filter((item) => item !== "");
}

/** A set of choices: a checkbox for each. */
class ChecklistField extends Field {
  constructor(place) {
    super(place);
    const { schema, branches } = resolve(this.form.schema, this.schema.items);
    this.choices = choicesOf(schema, branches);
    this.boxes = this.choices.map((_, index) => make("input", { type: "checkbox", id: `${this.id}-${index}` }));
    const lines = this.choices.map(({ label }, index) =>
      make("span", { class: "form-check" }, this.boxes[index], make("label", { for: this.boxes[index].id }, label)),
    );
    this.frameGroup(make("div", { class: "form-checks" }, ...lines));
  }

  read(reading, loc) {
    const values = this.choices.filter((_, index) => this.boxes[index].checked).map(({ value }) => value);
    if (!values.length && this.isLeftOutWhenEmpty) return MISSING;
    const problem = sizeProblem(values.length, this.schema.minItems, this.schema.maxItems, "choice");
    return problem ? reading.refuse(this, loc, problem) : values;
  }

  load(value) {
    const wanted = new Set(list(value).map(canonical));
    this.choices.forEach((choice, index) => (this.boxes[index].checked = wanted.has(canonical(choice.value))));
  }

  clear() {
    this.load([]);
  }
}

/** A list whose items each have a schema of their own. */
class TupleField extends Field {
  constructor(place) {
    super(place);
    this.fields = this.schema.prefixItems.map((schema, index) => {
      const title = isObject(schema) && isText(schema.title) ? schema.title : `${place.title} ${index + 1}`;
      return build(this.below({ schema, title, isRequired: index < (this.schema.minItems ?? 0) }));
    });
    this.frameGroup(make("div", { class: "form-tuple" }, ...this.fields.map(({ element }) => element)));
  }

  read(reading, loc) {
    const values = this.fields.map((field, index) => field.read(reading, [...loc, index]));
    const least = this.schema.minItems ?? 0;
    // Only at its end may a list be short.
    while (values.length > least && values.at(-1) === MISSING) values.pop();
    if (!values.length && this.isLeftOutWhenEmpty) return MISSING;
    const all = values.map((value, index) => demand(value, this.fields[index], reading, [...loc, index]));
    return all.every(isValue) ? all : REFUSED;
  }

  load(value) {
    this.fields.forEach((field, index) => {
      if (index < list(value).length) field.load(value[index]);
      else field.reset();
    });
  }

  clear() {
    this.load([]);
  }

  child(key) {
    return this.fields[key];
  }
}

/** An object of any names: rows of a name and a value. */
class DictionaryField extends RowsField {
  constructor(place) {
    super(place);
    const [pattern] = entries(this.schema.patternProperties);
    const { additionalProperties: more } = this.schema;
    this.items = pattern ? pattern[1] : isObject(more) ? more : {};
    const names = resolve(this.form.schema, this.schema.propertyNames).schema;
    this.names = { type: "string", ...(pattern && !more && { pattern: pattern[0] }), ...names };
    this.frameGroup(this.list, this.tools);
    this.empty();
  }

  addRow(isAsked) {
    const place = { title: "", isElement: true, isUntitled: true, isAsked };
    const name = build(this.below({ ...place, schema: this.names }));
    const field = build(this.below({ ...place, schema: this.items, title: this.place.title }));
    [name, field].forEach((part) => part.reset());
    const row = { name, field };
    row.removeButton = makeButton("×", "", () => this.remove(row));
    const tools = make("div", { class: "form-row-tools" }, row.removeButton);
    row.element = make("div", { class: "form-row form-pair" }, name.element, field.element, tools);
    return this.append(row);
  }

  renumberRow(row, index) {
    const place = `${index + 1} of ${this.place.title}`;
    row.name.retitle(`Name ${place}`);
    row.field.retitle(`Value ${place}`);
    row.removeButton.setAttribute("aria-label", `Remove ${place}`);
  }

  read(reading, loc) {
    const value = {};
    for (const row of this.rows) {
      const name = this.readName(row, reading, loc, value);
      const at = [...loc, isValue(name) ? name : ""];
      const part = demand(row.field.read(reading, at), row.field, reading, at);
      if (isValue(name) && isValue(part)) put(value, name, part);
    }
    if (!this.rows.length && this.isLeftOutWhenEmpty) return MISSING;
    const { minProperties, maxProperties } = this.schema;
    const problem = sizeProblem(this.rows.length, minProperties, maxProperties, "name");
    return problem ? reading.refuse(this, loc, problem) : value;
  }

  readName(row, reading, loc, value) {
    const name = row.name.read(reading, [...loc, "", "[key]"]);
    if (name === REFUSED) return REFUSED;
    if (!isText(name)) return reading.refuse(row.name, [...loc, "", "[key]"], "required");
    const isTaken = Object.hasOwn(value, name) || this.place.taken?.includes(name);
    return isTaken ? reading.refuse(row.name, [...loc, name, "[key]"], "is there already") : name;
  }

  load(value) {
    this.loadPairs(entries(value));
  }

  loadPairs(pairs) {
    this.empty();
    for (const [name, part] of pairs) {
      const row = this.addRow(true);
      row.name.load(name);
      row.field.load(part);
    }
  }

  clear() {
    this.empty();
  }

  child(key) {
    return this.rows.find(({ name }) => name.read(new Reading(), []) === String(key))?.field;
  }
}

/** One of several schemas; what was typed into the others is kept, should the person come back. */
class UnionField extends Field {
  constructor(place) {
    super(place);
    const { branches, discriminator } = branchesOf(this.form.schema, this.schema, place.branches, place.isNullable);
    this.branches = branches;
    this.fields = new Map();
    const options = branches.map(({ label }, index) => make("option", { value: index }, label));
    this.select = make("select", { id: `${this.id}-branch` }, ...options);
    this.content = make("div", { class: "form-branch" });
    this.isOfObjects = branches.every(({ schema }) => ["object", "null"].includes(schema.type));
    this.what = discriminator ? titled(discriminator) : "Kind";
    this.frameGroup(this.makeHead(), this.content);
    this.element.classList.toggle("form-inline", !this.isOfObjects);
    this.select.addEventListener("change", () => {
      this.form.built = 0;
      this.show(this.select.selectedIndex, true);
    });
  }

  /** The choice of a branch; within a group that has a title, that tells what is chosen. */
  makeHead() {
    const { isBare, title } = this.place;
    this.label = make("label", { for: this.select.id }, isBare ? this.what : `${this.what} of ${title}`);
    const name = make("div", { class: isBare ? "form-name" : "form-unseen" }, this.label);
    const control = make("div", { class: "form-control" }, make("div", { class: "form-line" }, this.select));
    return make("div", { class: isBare ? "form-field" : "form-field form-untitled" }, name, control);
  }

  retitle(title) {
    super.retitle(title);
    if (!this.place.isBare) this.label.textContent = `${this.what} of ${title}`;
    this.fields.forEach((field) => field.retitle(title));
  }

  get current() {
    return this.fields.get(this.select.selectedIndex);
  }

  show(index, isAsked) {
    this.select.selectedIndex = index;
    if (!this.fields.has(index)) {
      const field = this.buildBranch(this.branches[index], isAsked);
      field.reset();
      this.fields.set(index, field);
    }
    const isNone = this.branches[index].schema.type === "null";
    this.content.replaceChildren(...(isNone ? [] : [this.current.element]));
  }

  buildBranch({ raw, hidden }, isAsked) {
    const { title, name, omit } = this.place;
    const isRequired = this.place.isRequired || this.isOfObjects;
    const place = { schema: raw, title, name, hidden, omit, isRequired, isBare: true, isUntitled: true, isAsked };
    return build(this.below(place));
  }

  read(reading, loc) {
    return this.current.read(reading, loc);
  }

  load(value) {
    const isFitting = ({ raw }) => fits(this.form.schema, raw, value);
    const isOfType = ({ schema }) => TYPES.get(schema.type)?.(value);
    const index = [isFitting, isOfType].map((test) => this.branches.findIndex(test)).find((found) => found >= 0);
    this.show(index ?? Math.max(this.select.selectedIndex, 0), true);
    this.current.load(value);
  }

  clear() {
    this.fields.clear();
    // Not a branch that this union is within: it would be built without an end.
    const isNew = ({ references }) => !references.some((reference) => this.place.chain.includes(reference));
    this.show(Math.max(this.branches.findIndex(isNew), 0), false);
  }

  child(key) {
    return this.current?.child(key);
  }

  /** "this" or "other": which branch an error's `loc` names; undefined if none. */
  tells(tag) {
    const named = this.branches.filter((branch) => isTagOf(branch, tag));
    if (!named.length) return undefined;
    return named.includes(this.branches[this.select.selectedIndex]) ? "this" : "other";
  }
}

// ---------------------------------------------------------------- from schemas to fields

const FIELDS_AT_ONCE = 2000;
const DEEPEST_CHAIN = 40;
const CELLS_AT_MOST = 64;

/** Build the field of a place whose schema is as it came. */
function build(place) {
  const { schema, branches, isNullable, references } = resolve(place.form.schema, place.schema);
  const isRecursive = references.some((reference) => place.chain.includes(reference));
  const chain = [...place.chain, ...references];
  const found = withNull({ ...place, schema, branches, isNullable, chain });
  const Class = classOf(found);
  return needsToggle(found, Class, isRecursive) ? new OptionalField(found, isRecursive) : new Class(found);
}

/** Where a constant, or yes and no, may be null as well, it is a choice. */
function withNull(place) {
  const { schema, isNullable } = place;
  if (!isNullable) return place;
  const isConstant = Object.hasOwn(schema, "const");
  const values = isConstant ? [schema.const] : schema.type === "boolean" ? [true, false] : schema.enum;
  return values ? { ...place, schema: { ...without(schema, "const"), enum: values } } : place;
}

const BY_TYPE = new Map([
  ["string", (schema) => (schema.format === "date-time" ? DateTimeField : TextField)],
  ["integer", () => NumberField],
  ["number", () => NumberField],
  ["boolean", () => BooleanField],
  ["array", (schema, form) => arrayClass(schema, form)],
  ["object", (schema) => (isObject(schema.properties) ? ObjectField : DictionaryField)],
]);

function classOf({ schema, branches, form, chain }) {
  if (Object.hasOwn(schema, "const") || schema.type === "null") return ConstantField;
  if (choicesOf(schema, branches)) return ChoiceField;
  const isTooMuch = form.built > FIELDS_AT_ONCE || chain.length > DEEPEST_CHAIN;
  if (branches.length) return isTooMuch ? JsonField : UnionField;
  const type = schema.type ?? (isObject(schema.properties) ? "object" : undefined);
  const isCompound = type === "object" || type === "array";
  const find = isTooMuch && isCompound ? undefined : BY_TYPE.get(type);
  return find?.(schema, form) ?? JsonField;
}

function arrayClass(schema, form) {
  if (Array.isArray(schema.prefixItems)) return schema.items ? JsonField : TupleField;
  if (cellsOf(schema) > CELLS_AT_MOST) return JsonField;
  const items = resolve(form.schema, schema.items);
  const isOfChoices = choicesOf(items.schema, items.branches) && !items.isNullable;
  return schema.uniqueItems === true && isOfChoices ? ChecklistField : ListField;
}

/** How many numbers a grid has; 0 for what is no grid of a fixed size. */
function cellsOf(schema, depth = 0) {
  const size = schema.maxItems ?? 0;
  if (!isObject(schema.items) || schema.items.type !== "array" || depth > 8) return depth ? size : 0;
  return size * cellsOf(schema.items, depth + 1);
}

const TOGGLED = new Set([ObjectField, UnionField, TupleField]);

function needsToggle(place, Class, isRecursive) {
  if (place.isTop || place.isAsked) return place.isNullable && place.isElement && isCompound(Class);
  if (place.isNullable && isCompound(Class)) return true;
  if (!TOGGLED.has(Class)) return false;
  return isRecursive || (!place.isRequired && !hasDefault(place.schema));
}

const isCompound = (Class) => [ObjectField, TupleField, ListField, DictionaryField, ChecklistField].includes(Class);

// ---------------------------------------------------------------- the form

class Form {
  /** How many fields were built in one go: a schema may be endless. */
  built = 0;
  /** The fields at which errors are shown. */
  marked = new Set();
  #ids = 0;

  constructor(schema, { idPrefix, omit = ["metadata"], compact = false }) {
    this.schema = isObject(schema) ? schema : {};
    formsBuilt += 1;
    this.prefix = idPrefix ?? `form${formsBuilt}`;
    this.root = this.buildRoot(omit);
    this.element = make("div", { class: compact ? "form form-compact" : "form" }, this.root.element);
    this.reset();
  }

  buildRoot(omit) {
    const { schema } = resolve(this.schema, this.schema);
    const title = isText(schema.title) ? schema.title : "Value";
    // An object that says nothing of its properties has none: so tools without arguments are written.
    const isEmptyObject = schema.type === "object" && !schema.additionalProperties && !schema.patternProperties;
    const properties = isEmptyObject && !isObject(schema.properties) ? { properties: {} } : {};
    const root = { ...this.schema, ...properties };
    return build({ form: this, chain: [], schema: root, title, omit, isRequired: true, isBare: true, isTop: true });
  }

  nextId() {
    this.#ids += 1;
    return `${this.prefix}-${this.#ids}`;
  }

  peek() {
    const value = this.root.read(new Reading(), []);
    return isValue(value) ? value : undefined;
  }

  value() {
    this.clearErrors();
    const reading = new Reading();
    const value = demand(this.root.read(reading, []), this.root, reading, []);
    if (!reading.problems.length) return value;
    reading.problems.forEach(({ field, msg }) => field.addError(msg));
    focusIn(reading.problems[0].field.element);
    throw new FormInvalid(reading.problems.map(({ loc, msg }) => ({ loc, msg })));
  }

  load(value) {
    this.built = 0;
    this.clearErrors();
    this.root.load(value);
  }

  reset() {
    this.built = 0;
    this.clearErrors();
    this.root.reset();
  }

  clearErrors() {
    [...this.marked].forEach((field) => field.clearErrors());
  }

  setErrors(errors) {
    this.clearErrors();
    const placed = list(errors).filter(isObject).map((error) => this.place(error));
    // Of a union, Pydantic tells what is wrong with every branch; only one of them is meant.
    const meant = placed.filter(({ isOther }) => !isOther);
    const isToldOf = ({ field }) => meant.some((other) => field.element.contains(other.field.element));
    const shown = placed.filter((error) => !error.isOther || !isToldOf(error));
    shown.forEach(({ field, text }) => field.addError(text));
  }

  place({ loc, msg }) {
    const { field, rest, isOther } = locate(this.root, list(loc));
    const path = rest.filter((key) => !MADE_UP_TAG.test(String(key)));
    const hasParts = !field.control.matches("input, select, textarea:not(.form-json), output");
    const message = isText(msg) ? msg : "not valid";
    return { field, isOther, text: hasParts && path.length ? `${path.join(".")}: ${message}` : message };
  }
}

/** The innermost field that an error's `loc` leads to, and what is left of the `loc` there. */
function locate(field, loc) {
  if (!loc.length) return { field, rest: [], isOther: false };
  const [key, ...rest] = loc;
  const child = field.child(key);
  const union = unionOf(field);
  // A name at the end is rather that of a property than that of a branch.
  const told = child && !rest.length ? undefined : union?.tells(key);
  if (told === "other") return { field: union, rest: loc, isOther: true };
  if (told === "this") return locate(union.current, rest);
  if (child) return locate(child, rest);
  // What is named otherwise is neither here nor below, but for what Pydantic calls its own.
  return union || MADE_UP_TAG.test(String(key)) ? locate(field, rest) : { field, rest: loc, isOther: false };
}

/** The union that a field is, be it behind a toggle. */
function unionOf(field) {
  const inner = field instanceof OptionalField && field.toggle.checked ? field.inner : field;
  return inner instanceof UnionField ? inner : undefined;
}
