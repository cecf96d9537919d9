// Candidates of a step as bars: before the processors, after them, and with other settings.
// Each candidate can be taken, which continues the answer from there. Text through textContent only.

function percent(share) {
  if (share === null || share === undefined) return "-";
  return share > 0 && share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`;
}

function cell(kind, text) {
  const node = document.createElement("div");
  node.className = kind;
  node.textContent = text;
  return node;
}

function bars(shares) {
  const node = document.createElement("div");
  node.className = "explorer-shares";
  shares.forEach((share, number) => {
    const line = document.createElement("div");
    line.className = `explorer-share explorer-share${number}`;
    const track = document.createElement("div");
    const bar = document.createElement("div");
    bar.style.width = `${100 * Math.min(share ?? 0, 1)}%`;
    track.append(bar);
    line.append(track, cell("explorer-number", percent(share)));
    node.append(line);
  });
  return node;
}

function visible(text) {
  return text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll(" ", "␣");
}

function render({ model, el }) {
  const table = document.createElement("div");
  table.className = "explorer-bars";
  el.append(table);

  const fill = () => {
    const rows = model.get("rows");
    const words = model.get("words");
    table.replaceChildren();
    if (rows.length === 0) return;
    const head = document.createElement("div");
    head.className = "explorer-legend";
    rows[0].shares.forEach((_, number) => {
      const key = cell(`explorer-swatch explorer-share${number}`, "");
      head.append(key, cell("", words[number]));
    });
    table.append(head);
    for (const row of rows) {
      const line = document.createElement("div");
      line.className = row.chosen ? "explorer-candidate explorer-chosen" : "explorer-candidate";
      line.dataset.token = String(row.id);
      const name = cell("explorer-name", row.id < 0 ? row.text : visible(row.text));
      if (row.id < 0) name.classList.add("explorer-faint");
      line.append(name, bars(row.shares));
      if (row.id >= 0 && model.get("can_take")) {
        const take = document.createElement("button");
        take.className = "explorer-take";
        take.type = "button";
        take.textContent = "↳";
        take.title = words[3];
        take.setAttribute("aria-label", `${words[3]}: ${row.text}`);
        take.dataset.token = String(row.id);
        take.disabled = row.chosen;
        line.append(take);
      }
      table.append(line);
    }
  };
  const clicked = (event) => {
    const target = event.target.closest(".explorer-take");
    if (target !== null) model.send({ kind: "take", token: Number(target.dataset.token) });
  };
  table.addEventListener("click", clicked);
  model.on("change:rows change:can_take", fill);
  fill();
  return () => model.off("change:rows change:can_take", fill);
}

export default { render };
