// From time to place on the line and back. Time in which nothing of the run happened, such as a
// user's pause between two cells, takes little room.

import { countBelow } from "./moves.js";

const WIDEST_GAP = 0.015; // of all busy time

function busySpans(run) {
  const spans = run.roots.map((at) => [run.start[at], run.endOf(at)]).sort((a, b) => a[0] - b[0]);
  const merged = [];
  for (const [from, to] of spans) {
    const before = merged.at(-1);
    if (before !== undefined && from <= before[1]) before[1] = Math.max(before[1], to);
    else merged.push([from, to]);
  }
  return merged;
}

// Knots of a line that rises piece by piece: times, and the share of the line at each.
export function timeScale(run) {
  const spans = busySpans(run);
  const busy = spans.reduce((sum, [from, to]) => sum + to - from, 0) || 1;
  const times = [];
  const shares = [];
  const gaps = [];
  let share = 0;
  for (const [from, to] of spans) {
    if (times.length > 0) {
      const idle = from - times.at(-1);
      const room = Math.min(idle, WIDEST_GAP * busy);
      if (room < idle) gaps.push([share, share + room, idle]);
      share += room;
    }
    times.push(from, to);
    shares.push(share, share + to - from);
    share += to - from;
  }
  const whole = share || 1;
  return {
    times,
    shares: shares.map((one) => one / whole),
    gaps: gaps.map(([from, to, idle]) => [from / whole, to / whole, idle]),
  };
}

function between(from, to, value) {
  const last = from.length - 1;
  const place = Math.min(Math.max(countBelow(from, value), 1), Math.max(last, 1));
  const width = from[place] - from[place - 1];
  const share = width > 0 ? (value - from[place - 1]) / width : 0;
  return to[place - 1] + Math.min(1, Math.max(0, share)) * (to[place] - to[place - 1]);
}

export const shareOfTime = (scale, time) => between(scale.times, scale.shares, time);
export const timeOfShare = (scale, share) => between(scale.shares, scale.times, share);

// Round steps of time for the ticks of a line on which `span` milliseconds are seen.
export function niceStep(span, most) {
  const least = span / most;
  const power = 10 ** Math.floor(Math.log10(least || 1e-9));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= least);
}

// Equal neighbours as runs. What is narrower than `least` between two runs of one value joins them:
// at this scale it would only flicker.
export function runsOf(values, least) {
  const runs = [];
  values.forEach((value, place) => {
    if (runs.at(-1)?.value === value) runs.at(-1).to = place + 1;
    else runs.push({ value, from: place, to: place + 1 });
  });
  const joined = [];
  for (const run of runs) {
    const [outer, sliver] = joined.slice(-2);
    const isJoined = sliver !== undefined && outer.value === run.value && sliver.to - sliver.from < least;
    if (isJoined) joined.pop();
    if (joined.at(-1)?.value === run.value) joined.at(-1).to = run.to;
    else joined.push({ ...run });
  }
  return joined;
}
