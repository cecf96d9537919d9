// The stop: what ran, where in the library, what went in and came out, each number with how it is
// known. The head comes from the columns at once, the cards when their detail is there.

import { flowOf, flowView, factsView, rowView, tableView } from "./cells.js";
import { button, div, duration, element, grouped, icon, span } from "./dom.js";
import { keepFocus } from "./focus.js";
import { ancestors, siblingsOf } from "./moves.js";
import { sourceView, stackView } from "./source.js";
import { isHidden } from "./state.js";
import { inkOn, stageColour } from "./theme.js";
import { cacheView, imageView, siblingsView, tensorView } from "./things.js";
import { candidatesView, effectsView, guessView, stopsView, stripView, verdictView } from "./token.js";

const BLINK = 120; // milliseconds
const PATIENCE = 1500;
export class StopView {
  constructor(root, act, details) {
    Object.assign(this, { root, act, details });
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
    if (this.run === undefined || (stop !== null && stop !== this.state.at)) return;
    keepFocus(this.root, () => this.drawBody());
  }

  drawHead() {
    const { run, state, words } = this;
    const { at } = state;
    const stage = run.stageOf(at);
    const colour = stageColour(stage, state.isDark);
    const status = run.statuses[run.status[at]];
    const toLesson = () => this.body.querySelector(".tp-card-lesson")?.scrollIntoView({ block: "nearest" });
    const title = words.run.stage(stage).title || stage || "";
    const look = { style: { background: colour, color: inkOn(colour) }, title: words.ui("to lesson") };
    const pill = button("tp-pill", title, toLesson, { ...look, data: { focus: "pill" } });
    const facts = [
      words.run.kind(run.kindOf(at)),
      run.isInstant(at) ? null : duration(run.duration[at]),
      words.ui("from start", { time: duration(run.start[at]) }),
      run.step[at] >= 0 ? words.ui("forward", { step: run.step[at] }) : null,
      run.isToken(at) && run.rows > 1 ? words.ui("row of", { row: run.token_row[run.tokenAt(at)] }) : null,
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
      const goThere = () => this.act({ kind: "jump", to: one });
      const link = button("tp-crumb", this.words.stopName(one), goThere, { data: { focus: `crumb ${one}` } });
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
    // Cards stay where they are while one goes through like stops; another kind begins at its top.
    const kind = this.run.kindOf(at);
    if (kind !== this.kind) this.body.scrollTop = 0;
    this.kind = kind;
    for (const show of this.shows) show();
    this.details.prepare(Math.min(at + 1, this.run.count - 1));
  }

  // What stood here is of another stop: away with it, unless the answer comes within a blink.
  waitFor(at) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => keepFocus(this.root, () => this.empty(at)), BLINK);
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
      !hides && detail.facts?.length && this.card("facts", factsView(detail.facts, words)),
      flow.length > 0 && this.card("in and out", flowView(flow, words)),
      this.siblings(),
      isAnswering && this.lesson(),
      ...(hides ? [] : (detail.tables ?? []).map((table) => this.table(table))),
      !hides && detail.row && this.card("row", rowView(detail.row, run, words)),
    ];
    return [main, side];
  }

  card(name, content, title = this.words.ui(name)) {
    const kind = `tp-card tp-card-${name.replaceAll(" ", "-")}`;
    const summary = element("summary", { text: title, data: { focus: `card ${name}` } });
    const node = element("details", { class: kind }, summary, content);
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
    const first = detail.token ?? detail.strip;
    const places = first?.strip ? [first, ...(first.others ?? [])] : [];
    const rows = places.map((place, number) => this.oneStrip(place, detail.token !== undefined, hides, number));
    const shown = rows.filter(Boolean);
    const lacks = ["redacted", "unnamed"].find((name) => shown.some((one) => one.strip[name]));
    const note = lacks && div("tp-faint", this.words.run.phrase(lacks));
    return shown.length > 0 && this.card("strip", element("div", {}, ...shown.map((one) => one.node), note));
  }

  oneStrip(place, isToken, hides, number) {
    const { run, state, words } = this;
    const strip = this.details.shared("strips", place.strip);
    if (!strip) return null;
    const upto = place.upto ?? strip.chips.length;
    const pick = (row) => this.pickToken(row);
    // While one guesses, what is still to come would tell.
    const isAhead = strip.chips.length > Math.max(upto, strip.prompt);
    const isSecret = hides || (state.teaching && isAhead && !run.isToken(state.at));
    const view = stripView(strip, upto, { isToken, hides: isSecret, words, pick, number });
    this.shows.push(view.show);
    return { strip, node: div("tp-one-strip", this.stripName(place, number), view.node) };
  }

  stripName({ row, sequence, others }, number) {
    if (sequence !== undefined) return div("tp-faint", this.words.ui("sequence of", { sequence }));
    const isOneOfMany = others !== undefined || number > 0;
    return isOneOfMany && div("tp-faint", this.words.ui("row of", { row }));
  }

  // The token of a row of `choices`.
  pickToken(row) {
    const { run, act } = this;
    const to = run.tokens.find((at) => run.row[at] === row);
    if (to !== undefined) act({ kind: "jump", to });
  }

  token(token, hides) {
    const { words, state, act } = this;
    const guess = state.guesses.get(state.at);
    if (hides) return [this.card("guess", guessView(token, this.otherTokens(), guess, act, words))];
    const told = guess && verdictView(token, guess, words);
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
      cards.push(this.card("source", view.node, this.ofAround("source", detail)));
    }
    if (frames?.length) {
      const pick = (number) => {
        this.frame = number === this.frame ? null : number;
        keepFocus(this.root, () => this.drawBody());
      };
      const view = stackView(frames, this.frame, pick, this.words);
      cards.push(this.card("call path", view, this.ofAround("call path", detail)));
    }
    return cards;
  }

  // A title that says so where the code is not the stop's own.
  ofAround(name, { code_of: around }) {
    const { words } = this;
    const title = words.ui(name);
    return around === undefined ? title : words.ui("code of", { title, name: words.stopName(around) });
  }

  cache(detail) {
    const cache = detail.cache ? this.details.shared("caches", detail.cache) : null;
    return cache && this.card("cache", cacheView(cache, this.words));
  }

  siblings() {
    const found = siblingsOf(this.run, this.state.at);
    return found && this.card("siblings", siblingsView(found, this.act, this.words));
  }

  table(table) {
    const title = `${this.words.run.table(table.table).title} · ${grouped(table.rows.length + (table.more || 0))}`;
    return this.card(`table ${table.table}`, tableView(table, this.run, this.words), title);
  }

  lesson() {
    const stage = this.run.stageOf(this.state.at);
    const { title, text, lesson } = this.words.run.stage(stage);
    if (!text) return null;
    const content = div("", element("p", { text }), element("p", { class: "tp-lesson", text: lesson }));
    return this.card("lesson", content, this.words.ui("lesson", { stage: title }));
  }
}
