// The stop: what ran, where in the library, what went in and came out, each number with how it is
// known. The head comes from the columns at once, the cards when their detail is there.

import { button, div, duration, element, grouped, icon, span, visible } from "./dom.js";
import { ancestors, siblingsOf } from "./moves.js";
import { sourceView, stackView } from "./source.js";
import { isHidden } from "./state.js";
import { inkOn, stageColour } from "./theme.js";
import { cacheView, imageView, siblingsView, tensorView } from "./things.js";
import { candidatesView, effectsView, guessView, stopsView, stripView, verdictText } from "./token.js";

const BLINK = 120; // milliseconds
const PATIENCE = 1500;
const SIGNS = { measured: "●", derived: "◐", estimated: "○" };

function flowOf({ inputs = [], outputs = [] }) {
  return [...inputs.map((pair) => ["in", ...pair]), ...outputs.map((pair) => ["out", ...pair])];
}

export class StopView {
  constructor(act, details) {
    Object.assign(this, { act, details });
    this.head = element("header", { class: "tp-stop-head" });
    this.main = div("tp-main");
    this.side = div("tp-side");
    this.body = div("tp-stop-body", this.main, this.side);
    this.node = element("section", { class: "tp-stop", "aria-live": "off" }, this.head, this.body);
    // Cards that somebody closed; long ones begin so.
    this.folded = new Set(["row", "table settings", "table files", "table segments", "table chain"]);
    this.frame = null;
  }

  update(run, state, words) {
    if (state.at !== this.state?.at) this.frame = null;
    Object.assign(this, { run, state, words });
    this.node.setAttribute("aria-label", words.ui("stop"));
    this.drawHead();
    this.drawBody();
  }

  // An answer came: draw it if it is about what is shown.
  arrived(stop) {
    if (this.run !== undefined && (stop === null || stop === this.state.at)) this.drawBody();
  }

  drawHead() {
    const { run, state, words } = this;
    const { at } = state;
    const stage = run.stageOf(at);
    const colour = stageColour(stage, state.isDark);
    const status = run.statuses[run.status[at]];
    const toLesson = () => this.body.querySelector(".tp-card-lesson")?.scrollIntoView({ block: "nearest" });
    const title = words.run.stage(stage).title || stage || "";
    const pill = button("tp-pill", title, toLesson, { style: { background: colour, color: inkOn(colour) } });
    const facts = [
      words.run.kind(run.kindOf(at)),
      run.isToken(at) ? null : duration(run.duration[at]),
      words.ui("from start", { time: duration(run.start[at]) }),
      run.step[at] >= 0 ? words.ui("forward", { step: run.step[at] }) : null,
      run.threads.length > 1 ? run.threads[run.thread[at]] : null,
    ].filter(Boolean);
    this.head.replaceChildren(
      this.path(at),
      element(
        "div",
        { class: "tp-title" },
        element("h2", { class: run.isToken(at) ? "tp-token" : "", text: words.stopName(at) }),
        stage ? pill : "",
        status && status !== "ok" ? span("tp-bad", status) : "",
      ),
      div("tp-under", ...facts.map((text) => element("span", { text }))),
    );
  }

  path(at) {
    const outer = ancestors(this.run, at).reverse();
    const links = outer.flatMap((one, place) => {
      const link = button("tp-crumb", this.words.stopName(one), () => this.act({ kind: "jump", to: one }));
      return place ? [icon("right"), link] : [link];
    });
    return element("nav", { class: "tp-path", "aria-label": this.words.ui("path") }, ...links);
  }

  drawBody() {
    const { at } = this.state;
    const detail = this.details.detail(at);
    this.body.classList.toggle("tp-waiting", detail === undefined);
    if (detail === undefined) {
      this.waitFor(at);
      return;
    }
    this.shows = [];
    const [main, side] = this.cards(detail);
    this.main.replaceChildren(...main.filter(Boolean));
    this.side.replaceChildren(...side.filter(Boolean));
    for (const show of this.shows) show();
    this.details.prepare(Math.min(at + 1, this.run.count - 1));
  }

  // What stood here is of another stop: away with it, unless the answer comes within a blink.
  waitFor(at) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.empty(at), BLINK);
  }

  empty(at) {
    if (!this.waitsFor(at)) return;
    this.main.replaceChildren();
    this.side.replaceChildren();
    this.timer = setTimeout(() => {
      if (this.waitsFor(at)) this.main.replaceChildren(div("tp-card", this.words.ui("waiting")));
    }, PATIENCE);
  }

  waitsFor(at) {
    return this.state.at === at && this.body.classList.contains("tp-waiting");
  }

  cards(detail) {
    const { words, run, state, act } = this;
    if (detail === null) return [[...this.notes(), ...this.marks(), div("tp-card", words.ui("left out"))], [this.lesson()]];
    if (detail.failed) return [[div("tp-bad", words.ui("no answer", { reason: detail.failed }))], []];
    const hides = isHidden(run, state, state.at);
    const isAnswering = detail.token !== undefined || detail.strip !== undefined; // the wide column is full
    const answer = [this.strip(detail, hides), ...(detail.token ? this.token(detail.token, hides) : [])];
    const main = [
      ...this.notes(),
      ...this.marks(),
      ...(detail.token ? answer : []),
      detail.image && this.card("image", imageView(detail.image, words)),
      detail.tensor && this.card("tensor", tensorView(detail.tensor, words)),
      ...this.source(detail),
      ...(detail.token ? [] : answer),
      this.cache(detail),
      !isAnswering && this.lesson(),
    ];
    const flow = flowOf(detail);
    const side = [
      !hides && detail.facts?.length && this.card("facts", this.facts(detail.facts)),
      flow.length > 0 && this.card("in and out", this.flow(flow)),
      this.siblings(),
      isAnswering && this.lesson(),
      ...(hides ? [] : (detail.tables ?? []).map((table) => this.smallTable(table))),
      !hides && detail.row && this.card("row", this.row(detail.row)),
    ];
    return [main, side];
  }

  card(name, content, title = this.words.ui(name)) {
    const kind = `tp-card tp-card-${name.replaceAll(" ", "-")}`;
    const node = element("details", { class: kind }, element("summary", { text: title }), content);
    node.open = !this.folded.has(name);
    node.addEventListener("toggle", () => (node.open ? this.folded.delete(name) : this.folded.add(name)));
    return node;
  }

  // What the whole player can't show is said once, where one begins.
  notes() {
    if (this.state.at !== 0) return [];
    return this.run.notes.map(({ key, values }) => div("tp-note", this.words.run.phrase(key, values)));
  }

  marks() {
    return (this.run.marksAt.get(this.state.at) ?? []).map((mark) =>
      element(
        "div",
        { class: `tp-note tp-note-${mark.group}`, role: "note" },
        element("b", { text: this.words.run.of(mark.title) }),
        element("p", { text: this.words.run.of(mark.text) }),
      ),
    );
  }

  strip(detail, hides) {
    const place = detail.token ?? detail.strip;
    const strip = place?.strip ? this.details.shared("strips", place.strip) : null;
    if (!strip) return null;
    const upto = place.upto ?? strip.chips.length;
    const pick = (number) => this.pickToken(number);
    // While one guesses, what is still to come would tell.
    const isSecret = hides || (this.state.teaching && !this.run.isToken(this.state.at));
    const isToken = detail.token !== undefined;
    const view = stripView(strip, upto, { isToken, hides: isSecret, words: this.words, pick });
    this.shows.push(view.show);
    const redacted = strip.redacted && div("tp-faint", this.words.run.phrase("redacted"));
    return this.card("strip", element("div", {}, view.node, redacted));
  }

  // The n-th generated chip is the n-th token of this call and row.
  pickToken(number) {
    const { run, state, act } = this;
    const place = Math.max(0, run.tokenAt(state.at));
    const row = run.isToken(state.at) ? run.token_row[place] : 0;
    const call = run.call[state.at];
    const mine = run.tokens.filter((at, one) => run.call[at] === call && run.token_row[one] === row);
    if (number < mine.length) act({ kind: "jump", to: mine[number] });
  }

  token(token, hides) {
    const { words, state, act } = this;
    const guess = state.guesses.get(state.at);
    if (hides) return [this.card("guess", guessView(token, this.otherTokens(), guess, act, words))];
    const told = guess && div(`tp-verdict tp-${guess.verdict}`, verdictText(token, guess, words));
    return [
      told,
      token.candidates?.length ? this.card("candidates", candidatesView(token, words)) : null,
      token.effects?.length ? this.card("effects", effectsView(token.effects, words)) : null,
      token.stops?.length ? this.card("stop ids", stopsView(token.stops, words)) : null,
    ];
  }

  // Texts of the tokens nearby, those to come and those gone.
  otherTokens() {
    const { run, state } = this;
    const place = run.tokenAt(state.at);
    return Array.from(run.tokens.subarray(Math.max(0, place - 12), place + 12), (at) => run.nameOf(at)).sort();
  }

  source(detail) {
    const frames = detail.stack ? this.details.shared("stacks", detail.stack) : null;
    const picked = frames && this.frame !== null ? frames[this.frame] : null;
    const key = picked?.source ?? detail.source?.key;
    const source = key ? this.details.shared("sources", key) : null;
    const where = picked ? { current: picked.line } : { reached: detail.source?.reached };
    const cards = [];
    if (source) {
      const view = sourceView(source, where, this.act, this.words);
      this.shows.push(view.show);
      cards.push(this.card("source", view.node));
    }
    if (frames?.length) {
      const pick = (number) => {
        this.frame = number === this.frame ? null : number;
        this.drawBody();
      };
      cards.push(this.card("call path", stackView(frames, this.frame, pick, this.words)));
    }
    return cards;
  }

  cache(detail) {
    const cache = detail.cache ? this.details.shared("caches", detail.cache) : null;
    return cache && this.card("cache", cacheView(cache, this.words));
  }

  siblings() {
    const found = siblingsOf(this.run, this.state.at);
    return found && this.card("siblings", siblingsView(found, this.act, this.words));
  }

  // Most numbers are measured: their badge is a sign, and the others say what they are.
  badge(provenance) {
    if (!provenance) return "";
    const word = this.words.run.provenance(provenance);
    const text = provenance === "measured" ? SIGNS.measured : `${SIGNS[provenance] ?? "·"} ${word}`;
    const aria = { title: word, "aria-label": word, role: "img" };
    return element("span", { class: `tp-badge tp-badge-${provenance}`, text, ...aria });
  }

  legend() {
    const signs = Object.entries(SIGNS).map(([name, sign]) => `${sign} ${this.words.run.provenance(name)}`);
    return div("tp-signs", signs.join("   "));
  }

  facts(facts) {
    const rows = facts.map(([key, text, provenance]) => {
      const label = element("dt", { text: this.words.run.fact(key) });
      return div("tp-fact", label, element("dd", { text }), this.badge(provenance));
    });
    return div("", element("dl", { class: "tp-facts" }, ...rows), this.legend());
  }

  flow(pairs) {
    const rows = pairs.map(([way, name, text]) =>
      element(
        "div",
        { class: `tp-flow tp-flow-${way}` },
        element("span", { class: "tp-way", text: way === "in" ? "→" : "←", title: this.words.ui(way) }),
        element("b", { text: name }),
        span("tp-mono", text),
      ),
    );
    return element("div", {}, ...rows);
  }

  row({ table, cells }) {
    const { words } = this;
    const rows = cells.map((cell) => this.cell(table, cell));
    const { title, text } = words.run.table(table);
    const head = div("tp-faint", `${table} · ${title}. ${text}`);
    return div("", head, element("table", { class: "tp-table tp-row" }, ...rows));
  }

  cell(table, [column, text]) {
    const { words, run } = this;
    const [label, meaning] = words.run.column(table, column);
    const provenance = run.provenance[table]?.[column] ?? "measured";
    const word = words.run.provenance(provenance);
    const sign = element("span", { class: `tp-sign tp-badge-${provenance}`, text: SIGNS[provenance], title: word });
    const name = [span("tp-mono", column), span("tp-faint", label === column ? "" : label)];
    return element("tr", { title: meaning }, element("th", { scope: "row" }, ...name),
      element("td", { text: visible(String(text)) }), element("td", {}, sign));
  }

  smallTable({ table, columns, rows, more }) {
    const { words } = this;
    const head = columns.map((name) => {
      const [label, meaning] = words.run.column(table, name);
      return element("th", { scope: "col", text: label, title: meaning });
    });
    const inside = (cell) => element("td", { text: visible(String(cell ?? "–")) });
    const lines = rows.map((cells) => element("tr", {}, ...cells.map(inside)));
    const grid = element("table", { class: "tp-table" }, element("tr", {}, ...head), ...lines);
    const rest = more > 0 && div("tp-faint", words.ui("more rows", { more: grouped(more) }));
    const title = `${words.run.table(table).title} · ${grouped(rows.length + (more || 0))}`;
    return this.card(`table ${table}`, div("tp-wide", grid, rest), title);
  }

  lesson() {
    const stage = this.run.stageOf(this.state.at);
    const { title, text, lesson } = this.words.run.stage(stage);
    if (!text) return null;
    const content = div("", element("p", { text }), element("p", { class: "tp-lesson", text: lesson }));
    return this.card("lesson", content, this.words.ui("lesson", { stage: title }));
  }
}
