// The library's source at a stop: numbered lines, the current one highlighted, and the Python call
// path, whose frames bring up their own function.

import { button, div, element, span } from "./dom.js";

const MOST_LEADS = 8;
const KEYWORDS = (
  "and as assert async await break class continue def del elif else except finally for from global if import in " +
  "is lambda None nonlocal not or pass raise return self True False try while with yield"
).split(" ");
const LONG_STRINGS = ['"""', "'''"].map((quote) => `${quote}[\\s\\S]*?(?:${quote}|(?![\\s\\S]))`).join("|");
const TOKENS = new RegExp(
  [
    "(?<comment>#.*$)",
    `(?<string>[rbfuRBFU]{0,2}(?:${LONG_STRINGS}|"(?:\\\\.|[^"\\\\])*"?|'(?:\\\\.|[^'\\\\])*'?))`,
    `(?<keyword>\\b(?:${KEYWORDS.join("|")})\\b)`,
    "(?<decorator>^\\s*@[\\w.]+)",
    "(?<number>\\b\\d[\\w.]*)",
    "(?<call>\\b[A-Za-z_]\\w*(?=\\())",
  ].join("|"),
  "gm",
);

// Python text as lines of [kind, piece], for colour only: a string that spans lines stays one.
export function paintedLines(text) {
  const lines = [[]];
  const push = (kind, piece) => {
    piece.split("\n").forEach((part, number) => {
      if (number > 0) lines.push([]);
      if (part) lines.at(-1).push([kind, part]);
    });
  };
  let done = 0;
  for (const found of text.matchAll(TOKENS)) {
    push("", text.slice(done, found.index));
    push(Object.keys(found.groups).find((kind) => found.groups[kind] !== undefined), found[0]);
    done = found.index + found[0].length;
  }
  push("", text.slice(done));
  return lines;
}

function sourceLine(pieces, number, current, reached, act, words) {
  const led = reached.get(number);
  const kind = `tp-code-line${number === current ? " tp-current" : ""}${led === undefined ? "" : " tp-reached"}`;
  const code = element("code", {}, ...pieces.map(([name, text]) => span(name && `tp-py-${name}`, text)));
  const node = div(kind, span("tp-number", number), code);
  if (number === current) node.setAttribute("aria-current", "true");
  if (led !== undefined) {
    const name = words.stopName(led);
    const goInside = () => act({ kind: "jump", to: led });
    node.append(button("tp-led", `→ ${name}`, goInside, { title: words.ui("go inside") }));
  }
  return node;
}

// The line of `def`: a function's first line may be a decorator.
function lineOfDef(source) {
  const place = source.lines.findIndex((line) => /^\s*(async\s+)?(def|class)\s/.test(line));
  return source.first_line + Math.max(place, 0);
}

// Where the function leads inside, for those that lie out of sight.
function leads(reached, act, words) {
  const links = [...reached].slice(0, MOST_LEADS).map(([line, stop]) => {
    const text = `${line} → ${words.stopName(stop)}`;
    return button("tp-lead", text, () => act({ kind: "jump", to: stop }), { title: words.ui("go inside") });
  });
  return links.length > 0 && div("tp-leads", ...links);
}

// `where` is {current, reached: [[line, stop]]}; without a current line it is that of `def`.
export function sourceView(source, { current = lineOfDef(source), reached: pairs = [] }, act, words) {
  const reached = new Map();
  for (const [line, stop] of pairs) if (!reached.has(line)) reached.set(line, stop);
  const lines = paintedLines(source.lines.join("\n")).map((pieces, place) =>
    sourceLine(pieces, source.first_line + place, current, reached, act, words),
  );
  const place = span("tp-faint", `${source.file}:${current}`);
  const head = div("tp-code-head", element("b", { text: source.function }), place);
  const isThere = source.lines.some((line) => line.trim() !== "");
  if (!isThere) return { node: div("", head, div("tp-faint", words.run.phrase("no_sources"))), show: () => {} };
  const look = { class: "tp-code", tabindex: "0", role: "group", "aria-label": source.function };
  const code = element("div", { ...look, data: { focus: "code" } }, ...lines);
  return { node: element("div", {}, head, code, leads(reached, act, words)), show: () => centre(code) };
}

// Scrolls the code and never the page around it.
function centre(code) {
  const line = code.querySelector(".tp-current") ?? code.querySelector(".tp-reached");
  if (line !== null) code.scrollTop = line.offsetTop - code.clientHeight * 0.2;
}

function named(words, origin) {
  const name = words.ui(`origin ${origin}`);
  return { title: name, "aria-label": name };
}

// Innermost first, as debuggers list a call path.
export function stackView(frames, picked, pick, words) {
  const rows = frames.map((frame, number) => {
    const inside = [
      element("span", { class: `tp-origin tp-origin-${frame.origin}`, role: "img", ...named(words, frame.origin) }),
      element("b", { text: frame.function }),
      // The end of a path is what one reads: it is cut at its begin, and is no text of that direction.
      element("span", { class: "tp-faint" }, element("bdi", { dir: "ltr", text: frame.file ? `${frame.file}:${frame.line}` : "" })),
    ];
    const kind = `tp-frame tp-from-${frame.origin}${number === picked ? " tp-picked" : ""}`;
    const isPicked = number === picked;
    if (!frame.source) return element("div", { class: kind, role: "listitem" }, ...inside);
    const more = { "aria-pressed": String(isPicked), data: { focus: `frame ${number}` }, on: { click: () => pick(number) } };
    return element("div", { role: "listitem" }, element("button", { type: "button", class: kind, ...more }, ...inside));
  });
  return element("div", { class: "tp-frames", role: "list" }, ...rows.reverse());
}
