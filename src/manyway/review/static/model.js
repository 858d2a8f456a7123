// What is known about the review: items, classes, groups and their order. No DOM here.

export const OPEN = -2;
export const NO_CLASS = -1;

export class Model {
  constructor(overview) {
    this.id = overview.id;
    this.kind = overview.kind;
    this.names = overview.names;
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
    this.stamp = new Array(this.n).fill(0); // grows when an item must be drawn again
    this.groups = []; // in the order of the page: { key, number, items }
    this.place = new Array(this.n).fill(null); // the group of an item
    this.filter = "all";
    this.apply(overview);
    this.sort();
  }

  /** Take the changes that the server reports; returns the items whose suggestion has changed. */
  apply(changes) {
    this.version = changes.version;
    this.busy = changes.busy;
    this.order = changes.order;
    this.progress = changes.progress;
    this.canUndo = changes.can_undo;
    this.problem = changes.problem;
    this.classes.length = this.catalogue.length;
    this.classes.push(...changes.new_classes);
    const changed = [];
    for (const [row, answer, was, group, best, unknown] of changes.rows) {
      if (was >= 0 && was !== this.was[row]) changed.push(row);
      this.answer[row] = answer;
      this.was[row] = was;
      this.unknownGroup[row] = group;
      this.best[row] = best;
      this.unknown[row] = unknown / 1000;
      this.stamp[row] += 1;
    }
    if (this.groups.length) this.regroup(changes.rows.map((row) => row[0]));
    return changed;
  }

  suggestions(row) {
    const found = [];
    for (let at = 0; at < this.best[row].length; at += 2) {
      found.push({ number: this.best[row][at], probability: this.best[row][at + 1] / 1000 });
    }
    return found;
  }

  /** The probability of the suggestion; 0 where there is none. */
  probability(row) {
    if (this.unknownGroup[row] >= 0) return this.unknown[row];
    return this.best[row].length ? this.best[row][1] / 1000 : 0;
  }

  /** The class that holds for an item: by answer, otherwise by suggestion. */
  number(row) {
    if (this.answer[row] !== OPEN) return this.answer[row];
    return this.unknownGroup[row] >= 0 || !this.best[row].length ? NO_CLASS : this.best[row][0];
  }

  keyOf(row) {
    if (this.answer[row] === OPEN) {
      if (this.unread[row] !== undefined) return "unread";
      if (this.unknownGroup[row] >= 0) return `unknown ${this.unknownGroup[row]}`;
    }
    const number = this.number(row);
    return number === NO_CLASS ? "none" : `class ${number}`;
  }

  title(group) {
    if (group.key === "none") return "Unknown";
    if (group.key === "unread") return "Could not be read";
    if (group.key.startsWith("unknown")) return `New group ${1 + Number(group.key.slice(8))}`;
    return this.classes[group.number];
  }

  /** Whether the group is of unknown items and can be named. */
  nameable(group) {
    return group.key === "none" || group.key.startsWith("unknown");
  }

  isOpen(row) {
    return this.answer[row] === OPEN;
  }

  shown(group) {
    if (this.filter === "open") return group.items.filter((row) => this.isOpen(row));
    if (this.filter === "changed") return group.items.filter((row) => this.was[row] >= 0);
    return group.items;
  }

  doubt(group) {
    const open = group.items.filter((row) => this.isOpen(row));
    if (!open.length) return -1;
    return 1 - open.reduce((sum, row) => sum + this.probability(row), 0) / open.length;
  }

  /** Least certain group first, groups of unknown items last; in a group the open items first, by doubt. */
  sort() {
    const found = new Map();
    for (let row = 0; row < this.n; row += 1) this.#into(found, row);
    this.groups = [...found.values()];
    for (const group of this.groups) {
      group.items.sort((a, b) => this.isOpen(b) - this.isOpen(a) || this.probability(a) - this.probability(b) || a - b);
    }
    const rank = new Map(this.groups.map((group) => [group, this.#rank(group)]));
    this.groups.sort((a, b) => rank.get(a)[0] - rank.get(b)[0] || rank.get(a)[1] - rank.get(b)[1]);
  }

  #rank(group) {
    if (group.key === "none") return [4, 0];
    if (group.key === "unread") return [3, 0];
    if (group.key.startsWith("unknown")) return [2, Number(group.key.slice(8))];
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

  /** Move items whose group has changed; everything else stays where the eye left it. */
  regroup(rows) {
    const known = new Map(this.groups.map((group) => [group.key, group]));
    const left = new Set();
    const moved = rows.filter((row) => this.place[row].key !== this.keyOf(row));
    const leaving = new Set(moved);
    for (const row of moved) left.add(this.place[row]);
    for (const group of left) group.items = group.items.filter((row) => !leaving.has(row));
    for (const row of moved) {
      const isNew = !known.has(this.keyOf(row));
      const group = this.#into(known, row);
      if (isNew) {
        const rank = this.#rank(group);
        const at = this.groups.findIndex((other) => {
          const theirs = this.#rank(other);
          return theirs[0] > rank[0] || (theirs[0] === rank[0] && theirs[1] > rank[1]);
        });
        this.groups.splice(at < 0 ? this.groups.length : at, 0, group);
      } else if (this.isOpen(row)) {
        group.items.unshift(group.items.pop()); // what was just suggested anew comes first
      }
    }
    this.groups = this.groups.filter((group) => group.items.length);
  }

  /** Pictures, texts or names that stand for a class: of the catalogue, otherwise of the items it was given to. */
  examples(number, count) {
    if (number >= 0 && number < this.catalogue.length) {
      return this.catalogue[number].examples.slice(0, count).map((row) => ({ which: "examples", row, name: this.exampleNames[row] }));
    }
    const own = [];
    for (let row = 0; row < this.n && own.length < count && number >= 0; row += 1) {
      if (this.answer[row] === number) own.push({ which: "items", row, name: this.names[row] });
    }
    return own;
  }

  picture(which, row, size) {
    return `/pictures/${this.id}/${which}/${row}/${size}`;
  }
}
