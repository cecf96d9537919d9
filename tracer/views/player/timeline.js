// The line of time: calls and stages as bands, how unsure each token was, marks, breakpoints, and
// the cursor, which is dragged. Drawn on a canvas; the cursor is an element, so that a step is cheap.

import { div, duration, element } from "./dom.js";
import { stopAtTime } from "./moves.js";
import { inkOn, stageColour } from "./theme.js";
import { niceStep, runsOf, shareOfTime, timeOfShare, timeScale } from "./timescale.js";

const NARROWEST = 4; // pixels of another stage that are seen between two of the same
// Marks differ in form as well as in colour.
const SHAPES = {
  findings: [[0, -4.5], [4.5, 3.5], [-4.5, 3.5]],
  faults: [[0, -5], [4, 0], [0, 5], [-4, 0]],
  audit: [[-3.5, -3.5], [3.5, -3.5], [3.5, 3.5], [-3.5, 3.5]],
  moments: [[-4, -4], [4, -4], [0, 4]],
};
const MOST_DOTS = 5000; // of one breakpoint: more than there are pixels to put them
const INKS = ["ink", "faint", "line", "raised", "accent", "warn", "bad"];
const TALL = 88;
const LANES = { calls: [0, 15], stages: [17, 24], tokens: [44, 16], marks: [62, 9], ticks: [72, 14] };

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
    this.canvas = element("canvas", { class: "tp-canvas" });
    this.span = div("tp-span");
    this.cursor = div("tp-cursor");
    this.hint = div("tp-hint");
    this.node = element(
      "div",
      { class: "tp-timeline", role: "slider", tabindex: "0", "aria-valuemin": 0 },
      this.canvas, this.span, this.cursor, this.hint,
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
      this.act({ kind: "jump", to: this.stopUnder(event) });
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
    if (drawn !== this.drawn && width > 0) this.draw(width);
    this.drawn = drawn;
    this.place();
  }

  get size() {
    return this.state.large ? 1.45 : 1;
  }

  lane(name) {
    return LANES[name].map((one) => one * this.size);
  }

  share(at, isEnd = false) {
    if (this.state.axis === "stops") return (isEnd ? this.run.last[at] + 1 : at) / this.run.count;
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
    const share = this.shareUnder(event);
    if (this.state.axis === "stops") return Math.min(this.run.count - 1, Math.floor(share * this.run.count));
    return stopAtTime(this.run, timeOfShare(this.scale, share));
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
    this.hint.textContent = `${duration(this.run.start[at])} · ${title} · ${this.words.stopName(at)}`;
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

  draw(width) {
    const height = TALL * this.size;
    const dots = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * dots);
    this.canvas.height = Math.round(height * dots);
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.clearRect(0, 0, width, height);
    const look = getComputedStyle(this.node);
    this.colours = Object.fromEntries(INKS.map((name) => [name, look.getPropertyValue(`--tp-${name}`).trim()]));
    this.pen = pen;
    this.font = `${11 * this.size}px ${look.fontFamily}`;
    this.drawTicks(width);
    this.drawCalls(width);
    this.drawStages(width);
    this.drawTokens(width);
    this.drawMarks(width);
  }

  label(text, x, y, room, colour) {
    if (room < 24) return;
    this.pen.font = this.font;
    this.pen.fillStyle = colour;
    let shown = text;
    if (this.pen.measureText(shown).width > room) {
      const fits = Math.floor((room / this.pen.measureText(shown).width) * shown.length) - 1;
      if (fits < 3) return;
      shown = `${shown.slice(0, fits)}…`;
    }
    this.pen.fillText(shown, x, y);
  }

  drawCalls(width) {
    const [top, tall] = this.lane("calls");
    for (const at of this.run.roots) {
      const [from, to] = [this.x(this.share(at)), this.x(this.share(at, true))];
      if (to < 0 || from > width) continue;
      const left = Math.max(0, from);
      this.pen.fillStyle = this.colours.line;
      this.pen.fillRect(left, top + tall - 2, Math.max(1, Math.min(width, to) - left - 1), 2);
      const room = Math.min(width, to) - left - 6;
      this.label(this.words.stopName(at), left + 2, top + tall - 5 * this.size, room, this.colours.ink);
    }
  }

  drawStages(width) {
    const [top, tall] = this.lane("stages");
    this.pen.fillStyle = this.colours.raised;
    this.pen.fillRect(0, top, width, tall);
    for (const { value, from, to } of runsOf(this.stagePixels(Math.ceil(width)), NARROWEST)) {
      if (value < 0) continue;
      const stage = this.run.stages[value];
      const colour = stageColour(stage, this.state.isDark);
      this.pen.fillStyle = colour;
      this.pen.fillRect(from, top, Math.max(0.75, to - from - (to - from > 4 ? 1 : 0)), tall);
      const { title } = this.words.run.stage(stage);
      this.label(title, from + 5, top + tall / 2 + 4 * this.size, to - from - 9, inkOn(colour));
    }
  }

  // The stage at each pixel: inner stages lie over outer ones.
  stagePixels(width) {
    const pixels = new Int16Array(width).fill(-1);
    for (const at of this.bands) {
      const from = Math.max(0, Math.round(this.x(this.share(at))));
      const to = Math.min(width, Math.round(this.x(this.share(at, true))));
      if (to > from) pixels.fill(this.run.stage[at], from, to);
      else if (from < width && pixels[from] < 0) pixels[from] = this.run.stage[at];
    }
    return pixels;
  }

  drawTokens(width) {
    const [top, tall] = this.lane("tokens");
    const heights = new Float32Array(Math.ceil(width) + 1);
    this.run.tokens.forEach((at, place) => {
      const x = Math.round(this.x(this.share(at)));
      const entropy = this.run.token_entropy[place];
      const share = Number.isFinite(entropy) ? Math.min(1, entropy / this.most) : 0;
      if (x >= 0 && x < width) heights[x] = Math.max(heights[x], 2 + share * (tall - 2));
    });
    this.pen.fillStyle = this.colours.warn;
    heights.forEach((high, x) => {
      if (high > 0) this.pen.fillRect(Math.max(0, x - 1), top + tall - high, 2, high);
    });
  }

  drawMarks(width) {
    const [top, tall] = this.lane("marks");
    const middle = top + tall / 2;
    const seen = new Set();
    for (const mark of this.run.marks) {
      const x = Math.round(this.x(this.share(mark.stop)));
      if (x < 0 || x > width || seen.has(`${mark.group}${x >> 2}`)) continue;
      seen.add(`${mark.group}${x >> 2}`);
      this.pen.fillStyle = this.colours[{ moments: "accent", faults: "bad" }[mark.group] ?? "warn"];
      this.shape(mark.group, Math.min(width - 5, Math.max(5, x)), middle);
    }
    this.drawHits(width, middle);
    if (this.state.axis === "time") for (const gap of this.scale.gaps) this.drawGap(...gap);
  }

  shape(group, x, y) {
    this.pen.beginPath();
    for (const [dx, dy] of SHAPES[group] ?? SHAPES.moments) this.pen.lineTo(x + dx, y + dy);
    this.pen.fill();
  }

  drawHits(width, middle) {
    const seen = new Set();
    this.pen.fillStyle = this.colours.bad;
    for (const one of this.state.breakpoints) {
      if (!one.on) continue;
      const stride = Math.ceil(one.hits.length / MOST_DOTS);
      for (let place = 0; place < one.hits.length; place += stride) {
        const at = one.hits[place];
        const x = Math.round(this.x(this.share(at)));
        if (x < -3 || x > width + 3 || seen.has(x >> 1)) continue;
        seen.add(x >> 1);
        this.pen.beginPath();
        this.pen.arc(x, middle, one.hits.length > 60 ? 1.6 : 3, 0, 7);
        this.pen.fill();
      }
    }
  }

  drawGap(from, to, idle) {
    const [x, end] = [this.x(from), this.x(to)];
    const [top, tall] = this.lane("stages");
    this.pen.strokeStyle = this.colours.faint;
    this.pen.lineWidth = 1;
    for (const dx of [-2, 2]) {
      this.pen.beginPath();
      this.pen.moveTo((x + end) / 2 + dx + 2, top + 3);
      this.pen.lineTo((x + end) / 2 + dx - 2, top + tall - 3);
      this.pen.stroke();
    }
    this.label(duration(idle), x, this.lane("ticks")[0] + 11 * this.size, end - x, this.colours.faint);
  }

  drawTicks(width) {
    const [top, tall] = this.lane("ticks");
    const { pen } = this;
    const isTime = this.state.axis === "time";
    const [from, to] = this.state.zoom;
    const value = (share) => (isTime ? timeOfShare(this.scale, share) : share * this.run.count);
    const span = isTime ? (value(to) - value(from)) : (to - from) * this.run.count;
    const step = niceStep(span, width / 110);
    pen.font = this.font;
    let free = -1;
    for (let tick = Math.ceil(value(from) / step) * step; tick <= value(to); tick += step) {
      const share = isTime ? shareOfTime(this.scale, tick) : tick / this.run.count;
      const x = this.x(share);
      const text = isTime ? duration(tick) : Math.round(tick).toLocaleString("en");
      if (x < free || x > width - 30) continue;
      pen.fillStyle = this.colours.line;
      pen.fillRect(x, this.lane("stages")[0], 1, top - this.lane("stages")[0] + 3);
      pen.fillStyle = this.colours.faint;
      pen.fillText(text, x + 3, top + tall - 3);
      free = x + pen.measureText(text).width + 14;
    }
  }
}

function mostEntropy(run) {
  return run.token_entropy.reduce((most, one) => (one > most ? one : most), 1);
}
