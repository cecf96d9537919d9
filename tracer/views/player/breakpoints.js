// Breakpoints: what each one stops at, as a sorted list made once, so that a step costs nothing.

import { firstAfter, lastBefore, stageEntries } from "./moves.js";

export const KINDS = ["stage", "module", "token", "entropy", "slower", "finding", "window", "fault", "stop"];

const ALL = Symbol("all marks of a kind");

// `layers.*.mlp` as a pattern of the whole path or of its end; a star stands for anything.
export function globPattern(text) {
  const literal = text.trim().replace(/[.+^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`(^|\\.|/)${literal.replaceAll("*", ".*").replaceAll("?", ".")}$`);
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

function tokensWith(run, text) {
  return run.tokens.filter((at) => run.nameOf(at).includes(text));
}

function marked(run, kind, value) {
  const found = run.marks.filter((mark) => mark.kind === kind && (value === ALL || mark.rule === value));
  return Int32Array.from(new Set(found.map((mark) => mark.stop))).sort();
}

// The stops of a breakpoint. A value that says nothing stops nowhere.
export function hitsOf(run, { kind, value }) {
  if (kind === "stop") return Int32Array.of(value);
  if (kind === "stage") {
    const stage = run.stages.indexOf(value);
    return stageEntries(run).filter((at) => run.stage[at] === stage);
  }
  if (kind === "module") return value.trim() ? namedModules(run, value) : new Int32Array();
  if (kind === "token") return value ? tokensWith(run, value) : new Int32Array();
  if (kind === "entropy") return run.tokens.filter((at) => run.entropy[at] > value);
  if (kind === "slower") return where(run, (at) => run.duration[at] > value);
  return marked(run, kind, value || ALL);
}

// `250 ms`, `1.5s`, `40us`, or a bare number of milliseconds, as nanoseconds; NaN for anything else.
export function parseDuration(text) {
  const units = { ns: 1, us: 1e3, µs: 1e3, μs: 1e3, ms: 1e6, s: 1e9 };
  const found = /^\s*(\d+(?:\.\d+)?)\s*(ns|us|µs|μs|ms|s)?\s*$/.exec(text);
  return found === null ? NaN : Number(found[1]) * units[found[2] ?? "ms"];
}

// What was typed as the value of a kind; null if it can't be one.
export function parseValue(kind, text) {
  if (kind === "window" || kind === "fault") return "";
  if (kind === "finding") return text === "" ? "" : text;
  if (kind === "entropy" || kind === "slower") {
    const value = kind === "slower" ? parseDuration(text) : Number.parseFloat(text);
    return Number.isFinite(value) && value >= 0 ? value : null;
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
