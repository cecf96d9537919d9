// Pictures of things: a tensor's place in its shard, an image on its way to tokens, a layer among
// its neighbours, the cache.

import { button, bytes, div, drawing, duration, element, grouped, span } from "./dom.js";

export function tensorView(tensor, words) {
  const { offset, size, file_size: whole, header = 0 } = tensor;
  const share = (part) => `${(100 * part) / whole}%`;
  const place = element(
    "div",
    { class: "tp-shard", role: "img", "aria-label": `${tensor.file}: ${tensor.label.join(", ")}` },
    element("div", { class: "tp-shard-header", style: { width: share(header) } }),
    element("div", { class: "tp-shard-tensor", style: { left: share(offset), width: share(size) } }),
  );
  const label = div("tp-shard-label", ...tensor.label.map((text) => span("", text)));
  const what = [tensor.dtype, tensor.shape, bytes(size), tensor.fate, tensor.because].filter(Boolean);
  return element(
    "div",
    {},
    div("tp-code-head", element("b", { text: tensor.file }), span("tp-faint", bytes(whole))),
    place,
    label,
    div("tp-tags", ...what.map((text) => element("span", { text }))),
    tensor.fate && span("tp-sr", words.ui("fate")),
  );
}

// Sizes at one scale, from the file to what the model sees.
function sizes(chain, words) {
  const most = Math.max(...chain.map(([, width, height]) => Math.max(width, height)), 1);
  const scaled = (size) => `${(5.5 * size) / most}em`;
  const boxes = chain.flatMap(([key, width, height], place) => {
    const style = { width: scaled(width), height: scaled(height) };
    const size = element("b", { text: `${width} × ${height}` });
    const box = element("div", { class: "tp-size-box", style });
    const made = div("tp-size", box, span("", words.run.fact(key)), size);
    return place ? [span("tp-arrow", "→"), made] : [made];
  });
  return div("tp-sizes", ...boxes);
}

// The grid of patches; `merge` of them in each direction become one token.
function grid([, rows, columns], merge) {
  const size = Math.max(2, Math.min(20, 520 / columns));
  const [wide, tall] = [columns * size + 2, rows * size + 2];
  const lines = (count, step, kind, down) =>
    Array.from({ length: Math.floor(count / step) + 1 }, (_, one) => one * step * size).map((at) =>
      drawing("path", { class: kind, d: down ? `M0 ${at}H${columns * size}` : `M${at} 0V${rows * size}` }),
    );
  return drawing(
    "svg",
    { class: "tp-grid", viewBox: `-1 -1 ${wide} ${tall}`, width: wide, height: tall, role: "img" },
    ...lines(rows, 1, "tp-patch", true),
    ...lines(columns, 1, "tp-patch", false),
    ...lines(rows, merge, "tp-merged", true),
    ...lines(columns, merge, "tp-merged", false),
  );
}

export function imageView(image, words) {
  const parts = [];
  if (image.chain?.length) parts.push(sizes(image.chain, words));
  if (image.grid) {
    const [t, h, w] = image.grid;
    parts.push(div("tp-caption", words.ui("grid", { t, h, w, patches: grouped(t * h * w) })));
    parts.push(grid(image.grid, image.merge || 1));
  }
  if (image.tokens) {
    const [expected, found, replaced] = image.tokens.map((one) => one?.toLocaleString("en") ?? "–");
    parts.push(div("tp-caption", words.ui("placeholders", { expected, found, replaced })));
  }
  if (image.limits) parts.push(div("tp-faint", String(image.limits)));
  return element("div", {}, ...parts);
}

export function siblingsView(siblings, act, words) {
  const most = Math.max(...siblings.durations.filter(Number.isFinite), 1e-9);
  const bars = siblings.durations.map((took, place) => {
    const high = `${Math.max(4, (100 * (Number.isFinite(took) ? took : 0)) / most)}%`;
    const to = siblings.stops[place];
    const name = `${words.stopName(to)}: ${duration(took)}`;
    const kind = `tp-column${place === siblings.position ? " tp-picked" : ""}`;
    const column = element("div", { style: { height: high } });
    const more = { title: name, "aria-label": name, tabindex: "-1" };
    return button(kind, column, () => act({ kind: "jump", to }), more);
  });
  const count = siblings.count ?? bars.length;
  const caption = words.ui("neighbours", { place: siblings.position + 1, count, most: duration(most) });
  return element("div", {}, div("tp-columns", ...bars), div("tp-caption", caption));
}

// A layer's tokens against what its cache can hold, or holds.
function layer(one, most) {
  const room = one.capacity ?? one.held ?? 0;
  const filled = Math.min(one.tokens ?? 0, one.held ?? most);
  const share = (tokens) => ({ width: `${(100 * tokens) / most}%` });
  const track = div(
    "tp-track",
    element("div", { class: "tp-room", style: share(room) }),
    element("div", { class: "tp-fill tp-after", style: share(filled) }),
  );
  const name = one.part && one.part !== "self" ? `${one.layer} ${one.part}` : one.layer;
  const isOver = one.tokens > (one.capacity ?? Infinity);
  const told = one.capacity ? `${one.tokens} / ${one.capacity}` : String(one.tokens ?? "–");
  const title = [one.class_name, one.size].filter(Boolean).join(" · ");
  const parts = [span("tp-rank", name), track, span(isOver ? "tp-over-window" : "", told)];
  return element("div", { class: "tp-layer", title }, ...parts);
}

export function cacheView({ layers, total, tokens_before: before, tokens_after: after }, words) {
  const most = Math.max(...layers.map((one) => one.capacity ?? one.held ?? one.tokens ?? 0), 1);
  const caption = words.ui("cache grew", { before: before ?? "–", after: after ?? "–", total: total ?? "–" });
  return div("tp-cache", div("tp-caption", caption), ...layers.map((one) => layer(one, most)));
}
