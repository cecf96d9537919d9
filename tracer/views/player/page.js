// The player as a page of its own: all that it tells lies in the page, packed.

import { isDarkAround, onDarkness } from "./darkness.js";
import { mount } from "./player.js";

async function unpacked(text) {
  const packed = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

async function unpackedJson(text) {
  return JSON.parse(new TextDecoder().decode(await unpacked(text)));
}

// Blocks of details are unpacked when one of their stops is met, each once.
class Blocks {
  constructor({ block, blocks }) {
    Object.assign(this, { block, blocks });
    this.known = new Map();
  }

  async detail(stop) {
    const number = Math.floor(stop / this.block);
    if (!this.blocks[number]) return null;
    if (!this.known.has(number)) this.known.set(number, unpackedJson(this.blocks[number]));
    return (await this.known.get(number))[stop % this.block] ?? null;
  }
}

const isAlone = window === window.top;

// `run.html#57` opens at the stop that the player numbers 57.
function linkedStop() {
  const found = /^#(\d{1,9})$/.exec(location.hash);
  return found === null ? null : Number(found[1]) - 1;
}

// The tab remembers the rest, for when the page is loaded again.
function keptHere() {
  const linked = linkedStop();
  return linked === null ? history.state?.player : { ...history.state?.player, at: linked };
}

function keep(kept) {
  history.replaceState({ player: kept }, "", `#${kept.at + 1}`);
}

async function open() {
  const held = JSON.parse(document.getElementById("tracer-replay").textContent);
  const { columns: packed, header, shared } = held;
  const opened = [unpacked(packed), unpackedJson(header.words), unpackedJson(shared)];
  const [columns, words, rooms] = await Promise.all(opened);
  const blocks = new Blocks(held.details);
  const root = document.getElementById("player");
  const player = mount(root, {
    header: { ...header, words },
    columns,
    detail: (stop) => blocks.detail(stop),
    shared: async (room, key) => (rooms[room] && Object.hasOwn(rooms[room], key) ? rooms[room][key] : null),
    isStatic: true,
    isDark: isDarkAround,
    onDark: onDarkness,
    ...(isAlone ? { kept: keptHere(), keep } : {}),
  });
  // A page that is all player takes keys at once; one in a notebook's frame waits to be asked.
  if (!isAlone) return;
  root.focus({ preventScroll: true });
  addEventListener("pagehide", () => player.keep?.());
  addEventListener("hashchange", () => player.act?.({ kind: "jump", to: linkedStop() ?? player.state.at }));
}

open();
