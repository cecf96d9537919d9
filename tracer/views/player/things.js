// Pictures of things: a tensor's place in its shard, an image on its way to tokens, a layer among
// its neighbours, the cache.

import { bytes, drawing, duration, element } from "./dom.js";

export function tensorView(tensor, words) {
  const { offset, size, file_size: whole, header = 0 } = tensor;
  const share = (part) => `${(100 * part) / whole}%`;
  const place = element(
    "div",
    { class: "tp-shard", role: "img", "aria-label": `${tensor.file}: ${tensor.label.join(", ")}` },
    element("div", { class: "tp-shard-header", style: { width: share(header) } }),
    element("div", { class: "tp-shard-tensor", style: { left: share(offset), width: share(size) } }),
  );
  const label = element("div", { class: "tp-shard-label" }, ...tensor.label.map((text) => element("span", { text })));
  const what = [tensor.dtype, tensor.shape, bytes(size), tensor.fate, tensor.because].filter(Boolean);
  return element(
    "div",
    {},
    element("div", { class: "tp-code-head" }, element("b", { text: tensor.file }), element("span", { class: "tp-faint", text: bytes(whole) })),
    place,
    label,
    element("div", { class: "tp-tags" }, ...what.map((text) => element("span", { text }))),
    tensor.fate && element("span", { class: "tp-sr", text: words.ui("fate") }),
  );
}

// Sizes at one scale, from the file to what the model sees.
function sizes(chain, words) {
  const most = Math.max(...chain.map(([, width, height]) => Math.max(width, height)), 1);
  const boxes = chain.map(([key, width, height]) =>
    element(
      "div",
      { class: "tp-size" },
      element("div", { class: "tp-size-box", style: { width: `${(5.5 * width) / most}em`, height: `${(5.5 * height) / most}em` } }),
      element("span", { text: words.run.fact(key) }),
      element("b", { text: `${width} × ${height}` }),
    ),
  );
  return element("div", { class: "tp-sizes" }, ...boxes.flatMap((box, place) => (place ? [element("span", { class: "tp-arrow", text: "→" }), box] : [box])));
}

// The grid of patches; `merge` of them in each direction become one token.
function grid([, rows, columns], merge) {
  const size = Math.max(2, Math.min(20, 520 / columns));
  const lines = (count, step, kind, down) =>
    Array.from({ length: Math.floor(count / step) + 1 }, (_, one) => one * step * size).map((at) =>
      drawing("path", { class: kind, d: down ? `M0 ${at}H${columns * size}` : `M${at} 0V${rows * size}` }),
    );
  return drawing(
    "svg",
    { class: "tp-grid", viewBox: `-1 -1 ${columns * size + 2} ${rows * size + 2}`, width: columns * size + 2, height: rows * size + 2, role: "img" },
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
    parts.push(element("div", { class: "tp-caption", text: words.ui("grid", { t, h, w, patches: (t * h * w).toLocaleString("en") }) }));
    parts.push(grid(image.grid, image.merge || 1));
  }
  if (image.tokens) {
    const [expected, found, replaced] = image.tokens.map((one) => one?.toLocaleString("en") ?? "–");
    parts.push(element("div", { class: "tp-caption", text: words.ui("placeholders", { expected, found, replaced }) }));
  }
  if (image.limits) parts.push(element("div", { class: "tp-faint", text: typeof image.limits === "string" ? image.limits : JSON.stringify(image.limits) }));
  return element("div", {}, ...parts);
}

export function siblingsView(siblings, act, words) {
  const most = Math.max(...siblings.durations.filter(Number.isFinite), 1e-9);
  const bars = siblings.durations.map((took, place) => {
    const high = `${Math.max(4, (100 * (Number.isFinite(took) ? took : 0)) / most)}%`;
    const name = `${words.stopName(siblings.stops[place])}: ${duration(took)}`;
    return element(
      "button",
      {
        type: "button", class: `tp-column${place === siblings.position ? " tp-picked" : ""}`, title: name, "aria-label": name, tabindex: "-1",
        on: { click: () => act({ kind: "jump", to: siblings.stops[place] }) },
      },
      element("div", { style: { height: high } }),
    );
  });
  const count = siblings.count ?? bars.length;
  const caption = words.ui("neighbours", { place: siblings.position + 1, count, most: duration(most) });
  return element("div", {}, element("div", { class: "tp-columns" }, ...bars), element("div", { class: "tp-caption", text: caption }));
}

export function cacheView(cache, words) {
  const most = Math.max(...cache.layers.map((one) => one.capacity ?? one.held ?? one.tokens ?? 0), 1);
  const rows = cache.layers.map((one) =>
    element(
      "div",
      { class: "tp-layer", title: `${one.class_name} · ${one.size ?? ""}` },
      element("span", { class: "tp-rank", text: one.part && one.part !== "self" ? `${one.layer} ${one.part}` : one.layer }),
      element("div", { class: "tp-track" },
        element("div", { class: "tp-room", style: { width: `${(100 * (one.capacity ?? one.held ?? 0)) / most}%` } }),
        element("div", { class: "tp-fill tp-after", style: { width: `${(100 * Math.min(one.tokens ?? 0, one.held ?? most)) / most}%` } })),
      element("span", { class: one.tokens > (one.capacity ?? Infinity) ? "tp-over-window" : "", text: one.capacity ? `${one.tokens} / ${one.capacity}` : String(one.tokens ?? "–") }),
    ),
  );
  const caption = words.ui("cache grew", { before: cache.tokens_before ?? "–", after: cache.tokens_after ?? "–", total: cache.total ?? "–" });
  return element("div", { class: "tp-cache" }, element("div", { class: "tp-caption", text: caption }), ...rows);
}
