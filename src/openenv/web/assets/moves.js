// Actions that need no form: those that the environment names, and those that follow from what it
// says is legal.

const LEGAL = ["legal_actions", "legal_moves", "available_actions", "valid_actions"];
const MOST_MOVES = 256;
const ARROWS = { up: "ArrowUp", down: "ArrowDown", left: "ArrowLeft", right: "ArrowRight" };
const MOST_DIGITS = 9;

/** Moves of an observation: [{label, action, key}]. */
export function movesOf(answer, view, schema) {
  if (view?.moves?.length) return withKeys(view.moves.slice(0, MOST_MOVES));
  return withKeys(legalMoves(answer?.observation, schema));
}

function legalMoves(observation, schema) {
  const legal = LEGAL.map((name) => observation?.[name]).find(Array.isArray) ?? [];
  const plain = legal.filter((one) => ["string", "number"].includes(typeof one));
  const field = plain.length ? fieldFor(schema) : null;
  if (field === null) return [];
  return plain.slice(0, MOST_MOVES).map((one) => ({ label: String(one), action: { [field]: one } }));
}

/** The one field of an action that has to be given; null where there are more, or none. */
function fieldFor(schema) {
  const fields = Object.keys(schema?.properties ?? {}).filter((name) => name !== "metadata");
  const required = (schema?.required ?? []).filter((name) => fields.includes(name));
  if (required.length === 1) return required[0];
  return fields.length === 1 ? fields[0] : null;
}

/** Keys of a keyboard: arrows by their names, and digits: those that moves are called by, or else
 * their places where there are nine at most. */
function withKeys(moves) {
  const taken = new Set();
  const areDigits = moves.every(({ label }) => /^\d$/.test(label));
  return moves.map((move, place) => {
    const arrow = ARROWS[move.label.toLowerCase()];
    const digit = areDigits ? move.label : moves.length <= MOST_DIGITS ? String(place + 1) : null;
    const key = [arrow, digit].find((one) => one && !taken.has(one)) ?? null;
    taken.add(key);
    return { ...move, key };
  });
}

const NAMES = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→" };

export const keyName = (key) => NAMES[key] ?? key;

/** Whether a key that is pressed is meant for the control that has the focus. */
export function isTyping(target) {
  return target.closest("input, textarea, select, [contenteditable], [role=slider]") !== null;
}
