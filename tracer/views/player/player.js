// The player on a page: one run, one state, the views that show it, and the keys. `mount` is all
// that a widget or a static page needs.

import { Details } from "./details.js";
import { HelpSheet, JumpList } from "./dialogs.js";
import { button, div, duration, element, grouped, icon, span } from "./dom.js";
import { keepFocus } from "./focus.js";
import { actionOf, shownKeys, spokenKeys } from "./keymap.js";
import { makeRun, marksByStop, speak } from "./run.js";
import { Breakpoints } from "./side.js";
import { firstState, keptOf, reduce, restored } from "./state.js";
import { StopView } from "./stop.js";
import { Timeline } from "./timeline.js";
import { Tree } from "./tree.js";
import { makeWords } from "./words.js";

const TOOLS = ["continue back", "previous token", "back", "over", "step", "out", "next token", "continue"];
const COUNTED_FACTS = ["parameters", "generated_tokens"];
const NAMED_FACTS = ["transformers", "run_ns"];
const FIELDS = "input, select, textarea, [contenteditable]";
const PRESSABLE = "button, summary, a";
const TAKES_FOCUS = `${FIELDS}, ${PRESSABLE}, [tabindex="0"]:not(.tracer-player)`;

const SETTLED = 400; // milliseconds after the last move

class Player {
  // `source` is {header, columns, detail(stop), shared(room, key), isStatic, isDark(), onDark}; and
  // where there is a place for it, {kept, keep(kept)}: what is known from the last time.
  constructor(root, source) {
    Object.assign(this, { root, source });
    this.run = makeRun(source.header, source.columns);
    const first = firstState(this.run, { language: source.header.language ?? "en" });
    this.state = restored(this.run, first, source.kept);
    this.act = (action) => this.take(action);
    this.details = new Details(source, (stop) => this.stop.arrived(stop));
    this.timeline = new Timeline(this.act);
    this.tree = new Tree(this.act);
    this.breakpoints = new Breakpoints(this.act);
    this.stop = new StopView(root, this.act, this.details);
    this.help = new HelpSheet(root);
    this.jump = new JumpList(root, this.act);
    this.build();
    this.listen();
    this.draw();
    source.marks?.().then((found) => this.marked(found), (error) => this.missed(error));
  }

  // Findings that could not be looked for are no findings that are not there.
  missed(error) {
    this.run.notes = [...this.run.notes, { key: "marks_failed", values: { reason: error.message } }];
    this.draw();
  }

  marked({ marks, notes }) {
    this.run.notes = notes;
    this.run.marks = marks;
    this.run.marksAt = marksByStop(marks);
    this.breakpoints.known = "";
    this.act({ kind: "marks" });
  }

  build() {
    const { root } = this;
    root.classList.add("tracer-player");
    root.tabIndex = 0;
    root.setAttribute("role", "application");
    // JupyterLab's own shortcuts stay out of what is typed here.
    root.dataset.lmSuppressShortcuts = "true";
    this.bar = element("header", { class: "tp-bar" });
    const left = div("tp-left", this.tree.node, this.breakpoints.node);
    const body = div("tp-body", left, this.stop.node);
    root.replaceChildren(this.bar, this.timeline.node, body, this.help.node, this.jump.node);
    this.buildBar();
  }

  buildBar() {
    this.title = div("tp-run");
    this.place = element("output", { class: "tp-place", role: "status", "aria-live": "polite" });
    this.tools = TOOLS.map((kind) => this.tool(kind, icon(kind), () => this.act({ kind })));
    const text = (kind, pressed) => this.tool(kind, element("span"), pressed);
    this.options = {
      jump: this.tool("jump", icon("jump"), () => this.doKey("jump")),
      teach: this.tool("teach", icon("teach"), () => this.doKey("teach")),
      axis: text("axis", () => this.doKey("axis")),
      large: text("large", () => this.doKey("large")),
      language: text("language", () => this.doKey("language")),
      dark: this.tool("dark", icon("dark"), () => this.doKey("dark")),
      help: this.tool("help", icon("help"), () => this.doKey("help")),
    };
    this.options.large.firstChild.textContent = "A⁺";
    this.bar.replaceChildren(
      this.title,
      (this.walking = element("div", { class: "tp-tools", role: "toolbar" }, ...this.tools)),
      this.place,
      (this.looking = element("div", { class: "tp-tools", role: "toolbar" }, ...Object.values(this.options))),
    );
  }

  tool(kind, content, pressed) {
    return button("tp-tool", content, pressed, { data: { kind } });
  }

  listen() {
    const { root } = this;
    root.addEventListener("keydown", (event) => this.pressed(event));
    // A key that we take must not reach the notebook's shortcuts, in either phase of its way.
    for (const kind of ["keyup", "keypress"]) root.addEventListener(kind, (event) => event.stopPropagation());
    root.addEventListener("pointerdown", (event) => {
      if (event.target.closest(TAKES_FOCUS) === null) root.focus({ preventScroll: true });
    });
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(root);
    this.offDark = this.source.onDark(() => this.draw());
  }

  close() {
    this.keep();
    clearTimeout(this.settling);
    this.resized.disconnect();
    this.offDark();
  }

  pressed(event) {
    if (event.isComposing || event.keyCode === 229) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation();
    const inField = event.target.closest(FIELDS) !== null;
    const action = actionOf(event);
    if (this.paged(event)) event.preventDefault();
    else if (action === "leave") this.leave(event);
    else if (action === null || inField || this.isCovered(action)) return;
    else if ((event.key === "Enter" || event.key === " ") && event.target.closest(PRESSABLE)) return;
    else {
      event.preventDefault();
      this.doKey(action, event.key);
    }
  }

  // A page of the list, or a stretch of the line; anywhere else the browser scrolls.
  paged({ key, target }) {
    const way = { PageUp: -1, PageDown: 1 }[key];
    if (way === undefined) return false;
    if (target === this.tree.node) this.act({ kind: "jump", to: this.tree.neighbour(way * this.tree.page) });
    else if (target === this.timeline.node) this.act({ kind: "jump", to: this.timeline.stopAside(-5 * way) });
    else return false;
    return true;
  }

  isCovered(action) {
    if (this.help.isOpen && action === "help") return false;
    return this.help.isOpen || this.jump.isOpen;
  }

  leave(event) {
    const open = [this.help, this.jump].find((dialog) => dialog.isOpen);
    if (open !== undefined) open.close();
    else if (event.target.closest(FIELDS)) this.root.focus({ preventScroll: true });
    else return;
    event.preventDefault();
  }

  doKey(action, key = "") {
    const special = {
      help: () => (this.help.isOpen ? this.help.close() : this.help.show(this.words)),
      jump: () => this.jump.show(this.run, this.words),
      line: () => this.act({ kind: "jump", to: this.tree.neighbour(key === "ArrowUp" ? -1 : 1) }),
      later: () => this.act({ kind: "jump", to: this.timeline.stopAside(1) }),
      earlier: () => this.act({ kind: "jump", to: this.timeline.stopAside(-1) }),
      language: () => this.act({ kind: "language", language: this.state.language === "en" ? "zh" : "en" }),
      dark: () => this.turn(!this.state.isDark),
      zoom: () => this.zoom(key),
    };
    if (action in special) special[action]();
    else this.act({ kind: action });
  }

  zoom(key) {
    const factor = key === "-" || key === "_" ? 2 : 0.5;
    if (key === "0") this.act({ kind: "zoom to", zoom: [0, 1] });
    else this.act({ kind: "zoom", factor, middle: this.timeline.share(this.state.at) });
  }

  // What surrounds the player is followed again once both are alike.
  turn(dark) {
    this.act({ kind: "dark", dark: dark === this.source.isDark() ? null : dark });
  }

  take(action) {
    this.state = this.timeline.followed(this.run, reduce(this.run, this.state, action));
    this.draw();
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.keep(), SETTLED);
  }

  // Kept once it settles: browsers refuse to note every key of a long walk.
  keep() {
    this.source.keep?.(keptOf(this.state));
  }

  draw() {
    keepFocus(this.root, () => this.drawAll());
  }

  drawAll() {
    const { run, source, root } = this;
    const state = (this.state = { ...this.state, isDark: this.state.dark ?? source.isDark() });
    const words = (this.words = makeWords(run, state));
    root.classList.toggle("tp-dark", state.isDark);
    root.classList.toggle("tp-own", state.dark !== null || source.isStatic);
    root.classList.toggle("tp-large", state.large);
    root.classList.toggle("tp-teaching", state.teaching);
    root.lang = state.language === "zh" ? "zh-CN" : "en";
    root.setAttribute("aria-label", `${words.ui("player")}: ${run.title}`);
    this.walking.setAttribute("aria-label", words.ui("group walk"));
    this.looking.setAttribute("aria-label", words.ui("group look"));
    this.drawBar(state, words);
    for (const view of [this.timeline, this.tree, this.breakpoints, this.stop]) view.update(run, state, words);
  }

  drawBar(state, words) {
    const { run } = this;
    this.title.replaceChildren(
      element("b", { text: run.title || words.run.phrase("title") }),
      ...(run.ended === "complete" ? [] : [span("tp-bad", run.ended)]),
      ...run.facts.slice(0, 3).map((fact) => runFact(fact, words)),
    );
    for (const node of [...this.tools, ...Object.values(this.options)]) {
      const { kind } = node.dataset;
      const name = words.ui(`key ${kind}`);
      node.title = `${name} (${shownKeys(kind).join(", ")})`;
      node.setAttribute("aria-label", name);
      node.setAttribute("aria-keyshortcuts", spokenKeys(kind));
    }
    this.options.language.firstChild.textContent = words.ui("key language");
    this.options.axis.firstChild.textContent = words.ui(`axis ${state.axis}`);
    this.options.teach.setAttribute("aria-pressed", String(state.teaching));
    this.options.large.setAttribute("aria-pressed", String(state.large));
    this.sayPlace(state, words);
  }

  // Read aloud: where one is, what is there, and what the last action met. Said once for each change.
  sayPlace(state, words) {
    const { run } = this;
    const at = words.ui("of", { at: grouped(state.at + 1), count: grouped(run.count) });
    const stage = words.run.stage(run.stageOf(state.at)).title;
    const told = [words.run.kind(run.kindOf(state.at)), words.stopName(state.at), stage];
    if (!run.isInstant(state.at)) told.push(duration(run.duration[state.at]));
    const texts = [at, told.filter(Boolean).join(", "), this.noticeText(state, words)];
    if (texts.join("\n") === this.said) return;
    this.said = texts.join("\n");
    this.place.replaceChildren(span("tp-at", texts[0]), span("tp-sr", texts[1]), span("tp-notice", texts[2]));
  }

  noticeText({ notice, breakpoints }, words) {
    if (notice === null) return "";
    const hits = breakpoints.filter((one) => notice.by?.includes(one.id));
    this.breakpoints.words = words;
    this.breakpoints.run = this.run;
    const name = hits.map((one) => this.breakpoints.told(one)).join(" · ");
    return words.ui(`notice ${notice.code}`, { ...notice, name });
  }
}

function runFact([key, text], words) {
  const label = words.run.fact(key);
  const named = NAMED_FACTS.includes(key) ? `${label} ${text}` : text;
  return element("span", { text: COUNTED_FACTS.includes(key) ? `${text} ${label}` : named, title: label });
}

// A trace without a stop has nothing to play.
function sayEmpty(root, { header, isDark, onDark, isStatic }) {
  const words = speak(header, header.language ?? "en");
  root.classList.add("tracer-player", "tp-empty");
  root.classList.toggle("tp-own", isStatic);
  root.lang = header.language === "zh" ? "zh-CN" : "en";
  const shade = () => root.classList.toggle("tp-dark", isDark());
  shade();
  const notes = header.notes.map(({ key, values }) => div("tp-note", words.phrase(key, values)));
  root.replaceChildren(element("p", { text: words.phrase("empty") }), ...notes);
  return { close: onDark(shade) };
}

export function mount(root, source) {
  return source.header.count === 0 ? sayEmpty(root, source) : new Player(root, source);
}
