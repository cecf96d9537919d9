// The sheet of keys and the jump list: they lie over the player, take its keys and give them back.

import { bounded, button, div, duration, element, freshId, icon, span } from "./dom.js";
import { GROUPS, shownKeys } from "./keymap.js";

function keysOf(action) {
  return element("span", { class: "tp-keys" }, ...shownKeys(action).map((key) => element("kbd", { text: key })));
}

// Scrolls the list and never the page around it.
function scrollToMiddle(list, row) {
  list.scrollTop = row.offsetTop - list.offsetTop - list.clientHeight / 2;
}

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
    this.cover(true);
  }

  close() {
    this.cover(false);
    this.node.hidden = true;
    this.root.focus({ preventScroll: true });
  }

  // What lies under it is out of reach of Tab, of a click and of a reader.
  cover(isCovered) {
    this.root.tabIndex = isCovered ? -1 : 0;
    for (const one of this.root.children) if (one !== this.node) one.inert = isCovered;
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
            keysOf(action),
            element("span", { text: words.ui(`key ${action}`) }),
          ),
        ),
      ),
    );
    const close = button("tp-tool", icon("close"), () => this.close(), { "aria-label": words.ui("close") });
    const title = words.ui("help");
    const head = element("header", {}, element("h2", { text: title }), close);
    this.open(title, head, div("tp-key-groups", ...groups));
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
  for (const { stop, group, title } of run.marks) offer(stop, words.ui(`mark ${group}`), words.run.of(title));
  if (wanted === "") return found;
  const token = words.run.kind("token");
  for (const [place, at] of run.tokens.entries()) offer(at, token, `#${place} ${words.stopName(at)}`);
  const fits = run.names.map((name) => name.toLowerCase().includes(wanted));
  for (let at = 0; at < run.count && found.length < MOST_FOUND; at += 1) {
    if (fits[run.name[at]] && !run.isToken(at)) offer(at, words.run.kind(run.kindOf(at)), run.nameOf(at));
  }
  return found;
}

export class JumpList extends Dialog {
  constructor(root, act) {
    super(root);
    this.act = act;
    this.id = freshId();
    const aria = { role: "combobox", "aria-expanded": "true", "aria-controls": this.id, "aria-autocomplete": "list" };
    this.input = element("input", { type: "text", class: "tp-search", ...aria });
    this.list = element("div", { class: "tp-found", id: this.id, role: "listbox" });
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
    this.input.setAttribute("aria-label", words.ui("jump"));
    this.list.setAttribute("aria-label", words.ui("jump"));
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
        { class: "tp-hit-line", role: "option", id: `${this.id}-${place}`, "aria-selected": "false", data: { at } },
        span("tp-faint", kind),
        element("span", { text: bounded(title) }),
        span("tp-faint", duration(run.start[at])),
      ),
    );
    const nothing = element("p", { class: "tp-faint", role: "status", text: words.ui("nothing found") });
    this.list.replaceChildren(...(rows.length ? rows : [nothing]));
    this.pick(0);
  }

  pick(place) {
    const before = this.list.querySelector(".tp-picked");
    before?.classList.remove("tp-picked");
    before?.setAttribute("aria-selected", "false");
    this.place = Math.max(0, Math.min(this.found.length - 1, place));
    const row = this.found.length ? this.list.children[this.place] : undefined;
    if (row === undefined) {
      this.input.removeAttribute("aria-activedescendant");
      return;
    }
    row.classList.add("tp-picked");
    row.setAttribute("aria-selected", "true");
    this.input.setAttribute("aria-activedescendant", row.id);
    scrollToMiddle(this.list, row);
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
