// A token: the strip of prompt and answer up to it, its candidates before and after the processors,
// what each processor did; and in teaching mode the question what comes next.

import { badge } from "./cells.js";
import { bounded, button, div, element, grouped, percent, span, tokenText } from "./dom.js";

const MOST_CHIPS = 600; // around the cursor; a prompt may have a hundred thousand
const LONGEST_CHIP = 2000;
const STEPS = [0.9, 0.6, 0.3, 0.1];

function doubt(probability) {
  if (probability === null || probability === undefined) return "none";
  const found = STEPS.findIndex((least) => probability >= least);
  return String(found < 0 ? STEPS.length : found);
}

function chipText(text, many, id) {
  const known = text === "" ? "∅" : text?.replaceAll("\n", "↵\n").replaceAll("\t", "⇥");
  const shown = bounded(known ?? (id === null ? "▒" : `#${id}`), LONGEST_CHIP);
  return many > 1 ? `${shown} × ${grouped(many)}` : shown;
}

// A part of a class name, whatever a trace calls it.
const slug = (name) => String(name ?? "").replace(/[^\w-]/g, "_");

function chip([text, kind, origin, probability, many, id = null], place, prompt) {
  const isPrompt = place < prompt;
  const looks = isPrompt ? `tp-prompt tp-by-${slug(origin)}` : `tp-doubt-${doubt(probability)}`;
  const title = [origin ?? kind, isPrompt ? "" : percent(probability)].filter(Boolean).join(" · ");
  const more = { text: chipText(text, many, id), title, data: { place } };
  const isNamed = text !== null || id === null;
  return element("span", { class: `tp-chip tp-of-${slug(kind)} ${looks}${isNamed ? "" : " tp-by-id"}`, ...more });
}

// The chips around the place `upto`; what comes behind it is faint, or a secret while one guesses.
// `pick` is told the row of `choices` that a generated chip is of.
export function stripView(strip, upto, { isToken, hides, words, pick, number = 0 }) {
  const from = Math.max(0, upto - MOST_CHIPS / 2);
  const until = Math.min(strip.chips.length, from + MOST_CHIPS);
  const aria = { tabindex: "0", role: "group", "aria-label": words.ui("strip") };
  const node = element("div", { class: "tp-strip", data: { focus: `strip ${number}` }, ...aria });
  if (from > 0) node.append(span("tp-faint", `… ${grouped(from)} `));
  for (let place = from; place < until; place += 1) {
    if (hides && place >= Math.max(upto, strip.prompt)) break;
    const made = chip(strip.chips[place], place, strip.prompt);
    if (place === upto && isToken) made.classList.add("tp-picked");
    else if (place >= upto && place >= strip.prompt) made.classList.add("tp-later");
    node.append(made);
  }
  if (hides) node.append(span("tp-chip tp-secret tp-picked", "?"));
  else if (until < strip.chips.length) node.append(span("tp-faint", ` … ${grouped(strip.chips.length - until)}`));
  node.addEventListener("click", (event) => {
    const place = Number(event.target.closest(".tp-chip")?.dataset.place ?? -1);
    if (place >= strip.prompt) pick(strip.made[place - strip.prompt]);
  });
  const show = () => reveal(node, node.querySelector(".tp-picked") ?? node.querySelector(".tp-later"));
  return { node, show };
}

function reveal(row, chipNode) {
  if (chipNode === null) row.scrollTop = row.scrollHeight;
  else row.scrollTop = chipNode.offsetTop - row.clientHeight / 2;
}

// `name` is for those who don't see which of two bars it is.
function bar(share, kind, name = null) {
  const style = { width: `${100 * Math.min(1, share ?? 0)}%` };
  const fill = element("div", { class: `tp-fill ${kind}`, style });
  return div("tp-share", div("tp-track", fill), element("span", {}, name && span("tp-sr", `${name} `), percent(share)));
}

function twoBars(raw, probability, words) {
  return div("", bar(raw, "tp-raw", words.ui("raw")), bar(probability, "tp-after", words.ui("after")));
}

function candidate(one, words) {
  // Of a redacted trace neither text nor id is known.
  const text = one.text !== null ? tokenText(one.text) : one.id === null ? "·" : `#${one.id}`;
  return div(
    `tp-candidate${one.chosen ? " tp-chosen" : ""}`,
    span("tp-rank", one.rank),
    element("span", { class: "tp-token", text, title: one.id === null ? null : `id ${one.id}` }),
    twoBars(one.raw, one.probability, words),
    one.chosen && span("tp-sr", words.ui("chosen")),
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
      div("tp-candidate tp-rest", element("span"), div("", words.ui("rest"), " ", badge("derived", words)),
        twoBars(raw, probability, words)),
    );
  }
  return div("tp-candidates", legend, ...rows);
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Math.abs(value) < 0.0005 ? "0.000" : String(Number(value.toPrecision(3)));
}

export function effectsView(effects, words) {
  const columns = ["processor", "removed", "shift", "entropy"];
  const head = columns.map((key) => element("th", { text: words.ui(key), scope: "col" }));
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
      span("tp-token", tokenText(String(text))),
      span("tp-faint", words.ui("stop rank", { rank: number(rank) })),
      bar(probability, "tp-after"),
    ),
  );
  return element("div", {}, ...rows);
}

const UNKNOWN = "·"; // the name of a token of which neither text nor id is there
const FEWEST_CHOICES = 6;

const guessable = ({ text, id }) => text ?? (id === null ? null : `#${id}`);

// Candidates in alphabetical order, the chosen one among them however unlikely it was; where a step
// had few, other words of the answer stand among them.
function choicesOf(token, others) {
  const best = token.candidates.filter((one, place) => one.chosen || place < 2 * FEWEST_CHOICES);
  const texts = new Set(best.map((one) => guessable(one)).filter((text) => text !== null));
  for (const text of others) if (texts.size < FEWEST_CHOICES && text) texts.add(text);
  return [...texts].sort();
}

// What comes next? Typed, or picked from the candidates in alphabetical order, which tells nothing.
export function guessView(token, others, guess, act, words) {
  const name = words.ui("guess");
  // The text of an id alone may differ from what the answer gains by it: half a character, or a blank.
  const alone = token.candidates.find((one) => one.chosen)?.text ?? null;
  const isKnown = token.candidates.some((one) => guessable(one) !== null) || others.some((text) => text !== UNKNOWN);
  const guesses = (text) => act({ kind: "guess", text, alone });
  const input = element("input", { type: "text", class: "tp-guess", "aria-label": name, placeholder: name });
  input.dataset.focus = "guess";
  const submit = element("button", { type: "submit", text: words.ui("guess it"), data: { focus: "guess it" } });
  const reveals = button("", words.ui("reveal"), () => act({ kind: "reveal" }));
  const form = element("form", { class: "tp-guess-form" }, input, submit, reveals);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.value !== "") guesses(input.value);
  });
  const choices = (isKnown ? choicesOf(token, others) : []).map((text) =>
    button("tp-token", bounded(tokenText(text)), () => guesses(text), { data: { focus: `choice ${text}` } }),
  );
  const question = element("p", { text: words.ui("what comes next") });
  const told = guess && verdictView(token, guess, words);
  // Of a trace without texts there is nothing to guess.
  if (!isKnown) return div("tp-guessing", element("p", { text: words.run.phrase("redacted") }), div("tp-guess-form", reveals));
  return div("tp-guessing", question, form, div("tp-choices", ...choices), told);
}

export function verdictView(token, guess, words) {
  return div(`tp-verdict tp-${guess.verdict}`, verdictText(token, guess, words));
}

function verdictText(token, guess, words) {
  if (guess.verdict === "right") return words.ui("guessed right", { guess: tokenText(guess.text) });
  const wanted = guess.text.trim();
  const known = token.candidates.find((one) => guessable(one)?.trim() === wanted);
  if (known === undefined) return words.ui("guessed unknown", { guess: tokenText(guess.text) });
  return words.ui("guessed wrong", { guess: tokenText(guess.text), share: percent(known.probability) });
}
