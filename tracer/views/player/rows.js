// Which lines the tree shows: a list of numbers, made from what is open and where the cursor is.
// A line is a stop (its number) or a fold of like siblings (-1 less the fold's number).

import { ancestors } from "./moves.js";

export const foldLine = (fold) => -1 - fold;
export const isFold = (line) => line < 0;

// Stops and folds that show what is inside: what somebody opened, and the way to the cursor.
export function isOpen(run, state, line) {
  if (state.opened.has(line)) return true;
  return !isFold(line) && run.parent[line] < 0 && !state.closed.has(line);
}

// The recorder's own work is no part of the library's, and is shown when asked for.
export function isUnseen(run, state, at) {
  return !state.own && run.isOwn(at) && !(state.at >= at && state.at <= run.last[at]);
}

export function visibleLines(run, state) {
  const lines = [];
  const indents = [];
  const path = new Set(ancestors(run, state.at));
  const push = (line, indent) => {
    lines.push(line);
    indents.push(indent);
  };
  const showStop = (at, indent) => {
    if (isUnseen(run, state, at)) return;
    push(at, indent);
    if (isOpen(run, state, at) || path.has(at)) showSiblings(at + 1, run.last[at] + 1, indent + 1);
  };
  const showMembers = (first, end, indent, holds) => {
    for (let at = first; at < end; at = run.last[at] + 1) {
      if (holds === null || (holds >= at && holds <= run.last[at])) showStop(at, indent);
    }
  };
  const showSiblings = (first, end, indent) => {
    for (let at = first; at < end; ) {
      const fold = run.foldAt.get(at);
      if (fold === undefined) {
        showStop(at, indent);
        at = run.last[at] + 1;
        continue;
      }
      const { end: after } = run.folds[fold];
      push(foldLine(fold), indent);
      // Closed around the cursor, a fold shows the one member in which the cursor is.
      if (state.opened.has(foldLine(fold))) showMembers(at, after, indent + 1, null);
      else if (state.at >= at && state.at < after) showMembers(at, after, indent + 1, state.at);
      at = after;
    }
  };
  showSiblings(0, run.count, 0);
  return { lines: Int32Array.from(lines), indents: Uint16Array.from(indents) };
}

// What the list of lines depends on: the cursor only by what it opens on its way.
export function openedByCursor(run, state) {
  const outer = [state.at, ...ancestors(run, state.at)];
  const members = outer.filter((one) => run.fold[one] >= 0 && !state.opened.has(foldLine(run.fold[one])));
  const stops = outer.slice(1).filter((one) => !isOpen(run, state, one));
  const own = outer.filter((one) => !state.own && run.isOwn(one));
  return `${members.join()}|${stops.join()}|${own.join()}`;
}

export function lineOf(visible, at) {
  return visible.lines.indexOf(at);
}

// Whether a line has something to open; the recorder's own work is nothing while it isn't shown.
export function hasInside(run, state, line) {
  if (isFold(line)) return true;
  for (let at = line + 1; at <= run.last[line]; at = run.last[at] + 1) {
    if (state.own || !run.isOwn(at)) return true;
  }
  return false;
}

// The fold whose members include this stop; -1 where it stands alone.
export function foldAround(run, at) {
  return run.fold[at];
}
