// The player in a notebook: the kernel answers what is asked about a stop.

import { isDarkAround, onDarkness } from "./darkness.js";
import { element } from "./dom.js";
import { mount } from "./player.js";

// Questions that wait for their answer, by what they ask.
class Kernel {
  constructor(model) {
    this.model = model;
    this.waiting = new Map();
    this.heard = (message) => this.answered(message);
    model.on("msg:custom", this.heard);
  }

  ask(name, question) {
    return new Promise((resolve, reject) => {
      this.waiting.set(name, [...(this.waiting.get(name) ?? []), { resolve, reject }]);
      this.model.send(question);
    });
  }

  answered(message) {
    const name = nameOfAnswer(message);
    const waiting = this.waiting.get(name) ?? [];
    this.waiting.delete(name);
    for (const { resolve, reject } of waiting) {
      if (message.error) reject(new Error(message.error));
      else resolve(message.kind === "marks" ? message : message.detail ?? message.value ?? null);
    }
  }

  close() {
    this.model.off("msg:custom", this.heard);
  }
}

function nameOfAnswer({ kind, stop, room, key }) {
  if (kind === "detail") return `detail/${stop}`;
  return kind === "marks" ? "marks" : `${room}/${key}`;
}

// A DataView of the message becomes a buffer of its own, so that columns begin at multiples of 8.
function bufferOf(view) {
  return view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
}

function render({ model, el }) {
  const kernel = new Kernel(model);
  const root = element("div");
  el.append(root);
  const player = mount(root, {
    header: JSON.parse(model.get("header")),
    columns: bufferOf(model.get("columns")),
    detail: (stop) => kernel.ask(`detail/${stop}`, { kind: "detail", stop }),
    shared: (room, key) => kernel.ask(`${room}/${key}`, { kind: "shared", room, key }),
    marks: () => kernel.ask("marks", { kind: "marks" }),
    isStatic: false,
    kept: model.get("kept"),
    keep: (kept) => {
      model.set("kept", kept);
      model.save_changes();
    },
    isDark: isDarkAround,
    onDark: onDarkness,
  });
  return () => {
    player.close();
    kernel.close();
  };
}

export default { render };
