// Which key does what. Letters mean the character, so that any keyboard layout works.

const KEYS = {
  step: ["ArrowRight", "s"],
  over: ["n"],
  out: ["o"],
  back: ["ArrowLeft"],
  undo: ["u", "Backspace"],
  line: ["ArrowUp", "ArrowDown"],
  parent: ["p"],
  "next token": ["t"],
  "previous token": ["T"],
  jump: ["g", "/"],
  home: ["Home"],
  end: ["End"],
  earlier: [","],
  later: ["."],
  neighbour: ["m"],
  "previous neighbour": ["M"],
  continue: ["c"],
  "continue back": ["C"],
  break: ["b"],
  fold: [" ", "Enter"],
  "fold around": ["f"],
  teach: ["q"],
  reveal: ["r"],
  large: ["l"],
  language: ["z"],
  dark: ["d"],
  own: ["i"],
  axis: ["x"],
  zoom: ["+", "-", "0"],
  help: ["?"],
  leave: ["Escape"],
};

export const GROUPS = [
  ["walk", ["step", "back", "over", "out", "parent", "line", "next token", "previous token", "neighbour",
    "previous neighbour", "jump", "home", "end", "later", "earlier", "undo"]],
  ["run", ["continue", "continue back", "break"]],
  ["teach", ["teach", "reveal", "large"]],
  ["look", ["fold", "fold around", "own", "axis", "zoom", "language", "dark", "help", "leave"]],
];

const ACTION_OF = new Map(Object.entries(KEYS).flatMap(([action, keys]) => keys.map((key) => [key, action])));
const ARROWS = { ArrowRight: "→", ArrowLeft: "←", ArrowUp: "↑", ArrowDown: "↓" };
const NAMED = { " ": "Space", T: "Shift+T", C: "Shift+C", M: "Shift+M" };
const SHOWN = { ...NAMED, ...ARROWS, Escape: "Esc" };

export function shownKeys(action) {
  return KEYS[action].map((key) => SHOWN[key] ?? key);
}

// The same for readers of the screen, who know the names of keys.
export function spokenKeys(action) {
  return KEYS[action].map((key) => NAMED[key] ?? key).join(" ");
}

// The action that a key means; null for keys that are not ours: with Ctrl, Alt or Meta they are the
// browser's, and while an input method composes they are its own.
export function actionOf({ key, ctrlKey, altKey, metaKey, shiftKey, isComposing, keyCode }) {
  if (ctrlKey || altKey || metaKey || isComposing || keyCode === 229) return null;
  if (key === "=" || key === "_") return "zoom";
  // Caps lock turns letters around: what counts is whether shift is held.
  const letter = shiftKey ? key.toUpperCase() : key.toLowerCase();
  return ACTION_OF.get(key.length === 1 ? letter : key) ?? null;
}
