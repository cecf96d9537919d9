// The tree of calls and spans. Only the lines in sight are elements, however long the run.

import { bounded, div, duration, element, freshId, icon, span, tokenText, visible } from "./dom.js";
import { hasInside, isFold, isOpen, lineOf, openedByCursor, visibleLines } from "./rows.js";
import { isHidden } from "./state.js";
import { stageColour } from "./theme.js";

const SPARE = 6; // lines drawn beyond each edge
const TALLEST = 8e6; // pixels that every browser can scroll; a longer list is scrolled in scale

function splitName(name, parentName) {
  const inside = parentName !== null && name.startsWith(`${parentName}.`);
  const rest = inside ? name.slice(parentName.length + 1) : name;
  const dot = rest.lastIndexOf(".", rest.length - (rest.endsWith(".weight") ? 8 : 1));
  const isPath = /^[\w.*]+$/.test(rest) && dot > 0;
  return isPath ? [rest.slice(0, dot), rest.slice(dot)] : ["", rest];
}

// What stands above a line already: the stop that holds it, or the fold it is one of.
function nameAround(run, at) {
  const fold = run.fold[at];
  if (fold >= 0) return run.names[run.folds[fold].name].replace(/(^|\.)[^.]*\.?\*$/, "");
  return run.parent[at] < 0 ? null : run.nameOf(run.parent[at]);
}

function nameParts(run, at, hides) {
  const name = run.nameOf(at);
  if (run.isToken(at)) {
    return [hides ? span("tp-token tp-secret", "?") : span("tp-token", bounded(tokenText(name)))];
  }
  const [head, tail] = splitName(name, nameAround(run, at));
  return [span("tp-name-head", bounded(head)), span("tp-name-tail", bounded(visible(tail)))];
}

export class Tree {
  constructor(act) {
    this.act = act;
    this.lines = div("tp-lines");
    this.spacer = div("tp-spacer", this.lines);
    this.id = freshId();
    this.node = element("div", { class: "tp-tree", role: "tree", tabindex: "0" }, this.spacer);
    this.node.addEventListener("scroll", () => this.draw());
    this.node.addEventListener("click", (event) => this.clicked(event));
    this.visible = { lines: new Int32Array(), indents: new Uint16Array() };
    this.known = "";
  }

  clicked(event) {
    const row = event.target.closest(".tp-line");
    if (row === null) return;
    const line = Number(row.dataset.line);
    if (event.target.closest(".tp-gutter") && !isFold(line)) this.act({ kind: "break", at: line });
    else if (isFold(line) || event.target.closest(".tp-chevron")) this.act({ kind: "fold", line });
    else this.act({ kind: "jump", to: line });
  }

  update(run, state, words) {
    const hadCursor = this.state?.at;
    Object.assign(this, { run, state, words });
    this.height = state.large ? 36 : 24;
    this.node.setAttribute("aria-label", words.ui("tree"));
    this.listLines(run, state);
    const whole = this.visible.lines.length * this.height;
    this.spacer.style.height = `${Math.min(whole, TALLEST)}px`;
    if (hadCursor !== state.at || this.known !== this.height) this.reveal();
    this.known = this.height;
    this.draw();
  }

  // A step inside what is open already changes no line, and a list may have a million.
  listLines(run, state) {
    const byCursor = openedByCursor(run, state);
    const needs = { run, opened: state.opened, closed: state.closed, own: state.own, byCursor };
    const isSame = Object.entries(needs).every(([name, need]) => this.listed?.[name] === need);
    if (isSame) return;
    this.visible = visibleLines(run, state);
    this.listed = needs;
  }

  // How far the list is scrolled, in its own pixels, which may be more than the browser's.
  scrolled() {
    const whole = this.visible.lines.length * this.height;
    if (whole <= TALLEST) return this.node.scrollTop;
    return (this.node.scrollTop * (whole - this.node.clientHeight)) / (TALLEST - this.node.clientHeight);
  }

  scrollTo(top) {
    const whole = this.visible.lines.length * this.height;
    const scale = whole <= TALLEST ? 1 : (TALLEST - this.node.clientHeight) / (whole - this.node.clientHeight);
    this.node.scrollTop = top * scale;
  }

  reveal() {
    const top = lineOf(this.visible, this.state.at) * this.height;
    const from = this.scrolled();
    const room = this.node.clientHeight;
    if (top < from + 2 * this.height || top > from + room - 3 * this.height) this.scrollTo(top - room * 0.4);
  }

  // The stop whose line is so many lines from the cursor, or the last one that way.
  neighbour(step) {
    const { lines } = this.visible;
    const [from, way] = [lineOf(this.visible, this.state.at), Math.sign(step)];
    let place = Math.min(lines.length - 1, Math.max(0, from + step));
    while (isFold(lines[place] ?? 0)) place += way;
    if (place < 0 || place >= lines.length) do place -= way; while (isFold(lines[place]));
    return lines[place] ?? this.state.at;
  }

  // Lines that a page of the list has.
  get page() {
    return Math.max(1, Math.floor(this.node.clientHeight / this.height) - 2);
  }

  draw() {
    if (this.run === undefined) return;
    const from = Math.max(0, Math.floor(this.scrolled() / this.height) - SPARE);
    const many = Math.ceil(this.node.clientHeight / this.height) + 2 * SPARE;
    const until = Math.min(this.visible.lines.length, from + many);
    this.broken = new Map();
    for (const one of this.state.breakpoints) {
      if (one.kind === "stop") this.broken.set(one.value, one.on);
    }
    const rows = [];
    for (let place = from; place < until; place += 1) rows.push(this.row(place));
    this.lines.style.transform = `translateY(${from * this.height - this.scrolled() + this.node.scrollTop}px)`;
    this.lines.replaceChildren(...rows);
    this.node.setAttribute("aria-activedescendant", `${this.id}-${this.state.at}`);
  }

  row(place) {
    const line = this.visible.lines[place];
    const indent = this.visible.indents[place];
    const inner = isFold(line) ? this.foldParts(line) : this.stopParts(line);
    const isHere = line === this.state.at;
    const node = element(
      "div",
      {
        class: `tp-line${isHere ? " tp-here" : ""}${isFold(line) ? " tp-fold" : ""}`,
        id: `${this.id}-${line}`,
        role: "treeitem",
        "aria-level": indent + 1,
        // Most lines are no elements: their place is that in the list as it is open now.
        "aria-posinset": place + 1,
        "aria-setsize": this.visible.lines.length,
        "aria-selected": isHere ? "true" : "false",
        data: { line },
        style: { "--indent": indent },
      },
      ...inner,
    );
    if (hasInside(this.run, this.state, line)) node.setAttribute("aria-expanded", String(this.shows(line)));
    return node;
  }

  shows(line) {
    const { run, state } = this;
    if (isFold(line)) return state.opened.has(line);
    return isOpen(run, state, line) || (state.at > line && state.at <= run.last[line]);
  }

  chevron(line) {
    if (!hasInside(this.run, this.state, line)) return element("span", { class: "tp-chevron" });
    return element("span", { class: `tp-chevron${this.shows(line) ? " tp-shown" : ""}` }, icon("right"));
  }

  foldParts(line) {
    const { run, state, words } = this;
    const fold = run.folds[-1 - line];
    const within = !state.opened.has(line) && state.at >= fold.first && state.at < fold.end;
    return [
      element("span", { class: "tp-gutter" }),
      this.chevron(line),
      element("span", { class: "tp-name" }, element("b", { text: `${fold.count} × ` }), this.foldName(fold)),
      within && span("tp-within", words.ui("one of them")),
    ].filter(Boolean);
  }

  foldName({ first, name }) {
    const { run } = this;
    const [text, outer] = [run.names[name], run.parent[first] < 0 ? "" : run.nameOf(run.parent[first])];
    return outer && text.startsWith(`${outer}.`) ? text.slice(outer.length + 1) : text;
  }

  stopParts(at) {
    const { run, state } = this;
    const isOn = this.broken.get(at);
    const marks = run.marksAt.get(at) ?? [];
    const colour = stageColour(run.stageOf(at), state.isDark);
    const status = run.statuses[run.status[at]];
    return [
      this.gutter(isOn),
      this.chevron(at),
      element("span", { class: "tp-stage-dot", style: { background: colour }, title: run.stageOf(at) ?? "", "aria-hidden": "true" }),
      element("span", { class: `tp-name tp-kind-${run.kindOf(at)}` }, ...nameParts(run, at, isHidden(run, state, at))),
      ...marks.slice(0, 1).map((mark) => this.mark(mark)),
      run.parent[at] < 0 ? span("tp-within", /^rank \d+/.exec(run.threads[run.thread[at]])?.[0]) : null,
      status !== "ok" && status ? span("tp-bad", status) : null,
      span("tp-took", run.isInstant(at) ? "" : duration(run.duration[at])),
    ].filter(Boolean);
  }

  gutter(isOn) {
    if (isOn === undefined) return element("span", { class: "tp-gutter" });
    const name = this.words.ui(isOn ? "breakpoint on" : "breakpoint off");
    return element("span", { class: `tp-gutter tp-broken${isOn ? "" : " tp-off"}`, role: "img", "aria-label": name });
  }

  mark(mark) {
    const shape = { findings: "▲", faults: "◆", audit: "■", moments: "★" }[mark.group] ?? "•";
    const name = this.words.run.of(mark.title);
    const look = { class: `tp-mark tp-mark-${mark.group}`, text: shape };
    return element("span", { ...look, role: "img", title: name, "aria-label": name });
  }
}
