// A token: the strip of prompt and answer up to it, its candidates before and after the processors,
// what each processor did; and in teaching mode the question what comes next.

import { element, percent, visible } from "./dom.js";

const MOST_CHIPS = 600; // around the cursor; a prompt may have a hundred thousand
const STEPS = [0.9, 0.6, 0.3, 0.1];

function doubt(probability) {
  if (probability === null || probability === undefined) return "none";
  const found = STEPS.findIndex((least) => probability >= least);
  return String(found < 0 ? STEPS.length : found);
}

function chipText(text, many) {
  const shown = text === null ? "▒" : text === "" ? "∅" : text.replaceAll("\n", "↵\n").replaceAll("\t", "⇥");
  return many > 1 ? `${shown} × ${many.toLocaleString("en")}` : shown;
}

function chip([text, kind, origin, probability, many], place, prompt) {
  const isPrompt = place < prompt;
  const node = element("span", {
    class: `tp-chip tp-doubt-${isPrompt ? "none" : doubt(probability)} tp-of-${kind} ${isPrompt ? `tp-prompt tp-by-${origin}` : ""}`,
    text: chipText(text, many),
    data: { place },
  });
  node.title = [origin ?? kind, isPrompt ? "" : percent(probability)].filter(Boolean).join(" · ");
  return node;
}

// The chips around the place `upto`; what comes behind it is faint, or a secret while one guesses.
export function stripView(strip, upto, { isToken, hides, words, pick }) {
  const from = Math.max(0, upto - MOST_CHIPS / 2);
  const until = Math.min(strip.chips.length, from + MOST_CHIPS);
  const node = element("div", { class: "tp-strip", tabindex: "0", role: "group", "aria-label": words.ui("strip") });
  if (from > 0) node.append(element("span", { class: "tp-faint", text: `… ${from.toLocaleString("en")} ` }));
  for (let place = from; place < until; place += 1) {
    if (hides && place >= Math.max(upto, strip.prompt)) break;
    const made = chip(strip.chips[place], place, strip.prompt);
    if (place === upto && isToken) made.classList.add("tp-picked");
    else if (place >= upto && place >= strip.prompt) made.classList.add("tp-later");
    node.append(made);
  }
  if (hides) node.append(element("span", { class: "tp-chip tp-secret tp-picked", text: "?" }));
  else if (until < strip.chips.length) node.append(element("span", { class: "tp-faint", text: ` … ${(strip.chips.length - until).toLocaleString("en")}` }));
  node.addEventListener("click", (event) => {
    const place = Number(event.target.closest(".tp-chip")?.dataset.place ?? -1);
    if (place >= strip.prompt) pick(place - strip.prompt);
  });
  return { node, show: () => reveal(node, node.querySelector(".tp-picked") ?? node.querySelector(".tp-later")) };
}

function reveal(row, chipNode) {
  if (chipNode === null) row.scrollTop = row.scrollHeight;
  else row.scrollTop = chipNode.offsetTop - row.clientHeight / 2;
}

function bar(share, kind) {
  const fill = element("div", { class: `tp-fill ${kind}`, style: { width: `${100 * Math.min(1, share ?? 0)}%` } });
  return element("div", { class: "tp-share" }, element("div", { class: "tp-track" }, fill), element("span", { text: percent(share) }));
}

function candidate(one, words) {
  return element(
    "div",
    { class: `tp-candidate${one.chosen ? " tp-chosen" : ""}` },
    element("span", { class: "tp-rank", text: one.rank }),
    element("span", { class: "tp-token", text: one.text !== null ? visible(one.text) : one.id !== null ? `#${one.id}` : "·", title: one.id === null ? null : `id ${one.id}` }),
    element("div", {}, bar(one.raw, "tp-raw"), bar(one.probability, "tp-after")),
    one.chosen && element("span", { class: "tp-sr", text: words.ui("chosen") }),
  );
}

export function candidatesView(token, words) {
  const legend = element(
    "div",
    { class: "tp-legend" },
    element("span", { class: "tp-key tp-raw" }), words.ui("raw"),
    element("span", { class: "tp-key tp-after" }), words.ui("after"),
  );
  const rows = token.candidates.map((one) => candidate(one, words));
  if (token.rest !== undefined && token.rest !== null) {
    const [raw, probability] = token.rest;
    rows.push(
      element("div", { class: "tp-candidate tp-rest" }, element("span"), element("span", { text: words.ui("rest") }),
        element("div", {}, bar(raw, "tp-raw"), bar(probability, "tp-after"))),
    );
  }
  return element("div", { class: "tp-candidates" }, legend, ...rows);
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Math.abs(value) < 0.0005 ? "0.000" : String(Number(value.toPrecision(3)));
}

export function effectsView(effects, words) {
  const head = ["processor", "removed", "shift", "entropy"].map((key) => element("th", { text: words.ui(key), scope: "col" }));
  const rows = effects.map(([name, removed, delta, before, after]) =>
    element(
      "tr",
      {},
      element("td", { class: "tp-mono", text: name }),
      element("td", { class: "tp-right", text: number(removed) }),
      element("td", { class: "tp-right", text: delta > 0 ? `+${number(delta)}` : number(delta) }),
      element("td", { class: "tp-right", text: `${number(before)} → ${number(after)}` }),
    ),
  );
  return element("table", { class: "tp-table" }, element("tr", {}, ...head), ...rows);
}

export function stopsView(stops, words) {
  const rows = stops.map(([text, rank, probability]) =>
    element(
      "div",
      { class: "tp-stop-id" },
      element("span", { class: "tp-token", text: typeof text === "string" ? visible(text) : `#${text}` }),
      element("span", { class: "tp-faint", text: words.ui("stop rank", { rank: number(rank) }) }),
      bar(probability, "tp-after"),
    ),
  );
  return element("div", {}, ...rows);
}

const FEWEST_CHOICES = 6;

// Candidates in alphabetical order; where a step had few, other words of the answer stand among them.
function choicesOf(token, others) {
  const texts = new Set(token.candidates.slice(0, 2 * FEWEST_CHOICES).map((one) => one.text).filter((text) => text !== null));
  for (const text of others) if (texts.size < FEWEST_CHOICES && text) texts.add(text);
  return [...texts].sort();
}

// What comes next? Typed, or picked from the candidates in alphabetical order, which tells nothing.
export function guessView(token, others, guess, act, words) {
  const input = element("input", { type: "text", class: "tp-guess", "aria-label": words.ui("guess"), placeholder: words.ui("guess") });
  const form = element("form", { class: "tp-guess-form" }, input,
    element("button", { type: "submit", text: words.ui("guess it") }),
    element("button", { type: "button", text: words.ui("reveal"), on: { click: () => act({ kind: "reveal" }) } }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.value !== "") act({ kind: "guess", text: input.value });
  });
  const texts = choicesOf(token, others);
  const choices = texts.map((text) =>
    element("button", { type: "button", class: "tp-token", text: visible(text), on: { click: () => act({ kind: "guess", text }) } }),
  );
  const told = guess && element("div", { class: `tp-verdict tp-${guess.verdict}`, role: "status", text: verdictText(token, guess, words) });
  return element("div", { class: "tp-guessing" }, element("p", { text: words.ui("what comes next") }), form, element("div", { class: "tp-choices" }, ...choices), told);
}

export function verdictText(token, guess, words) {
  if (guess.verdict === "right") return words.ui("guessed right", { guess: visible(guess.text) });
  const known = token.candidates.find((one) => one.text === guess.text || one.text?.trim() === guess.text.trim());
  if (known === undefined) return words.ui("guessed unknown", { guess: visible(guess.text) });
  return words.ui("guessed wrong", { guess: visible(guess.text), share: percent(known.probability) });
}
