// What the player knows besides the run, and how each action changes it. Pure: no page, no clock.
// `notice` says what the last action met, for a line that is read aloud.

import { hitAfter, hitBefore, hitsOf, isPoint } from "./breakpoints.js";
import { tokenText } from "./dom.js";
import { firstAfter, lastBefore, nextStop, previousStop, siblingsOf, stopAfter, stopOutside } from "./moves.js";
import { foldAround, foldLine, hasInside, isOpen } from "./rows.js";

const LONGEST_HISTORY = 500;

export function firstState(run, options = {}) {
  return {
    at: 0,
    history: [],
    opened: new Set(),
    closed: new Set(),
    breakpoints: [],
    made: 0, // breakpoints ever, so that an id is used once
    teaching: false,
    revealed: new Set(),
    guesses: new Map(),
    large: false,
    dark: null, // null: as the page or the notebook has it
    language: "en",
    axis: "time",
    own: false, // whether the recorder's own work is walked through too
    zoom: [0, 1],
    notice: null,
    ...options,
  };
}

function moved(state, at, notice = null) {
  if (at === state.at) return { ...state, notice };
  const history = [...state.history.slice(-LONGEST_HISTORY), state.at];
  return { ...state, at, history, notice };
}

// Like a debugger, a long move stops at a breakpoint on its way; also one that would lead nowhere,
// because the run ends inside.
function walked(run, state, to) {
  const most = to === state.at ? run.last[to] : to;
  const hit = to >= state.at ? hitAfter(state.breakpoints, state.at, most) : null;
  if (hit !== null) return moved(state, hit.stop, { code: "hit", by: hit.by });
  return to === state.at ? { ...state, notice: { code: "end" } } : moved(state, to);
}

// Where a move leads, past the recorder's own work unless that is shown.
function seen(run, state, move, first = move(state.at)) {
  let to = first;
  while (!state.own && run.isOwn(to) && move(to) !== to) to = move(to);
  return run.isOwn(to) && !state.own ? state.at : to;
}

// The same stop in the member of the fold that comes so many places behind.
function alongside(run, state, places) {
  const found = siblingsOf(run, state.at);
  const to = found?.stops[found.position + places];
  return toward(state, to ?? -1, "no neighbour");
}

function goneOn(state, hit) {
  if (hit !== null) return moved(state, hit.stop, { code: "hit", by: hit.by });
  return { ...state, notice: { code: state.breakpoints.length ? "no hit" : "no breakpoints" } };
}

function toward(state, stop, code) {
  return stop < 0 ? { ...state, notice: { code } } : moved(state, stop);
}

function withSet(state, name, value, isIn) {
  const changed = new Set(state[name]);
  if (isIn) changed.add(value);
  else changed.delete(value);
  return { ...state, [name]: changed };
}

function closedStop(run, state, line) {
  const shut = withSet(state, "opened", line, false);
  const noted = run.parent[line] < 0 ? withSet(shut, "closed", line, true) : shut;
  const holdsCursor = state.at > line && state.at <= run.last[line];
  return holdsCursor ? moved(noted, line) : noted;
}

function openedStop(run, state, line) {
  return withSet(withSet(state, "opened", line, true), "closed", line, false);
}

// Open or close a line of the tree; the cursor never stays inside what was closed.
function toggled(run, state, line) {
  if (line < 0) return withSet(state, "opened", line, !state.opened.has(line));
  const shows = isOpen(run, state, line) || (state.at > line && state.at <= run.last[line]);
  return shows ? closedStop(run, state, line) : openedStop(run, state, line);
}

// The line that a key on the cursor means: its own inside, else the fold or the stop around it.
function lineMeant(run, state) {
  const { at } = state;
  if (hasInside(run, state, at)) return at;
  const fold = foldAround(run, at);
  return fold >= 0 ? foldLine(fold) : Math.max(run.parent[at], 0);
}

function added(run, state, { of, value }) {
  const same = state.breakpoints.find((one) => one.kind === of && one.value === value);
  if (same !== undefined) return { ...state, notice: { code: "known breakpoint" } };
  const made = { id: state.made, kind: of, value, on: true };
  made.hits = hitsOf(run, made);
  const breakpoints = [...state.breakpoints, made];
  return { ...state, breakpoints, made: state.made + 1, notice: { code: "made", hits: made.hits.length } };
}

function removed(state, id) {
  const breakpoints = state.breakpoints.filter((one) => one.id !== id);
  return { ...state, breakpoints, notice: { code: "removed" } };
}

function breakpointAt(run, state, at) {
  const here = state.breakpoints.find((one) => one.kind === "stop" && one.value === at);
  return here === undefined ? added(run, state, { of: "stop", value: at }) : removed(state, here.id);
}

function switched(state, id) {
  const breakpoints = state.breakpoints.map((one) => (one.id === id ? { ...one, on: !one.on } : one));
  return { ...state, breakpoints };
}

// Whether the token of this stop is still a secret: in teaching mode, from the cursor on.
export function isHidden(run, state, at) {
  if (!state.teaching || at < state.at || state.revealed.has(at)) return false;
  return run.isToken(at);
}

// What somebody guesses for a token: text, compared without the blanks around it, or as the player
// shows it, since nobody can type a line end.
export function judgeGuess(guess, answer) {
  if (guess === answer || guess === tokenText(answer)) return "right";
  return guess.trim() !== "" && guess.trim() === answer.trim() ? "right" : "wrong";
}

function guessed(run, state, { text, alone = null }) {
  const answers = [run.nameOf(state.at), alone].filter((one) => one !== null);
  const verdict = answers.some((one) => judgeGuess(text, one) === "right") ? "right" : "wrong";
  const guesses = new Map(state.guesses).set(state.at, { text, verdict });
  const after = { ...state, guesses, notice: { code: verdict } };
  return verdict === "right" ? withSet(after, "revealed", state.at, true) : after;
}

function zoomed(state, factor, middle) {
  const width = Math.min(1, Math.max(1e-6, (state.zoom[1] - state.zoom[0]) * factor));
  const share = (middle - state.zoom[0]) / (state.zoom[1] - state.zoom[0]);
  const from = Math.min(1 - width, Math.max(0, middle - width * share));
  return { ...state, zoom: [from, from + width] };
}

const CHANGES = {
  step: (run, state) => walked(run, state, seen(run, state, (at) => nextStop(run, at))),
  back: (run, state) => {
    if (state.at === 0) return { ...state, notice: { code: "start" } };
    return moved(state, seen(run, state, (at) => previousStop(run, at)));
  },
  over: (run, state) => walked(run, state, seen(run, state, (at) => stopAfter(run, at))),
  out: (run, state) => {
    const outside = stopOutside(run, state.at);
    const behind = (at) => stopAfter(run, at);
    const to = outside < state.at ? outside : seen(run, state, behind, outside);
    return to < state.at ? moved(state, to) : walked(run, state, to);
  },
  parent: (run, state) => toward(state, run.parent[state.at], "top"),
  continue: (run, state) => goneOn(state, hitAfter(state.breakpoints, state.at)),
  "continue back": (run, state) => goneOn(state, hitBefore(state.breakpoints, state.at)),
  "next token": (run, state) => toward(state, firstAfter(run.tokens, state.at), "no token"),
  "previous token": (run, state) => toward(state, lastBefore(run.tokens, state.at), "no token"),
  home: (run, state) => moved(state, 0),
  end: (run, state) => moved(state, seen(run, state, (at) => previousStop(run, at), run.count - 1)),
  undo: (run, state) => {
    const last = state.history.findLastIndex((at) => at !== state.at);
    if (last < 0) return { ...state, history: [], notice: { code: "no history" } };
    return { ...state, at: state.history[last], history: state.history.slice(0, last), notice: null };
  },
  jump: (run, state, { to }) => moved(state, Math.min(Math.max(to, 0), run.count - 1)),
  // While the cursor is dragged: the way is no history, only where the drag began.
  grab: (run, state, { to }) => {
    const history = [...state.history.slice(-LONGEST_HISTORY), state.at];
    return { ...state, at: to, history, notice: null };
  },
  scrub: (run, state, { to }) => ({ ...state, at: to, notice: null }),
  neighbour: (run, state) => alongside(run, state, 1),
  "previous neighbour": (run, state) => alongside(run, state, -1),
  fold: (run, state, { line }) => toggled(run, state, line ?? lineMeant(run, state)),
  "fold around": (run, state) => {
    for (let one = state.at; one >= 0; one = run.parent[one]) {
      if (foldAround(run, one) >= 0) return toggled(run, state, foldLine(foldAround(run, one)));
    }
    return { ...state, notice: { code: "no fold" } };
  },
  break: (run, state, { at }) => breakpointAt(run, state, at ?? state.at),
  add: (run, state, action) => added(run, state, action),
  remove: (run, state, { id }) => removed(state, id),
  switch: (run, state, { id }) => switched(state, id),
  clear: (run, state) => ({ ...state, breakpoints: [], notice: { code: "removed" } }),
  teach: (run, state) => {
    return { ...state, teaching: !state.teaching, revealed: new Set(), guesses: new Map(), notice: null };
  },
  reveal: (run, state) => (run.isToken(state.at) ? withSet(state, "revealed", state.at, true) : state),
  guess: (run, state, action) => guessed(run, state, action),
  // Marks that came later: findings and checks. What stops at them is counted anew.
  marks: (run, state) => {
    const breakpoints = state.breakpoints.map((one) => ({ ...one, hits: hitsOf(run, one) }));
    return { ...state, breakpoints };
  },
  large: (run, state) => ({ ...state, large: !state.large }),
  dark: (run, state, { dark }) => ({ ...state, dark }),
  language: (run, state, { language }) => ({ ...state, language }),
  own: (run, state) => {
    return { ...state, own: !state.own, notice: { code: state.own ? "own hidden" : "own shown" } };
  },
  axis: (run, state) => ({ ...state, axis: state.axis === "time" ? "stops" : "time", zoom: [0, 1] }),
  zoom: (run, state, { factor, middle }) => zoomed(state, factor, middle),
  "zoom to": (run, state, { zoom }) => ({ ...state, zoom }),
};

export function reduce(run, state, action) {
  return CHANGES[action.kind](run, state, action);
}

// What is kept for the next time that the run is shown: where one was, where it breaks, how it looks.
const REMEMBERED = { at: "number", teaching: "boolean", large: "boolean", language: "string", axis: "string", own: "boolean" };

export function keptOf(state) {
  const kept = Object.fromEntries(Object.keys(REMEMBERED).map((name) => [name, state[name]]));
  const breakpoints = state.breakpoints.map(({ kind, value, on }) => ({ kind, value, on }));
  return { ...kept, dark: state.dark, breakpoints };
}

// The state as it was kept, as far as it fits the run: whoever kept it may have had another.
export function restored(run, state, kept) {
  const fits = Object.entries(kept ?? {}).filter(([name, value]) => typeof value === REMEMBERED[name]);
  const found = { ...state, ...Object.fromEntries(fits) };
  const isThere = Number.isInteger(found.at) && found.at >= 0 && found.at < run.count;
  const looks = { dark: typeof kept?.dark === "boolean" ? kept.dark : null, at: isThere ? found.at : state.at };
  const points = Array.isArray(kept?.breakpoints) ? kept.breakpoints : [];
  return points.filter((one) => isPoint(run, one)).reduce((before, { kind, value, on }) => {
    const after = added(run, before, { of: kind, value });
    const id = after.breakpoints.at(-1).id;
    return { ...(on ? after : switched(after, id)), notice: null };
  }, { ...found, ...looks });
}
