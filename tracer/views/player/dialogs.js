// The sheet of keys and the jump list: they lie over the player, take its keys and give them back.

import { duration, element, icon } from "./dom.js";
import { GROUPS, shownKeys } from "./keymap.js";

const MOST_FOUND = 120;

class Dialog {
  constructor(root) {
    this.root = root;
    this.box = element("div", { class: "tp-dialog", role: "dialog", "aria-modal": "true" });
    this.node = element("div", { class: "tp-over", hidden: true }, this.box);
    this.node.addEventListener("pointerdown", (event) => event.target === this.node && this.close());
  }

  get isOpen() {
    return !this.node.hidden;
  }

  open(title, ...content) {
    this.box.setAttribute("aria-label", title);
    this.box.replaceChildren(...content);
    this.node.hidden = false;
  }

  close() {
    this.node.hidden = true;
    this.root.focus({ preventScroll: true });
  }
}

export class HelpSheet extends Dialog {
  show(words) {
    const groups = GROUPS.map(([group, actions]) =>
      element(
        "section",
        {},
        element("h3", { text: words.ui(`group ${group}`) }),
        ...actions.map((action) =>
          element(
            "div",
            { class: "tp-key-line" },
            element("span", { class: "tp-keys" }, ...shownKeys(action).map((key) => element("kbd", { text: key }))),
            element("span", { text: words.ui(`key ${action}`) }),
          ),
        ),
      ),
    );
    const close = element("button", { type: "button", class: "tp-tool", "aria-label": words.ui("close"), on: { click: () => this.close() } }, icon("close"));
    this.open(words.ui("help"), element("header", {}, element("h2", { text: words.ui("help") }), close), element("div", { class: "tp-key-groups" }, ...groups));
    close.focus();
  }
}

// Everything with a name that contains the text: stages, marks and tokens first, then other stops.
export function findStops(run, words, text) {
  const wanted = text.trim().toLowerCase();
  const found = [];
  const offer = (at, kind, title) => {
    if (found.length < MOST_FOUND && title.toLowerCase().includes(wanted)) found.push({ at, kind, title });
  };
  const told = new Set(); // a stage once in each call, though others may come between its parts
  for (const at of run.entries) {
    const stage = run.stageOf(at);
    const place = `${stage}|${run.call[at]}`;
    if (run.isOwn(at) || told.has(place)) continue;
    told.add(place);
    offer(at, words.ui("stage"), `${words.run.stage(stage).title} · ${stage}`);
  }
  for (const mark of run.marks) if (mark.stop >= 0) offer(mark.stop, words.ui(`mark ${mark.group}`), words.run.of(mark.title));
  if (wanted === "") return found;
  for (const [place, at] of run.tokens.entries()) offer(at, words.run.kind("token"), `#${place} ${words.stopName(at)}`);
  const fits = run.names.map((name) => name.toLowerCase().includes(wanted));
  for (let at = 0; at < run.count && found.length < MOST_FOUND; at += 1) {
    if (fits[run.name[at]] && !run.isToken(at)) found.push({ at, kind: words.run.kind(run.kindOf(at)), title: run.nameOf(at) });
  }
  return found;
}

export class JumpList extends Dialog {
  constructor(root, act) {
    super(root);
    this.act = act;
    this.input = element("input", { type: "text", class: "tp-search", role: "combobox", "aria-expanded": "true", "aria-controls": "tp-found" });
    this.list = element("div", { class: "tp-found", id: "tp-found", role: "listbox" });
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("keydown", (event) => this.pressed(event));
    this.list.addEventListener("click", (event) => {
      const row = event.target.closest(".tp-hit-line");
      if (row !== null) this.take(Number(row.dataset.at));
    });
  }

  show(run, words) {
    Object.assign(this, { run, words });
    this.input.value = "";
    this.input.placeholder = words.ui("search");
    this.open(words.ui("jump"), this.input, this.list);
    this.search();
    this.input.focus();
  }

  search() {
    const { run, words } = this;
    this.found = findStops(run, words, this.input.value);
    const rows = this.found.map(({ at, kind, title }, place) =>
      element(
        "div",
        { class: "tp-hit-line", role: "option", id: `tp-found-${place}`, data: { at } },
        element("span", { class: "tp-faint", text: kind }),
        element("span", { text: title }),
        element("span", { class: "tp-faint", text: duration(run.start[at]) }),
      ),
    );
    this.list.replaceChildren(...(rows.length ? rows : [element("p", { class: "tp-faint", text: words.ui("nothing found") })]));
    this.pick(0);
  }

  pick(place) {
    this.list.querySelector(".tp-picked")?.classList.remove("tp-picked");
    this.place = Math.max(0, Math.min(this.found.length - 1, place));
    const row = this.list.children[this.place];
    row?.classList.add("tp-picked");
    this.input.setAttribute("aria-activedescendant", `tp-found-${this.place}`);
    if (row !== undefined) this.list.scrollTop = row.offsetTop - this.list.offsetTop - this.list.clientHeight / 2;
  }

  pressed(event) {
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === "ArrowDown") this.pick(this.place + 1);
    else if (event.key === "ArrowUp") this.pick(this.place - 1);
    else if (event.key === "Enter" && this.found.length) this.take(this.found[this.place].at);
    else return;
    event.preventDefault();
  }

  take(at) {
    this.close();
    this.act({ kind: "jump", to: at });
  }
}
