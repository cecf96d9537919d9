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
  ["walk", ["step", "back", "over", "out", "parent", "line", "next token", "previous token", "jump", "home", "end",
    "undo"]],
  ["run", ["continue", "continue back", "break"]],
  ["teach", ["teach", "reveal", "large"]],
  ["look", ["fold", "fold around", "own", "axis", "zoom", "language", "dark", "help", "leave"]],
];

const ACTION_OF = new Map(Object.entries(KEYS).flatMap(([action, keys]) => keys.map((key) => [key, action])));
const ARROWS = { ArrowRight: "→", ArrowLeft: "←", ArrowUp: "↑", ArrowDown: "↓" };
const SHOWN = { ...ARROWS, " ": "Space", Escape: "Esc", T: "Shift+T", C: "Shift+C" };

export function shownKeys(action) {
  return KEYS[action].map((key) => SHOWN[key] ?? key);
}

// The action that a key means; null for keys that are not ours: with Ctrl, Alt or Meta they are the
// browser's, and while an input method composes they are its own.
export function actionOf({ key, ctrlKey, altKey, metaKey, shiftKey, isComposing, keyCode }) {
  if (ctrlKey || altKey || metaKey || isComposing || keyCode === 229) return null;
  if (key === "C" || key === "T") return ACTION_OF.get(key);
  if (key === "=") return "zoom";
  if (key === "_") return "zoom";
  // Caps lock without shift still means the letter.
  const plain = key.length === 1 && !shiftKey ? key.toLowerCase() : key;
  return ACTION_OF.get(plain) ?? null;
}
