// Breakpoints: what each one stops at, as a sorted list made once, so that a step costs nothing.

import { tokenText } from "./dom.js";
import { firstAfter, lastBefore } from "./moves.js";

// The kinds that somebody can add; `stop` is made by a key or a click at a line.
export const KINDS = ["stage", "module", "token", "entropy", "slower", "finding", "window", "fault"];

// Whether a breakpoint that was kept elsewhere is one of this run.
export function isPoint(run, point) {
  if (!Object.hasOwn(HITS, point?.kind)) return false;
  if (point.kind === "stop") return Number.isInteger(point.value) && point.value >= 0 && point.value < run.count;
  return typeof point.value === (["entropy", "slower"].includes(point.kind) ? "number" : "string");
}

// `layers.*.mlp` as a pattern of the whole path or of its end; a star stands for anything. Stars in
// a row are one: each would be tried at every place that the others leave.
export function globPattern(text) {
  const literal = text.trim().replace(/[.+^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`(^|\\.|/)${literal.replace(/\*+/g, ".*").replaceAll("?", ".")}$`);
}

function where(run, holds) {
  const found = [];
  for (let at = 0; at < run.count; at += 1) if (holds(at)) found.push(at);
  return Int32Array.from(found);
}

function namedModules(run, pattern) {
  const glob = globPattern(pattern);
  const fits = run.names.map((name) => glob.test(name));
  const modules = run.kinds.indexOf("module");
  return where(run, (at) => run.kind[at] === modules && fits[run.name[at]]);
}

// Text as it is, or as the player shows it: nobody can type a line end.
function tokensWith(run, text) {
  const fits = run.names.map((name) => name.includes(text) || tokenText(name).includes(text));
  return run.tokens.filter((at) => fits[run.name[at]]);
}

function uncertain(run, most) {
  return run.tokens.filter((_, place) => run.token_entropy[place] > most);
}

const numbered = (stops) => Int32Array.from(new Set(stops)).sort();

function marked(run, group, key = "") {
  const found = run.marks.filter((mark) => mark.group === group && (key === "" || mark.key === key));
  return numbered(found.map((mark) => mark.stop));
}

function broken(run) {
  const kind = run.kinds.indexOf("fault");
  const isWhole = run.statuses.map((status) => status === "ok" || status === null);
  const seen = where(run, (at) => run.kind[at] === kind || !isWhole[run.status[at]]);
  return numbered([...seen, ...marked(run, "faults")]);
}

const HITS = {
  stop: (run, value) => Int32Array.of(value),
  stage: (run, value) => run.entries.filter((at) => run.stageOf(at) === value),
  module: (run, value) => (value.trim() ? namedModules(run, value) : new Int32Array()),
  token: (run, value) => (value ? tokensWith(run, value) : new Int32Array()),
  entropy: uncertain,
  slower: (run, value) => where(run, (at) => run.duration[at] > value),
  finding: (run, value) => numbered([...marked(run, "findings", value), ...marked(run, "audit", value)]),
  window: (run) => marked(run, "moments", "window"),
  fault: (run) => broken(run),
};

// The stops of a breakpoint, in order. A value that says nothing stops nowhere.
export function hitsOf(run, { kind, value }) {
  return HITS[kind](run, value);
}

// `250 ms`, `1.5s`, `40us`, or a bare number of milliseconds, as milliseconds; NaN for anything else.
export function parseDuration(text) {
  const units = { ns: 1e-6, us: 1e-3, µs: 1e-3, μs: 1e-3, ms: 1, s: 1e3 };
  const found = /^(.*?)\s*(ns|us|µs|μs|ms|s)?$/.exec(text.trim());
  return found === null ? NaN : parseNumber(found[1]) * units[found[2] ?? "ms"];
}

// The whole of a text as a number that is not negative, with a point or a comma; NaN for anything else.
function parseNumber(text) {
  return /^(\d+([.,]\d*)?|[.,]\d+)$/.test(text) ? Number(text.replace(",", ".")) : NaN;
}

// What was typed as the value of a kind; null if it can't be one.
export function parseValue(kind, text) {
  if (kind === "window" || kind === "fault") return "";
  if (kind === "finding") return text;
  if (kind === "entropy" || kind === "slower") {
    const value = kind === "slower" ? parseDuration(text) : parseNumber(text.trim());
    return Number.isFinite(value) ? value : null;
  }
  return text.trim() === "" ? null : text;
}

function live(breakpoints) {
  return breakpoints.filter((one) => one.on);
}

// The nearest hit behind `at` and not behind `most`, with the breakpoints that it belongs to.
export function hitAfter(breakpoints, at, most = Infinity) {
  return nearest(live(breakpoints), (hits) => firstAfter(hits, at), (a, b) => a < b, (a) => a <= most);
}

export function hitBefore(breakpoints, at) {
  return nearest(live(breakpoints), (hits) => lastBefore(hits, at), (a, b) => a > b, () => true);
}

function nearest(breakpoints, find, isNearer, isAllowed) {
  let stop = -1;
  let by = [];
  for (const one of breakpoints) {
    const found = find(one.hits);
    if (found < 0 || !isAllowed(found)) continue;
    if (stop < 0 || isNearer(found, stop)) [stop, by] = [found, [one.id]];
    else if (found === stop) by.push(one.id);
  }
  return stop < 0 ? null : { stop, by };
}
