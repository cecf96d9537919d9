// Elements, made by code and filled with text only: what a trace holds is never read as HTML. Sizes
// and places go through the style object, which a page's content policy allows.

const SVG = "http://www.w3.org/2000/svg";
const LONGEST_HINT = 2000;
const SHOWN_TEXTS = ["title", "aria-label", "placeholder"];

// Text as it may stand in a line: what would turn its direction around or is not seen at all, is
// seen. Line ends and tabs stay.
export function plain(text) {
  return String(text)
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (one) => String.fromCharCode(0x2400 + one.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, "·");
}

// At most so many characters: a name may be as long as a stranger likes.
export function bounded(text, most = 240) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

// Several players may stand in one notebook: an id is one player's own.
export function freshId() {
  return `tp-${Math.random().toString(36).slice(2, 10)}`;
}

function set(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "on") for (const [event, heard] of Object.entries(value)) node.addEventListener(event, heard);
  else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
  else if (name === "data") Object.assign(node.dataset, value);
  else if (name === "text") node.textContent = plain(value);
  else if (name === "class") node.setAttribute("class", value);
  else if (SHOWN_TEXTS.includes(name)) node.setAttribute(name, bounded(plain(value), LONGEST_HINT));
  else node.setAttribute(name, value === true ? "" : String(value));
}

// element("div", { class: "a", text: "b", on: { click } }, child, ...)
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) set(node, name, value);
  const kept = children.filter((child) => child !== null && child !== undefined && child !== false);
  node.append(...kept.map((child) => (typeof child === "object" ? child : plain(child))));
  return node;
}

export function div(kind, ...children) {
  return element("div", { class: kind }, ...children);
}

export function span(kind, text) {
  return element("span", { class: kind, text });
}

// `content` is text or an element; `more` are further properties.
export function button(kind, content, pressed, more = {}) {
  return element("button", { type: "button", class: kind, on: { click: pressed }, ...more }, content);
}

export function drawing(tag, properties = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) set(node, name, value);
  node.append(...children);
  return node;
}

const STROKES = {
  step: "M8 2v8M4.5 7 8 10.5 11.5 7M6.5 14h3",
  over: "M2.5 9a5.5 5 0 0 1 10.5-1M13.5 4v4.2H9.3M6.5 13h3",
  out: "M8 11V3M4.5 6 8 2.5 11.5 6M6.5 14h3",
  back: "M13 8H4M7.5 4 3.5 8l4 4",
  continue: "M3.5 3v10M7 3l6.5 5L7 13z",
  "continue back": "M12.5 3v10M9 3 2.5 8 9 13z",
  "next token": "M2.5 12h4M4.5 4v8M2.5 4h4M9 5l3.5 3L9 11",
  "previous token": "M9.5 12h4M11.5 4v8M9.5 4h4M7 5 3.5 8 7 11",
  jump: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9M10.5 10.5 14 14",
  undo: "M3 5h6a4 4 0 0 1 0 8H6M6 2 3 5l3 3",
  help: "M5.5 6a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.9-1.1 1.8M8 13v.4",
  dark: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  teach: "M1.5 6 8 3l6.5 3L8 9zM4 7.5V11c2 2 6 2 8 0V7.5",
  close: "M4 4l8 8M12 4l-8 8",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
  plus: "M8 3v10M3 8h10",
};

export function icon(name) {
  const path = drawing("path", { d: STROKES[name] });
  return drawing("svg", { class: "tp-icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, path);
}

// Text as a token shows it: blanks, joiners and line ends are seen.
export function visible(text) {
  if (text === "") return "∅";
  return plain(text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replace(/[\u200c\u200d]/g, "·"));
}

// A token's own blanks are part of it: " red" and "red" are two.
export function tokenText(text) {
  return visible(text).replaceAll(" ", "␣");
}

// Durations and sizes read as in tables and summaries: `tracer.views.labels` has the same rules.
export function duration(milliseconds) {
  if (!Number.isFinite(milliseconds) || milliseconds < 0) return "–";
  if (milliseconds < 99950) return scaled(milliseconds * 1e6, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]], "ns");
  const seconds = Math.round(milliseconds / 1e3);
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${twoDigits(seconds % 60)} s`;
  return `${grouped(Math.floor(minutes / 60))} h ${twoDigits(minutes % 60)} min`;
}

export function bytes(size) {
  if (!Number.isFinite(size)) return "–";
  return scaled(size, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]], "B");
}

function scaled(value, units, smallest) {
  for (const [size, unit] of units) {
    if (value < size * 0.9995) continue;
    const share = value / size;
    return `${share.toFixed(share < 9.995 ? 2 : share < 99.95 ? 1 : 0)} ${unit}`;
  }
  return `${Math.round(value)} ${smallest}`;
}

const twoDigits = (number) => String(number).padStart(2, "0");

export function grouped(number) {
  return number.toLocaleString("en");
}

export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  return share > 0 && share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`;
}
