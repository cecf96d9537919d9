"""A small run for the player's pure modules: it stands in a page of tests, as JavaScript."""

# A load of two tensors, the recorder at its work, and an answer of two steps with a token each.
#  0 from_pretrained   1 a.0  2 a.1  3 a.2     4 rows (recorder)
#  5 generate   6 step 0 (7 layers.0, 8 layers.1, 9 layers.2, 10 " red")   11 resolved (recorder)
#              12 step 1 (13 layers.0, 14 layers.1, 15 layers.2, 16 " blue")
RUN = """
const { makeRun } = await import(HOST + "/run.js");
const shape = {
  parent: [-1, 0, 0, 0, 0, -1, 5, 6, 6, 6, 6, 5, 5, 12, 12, 12, 12],
  last: [4, 1, 2, 3, 4, 16, 10, 7, 8, 9, 10, 11, 16, 13, 14, 15, 16],
  depth: [0, 1, 1, 1, 1, 0, 1, 2, 2, 2, 2, 1, 1, 2, 2, 2, 2],
  kind: [0, 2, 2, 2, 1, 0, 4, 3, 3, 3, 5, 1, 4, 3, 3, 3, 5],
  stage: [0, 1, 1, 1, 2, 3, 4, 4, 4, 4, 4, 2, 5, 5, 5, 5, 5],
  status: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0],
  name: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 7, 8, 9, 13],
  thread: Array(17).fill(0),
  start: [0, 1, 2, 3, 5, 1000, 1001, 1002, 1004, 1006, 1009, 1010, 1012, 1013, 1015, 1018, 1020],
  duration: [8, 1, 1, 2, 1, 22, 9, 1, 1, 1, 0, 1, 9, 1, 2, 1, 0],
  step: [-1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, -1, 1, 1, 1, 1, 1],
  call: [0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
  row: Array(17).fill(0),
  fold: [-1, 0, 0, 0, -1, -1, -1, 1, 1, 1, -1, -1, -1, 2, 2, 2, -1],
  fold_first: [1, 7, 13], fold_last: [3, 9, 15], fold_count: [3, 3, 3], fold_name: [14, 15, 15],
  token_stop: [10, 16], token_entropy: [0.25, 2.5], token_probability: [0.9, 0.2],
  token_row: [0, 0],
};
const types = { start: "float64", duration: "float32", token_entropy: "float32" };
const arrays = { float64: Float64Array, float32: Float32Array, int32: Int32Array };
const buffer = new ArrayBuffer(8192);
const columns = {};
let offset = 0;
for (const [name, values] of Object.entries(shape)) {
  const type = types[name] ?? "int32";
  columns[name] = { type, offset, length: values.length };
  new arrays[type](buffer, offset, values.length).set(values);
  offset += Math.ceil((values.length * 8) / 8) * 8;
}
const both = (text) => ({ en: text, zh: text });
const run = makeRun({
  count: 17, columns,
  kinds: ["call", "span", "tensor", "module", "step", "token", "image", "message", "fault"],
  stages: ["resolve", "tensor_load", "recorder", "setup", "prefill", "decode"],
  statuses: ["ok", "error", "interrupted"],
  names: ["Model.from_pretrained", "a.0", "a.1", "a.2", "rows", "Model.generate", "prefill 0",
    "layers.0", "layers.1", "layers.2", " red", "resolved", "decode 1", " blue", "a.*", "layers.*"],
  threads: ["MainThread"],
  marks: [
    { group: "moments", key: "window", stop: 12, title: both("window"), text: both("") },
    { group: "findings", key: "slow-load", stop: 0, title: both("slow"), text: both("") },
    { group: "faults", key: "compiled", stop: 5, title: both("compiled"), text: both("") },
  ],
}, buffer);
const { firstState, reduce, isHidden } = await import(HOST + "/state.js");
const { visibleLines } = await import(HOST + "/rows.js");
const play = (actions, state = firstState(run)) => actions.reduce(
  (now, one) => reduce(run, now, typeof one === "string" ? { kind: one } : one), state);
const at = (actions) => play(actions).at;
const lines = (state) => Array.from(visibleLines(run, state).lines);
"""
