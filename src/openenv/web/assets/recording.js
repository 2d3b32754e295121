// Recordings as lines of JSON, in the form that `openenv serve --record` writes and `openenv replay`
// plays.

const FORMAT = "openenv-recording";
const VERSION = 1;

export function writeRecording(environment, sessionId, entries) {
  const header = { format: FORMAT, version: VERSION, environment, target: null, schema: null, openenv: "web", session_id: sessionId, part: 0, time: entries[0]?.time ?? Date.now() / 1000 };
  const lines = entries.map((entry) => (entry.isLetGo ? { event: "gap", lost: 1, time: entry.time } : eventOf(entry)));
  const end = { event: "end", time: Date.now() / 1000 };
  return [header, ...lines, end].map((line) => `${JSON.stringify(line)}\n`).join("");
}

function eventOf({ kind, episode, step, time, request, answer, state, error, milliseconds, snapshot }) {
  const event = { event: kind, episode, step, time, ...asked(kind, request, snapshot) };
  if (kind === "restore") Object.assign(event, { state });
  else if (answer) Object.assign(event, outcome(answer));
  return { ...event, seconds: (milliseconds ?? 0) / 1000, error: error && { type: error.type ?? error.code, code: error.code, message: error.message } };
}

function asked(kind, request, snapshot) {
  if (kind === "step") return { action: request, arguments: {} };
  if (kind === "restore") return { snapshot };
  const { seed = null, ...others } = request;
  return { seed, arguments: others };
}

function outcome({ observation, reward, done, truncated = false, info = null, metadata = {} }) {
  return { observation, reward: reward ?? null, terminated: Boolean(done) && !truncated, truncated, info, metadata };
}

/** The entries of a recording. Fails with the line that cannot be read. */
export function readRecording(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  const [header, ...events] = lines.map((line, number) => parsed(line, number + 1, lines.length));
  if (header?.format !== FORMAT) throw new Error("it is no recording: its first line has no format");
  if (header.version > VERSION) throw new Error(`it has version ${header.version}; this page reads version ${VERSION}`);
  return events.filter((event) => event && ["reset", "step", "restore"].includes(event.event)).map(entryOf);
}

/** One line; the last one may have been cut by the end of its server. */
function parsed(line, number, of) {
  try {
    return JSON.parse(line);
  } catch (error) {
    if (number === of && number > 1) return null;
    throw new Error(`line ${number}: ${error.message}`);
  }
}

export function entryOf(event, number) {
  return {
    number: number + 1, kind: event.event, episode: event.episode, step: event.step, time: event.time,
    request: event.event === "step" ? event.action : { ...(event.seed === null ? {} : { seed: event.seed }), ...event.arguments },
    answer: event.error ? null : answerOf(event),
    state: event.state ?? null, rendering: null, view: null, snapshot: event.snapshot ?? null,
    error: event.error ?? null,
    milliseconds: event.seconds === undefined ? null : event.seconds * 1000, isLetGo: false,
  };
}

function answerOf({ observation = {}, reward = null, terminated, truncated, info, metadata }) {
  return { observation, reward, done: Boolean(terminated || truncated), truncated: Boolean(truncated), info, metadata };
}
