// The rewards of an episode: their sum as a line, and below it a bar for each step.

import { appendSome, compact, count, drawn, element } from "./parts.js";

const HEIGHT = 190; // CSS pixels
const EDGE = { top: 18, right: 10, bottom: 22, left: 46 };
const BETWEEN = 26; // the two parts
const SHARE_OF_SUM = 0.55;
const USUAL_WIDTH = 600;
const MOST_MARKS = 500;
const WIDEST_BAR = 24;
const MOST_ROWS = 100; // of the table for those who cannot see the plot
const LARGEST = 1e300; // what is beyond would not leave room to reckon with

export class RewardPlot {
  #points = [];
  #marks = []; // what is drawn: one for each point, or for several
  #chosen = null;
  #drawing = drawn("svg", { class: "plot-drawing", role: "img" });
  #tip = element("div", { class: "plot-tip", role: "status", hidden: true });
  #table = element("table");
  #scale = null;
  #width = 0;

  constructor() {
    const stage = element(
      "div",
      {
        class: "plot-stage",
        tabindex: "0",
        role: "group",
        "aria-label": "Rewards; the arrow keys go from step to step",
        pointermove: (event) => this.#point(event),
        pointerleave: () => this.#choose(null),
        keydown: (event) => this.#turn(event),
        blur: () => this.#choose(null),
      },
      this.#drawing,
      this.#tip,
    );
    this.element = element(
      "figure",
      { class: "plot" },
      stage,
      element("div", { class: "view-unseen" }, this.#table),
    );
    new ResizeObserver(() => this.#fit()).observe(this.element);
    this.set([]);
  }

  // Shows points, {step, reward}, of which the reward may be null.
  set(points) {
    this.#points = points;
    this.#chosen = null;
    this.#tip.hidden = true;
    this.#drawing.setAttribute("aria-label", summarize(points));
    this.#table.replaceChildren(...tableOf(points));
    this.#draw();
  }

  // ---------------------------------------------------------------- drawing

  #fit() {
    if (this.element.clientWidth !== this.#width) this.#draw();
  }

  #draw() {
    this.#width = this.element.clientWidth;
    const width = this.#width || USUAL_WIDTH;
    this.#marks = marksOf(
      this.#points,
      Math.min(MOST_MARKS, Math.max(1, Math.floor((width - EDGE.left - EDGE.right) / 2))),
    );
    this.#scale = scaleOf(this.#marks, width);
    this.#drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.#drawing.setAttribute("height", String(HEIGHT));
    this.#drawing.replaceChildren(...drawingOf(this.#marks, this.#scale, width));
  }

  // ---------------------------------------------------------------- one step

  #point(event) {
    const { left, width } = this.#drawing.getBoundingClientRect();
    const x = ((event.clientX - left) / width) * (this.#width || USUAL_WIDTH);
    this.#choose(Math.floor((x - EDGE.left) / this.#scale.slot));
  }

  #turn(event) {
    const last = this.#marks.length - 1;
    const now = this.#chosen ?? (event.key === "ArrowLeft" ? last + 1 : -1);
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last, Escape: null }[
      event.key
    ];
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.#choose(next);
  }

  #choose(index) {
    const isNone = index === null || this.#marks.length === 0;
    this.#chosen = isNone ? null : Math.min(this.#marks.length - 1, Math.max(0, index));
    this.#drawing.querySelector(".plot-guide")?.remove();
    this.#tip.hidden = isNone;
    if (isNone) return;
    const x = this.#scale.x(this.#chosen);
    const guide = { class: "plot-guide", x1: x, x2: x, y1: EDGE.top, y2: HEIGHT - EDGE.bottom };
    this.#drawing.append(drawn("line", guide));
    this.#tip.textContent = wordsOf(this.#marks[this.#chosen]);
    const share = (x / (this.#width || USUAL_WIDTH)) * 100;
    this.#tip.style.left = `${share}%`;
    this.#tip.style.transform = `translateX(${-share}%)`;
  }
}

// ------------------------------------------------------------------ words

// An episode's rewards in a line: "12 steps, cumulative 3.5, last 0.5".
export function summarize(points) {
  if (points.length === 0) return "no steps yet";
  const total = points.reduce((sum, { reward }) => sum + bounded(reward), 0);
  const steps = points.length === 1 ? "1 step" : `${count(points.length)} steps`;
  const last = rewardInWords(points[points.length - 1].reward);
  return `${steps}, cumulative ${rounded(total)}, last ${last}`;
}

const rewardInWords = (reward) => (isReward(reward) ? rounded(reward) : "none");

// Sums of fractions have an error in their last digits, which says nothing.
const rounded = (number) => compact(Number(number.toPrecision(12)));

const isReward = (reward) => Number.isFinite(reward);

const bounded = (reward) => (isReward(reward) ? Math.max(-LARGEST, Math.min(LARGEST, reward)) : 0);

function wordsOf({ first, last, least, greatest, sum }) {
  const steps = first === last ? `step ${first}` : `steps ${first} to ${last}`;
  const rewards =
    least === null
      ? "none"
      : least === greatest
        ? rounded(least)
        : `${rounded(least)} to ${rounded(greatest)}`;
  return `${steps}: reward ${rewards}, cumulative ${rounded(sum)}`;
}

function tableOf(points) {
  const skipped = Math.max(0, points.length - MOST_ROWS);
  const caption = skipped
    ? `Rewards of the last ${MOST_ROWS} of ${count(points.length)} steps`
    : "Rewards by step";
  const names = ["step", "reward"].map((name) => element("th", { scope: "col" }, name));
  const rows = element("tbody");
  const cellsOf = ({ step, reward }) =>
    [String(step), rewardInWords(reward)].map((text) => element("td", {}, text));
  appendSome(rows, points.slice(skipped), (point) => element("tr", {}, ...cellsOf(point)), {
    first: MOST_ROWS,
  });
  return [element("caption", {}, caption), element("thead", {}, element("tr", {}, ...names)), rows];
}

// ------------------------------------------------------------------ what is drawn

// Of many points, those of each stretch together: the least and the greatest reward of it, and the
// sum at its end.
function marksOf(points, most) {
  const stretch = Math.max(1, Math.ceil(points.length / most));
  const marks = [];
  let sum = 0;
  points.forEach(({ step, reward }, index) => {
    sum = bounded(sum + bounded(reward));
    if (index % stretch === 0)
      marks.push({ first: step, last: step, least: null, greatest: null, sum });
    const mark = marks[marks.length - 1];
    Object.assign(mark, { last: step, sum });
    if (!isReward(reward)) return;
    mark.least = Math.min(mark.least ?? Infinity, bounded(reward));
    mark.greatest = Math.max(mark.greatest ?? -Infinity, bounded(reward));
  });
  return marks;
}

function scaleOf(marks, width) {
  const room = HEIGHT - EDGE.top - EDGE.bottom - BETWEEN;
  const middle = EDGE.top + room * SHARE_OF_SUM;
  const slot = (width - EDGE.left - EDGE.right) / Math.max(1, marks.length);
  return {
    slot,
    x: (index) => EDGE.left + (index + 0.5) * slot,
    sum: axisOf([0, ...marks.map(({ sum }) => sum)], EDGE.top, middle),
    reward: axisOf(
      [0, ...marks.flatMap(({ least, greatest }) => [least ?? 0, greatest ?? 0])],
      middle + BETWEEN,
      HEIGHT - EDGE.bottom,
    ),
  };
}

// A vertical axis from the least to the greatest of some values, rounded to its ticks.
function axisOf(values, top, bottom) {
  const low = values.reduce((one, two) => Math.min(one, two));
  const high = values.reduce((one, two) => Math.max(one, two));
  const marks = ticks(low, low === high ? low + 1 : high);
  const [start, end] = [Math.min(low, marks[0]), Math.max(high, marks[marks.length - 1])];
  const y = (value) => bottom - ((value - start) / (end - start || 1)) * (bottom - top);
  return { top, bottom, y, ticks: marks };
}

// Round numbers that lie around a range, about as many as are asked for.
export function ticks(low, high, about = 3) {
  const step = roundUp((high - low) / about);
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  if (!Number.isSafeInteger(first) || !Number.isSafeInteger(last)) return [low, high];
  return Array.from({ length: last - first + 1 }, (_, index) =>
    Number(((first + index) * step).toPrecision(12)),
  );
}

function roundUp(number) {
  const magnitude = 10 ** Math.floor(Math.log10(number));
  return (
    [1, 2, 5, 10].map((factor) => factor * magnitude).find((step) => step >= number * (1 - 1e-9)) ??
    number
  );
}

function drawingOf(marks, scale, width) {
  return [
    ...axisDrawn("cumulative", scale.sum, width),
    ...axisDrawn("reward", scale.reward, width),
    ...stepsDrawn(marks, scale, width),
    drawn("g", {}, ...marks.flatMap((mark, index) => barsOf(mark, index, scale))),
    ...lineOf(marks, scale),
  ];
}

function axisDrawn(name, { top, ticks: values, y }, width) {
  const right = width - EDGE.right;
  const lines = values.flatMap((value) => [
    drawn("line", {
      class: value === 0 ? "plot-zero" : "plot-grid",
      x1: EDGE.left,
      x2: right,
      y1: y(value),
      y2: y(value),
    }),
    drawn(
      "text",
      { class: "plot-tick", x: EDGE.left - 6, y: y(value) + 4, "text-anchor": "end" },
      compact(value),
    ),
  ]);
  return [drawn("text", { class: "plot-name", x: EDGE.left, y: top - 7 }, name), ...lines];
}

// Steps below the axis: multiples of a round number, as many as there is room for.
function stepsDrawn(marks, { x }, width) {
  if (marks.length === 0) return [];
  const range = marks[marks.length - 1].last - marks[0].first + 1;
  const every = Math.max(1, Math.round(roundUp(range / Math.max(1, Math.floor(width / 80)))));
  return marks.flatMap(({ first, last }, index) => {
    const step = Math.floor(last / every) * every;
    return step < first
      ? []
      : [
          drawn(
            "text",
            { class: "plot-tick", x: x(index), y: HEIGHT - 6, "text-anchor": "middle" },
            String(step),
          ),
        ];
  });
}

// A bar from nought to a reward; where there are several, to the least and to the greatest. A
// reward of nought is a low bar, so that it can be told from none.
function barsOf({ least, greatest }, index, { x, slot, reward }) {
  if (least === null) return [];
  const width = Math.min(WIDEST_BAR, Math.max(1, slot * 0.7));
  const ends =
    least < 0 && greatest > 0 ? [least, greatest] : [Math.abs(least) > greatest ? least : greatest];
  return ends.map((end) => {
    const height = Math.max(1.5, Math.abs(reward.y(end) - reward.y(0)));
    const sign = end > 0 ? "positive" : end < 0 ? "negative" : "nought";
    const top = end < 0 ? reward.y(0) : reward.y(0) - height;
    return drawn("rect", {
      class: `plot-bar plot-${sign}`,
      x: x(index) - width / 2,
      y: top,
      width,
      height,
    });
  });
}

function lineOf(marks, { x, sum }) {
  if (marks.length === 0) return [];
  const places = marks.map((mark, index) => `${x(index).toFixed(1)},${sum.y(mark.sum).toFixed(1)}`);
  const [lastX, lastY] = places[places.length - 1].split(",");
  return [
    drawn("polyline", { class: "plot-line", points: places.join(" ") }),
    drawn("circle", { class: "plot-end", cx: lastX, cy: lastY, r: 3 }),
  ];
}
