// The line of time: a picture of the run, and the cursor, which is dragged or moved by keys. The
// picture is a canvas and the cursor an element, so that a step is cheap.

import { div, duration, element, plain } from "./dom.js";
import { stopAtTime } from "./moves.js";
import { Picture } from "./picture.js";
import { shareOfTime, timeOfShare, timeScale } from "./timescale.js";

const STRIDE = 0.02; // of what is seen, for each press of a key

// The outermost stops of each stage: what a band is drawn for.
function bandsOf(run) {
  const found = [];
  for (let at = 0; at < run.count; at += 1) {
    const parent = run.parent[at];
    const isNew = run.stage[at] >= 0 && (parent < 0 || run.stage[parent] !== run.stage[at]);
    if (isNew && !(run.duration[at] === 0 && run.last[at] === at)) found.push(at);
  }
  return found;
}

export class Timeline {
  constructor(act) {
    this.act = act;
    this.picture = new Picture(this);
    this.span = div("tp-span");
    this.cursor = div("tp-cursor");
    this.hint = div("tp-hint");
    this.node = element(
      "div",
      { class: "tp-timeline", role: "slider", tabindex: "0", "aria-valuemin": 0 },
      this.picture.canvas, this.span, this.cursor, this.hint,
    );
    this.listen();
    this.drawn = "";
  }

  listen() {
    let dragging = false;
    this.node.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      dragging = true;
      this.node.setPointerCapture(event.pointerId);
      this.act({ kind: "grab", to: this.stopUnder(event) });
    });
    this.node.addEventListener("pointermove", (event) => {
      const to = this.stopUnder(event);
      if (dragging) this.act({ kind: "scrub", to });
      this.tell(event, to);
    });
    for (const end of ["pointerup", "pointercancel"]) this.node.addEventListener(end, () => (dragging = false));
    this.node.addEventListener("pointerleave", () => this.hint.classList.remove("tp-told"));
    this.node.addEventListener("dblclick", (event) => this.zoomTo(this.stopUnder(event)));
    this.node.addEventListener("wheel", (event) => this.wheeled(event), { passive: false });
  }

  wheeled(event) {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    this.act({ kind: "zoom", factor: event.deltaY > 0 ? 1.25 : 0.8, middle: this.shareUnder(event) });
  }

  update(run, state, words) {
    if (this.run !== run) {
      Object.assign(this, { scale: timeScale(run), bands: bandsOf(run), most: mostEntropy(run) });
    }
    Object.assign(this, { run, state, words });
    this.node.setAttribute("aria-label", words.ui("timeline"));
    this.node.setAttribute("aria-valuemax", run.count - 1);
    this.node.setAttribute("aria-valuenow", state.at);
    const told = `${duration(run.start[state.at])} ${words.stopName(state.at)}`;
    this.node.setAttribute("aria-valuetext", told);
    const width = this.node.clientWidth;
    const hits = state.breakpoints.filter((one) => one.on).map((one) => one.id).join();
    const { isDark, large, axis, zoom, language, teaching } = state;
    const looks = [isDark, large, axis, zoom, language, teaching, hits, run.marks.length];
    const drawn = [width, devicePixelRatio, ...looks].join("|");
    if (drawn !== this.drawn && width > 0) this.picture.draw(width);
    this.drawn = drawn;
    this.place();
  }

  share(at, isEnd = false, axis = this.state.axis) {
    if (axis === "stops") return (isEnd ? this.run.last[at] + 1 : at) / this.run.count;
    return shareOfTime(this.scale, isEnd ? this.run.endOf(at) : this.run.start[at]);
  }

  x(share) {
    const [from, to] = this.state.zoom;
    return ((share - from) / (to - from)) * this.node.clientWidth;
  }

  shareUnder(event) {
    const box = this.node.getBoundingClientRect();
    const [from, to] = this.state.zoom;
    return from + (to - from) * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  }

  stopUnder(event) {
    return this.stopAt(this.shareUnder(event));
  }

  stopAt(share) {
    if (this.state.axis === "stops") return Math.min(this.run.count - 1, Math.floor(share * this.run.count));
    return stopAtTime(this.run, timeOfShare(this.scale, share));
  }

  // Where a key leads that moves the cursor along what is seen of the line. A long stop is left by
  // going on from the place that the key before reached, not from its begin.
  stopAside(way) {
    const { at, zoom: [from, to] } = this.state;
    const begin = this.aside?.at === at ? this.aside.share : this.share(at);
    const share = Math.min(1, Math.max(0, begin + way * (to - from) * STRIDE));
    this.aside = { at: this.stopAt(share), share };
    return this.aside.at;
  }

  // A cursor that leaves what is seen of the line takes it along.
  followed(run, state) {
    const [from, to] = state.zoom;
    if (this.run !== run || state.at === this.state.at || to - from >= 1) return state;
    const share = this.share(state.at, false, state.axis);
    if (share <= to && this.share(state.at, true, state.axis) >= from) return state;
    const left = Math.min(1 - (to - from), Math.max(0, share - (to - from) / 2));
    return { ...state, zoom: [left, left + to - from] };
  }

  zoomTo(at) {
    const { parent, stage } = this.run;
    let outer = at;
    while (parent[outer] >= 0 && stage[parent[outer]] === stage[at]) outer = parent[outer];
    const [from, to] = [this.share(outer), this.share(outer, true)];
    const edge = Math.max((to - from) * 0.05, 1e-6);
    this.act({ kind: "zoom to", zoom: [Math.max(0, from - edge), Math.min(1, to + edge)] });
  }

  tell(event, at) {
    const box = this.node.getBoundingClientRect();
    const { title } = this.words.run.stage(this.run.stageOf(at));
    this.hint.textContent = plain(`${duration(this.run.start[at])} · ${title} · ${this.words.stopName(at)}`);
    this.hint.classList.add("tp-told");
    const room = box.width - this.hint.offsetWidth - 4;
    this.hint.style.left = `${Math.max(4, Math.min(room, event.clientX - box.left + 12))}px`;
  }

  place() {
    const { at } = this.state;
    const width = this.node.clientWidth;
    const from = Math.max(0, this.x(this.share(at)));
    const to = Math.min(width, this.x(this.share(at, true)));
    this.span.style.transform = `translateX(${from}px)`;
    this.span.style.width = `${Math.max(0, to - from)}px`;
    this.cursor.style.transform = `translateX(${Math.min(width - 1, Math.max(0, this.x(this.share(at))))}px)`;
  }
}

function mostEntropy(run) {
  return run.token_entropy.reduce((most, one) => (one > most ? one : most), 1);
}
