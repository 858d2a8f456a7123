// What is known about the review: items, classes, groups and their order. No DOM here.

import { visible } from "./dom.js";

export const OPEN = -2;
export const NO_CLASS = -1;

export class Model {
  constructor(overview) {
    this.id = overview.id;
    this.kind = overview.kind;
    this.names = overview.names;
    this.ids = overview.ids;
    this.columns = Object.entries(overview.columns);
    this.taken = overview.columns.taken ?? [];
    this.bursts = overview.bursts;
    this.openSet = overview.open_set;
    this.unread = overview.unread;
    this.catalogue = overview.catalogue;
    this.exampleNames = overview.example_names;
    this.classes = overview.catalogue.map((known) => known.name);
    this.n = this.names.length;
    this.answer = new Array(this.n).fill(OPEN);
    this.was = new Array(this.n).fill(-1);
    this.unknownGroup = new Array(this.n).fill(-1);
    this.unknown = new Array(this.n).fill(0); // the probability of being unknown
    this.best = new Array(this.n).fill(null).map(() => []);
    this.comment = new Array(this.n).fill("");
    this.since = new Array(this.n).fill(-Infinity); // when its suggestion last changed
    this.listed = new Array(this.n).fill(-Infinity); // when its list of suggestions last changed
    this.stamp = new Array(this.n).fill(0); // grows when an item must be drawn again
    this.groups = []; // in the order of the page: { key, number, items }
    this.place = new Array(this.n).fill(null); // the group of an item
    this.filter = "all";
    this.phrase = ""; // that an item must have
    this.by = "doubt";
    this.apply(overview);
    for (const times of [this.since, this.listed]) times.fill(-Infinity);
    this.sort();
  }

  /** Take the changes that the server reports; returns the items whose suggestion has changed. */
  apply(changes) {
    this.version = changes.version;
    this.busy = changes.busy;
    this.order = changes.order;
    this.progress = changes.progress;
    this.canUndo = changes.can_undo;
    this.canRedo = changes.can_redo;
    this.problem = changes.problem;
    this.presence = new Map(changes.presence);
    this.classes.length = this.catalogue.length;
    this.classes.push(...changes.new_classes.map(({ name }) => name));
    this.newExamples = changes.new_classes.map(({ examples }) => examples); // the item in the middle of a new class first
    const changed = [];
    for (const [row, answer, was, group, best, unknown, comment] of changes.rows) {
      if (was >= 0 && was !== this.was[row]) changed.push(row);
      const before = [this.suggested(row), this.suggestions(row).map(({ number }) => number).join()];
      this.comment[row] = comment;
      this.answer[row] = answer;
      this.was[row] = was;
      this.unknownGroup[row] = group;
      this.best[row] = best;
      this.unknown[row] = unknown / 1000;
      if (this.suggested(row) !== before[0]) this.since[row] = performance.now();
      if (this.suggestions(row).map(({ number }) => number).join() !== before[1]) this.listed[row] = performance.now();
      this.stamp[row] += 1;
    }
    this.sizes = new Map(); // of the groups of unknown items
    this.unknownGroup.forEach((group, row) => this.isOpen(row) && this.sizes.set(group, 1 + (this.sizes.get(group) ?? 0)));
    return changed;
  }

  suggestions(row) {
    const found = [];
    for (let at = 0; at < this.best[row].length; at += 2) {
      found.push({ number: this.best[row][at], probability: this.best[row][at + 1] / 1000 });
    }
    if (this.openSet && found.length) {
      found.push({ number: NO_CLASS, probability: this.unknown[row] });
      found.sort((a, b) => b.probability - a.probability);
    }
    return found.slice(0, 9);
  }

  /** The class of an item as the filter finds it; nothing where nothing is suggested. */
  className(row) {
    return this.isOpen(row) && !this.best[row].length ? "" : this.label(this.number(row));
  }

  /** Let the filter show some items that it hides. */
  reveal(rows) {
    for (const row of rows) this.through[row] = true;
  }

  /** The name of a class as it is shown. */
  label(number) {
    return number === NO_CLASS ? "Unknown" : visible(this.classes[number]);
  }

  /**
   * Whether an item stands in a group that it no longer belongs to: it stays where it is until the page is sorted again.
   * Groups of unknown items are numbered anew with every answer, which moves nothing.
   */
  moved(row) {
    const [then, now] = [this.place[row].key, this.keyOf(row)];
    return then !== now && !(then.startsWith("unknown") && now.startsWith("unknown"));
  }

  /** The probability of the suggestion; 0 where there is none. */
  probability(row) {
    if (this.unknownGroup[row] >= 0) return this.unknown[row];
    return this.best[row].length ? this.best[row][1] / 1000 : 0;
  }

  /** The class that holds for an item: by answer, otherwise by suggestion. */
  number(row) {
    return this.answer[row] === OPEN ? this.suggested(row) : this.answer[row];
  }

  /** The class that is suggested for an item, also where it has an answer. */
  suggested(row) {
    return this.unknownGroup[row] >= 0 || !this.best[row].length ? NO_CLASS : this.best[row][0];
  }

  keyOf(row) {
    if (this.answer[row] === OPEN) {
      if (this.unread[row] !== undefined) return "unread";
      const group = this.unknownGroup[row];
      if (group >= 0) return this.sizes.get(group) > 1 ? `unknown ${group}` : "unknown alone";
    }
    const number = this.number(row);
    return number === NO_CLASS ? "none" : `class ${number}`;
  }

  /** Each class with items, or that may occur: how many items it has, how many are reviewed, how sure the others are. */
  summary() {
    const found = new Map([...this.presence].map(([number, presence]) => [number, { number, presence, count: 0, reviewed: 0, sure: 0 }]));
    for (let row = 0; row < this.n; row += 1) {
      const number = this.number(row);
      if (!found.has(number)) found.set(number, { number, presence: null, count: 0, reviewed: 0, sure: 0 });
      const one = found.get(number);
      one.count += 1;
      if (this.isOpen(row)) one.sure += this.probability(row);
      else Object.assign(one, { reviewed: one.reviewed + 1, presence: number === NO_CLASS ? null : 1 });
    }
    return [...found.values()].sort((a, b) => b.count - a.count || (b.presence ?? 0) - (a.presence ?? 0));
  }

  title(group) {
    if (group.key === "none") return "Unknown";
    if (group.key === "unread") return "Could not be read";
    if (group.key === "unknown alone") return "Unknown, each alone";
    if (group.key.startsWith("unknown")) return `New group ${group.key.slice(8)}`; // the number in the tables
    return this.label(group.number);
  }

  /** Whether the group is of unknown items that may be one class. */
  nameable(group) {
    return group.key === "none" || /^unknown \d/u.test(group.key);
  }

  isOpen(row) {
    return this.answer[row] === OPEN;
  }

  /** The items of a group that were let through when the filter was chosen or the page was sorted. */
  shown(group) {
    return group.items.filter((row) => this.through[row]);
  }

  sift() {
    const fits = { open: (row) => this.isOpen(row), changed: (row) => this.isOpen(row) && this.was[row] >= 0 }[this.filter] ?? (() => true);
    const text = (row) => [this.names[row], this.ids[row] ?? "", this.className(row), this.comment[row], ...this.columns.map(([, cells]) => cells[row])].join("\n").toLocaleLowerCase();
    this.through = this.names.map((_, row) => fits(row) && (!this.phrase || text(row).includes(this.phrase)));
  }

  doubt(group) {
    const open = group.items.filter((row) => this.isOpen(row));
    if (!open.length) return -1;
    return 1 - open.reduce((sum, row) => sum + this.probability(row), 0) / open.length;
  }

  /** How many items are expected to be unknown. */
  expectedUnknown() {
    return this.answer.reduce((sum, answer, row) => sum + (answer === OPEN ? this.unknown[row] : Number(answer === NO_CLASS)), 0);
  }

  /** Least certain group first, groups of unknown items last, or first where these are asked for; open items first, by doubt. */
  sort() {
    this.stamp = this.stamp.map((stamp) => stamp + 1); // what is said below an item depends on the order
    const found = new Map();
    for (let row = 0; row < this.n; row += 1) this.#into(found, row);
    this.groups = [...found.values()];
    const name = (a, b) => this.names[a].localeCompare(this.names[b], "en", { numeric: true });
    const compare = {
      doubt: (a, b) => this.isOpen(b) - this.isOpen(a) || this.probability(a) - this.probability(b),
      unknown: (a, b) => this.isOpen(b) - this.isOpen(a) || this.unknown[b] - this.unknown[a],
      name,
      time: (a, b) => this.taken[a].localeCompare(this.taken[b]) || name(a, b),
    }[this.by];
    for (const group of this.groups) {
      group.items.sort((a, b) => compare(a, b) || a - b);
      const first = new Map(); // the first item of a burst: the others follow it
      for (const row of group.items) if (this.bursts[row] >= 0 && !first.has(this.bursts[row])) first.set(this.bursts[row], row);
      const rank = new Map(group.items.map((row, at) => [row, at]));
      const place = (row) => rank.get(first.get(this.bursts[row]) ?? row);
      group.items.sort((a, b) => place(a) - place(b) || (this.taken[a] ?? "").localeCompare(this.taken[b] ?? "") || rank.get(a) - rank.get(b));
    }
    this.sift();
    const rank = new Map(this.groups.map((group) => [group, this.#rank(group)]));
    this.groups.sort((a, b) => rank.get(a)[0] - rank.get(b)[0] || rank.get(a)[1] - rank.get(b)[1]);
  }

  #rank(group) {
    if (group.key === "none") return [4, 0];
    if (group.key === "unread") return [3, 0];
    if (group.key.startsWith("unknown")) return [this.by === "unknown" ? -1 : 2, group.key === "unknown alone" ? Infinity : Number(group.key.slice(8))];
    if (this.by === "unknown") return [0, -Math.max(...group.items.map((row) => (this.isOpen(row) ? this.unknown[row] : 0)))];
    const doubt = this.doubt(group);
    return doubt < 0 ? [1, 0] : [0, -doubt];
  }

  #into(found, row) {
    const key = this.keyOf(row);
    if (!found.has(key)) found.set(key, { key, number: this.number(row), items: [] });
    const group = found.get(key);
    group.items.push(row);
    this.place[row] = group;
    return group;
  }

  /** Pictures, texts or names that stand for a class: of the catalogue, otherwise those in the middle of its items. */
  examples(number, count) {
    if (number >= 0 && number < this.catalogue.length) {
      return this.catalogue[number].examples.slice(0, count).map((row) => ({ which: "examples", row, name: this.exampleNames[row] }));
    }
    const own = this.newExamples[number - this.catalogue.length] ?? [];
    return own.slice(0, count).map((row) => ({ which: "items", row, name: this.names[row] }));
  }

  picture(which, row, size) {
    return `/pictures/${this.id}/${which}/${row}/${size}`;
  }
}
