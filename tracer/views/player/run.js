// A run as the page holds it: the header's lists and the columns as typed arrays over one buffer,
// with the few look-ups that every view needs. `tracer.replaying` describes both.

import { countBelow, stageEntries } from "./moves.js";

const TYPES = {
  uint8: Uint8Array,
  uint16: Uint16Array,
  int32: Int32Array,
  float32: Float32Array,
  float64: Float64Array,
};

function typed(column, buffer) {
  return new TYPES[column.type](buffer, column.offset, column.length);
}

// Stops by their begin; no order where it is that of the walk, which threads may break.
function sortedByStart(start) {
  let isSorted = true;
  for (let at = 1; at < start.length && isSorted; at += 1) isSorted = start[at] >= start[at - 1];
  if (isSorted) return { order: null, starts: start };
  const order = Uint32Array.from(start, (_, at) => at).sort((a, b) => start[a] - start[b] || a - b);
  return { order, starts: Float64Array.from(order, (at) => start[at]) };
}

function foldsOf(columns) {
  return Array.from(columns.fold_first, (first, number) => ({
    first,
    end: columns.fold_last[number] + 1,
    count: columns.fold_count[number],
    name: columns.fold_name[number],
  }));
}

// Roots with the time that each took; what lies between two of them is nobody's time.
function rootsOf(run) {
  const found = [];
  for (let at = 0; at < run.count; at = run.last[at] + 1) found.push(at);
  return found;
}

export function makeRun(header, buffer) {
  const columns = Object.fromEntries(
    Object.entries(header.columns).map(([name, column]) => [name, typed(column, buffer)]),
  );
  const run = { ...header, ...columns, columns };
  run.tokens = columns.token_stop;
  run.folds = foldsOf(columns);
  run.foldAt = new Map(run.folds.map((fold, number) => [fold.first, number]));
  run.byStart = sortedByStart(columns.start);
  run.roots = rootsOf(run);
  run.marksAt = marksByStop(header.marks);
  run.nameOf = (at) => header.names[columns.name[at]];
  const recorder = header.stages.indexOf("recorder");
  run.isOwn = (at) => columns.stage[at] === recorder;
  run.entries = stageEntries(run);
  run.kindOf = (at) => header.kinds[columns.kind[at]];
  run.stageOf = (at) => header.stages[columns.stage[at]];
  run.tokenAt = (at) => {
    const place = countBelow(run.tokens, at);
    return run.tokens[place] === at ? place : -1;
  };
  run.rows = 1 + run.token_row.reduce((most, one) => Math.max(most, one), 0);
  // What came at a moment and took no time of its own.
  const instants = ["token", "image", "message", "fault"].map((kind) => header.kinds.indexOf(kind));
  run.isInstant = (at) => instants.includes(columns.kind[at]);
  run.isToken = (at) => run.tokenAt(at) >= 0;
  // The end of a stop that never ended is that of what came last inside it.
  run.endOf = (at) => {
    const took = columns.duration[at];
    return columns.start[at] + (Number.isFinite(took) ? took : latestInside(run, at));
  };
  run.length = run.roots.reduce((latest, at) => Math.max(latest, run.endOf(at)), 0);
  return run;
}

export function marksByStop(marks) {
  const found = new Map();
  for (const mark of marks) {
    if (found.has(mark.stop)) found.get(mark.stop).push(mark);
    else found.set(mark.stop, [mark]);
  }
  return found;
}

function latestInside(run, at) {
  let latest = run.start[at];
  for (let one = at + 1; one <= run.last[at]; one += 1) {
    const took = run.duration[one];
    latest = Math.max(latest, run.start[one] + (Number.isFinite(took) ? took : 0));
  }
  return latest - run.start[at];
}

// Words of the run in a language: what the header says, else the name itself.
export function speak(run, language) {
  const words = run.words[language] ?? run.words.en;
  return {
    fact: (key) => words.facts?.[key] ?? key.replaceAll("_", " "),
    kind: (name) => words.kinds?.[name] ?? name,
    stage: (name) => words.stages?.[name] ?? { title: name ?? "", text: "", lesson: "" },
    table: (name) => words.tables?.[name] ?? { title: name, text: "" },
    column: (table, name) => words.columns?.[table]?.[name] ?? [name, ""],
    provenance: (name) => words.provenance?.[name] ?? name,
    of: (both) => both?.[language] ?? both?.en ?? "",
    phrase: (key, values = {}) => filled(words.phrases?.[key] ?? key, values),
  };
}

export function filled(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}
