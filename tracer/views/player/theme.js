// Colours by meaning. A family of stages shares a hue, and a stage has its own lightness; names
// stand beside the colours wherever there is room, so that nothing hangs on colour alone.

const LOAD = {
  resolve: 0.55, config: 0.7, metadata: 0.45, meta_init: 0.62, tensor_load: 0.2, convert: 0.35, place: 0.5,
  initialise: 0.65, tie: 0.75, dispatch: 0.55, verify: 0.4,
};
const INPUT = { tokenizer: 0.5, processor: 0.6, template: 0.3, vision: 0.45, encode: 0.2, transfer: 0.6 };
const ANSWER = { setup: 0.65, prefill: 0.15, decode: 0.42, forward: 0.3, output: 0.7 };
const OTHER = { import: 0.35, recorder: 0.65 };

// From dark to light in one hue; the dark theme goes from vivid to pale.
const RAMPS = {
  light: {
    load: ["#00487d", "#9fd0ee"],
    input: ["#00664b", "#8fd6bf"],
    answer: ["#b84d00", "#f7c66f"],
    other: ["#5c6975", "#c3c9d0"],
  },
  dark: {
    load: ["#2f8fd0", "#a9d9f7"],
    input: ["#00a67c", "#a4e3cf"],
    answer: ["#e8711f", "#fbd58d"],
    other: ["#77838f", "#aeb8c2"],
  },
};

function mixed([from, to], share) {
  const part = (text, place) => Number.parseInt(text.slice(place, place + 2), 16);
  const one = (place) => Math.round(part(from, place) + (part(to, place) - part(from, place)) * share);
  return `rgb(${one(1)}, ${one(3)}, ${one(5)})`;
}

export function stageColour(stage, isDark) {
  const ramps = RAMPS[isDark ? "dark" : "light"];
  const families = { load: LOAD, input: INPUT, answer: ANSWER, other: OTHER };
  for (const [family, stages] of Object.entries(families)) {
    if (stage in stages) return mixed(ramps[family], stages[stage]);
  }
  return ramps.other[0];
}

export function inkOn(colour) {
  const [red, green, blue] = colour.match(/\d+/g).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#14181d" : "#ffffff";
}
