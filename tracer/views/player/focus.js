// What is drawn anew loses the focus to the page around, where keys mean other things: in a notebook
// they cut cells. So it goes to what stands in the same place now, else to the player itself.

const TYPED = "input:not([type=checkbox])";

// `draw` may replace any element inside `root`; those that keep their meaning have one `data-focus`.
export function keepFocus(root, draw) {
  const focused = root.getRootNode().activeElement;
  const isInside = focused !== null && focused !== root && root.contains(focused);
  draw();
  if (!isInside || focused.isConnected) return;
  const twin = twinOf(root, focused.dataset.focus) ?? root;
  if (focused.matches(TYPED) && twin.matches(TYPED)) retype(twin, focused);
  twin.focus({ preventScroll: true });
}

function twinOf(root, name) {
  if (name === undefined) return undefined;
  return [...root.querySelectorAll("[data-focus]")].find((one) => one.dataset.focus === name);
}

function retype(twin, field) {
  const [from, to] = [field.selectionStart, field.selectionEnd];
  twin.value = field.value;
  twin.setSelectionRange(from, to);
}
