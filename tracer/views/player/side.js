// Breakpoints: a list with hit counts, and a line to add one. Each kind asks for its own value.

import { bounded, button, div, duration, element, freshId, grouped, icon, span, visible } from "./dom.js";
import { KINDS, parseValue } from "./breakpoints.js";
import { countBelow, firstAfter } from "./moves.js";

const VALUELESS = ["window", "fault"];

export class Breakpoints {
  constructor(act) {
    this.act = act;
    this.list = element("div", { class: "tp-points" });
    this.kind = element("select", { class: "tp-add-kind" });
    this.value = element("span", { class: "tp-add-value" });
    const addIt = element("button", { type: "submit", class: "tp-add-it" }, icon("plus"));
    this.refusal = element("p", { class: "tp-refusal", role: "alert", id: freshId() });
    this.form = element("form", { class: "tp-add" }, this.kind, this.value, addIt, this.refusal);
    this.node = element("section", { class: "tp-breakpoints" }, div("tp-section"), this.list, this.form);
    this.kind.addEventListener("change", () => this.askValue());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.add();
    });
    this.known = "";
  }

  update(run, state, words) {
    Object.assign(this, { run, state, words });
    this.node.setAttribute("aria-label", words.ui("breakpoints"));
    const hits = state.breakpoints.filter((one) => one.on).reduce((sum, one) => sum + one.hits.length, 0);
    this.node.firstChild.replaceChildren(
      element("span", { text: words.ui("breakpoints") }),
      span("tp-faint", state.breakpoints.length ? words.ui("hits", { count: grouped(hits) }) : ""),
    );
    const none = element("p", { class: "tp-faint", text: words.ui("how to break") });
    const rows = state.breakpoints.map((one) => this.row(one));
    if (rows.length) this.list.setAttribute("role", "list");
    else this.list.removeAttribute("role");
    this.list.replaceChildren(...(rows.length ? rows : [none]));
    if (this.known !== state.language) this.fillKinds();
    this.known = state.language;
  }

  fillKinds() {
    const { words, kind } = this;
    const chosen = kind.value || "entropy";
    kind.replaceChildren(...KINDS.map((one) => element("option", { value: one, text: words.ui(`break ${one}`) })));
    kind.value = chosen;
    kind.setAttribute("aria-label", words.ui("kind of breakpoint"));
    this.form.querySelector(".tp-add-it").setAttribute("aria-label", words.ui("add"));
    this.askValue();
  }

  // What was typed for a kind stays: findings come later, and words change.
  askValue() {
    const { words } = this;
    const kind = this.kind.value;
    const typed = this.asked === kind ? (this.value.querySelector(".tp-value")?.value ?? "") : "";
    this.asked = kind;
    this.refuse(null);
    if (VALUELESS.includes(kind)) {
      this.value.replaceChildren();
      return;
    }
    const name = words.ui(`value ${kind}`);
    const isChosen = kind === "stage" || kind === "finding";
    const field = isChosen ? this.choices(kind) : element("input", { type: "text", placeholder: name });
    field.setAttribute("aria-label", name);
    field.classList.add("tp-value");
    field.dataset.focus = "value";
    if (typed !== "") field.value = typed;
    if (field.selectedIndex === -1) field.selectedIndex = 0;
    this.value.replaceChildren(field);
  }

  choices(kind) {
    const { run, words } = this;
    if (kind === "stage") {
      const there = [...new Set(Array.from(run.entries, (at) => run.stageOf(at)))];
      const title = (name) => `${words.run.stage(name).title} · ${name}`;
      return element("select", {}, ...there.map((name) => element("option", { value: name, text: title(name) })));
    }
    const marks = run.marks.filter((mark) => mark.group === "findings" || mark.group === "audit");
    const titles = new Map(marks.map((mark) => [mark.key, words.run.of(mark.title)]));
    const options = [...titles].map(([key, title]) => element("option", { value: key, text: title }));
    return element("select", {}, element("option", { value: "", text: words.ui("any finding") }), ...options);
  }

  add() {
    const field = this.value.querySelector(".tp-value");
    const value = parseValue(this.kind.value, field?.value ?? "");
    this.refuse(value === null ? field : null);
    if (value === null) return;
    this.act({ kind: "add", of: this.kind.value, value });
    if (field?.tagName === "INPUT") field.value = "";
  }

  // A value that says nothing stays where it is, with a word on what is asked for.
  refuse(field) {
    const kept = this.value.querySelector(".tp-value");
    kept?.classList.toggle("tp-wrong", field !== null);
    for (const [name, value] of [["aria-invalid", "true"], ["aria-describedby", this.refusal.id]]) {
      if (field === null) kept?.removeAttribute(name);
      else kept?.setAttribute(name, value);
    }
    this.refusal.textContent = field === null ? "" : this.words.ui(`refused ${this.kind.value}`);
  }

  told(one) {
    const { words, run } = this;
    if (one.kind === "stop") return words.ui("at stop", { name: words.stopName(one.value) });
    if (one.kind === "stage") return words.ui("told stage", { value: words.run.stage(one.value).title });
    if (one.kind === "slower") return words.ui("told slower", { value: duration(one.value) });
    if (one.kind === "finding" && one.value) {
      return words.run.of(run.marks.find((mark) => mark.key === one.value)?.title) || one.value;
    }
    const value = typeof one.value === "string" ? bounded(visible(one.value)) : one.value;
    return words.ui(`told ${one.kind}`, { value });
  }

  row(one) {
    const { words, act, state } = this;
    const passed = countBelow(one.hits, state.at + 1);
    const isHit = passed > 0 && one.hits[passed - 1] === state.at;
    const change = () => act({ kind: "switch", id: one.id });
    const name = this.told(one);
    const label = { "aria-label": `${words.ui("on")}: ${name}`, data: { focus: `on ${one.id}` } };
    const box = element("input", { type: "checkbox", ...label, on: { change } });
    box.checked = one.on;
    const behind = firstAfter(one.hits, state.at);
    const next = behind < 0 ? one.hits[0] : behind;
    const goThere = () => next !== undefined && act({ kind: "jump", to: next });
    const go = button("tp-point-name", name, goThere, { title: words.ui("next hit"), data: { focus: `go ${one.id}` } });
    const many = span("tp-count", words.ui("hit of", { passed: grouped(passed), count: grouped(one.hits.length) }));
    const away = () => act({ kind: "remove", id: one.id });
    const remove = button("tp-remove", icon("close"), away, { "aria-label": `${words.ui("remove")}: ${name}` });
    const kind = `tp-point${isHit ? " tp-hit" : ""}`;
    return element("div", { class: kind, role: "listitem" }, box, go, many, remove);
  }
}
