// Facts, the row behind a stop and what it established: each number with how it came to be known.

import { div, element, grouped, span, visible } from "./dom.js";

const SIGNS = { measured: "●", derived: "◐", estimated: "○" };

export function flowOf({ inputs = [], outputs = [] }) {
  return [...inputs.map((pair) => ["in", ...pair]), ...outputs.map((pair) => ["out", ...pair])];
}

// Most numbers are measured: their badge is a sign, and the others say what they are.
export function badge(provenance, words) {
  if (!provenance) return "";
  const word = words.run.provenance(provenance);
  const text = provenance === "measured" ? SIGNS.measured : `${SIGNS[provenance] ?? "·"} ${word}`;
  const aria = { title: word, "aria-label": word, role: "img" };
  return element("span", { class: `tp-badge tp-badge-${provenance}`, text, ...aria });
}

// A boolean in the reader's language, and words that come in each; all else is text already.
export function spoken(cell, words) {
  if (typeof cell === "object") return words.run.of(cell);
  return typeof cell === "boolean" ? words.ui(cell ? "yes" : "no") : String(cell);
}

function sign(provenance, words) {
  const word = words.run.provenance(provenance);
  const aria = { title: word, "aria-label": word, role: "img" };
  return element("span", { class: `tp-sign tp-badge-${provenance}`, text: SIGNS[provenance] ?? "·", ...aria });
}

function legend(words) {
  const signs = Object.entries(SIGNS).map(([name, one]) => `${one} ${words.run.provenance(name)}`);
  return element("div", { class: "tp-signs", "aria-hidden": "true", text: signs.join("   ") });
}

export function factsView(facts, words) {
  const rows = facts.map(([key, text, provenance]) => {
    const told = element("dd", {}, span("tp-told", spoken(text, words)), badge(provenance, words));
    return div("tp-fact", element("dt", { text: words.run.fact(key) }), told);
  });
  return div("", element("dl", { class: "tp-facts" }, ...rows), legend(words));
}

export function flowView(pairs, words) {
  const rows = pairs.map(([way, name, text]) =>
    element(
      "div",
      { class: `tp-flow tp-flow-${way}` },
      element("span", { class: "tp-way", text: way === "in" ? "→" : "←", title: words.ui(way), role: "img",
        "aria-label": words.ui(way) }),
      element("b", { text: name }),
      span("tp-mono", spoken(text, words)),
    ),
  );
  return element("div", {}, ...rows);
}

export function rowView({ table, cells }, run, words) {
  const { title, text } = words.run.table(table);
  const head = div("tp-faint", `${table} · ${title}. ${text}`);
  const rows = cells.map((cell) => rowCell(table, cell, run, words));
  return div("", head, element("table", { class: "tp-table tp-row" }, ...rows), legend(words));
}

function rowCell(table, [column, text], run, words) {
  const [label, meaning] = words.run.column(table, column);
  const name = [span("tp-mono", column), span("tp-faint", label === column ? "" : label)];
  return element("tr", { title: meaning }, element("th", { scope: "row" }, ...name),
    element("td", { text: visible(spoken(text, words)) }), element("td", {}, sign(cameFrom(run, table, column), words)));
}

const cameFrom = (run, table, column) => run.provenance[table]?.[column] ?? "measured";

// What was not measured says so at the head of its column. A single row stands upright: its cells are
// too many for the width, and there is none to compare it with.
export function tableView({ table, columns, rows, more }, run, words) {
  const isUpright = rows.length === 1 && !more;
  const head = columns.map((name) => {
    const [label, meaning] = words.run.column(table, name);
    const came = cameFrom(run, table, name);
    const mark = came === "measured" ? null : sign(came, words);
    return element("th", { scope: isUpright ? "row" : "col", title: meaning }, label, mark && " ", mark);
  });
  const inside = (cell) => element("td", { text: visible(spoken(cell ?? "–", words)) });
  const lines = isUpright
    ? head.map((name, place) => element("tr", {}, name, inside(rows[0][place])))
    : [element("tr", {}, ...head), ...rows.map((cells) => element("tr", {}, ...cells.map(inside)))];
  const grid = element("table", { class: "tp-table" }, ...lines);
  if (isUpright) return grid;
  const rest = more > 0 && div("tp-faint", words.ui("more rows", { more: grouped(more) }));
  const look = { class: "tp-wide", tabindex: "0", role: "group", "aria-label": words.run.table(table).title };
  return element("div", { ...look, data: { focus: `table ${table}` } }, grid, rest);
}
