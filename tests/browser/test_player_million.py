"""A run of a million stops in a page: only what is in sight is drawn, and a step stays a step."""

import json

import pytest
from playing import HOST, serve_modules

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [pytest.mark.browser, pytest.mark.slow]

# A thousand forwards of 250 layers with three modules each, and a token from each forward.
MILLION = """
const [steps, layers] = [1000, 250];
const kept = ["parent", "kind", "name", "start", "duration", "step", "fold", "last"];
const lists = Object.fromEntries(kept.map((column) => [column, []]));
const folds = [];
const tokens = [];
let clock = 0;
const begin = (parent, kind, name, step, fold = -1) => {
  const values = { parent, kind, name, start: clock, duration: 0, step, fold, last: 0 };
  for (const [column, value] of Object.entries(values)) lists[column].push(value);
  clock += 0.01;
  return lists.parent.length - 1;
};
const end = (at) => {
  lists.last[at] = lists.parent.length - 1;
  lists.duration[at] = clock - lists.start[at];
};
const leaf = (...values) => end(begin(...values));
const names = ["generate", "decode", " word", "decode *", "layers.*"];
const nameOfLayer = (layer, part) => 5 + layer * 4 + part;
for (let layer = 0; layer < layers; layer += 1) {
  for (const part of ["", ".norm", ".attention", ".mlp"]) names.push(`layers.${layer}${part}`);
}
const root = begin(-1, 0, 0, -1);
folds.push({ first: 1, count: steps, name: 3 });
for (let step = 0; step < steps; step += 1) {
  const forward = begin(root, 4, 1, step, 0);
  const fold = folds.length;
  folds.push({ first: lists.parent.length, count: layers, name: 4 });
  for (let layer = 0; layer < layers; layer += 1) {
    const outer = begin(forward, 3, nameOfLayer(layer, 0), step, fold);
    for (const part of [1, 2, 3]) leaf(outer, 3, nameOfLayer(layer, part), step);
    end(outer);
  }
  folds[fold].last = lists.parent.length - 1;
  tokens.push(begin(forward, 5, 2, step));
  end(tokens.at(-1));
  end(forward);
}
end(root);
folds[0].last = lists.parent.length - 1;
const count = lists.parent.length;
const depth = Uint16Array.from({ length: count });
for (let at = 1; at < count; at += 1) depth[at] = depth[lists.parent[at]] + 1;
const zeros = new Int32Array(count);
const arrays = {
  parent: Int32Array.from(lists.parent), last: Int32Array.from(lists.last), depth,
  kind: Uint8Array.from(lists.kind), stage: zeros, status: zeros, name: Int32Array.from(lists.name),
  thread: zeros, start: Float64Array.from(lists.start), duration: Float32Array.from(lists.duration),
  step: Int32Array.from(lists.step), call: zeros, row: zeros, fold: Int32Array.from(lists.fold),
  fold_first: Int32Array.from(folds, (fold) => fold.first),
  fold_last: Int32Array.from(folds, (fold) => fold.last),
  fold_count: Int32Array.from(folds, (fold) => fold.count),
  fold_name: Int32Array.from(folds, (fold) => fold.name),
  token_stop: Int32Array.from(tokens),
  token_entropy: Float32Array.from(tokens, (_, place) => 1 + Math.sin(place)),
  token_probability: Float32Array.from(tokens), token_row: Int32Array.from(tokens, () => 0),
};
const typeNames = new Map([[Int32Array, "int32"], [Uint16Array, "uint16"], [Uint8Array, "uint8"],
  [Float64Array, "float64"], [Float32Array, "float32"]]);
const columns = {};
let offset = 0;
for (const [name, array] of Object.entries(arrays)) {
  columns[name] = { type: typeNames.get(array.constructor), offset, length: array.length };
  offset += Math.ceil(array.byteLength / 8) * 8;
}
const buffer = new ArrayBuffer(offset);
for (const [name, array] of Object.entries(arrays)) {
  new array.constructor(buffer, columns[name].offset, array.length).set(array);
}
const header = {
  count, columns, names, stages: ["decode"], statuses: ["ok"], threads: ["MainThread"],
  kinds: ["call", "span", "tensor", "module", "step", "token", "image", "message", "fault"],
  title: "A million", facts: [], marks: [], notes: [], provenance: {}, ended: "complete",
  language: "en", words: { en: {}, zh: {} },
};
const { mount } = await import(HOST + "/player.js");
const began = performance.now();
const host = document.createElement("div");
document.body.append(host);
const player = mount(host, {
  header, columns: buffer, detail: async (stop) => ({ stop }), shared: async () => null,
  isStatic: true, isDark: () => false, onDark: () => () => {},
});
const opened = performance.now() - began;
"""


def test_a_million_stops_are_walked_with_few_elements(chromium, capsys):
    page = chromium.new_page()
    serve_modules(page)
    found = page.evaluate(
        f'async () => {{ const HOST = "{HOST}"; {MILLION}'
        """
        const times = {};
        const time = (name, action) => {
          const took = Array.from({ length: 21 }, (_, number) => {
            const from = performance.now();
            player.act(action(number));
            host.getBoundingClientRect();
            return performance.now() - from;
          });
          times[name] = took.sort((a, b) => a - b)[10];
        };
        time("step", () => ({ kind: "step" }));
        time("over", () => ({ kind: "over" }));
        time("token", () => ({ kind: "next token" }));
        time("jump", (number) => ({ kind: "jump", to: number * 40000 }));
        player.act({ kind: "add", of: "module", value: "layers.7.mlp" });
        player.act({ kind: "home" });
        time("continue", () => ({ kind: "continue" }));
        const hits = player.state.breakpoints[0].hits.length;
        const opened_all = new Set(Array.from({ length: count }, (_, at) => at));
        folds.forEach((_, fold) => opened_all.add(-1 - fold));
        player.state = { ...player.state, opened: opened_all };
        time("step, all open", () => ({ kind: "step" }));
        player.act({ kind: "end" });
        const rows = host.querySelectorAll(".tp-line");
        const here = host.querySelector(".tp-here");
        const result = { count, opened, times, hits, rows: rows.length, here: here?.textContent };
        player.close();
        host.remove();
        return result; }"""
    )
    with capsys.disabled():
        print("\na million stops, ms:", json.dumps(found["times"]), "opened in", found["opened"])
    assert found["count"] > 1_000_000
    assert found["rows"] < 300
    assert found["hits"] == 1000
    assert "word" in found["here"]
    page.close()
