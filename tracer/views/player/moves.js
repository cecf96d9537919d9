// Where a move leads: pure functions of a run and a stop. A run lists its stops in preorder, so
// that `last[i]` ends the subtree of `i`, and everything inside it lies between the two.

export function nextStop(run, at) {
  return Math.min(at + 1, run.count - 1);
}

export function previousStop(run, at) {
  return Math.max(at - 1, 0);
}

// Behind everything inside this stop; the stop itself where the run ends there.
export function stopAfter(run, at) {
  const after = run.last[at] + 1;
  return after < run.count ? after : at;
}

// Behind the caller; the caller itself where the run ends with it.
export function stopOutside(run, at) {
  const parent = run.parent[at];
  if (parent < 0) return stopAfter(run, at);
  const after = run.last[parent] + 1;
  return after < run.count ? after : parent;
}

// In a sorted list, how many numbers are smaller.
export function countBelow(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The next number of a sorted list behind a value; -1 where there is none.
export function firstAfter(sorted, value) {
  const place = countBelow(sorted, value + 1);
  return place < sorted.length ? sorted[place] : -1;
}

export function lastBefore(sorted, value) {
  const place = countBelow(sorted, value) - 1;
  return place >= 0 ? sorted[place] : -1;
}

export function ancestors(run, at) {
  const found = [];
  for (let one = run.parent[at]; one >= 0; one = run.parent[one]) found.push(one);
  return found;
}

// The deepest stop that runs at a time: the last one to begin by then, or the nearest around it
// that still runs.
export function stopAtTime(run, time) {
  const { order, starts } = run.byStart;
  const place = Math.max(0, countBelow(starts, time + 1e-9) - 1);
  const begun = order === null ? place : order[place];
  for (let one = begun; one >= 0; one = run.parent[one]) {
    if (!(run.start[one] + run.duration[one] < time)) return one;
  }
  return begun;
}

// Where a stage begins: neither inside a stop of the same stage nor right behind one. The
// recorder's own work comes between and ends nothing.
export function stageEntries(run) {
  const found = [];
  const before = new Int16Array(run.count + 1).fill(-1); // the stage of the latest child, by parent
  for (let at = 0; at < run.count; at += 1) {
    const stage = run.stage[at];
    if (stage < 0 || run.isOwn(at)) continue;
    const parent = run.parent[at];
    if (before[parent + 1] !== stage && !isWithin(run, parent, stage)) found.push(at);
    before[parent + 1] = stage;
  }
  return Int32Array.from(found);
}

function isWithin(run, at, stage) {
  for (let one = at; one >= 0; one = run.parent[one]) if (run.stage[one] === stage) return true;
  return false;
}

const MOST_SIBLINGS = 400; // columns of a picture
const WIDEST_FOLD = 200000; // stops; looking through more would be felt

// The same stop inside the other members of the nearest fold around it: the same module of the other
// layers, the same step's neighbours. Null where it has none.
export function siblingsOf(run, at) {
  const member = [at, ...ancestors(run, at)].find((one) => run.fold[one] >= 0);
  if (member === undefined || run.isToken(at)) return null;
  const { first, end } = run.folds[run.fold[member]];
  if (end - first > WIDEST_FOLD) return null;
  const found = { stops: [], durations: [], position: 0, count: 0 };
  for (let other = first; other < end; other = run.last[other] + 1) {
    const one = sameInside(run, at, member, other);
    if (one === at) found.position = found.stops.length;
    if (one >= 0) found.stops.push(one);
  }
  found.durations = found.stops.map((one) => run.duration[one]);
  found.count = found.stops.length;
  const isTold = found.count > 1 && found.count <= MOST_SIBLINGS && found.durations.some((took) => took > 0);
  return isTold ? found : null;
}

function sameInside(run, at, member, other) {
  if (at === member) return other;
  const [mine, theirs, name] = [run.nameOf(member), run.nameOf(other), run.nameOf(at)];
  const wanted = name.startsWith(mine) ? theirs + name.slice(mine.length) : name;
  for (let one = other + 1; one <= run.last[other]; one += 1) {
    if (run.depth[one] === run.depth[at] && run.nameOf(one) === wanted) return one;
  }
  return -1;
}
