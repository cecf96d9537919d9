// Where pictures and videos are dropped, pasted or chosen. A file goes to the kernel in pieces: a
// larger message would be refused by the server, and with it the connection.

const PIECE = 1 << 20;

async function send(model, file) {
  const limit = model.get("most_bytes");
  if (file.size > limit) {
    model.send({ kind: "refused", name: file.name, size: file.size });
    return;
  }
  const key = `${Date.now()}-${Math.random()}`;
  const pieces = Math.max(1, Math.ceil(file.size / PIECE));
  for (let number = 0; number < pieces; number += 1) {
    const content = await file.slice(number * PIECE, (number + 1) * PIECE).arrayBuffer();
    model.send({ kind: "piece", key, name: file.name, number, pieces }, undefined, [content]);
  }
}

function preview(item, index, removes) {
  const node = document.createElement("div");
  node.className = "explorer-picture";
  const image = document.createElement("img");
  image.alt = item.name;
  if (item.preview.startsWith("data:image/png;base64,")) image.src = item.preview;
  const words = document.createElement("div");
  const name = document.createElement("div");
  name.className = "explorer-picture-name";
  name.textContent = item.name;
  const size = document.createElement("div");
  size.className = "explorer-faint";
  size.textContent = [item.size, item.note].filter(Boolean).join(" · ");
  words.append(name, size);
  const remove = document.createElement("button");
  remove.type = "button";
  remove.className = "explorer-remove";
  remove.textContent = "×";
  remove.dataset.index = String(index);
  remove.setAttribute("aria-label", `${removes}: ${item.name}`);
  node.append(image, words, remove);
  return node;
}

function render({ model, el }) {
  const area = document.createElement("button");
  area.type = "button";
  area.className = "explorer-drop";
  const input = document.createElement("input");
  input.type = "file";
  input.multiple = true;
  input.hidden = true;
  const list = document.createElement("div");
  list.className = "explorer-pictures";
  el.append(area, input, list);

  const fill = () => {
    const enabled = model.get("enabled");
    area.textContent = enabled ? model.get("label") : model.get("label_off");
    area.disabled = !enabled;
    list.replaceChildren(...model.get("items").map((item, index) => preview(item, index, model.get("label_remove"))));
  };
  const take = async (files) => {
    for (const file of files) await send(model, file);
  };
  const stop = (event) => {
    event.preventDefault();
    event.stopPropagation();
  };
  area.addEventListener("click", () => input.click());
  input.addEventListener("change", async () => {
    await take([...input.files]);
    input.value = "";
  });
  for (const kind of ["dragenter", "dragover"]) {
    el.addEventListener(kind, (event) => {
      stop(event);
      area.classList.add("explorer-over-drop");
    });
  }
  el.addEventListener("dragleave", () => area.classList.remove("explorer-over-drop"));
  el.addEventListener("drop", (event) => {
    stop(event);
    area.classList.remove("explorer-over-drop");
    if (model.get("enabled")) take([...event.dataTransfer.files]);
  });
  list.addEventListener("click", (event) => {
    const target = event.target.closest(".explorer-remove");
    if (target !== null) model.send({ kind: "remove", index: Number(target.dataset.index) });
  });
  model.on("change:items change:enabled change:label", fill);
  fill();
  return () => model.off("change:items change:enabled change:label", fill);
}

export default { render };
