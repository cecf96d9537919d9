// Keys of the whole panel: Ctrl+Enter runs, Escape stops. While an input method composes, neither.
// Also takes what the kernel made for download. It shows nothing itself.

function render({ model, el }) {
  el.classList.add("explorer-keys");
  let panel = null;
  const pressed = (event) => {
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      event.stopPropagation();
      // The last keystrokes may still be on their way to the kernel: they go along.
      const question = panel.querySelector(".ux-question textarea")?.value ?? null;
      model.send({ kind: "run", question });
    } else if (event.key === "Escape") {
      event.stopPropagation();
      model.send({ kind: "stop" });
    }
  };
  const attach = () => {
    panel = el.closest(".tracer-explorer");
    if (panel === null) return;
    observer.disconnect();
    // Otherwise Ctrl+Enter would run the notebook's cell, and letters its commands.
    panel.dataset.lmSuppressShortcuts = "true";
    // On the way down: a text area keeps its keys to itself on the way up.
    panel.addEventListener("keydown", pressed, true);
  };
  const observer = new MutationObserver(attach);
  observer.observe(document.body, { childList: true, subtree: true });
  attach();

  const told = (message, buffers) => {
    if (message.kind !== "download") return;
    const address = URL.createObjectURL(new Blob([buffers[0]], { type: "application/zip" }));
    const link = document.createElement("a");
    link.href = address;
    link.download = message.name;
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
  };
  model.on("msg:custom", told);
  return () => {
    observer.disconnect();
    panel?.removeEventListener("keydown", pressed, true);
    model.off("msg:custom", told);
  };
}

export default { render };
