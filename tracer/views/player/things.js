// Pictures of things: a tensor's place in its shard, an image on its way to tokens, a layer among
// its neighbours, the cache.

import { badge, spoken } from "./cells.js";
import { button, bytes, div, drawing, duration, element, grouped, span } from "./dom.js";

export function tensorView(tensor, words) {
  const { offset, size, file_size: whole, header } = tensor;
  const [, long, all] = tensor.label;
  const isKnown = whole > 0 && offset !== null && size !== null;
  const told = isKnown ? words.ui("in the file", { at: grouped(offset), long, all }) : long;
  const share = (part) => `${(100 * part) / whole}%`;
  const parts = [
    header > 0 && element("div", { class: "tp-shard-header", style: { width: share(header) } }),
    element("div", { class: "tp-shard-tensor", style: { left: share(offset), width: share(size) } }),
  ];
  const look = { class: "tp-shard", role: "img", "aria-label": `${tensor.file}: ${told}` };
  const place = isKnown && element("div", look, ...parts);
  const label = div("tp-shard-label", told);
  const because = spoken(tensor.because, words);
  const what = [tensor.dtype, tensor.shape, bytes(size), tensor.fate, because].filter(Boolean);
  return element(
    "div",
    {},
    div("tp-code-head", element("b", { text: tensor.file }), span("tp-faint", bytes(whole))),
    place,
    label,
    div("tp-tags", ...what.map((text) => element("span", { text }))),
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

const WIDEST_GRID = 2000; // patches a side: more lines than pixels

// The grid of patches; `merge` of them in each direction become one token, where that is known.
function grid([, rows, columns], merge, name) {
  if (![rows, columns].every((one) => one > 0 && one <= WIDEST_GRID)) return null;
  const size = Math.max(2, Math.min(20, 520 / columns));
  const [wide, tall] = [columns * size + 2, rows * size + 2];
  const lines = (count, step, kind, down) =>
    Array.from({ length: Math.floor(count / step) + 1 }, (_, one) => one * step * size).map((at) =>
      drawing("path", { class: kind, d: down ? `M0 ${at}H${columns * size}` : `M${at} 0V${rows * size}` }),
    );
  return drawing(
    "svg",
    { class: "tp-grid", viewBox: `-1 -1 ${wide} ${tall}`, width: wide, height: tall, role: "img", "aria-label": name },
    ...lines(rows, 1, "tp-patch", true),
    ...lines(columns, 1, "tp-patch", false),
    ...(merge > 1 ? [...lines(rows, merge, "tp-merged", true), ...lines(columns, merge, "tp-merged", false)] : []),
  );
}

export function imageView(image, words) {
  const parts = [];
  if (image.chain?.length) parts.push(sizes(image.chain, words));
  if (image.grid) {
    const [t, h, w] = image.grid;
    const name = words.ui("grid", { t, h, w, patches: grouped(t * h * w) });
    const merged = image.merge > 1 ? ` · ${words.ui("merged", { merge: image.merge })}` : "";
    parts.push(div("tp-caption", `${name}${merged}`), grid(image.grid, image.merge, name));
  }
  if (image.tokens) {
    const [expected, found, replaced] = image.tokens.map((one) => one?.toLocaleString("en") ?? "–");
    parts.push(div("tp-caption", words.ui("placeholders", { expected, found, replaced })));
  }
  if (image.limits) parts.push(div("tp-faint", spoken(image.limits, words)));
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
    if (place === siblings.position) more["aria-current"] = "true";
    return button(kind, column, () => act({ kind: "jump", to }), more);
  });
  const count = siblings.count ?? bars.length;
  const caption = words.ui("neighbours", { place: siblings.position + 1, count, most: duration(most) });
  const columns = element("div", { class: "tp-columns", role: "group", "aria-label": words.ui("siblings") }, ...bars);
  return element("div", {}, columns, div("tp-caption", caption), div("tp-faint", words.ui("along neighbours")));
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
  return div("tp-cache", div("tp-caption", caption, " ", badge("derived", words)), ...layers.map((one) => layer(one, most)));
}
