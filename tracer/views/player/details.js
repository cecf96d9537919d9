// What is asked about a stop while one walks: kept for a while, asked for once, latest wish first.
// An answer that nobody waits for any more is kept and shown to nobody.

const KEPT = 300;
const AT_ONCE = 2;

export class Details {
  // `source` answers detail(stop) and shared(room, key) with promises; `arrived` hears of answers.
  constructor(source, arrived) {
    Object.assign(this, { source, arrived });
    this.kept = new Map();
    this.rooms = new Map();
    this.asked = new Set();
    this.wish = null;
    this.failed = null; // asked again once one comes back to it
  }

  detail(stop) {
    const found = this.kept.get(stop);
    if (found !== undefined) {
      this.kept.delete(stop); // what is used moves to the end, and the oldest goes first
      this.kept.set(stop, found);
      return found;
    }
    this.wish = stop;
    this.ask();
    return undefined;
  }

  // Ask ahead for where a step would lead, once nothing else is asked.
  prepare(stop) {
    if (this.asked.size === 0 && !this.kept.has(stop)) this.send(stop);
  }

  ask() {
    const stop = this.wish;
    if (stop === null || this.asked.has(stop) || this.asked.size >= AT_ONCE) return;
    this.wish = null;
    this.send(stop);
  }

  async send(stop) {
    if (this.failed !== null && this.failed !== stop) this.kept.delete(this.failed);
    this.asked.add(stop);
    let detail;
    try {
      detail = await this.source.detail(stop);
    } catch (error) {
      detail = { stop, failed: String(error?.message ?? error) };
      this.failed = stop;
    }
    this.asked.delete(stop);
    this.kept.set(stop, detail);
    if (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value);
    this.arrived(stop);
    this.ask();
  }

  shared(room, key) {
    const name = `${room}/${key}`;
    if (this.rooms.has(name)) return this.rooms.get(name);
    this.rooms.set(name, undefined);
    this.source
      .shared(room, key)
      .catch(() => null)
      .then((value) => {
        this.rooms.set(name, value ?? null);
        this.arrived(null);
      });
    return undefined;
  }
}
