// Shows the cards that fit the words and the filters, which stand in the address as well.
"use strict";

const form = document.querySelector(".filters");
const cards = [...document.querySelectorAll(".card")];
const count = document.getElementById("count");
const fields = ["words", "tag", "license", "verified"].map((id) => document.getElementById(id));
const [words, tag, license, verified] = fields;

function fits(card) {
  const told = card.dataset.words;
  return (
    words.value.toLowerCase().split(/\s+/).every((word) => told.includes(word)) &&
    (!tag.value || card.dataset.tags.split("\n").includes(tag.value)) &&
    (!license.value || card.dataset.license === license.value) &&
    (!verified.checked || "verified" in card.dataset)
  );
}

function show() {
  for (const card of cards) card.hidden = !fits(card);
  const shown = cards.filter((card) => !card.hidden).length;
  count.textContent =
    shown === 0 ? "None fits. Take a word or a filter away." : `${shown} of ${cards.length} shown`;
}

function remember() {
  const state = new URLSearchParams();
  for (const field of fields) {
    const value = field.type === "checkbox" ? (field.checked ? "1" : "") : field.value;
    if (value) state.set(field.id, value);
  }
  history.replaceState(null, "", state.size ? `#${state}` : location.pathname);
}

function recall() {
  const state = new URLSearchParams(location.hash.slice(1));
  for (const field of fields) {
    if (field.type === "checkbox") field.checked = state.has(field.id);
    else field.value = state.get(field.id) ?? "";
  }
}

form.hidden = false;
form.addEventListener("input", () => {
  show();
  remember();
});
form.addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("hashchange", () => {
  recall();
  show();
});
recall();
show();
