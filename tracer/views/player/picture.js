// What is drawn of the line of time: calls and stages as bands, how unsure each token was, marks,
// breakpoints and ticks.

import { bounded, duration, element, plain } from "./dom.js";
import { inkOn, stageColour } from "./theme.js";
import { niceStep, runsOf, shareOfTime, timeOfShare } from "./timescale.js";

const MOST_TICKS = 1000;
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

export class Picture {
  // `line` has the run, the state, the words, the scale, and says where a share of it is.
  constructor(line) {
    this.line = line;
    this.canvas = element("canvas", { class: "tp-canvas" });
  }

  get size() {
    return this.line.state.large ? 1.45 : 1;
  }

  lane(name) {
    return LANES[name].map((one) => one * this.size);
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
    const look = getComputedStyle(this.line.node);
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
    let shown = bounded(plain(text));
    if (this.pen.measureText(shown).width > room) {
      const fits = Math.floor((room / this.pen.measureText(shown).width) * shown.length) - 1;
      if (fits < 3) return;
      shown = `${shown.slice(0, fits)}…`;
    }
    this.pen.fillText(shown, x, y);
  }

  drawCalls(width) {
    const [top, tall] = this.lane("calls");
    for (const at of this.line.run.roots) {
      const [from, to] = [this.line.x(this.line.share(at)), this.line.x(this.line.share(at, true))];
      if (to < 0 || from > width) continue;
      const left = Math.max(0, from);
      this.pen.fillStyle = this.colours.line;
      this.pen.fillRect(left, top + tall - 2, Math.max(1, Math.min(width, to) - left - 1), 2);
      const room = Math.min(width, to) - left - 6;
      this.label(this.line.words.stopName(at), left + 2, top + tall - 5 * this.size, room, this.colours.ink);
    }
  }

  drawStages(width) {
    const [top, tall] = this.lane("stages");
    this.pen.fillStyle = this.colours.raised;
    this.pen.fillRect(0, top, width, tall);
    for (const { value, from, to } of runsOf(this.stagePixels(Math.ceil(width)), NARROWEST)) {
      if (value < 0) continue;
      const stage = this.line.run.stages[value];
      const colour = stageColour(stage, this.line.state.isDark);
      this.pen.fillStyle = colour;
      this.pen.fillRect(from, top, Math.max(0.75, to - from - (to - from > 4 ? 1 : 0)), tall);
      const { title } = this.line.words.run.stage(stage);
      this.label(title, from + 5, top + tall / 2 + 4 * this.size, to - from - 9, inkOn(colour));
    }
  }

  // The stage at each pixel: inner stages lie over outer ones.
  stagePixels(width) {
    const pixels = new Int16Array(width).fill(-1);
    for (const at of this.line.bands) {
      const from = Math.max(0, Math.round(this.line.x(this.line.share(at))));
      const to = Math.min(width, Math.round(this.line.x(this.line.share(at, true))));
      if (to > from) pixels.fill(this.line.run.stage[at], from, to);
      else if (from < width && pixels[from] < 0) pixels[from] = this.line.run.stage[at];
    }
    return pixels;
  }

  drawTokens(width) {
    const [top, tall] = this.lane("tokens");
    const heights = new Float32Array(Math.ceil(width) + 1);
    this.line.run.tokens.forEach((at, place) => {
      const x = Math.round(this.line.x(this.line.share(at)));
      const entropy = this.line.run.token_entropy[place];
      const share = Number.isFinite(entropy) ? Math.min(1, entropy / this.line.most) : 0;
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
    for (const mark of this.line.run.marks) {
      const x = Math.round(this.line.x(this.line.share(mark.stop)));
      if (x < 0 || x > width || seen.has(`${mark.group}${x >> 2}`)) continue;
      seen.add(`${mark.group}${x >> 2}`);
      this.pen.fillStyle = this.colours[{ moments: "accent", faults: "bad" }[mark.group] ?? "warn"];
      this.shape(mark.group, Math.min(width - 5, Math.max(5, x)), middle);
    }
    this.drawHits(width, middle);
    if (this.line.state.axis === "time") for (const gap of this.line.scale.gaps) this.drawGap(...gap);
  }

  shape(group, x, y) {
    this.pen.beginPath();
    for (const [dx, dy] of SHAPES[group] ?? SHAPES.moments) this.pen.lineTo(x + dx, y + dy);
    this.pen.fill();
  }

  drawHits(width, middle) {
    const seen = new Set();
    this.pen.fillStyle = this.colours.bad;
    for (const one of this.line.state.breakpoints) {
      if (!one.on) continue;
      const stride = Math.ceil(one.hits.length / MOST_DOTS);
      for (let place = 0; place < one.hits.length; place += stride) {
        const at = one.hits[place];
        const x = Math.round(this.line.x(this.line.share(at)));
        if (x < -3 || x > width + 3 || seen.has(x >> 1)) continue;
        seen.add(x >> 1);
        this.pen.beginPath();
        this.pen.arc(x, middle, one.hits.length > 60 ? 1.6 : 3, 0, 7);
        this.pen.fill();
      }
    }
  }

  drawGap(from, to, idle) {
    const [x, end] = [this.line.x(from), this.line.x(to)];
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
    const isTime = this.line.state.axis === "time";
    const [from, to] = this.line.state.zoom;
    const value = (share) => (isTime ? timeOfShare(this.line.scale, share) : share * this.line.run.count);
    const span = isTime ? (value(to) - value(from)) : (to - from) * this.line.run.count;
    const step = niceStep(span, width / 110);
    pen.font = this.font;
    let free = -1;
    // Counted, not added up: a step may be too small beside a late time to change it.
    const first = Math.ceil(value(from) / step);
    for (let number = 0; number < MOST_TICKS; number += 1) {
      const tick = (first + number) * step;
      if (!(tick <= value(to))) break;
      const share = isTime ? shareOfTime(this.line.scale, tick) : tick / this.line.run.count;
      const x = this.line.x(share);
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
