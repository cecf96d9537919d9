// Tokens in a row, coloured by how sure the model was; one is picked by click or arrow keys.
// A token is [text, probability or null, kind, how many]. Text only ever goes through textContent.

const STEPS = [0.9, 0.6, 0.3, 0.1];

function level(probability) {
  if (probability === null) return "none";
  const found = STEPS.findIndex((least) => probability >= least);
  return String(found < 0 ? STEPS.length : found);
}

function shown(text, kind, many) {
  if (many > 1) return `${text} × ${many}`;
  if (text === "") return "∅";
  // A line feed is seen and also breaks the line.
  return text.replaceAll("\n", "↵\n").replaceAll("\t", "⇥");
}

function chip([text, probability, kind, many], index, kinds) {
  const node = document.createElement("span");
  node.className = `explorer-chip explorer-p${level(probability)} explorer-kind-${kind}`;
  node.dataset.index = String(index);
  node.setAttribute("role", "option");
  node.textContent = shown(text, kind, many);
  node.title = probability === null ? (kinds[kind] ?? kind) : `${(100 * probability).toFixed(1)} %`;
  return node;
}

function render({ model, el }) {
  const row = document.createElement("div");
  row.className = "explorer-strip";
  row.tabIndex = 0;
  row.setAttribute("role", "listbox");
  row.setAttribute("aria-label", model.get("label"));
  el.append(row);

  // What the answer was given to begin with: no token of its own, so nothing to pick.
  const begin = () => { row.dataset.before = model.get("before"); };
  const append = (tokens) => {
    const start = row.childElementCount;
    const kinds = model.get("kinds");
    row.append(...tokens.map((token, number) => chip(token, start + number, kinds)));
  };
  const mark = () => {
    row.querySelector(".explorer-picked")?.classList.remove("explorer-picked");
    const picked = row.children[model.get("picked")];
    picked?.classList.add("explorer-picked");
    return picked;
  };
  const fill = () => {
    row.replaceChildren();
    append(model.get("tokens"));
    mark();
  };
  // A message each: picking the same token twice must count twice.
  const pick = (index) => model.send({ kind: "pick", index });
  const clicked = (event) => {
    const target = event.target.closest(".explorer-chip");
    if (target !== null) pick(Number(target.dataset.index));
  };
  const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  const pressed = (event) => {
    if (event.isComposing || !(event.key in moves || event.key === "Home" || event.key === "End")) return;
    const last = row.childElementCount - 1;
    const from = model.get("picked");
    let to = event.key === "Home" ? 0 : event.key === "End" ? last : from + moves[event.key];
    to = Math.max(0, Math.min(last, to));
    event.preventDefault();
    if (last >= 0 && to !== from) pick(to);
  };
  const told = (message) => {
    // What streams in: only a piece that goes on where the row ends.
    if (message.kind === "append" && message.start === row.childElementCount) append(message.tokens);
    if (message.kind === "append" && message.start > row.childElementCount) model.send({ kind: "missed" });
    if (message.kind === "clear") row.replaceChildren();
    if (message.kind === "append") row.scrollTop = row.scrollHeight;
  };
  // Scrolls the row and never the page, which may show something else.
  const reveal = (node) => {
    const [inner, outer] = [node.getBoundingClientRect(), row.getBoundingClientRect()];
    if (inner.top < outer.top) row.scrollTop -= outer.top - inner.top;
    if (inner.bottom > outer.bottom) row.scrollTop += inner.bottom - outer.bottom;
  };
  const picked = () => {
    const node = mark();
    if (node !== undefined) reveal(node);
  };

  row.addEventListener("click", clicked);
  row.addEventListener("keydown", pressed);
  model.on("change:before", begin);
  model.on("change:tokens", fill);
  model.on("change:picked", picked);
  model.on("msg:custom", told);
  begin();
  fill();
  return () => {
    model.off("change:before", begin);
    model.off("change:tokens", fill);
    model.off("change:picked", picked);
    model.off("msg:custom", told);
  };
}

export default { render };
