// Elements, made by code and filled with text only: what a trace holds is never read as HTML. Sizes
// and places go through the style object, which a page's content policy allows.

const SVG = "http://www.w3.org/2000/svg";

function set(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "on") for (const [event, heard] of Object.entries(value)) node.addEventListener(event, heard);
  else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
  else if (name === "data") Object.assign(node.dataset, value);
  else if (name === "text") node.textContent = value;
  else if (name === "class") node.setAttribute("class", value);
  else node.setAttribute(name, value === true ? "" : String(value));
}

// element("div", { class: "a", text: "b", on: { click } }, child, ...)
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) set(node, name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
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

// Text as a token shows it: blanks and line ends are seen. Other controls get their Unicode picture.
export function visible(text) {
  if (text === "") return "∅";
  return text
    .replaceAll("\n", "↵")
    .replaceAll("\t", "⇥")
    .replace(/[\u0000-\u001f]/g, (one) => String.fromCharCode(0x2400 + one.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, "·");
}

// A token's own blanks are part of it: " red" and "red" are two.
export function tokenText(text) {
  return visible(text).replaceAll(" ", "␣");
}

export function duration(milliseconds) {
  if (!Number.isFinite(milliseconds) || milliseconds < 0) return "–";
  const units = [[1e3, "s"], [1, "ms"], [1e-3, "µs"]];
  const [size, unit] = units.find(([least]) => milliseconds >= least * 0.9995) ?? units[2];
  const value = milliseconds / size;
  return `${value >= 100 ? Math.round(value) : value === 0 ? 0 : value.toPrecision(3)} ${unit}`;
}

export function bytes(size) {
  if (!Number.isFinite(size)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  let value = size;
  for (; value >= 999.5 && place < units.length - 1; place += 1) value /= 1000;
  return `${place === 0 ? value : value.toPrecision(3)} ${units[place]}`;
}

export function grouped(number) {
  return number.toLocaleString("en");
}

export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  return share > 0 && share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`;
}
