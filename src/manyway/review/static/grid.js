// The grid: groups of items, of which only those in sight exist in the document.

import { breakable, count, make, percent, picture } from "./dom.js";
import { NO_CLASS } from "./model.js";

const GAP = 10;
const CAPTION = 24;
const OVERSCAN = 400; // pixels above and below the window
const ZOOM = {
  pictures: [64, 88, 116, 156, 220].map((width) => ({ width, height: null })),
  texts: [[200, 92], [240, 116], [300, 132], [380, 156], [520, 190]].map(([width, height]) => ({ width, height })),
  names: [[120, 62], [150, 62], [190, 64], [240, 72], [320, 84]].map(([width, height]) => ({ width, height })),
};

export class Grid {
  constructor(model, scroll, container, { onCurrent, onName, onAbove, onExample }) {
    Object.assign(this, { model, scroll, container, onCurrent, onName, onAbove, onExample });
    this.zoom = window.innerWidth < 640 ? 1 : 2;
    this.selected = new Set();
    this.current = -1;
    this.anchor = -1;
    this.sections = new Map(); // group -> its elements
    this.cells = new Map(); // row -> { element, stamp, group }
    this.ids = new WeakMap();
    this.nextId = 0;
    scroll.addEventListener("scroll", () => this.#soon(), { passive: true });
    new ResizeObserver(() => this.layout()).observe(scroll);
    this.#listenToThePointer();
    this.layout();
  }

  // --- where everything is

  layout() {
    const width = this.scroll.clientWidth;
    this.narrow = width < 640;
    const margin = this.narrow ? 14 : 28;
    const rail = this.narrow ? 0 : 224;
    const wanted = ZOOM[this.model.kind][this.zoom];
    this.left = margin + rail;
    const room = Math.max(80, width - this.left - margin);
    this.columns = Math.max(1, Math.round((room + GAP) / (wanted.width + GAP)));
    this.cellWidth = (room - GAP * (this.columns - 1)) / this.columns;
    this.cellHeight = wanted.height ?? this.cellWidth + CAPTION;
    this.above = this.narrow ? 96 : 22; // room for the class name in a narrow window
    const least = this.narrow ? 0 : this.model.kind === "names" ? 146 : 176; // the height of what stands beside the items
    this.blocks = [];
    this.flat = [];
    this.at = new Map(); // row -> [block, index]
    let top = 0;
    for (const group of this.model.groups) {
      const items = this.model.shown(group);
      if (!items.length) continue;
      const lines = Math.ceil(items.length / this.columns);
      const height = this.above + Math.max(least, lines * (this.cellHeight + GAP)) + 18;
      const block = { group, items, top, height };
      items.forEach((row, index) => this.at.set(row, [block, index]));
      this.flat.push(...items);
      this.blocks.push(block);
      top += height;
    }
    this.container.style.height = `${top}px`;
    this.container.classList.toggle("narrow", this.narrow);
    this.container.style.setProperty("--lines", Math.floor((this.cellHeight - CAPTION - 20) / 18.2)); // whole lines of text
    for (const row of this.selected) if (!this.at.has(row)) this.selected.delete(row);
    if (!this.at.has(this.current)) this.current = -1;
    this.render(true);
  }

  #corner(block, index) {
    return {
      x: this.left + (index % this.columns) * (this.cellWidth + GAP),
      y: block.top + this.above + Math.floor(index / this.columns) * (this.cellHeight + GAP),
    };
  }

  // --- drawing

  #soon() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => {
      this.asked = 0;
      this.render(false);
    });
  }

  render(everything) {
    const from = this.scroll.scrollTop - OVERSCAN;
    const to = this.scroll.scrollTop + this.scroll.clientHeight + OVERSCAN;
    const kept = new Set();
    const sections = new Set();
    const here = this.at.get(this.current);
    for (const block of this.blocks) {
      const near = block.top + block.height >= from && block.top <= to;
      if (!near && here?.[0] !== block) continue;
      sections.add(block.group);
      const section = this.#section(block, everything);
      const line = this.cellHeight + GAP;
      const first = near ? Math.max(0, Math.floor((from - block.top - this.above) / line)) * this.columns : 0;
      const last = near ? Math.min(block.items.length, (Math.ceil((to - block.top - this.above) / line) + 1) * this.columns) : 0;
      for (let index = first; index < last; index += 1) {
        kept.add(block.items[index]);
        this.#cell(block, index, section, everything);
      }
      if (here?.[0] === block) {
        kept.add(this.current); // the focus must not vanish when one scrolls away
        this.#cell(block, here[1], section, everything);
      }
    }
    for (const [row, cell] of this.cells) {
      if (!kept.has(row)) {
        cell.element.remove();
        this.cells.delete(row);
      }
    }
    for (const [group, section] of this.sections) {
      if (!sections.has(group)) {
        section.element.remove();
        this.sections.delete(group);
      }
    }
    this.#inOrder([...sections].map((group) => this.sections.get(group).element));
  }

  /** Screen readers follow the document, so its order is that of the page. */
  #inOrder(sorted) {
    if (sorted.every((element, at) => this.container.children[at] === element)) return;
    // An element that is moved loses the focus: the others are moved around the one that has it.
    const held = Math.max(0, sorted.findIndex((element) => element.contains(document.activeElement)));
    sorted[held].before(...sorted.slice(0, held));
    sorted[held].after(...sorted.slice(held + 1));
  }

  #section(block, everything) {
    const { group } = block;
    let section = this.sections.get(group);
    if (!section) {
      if (!this.ids.has(group)) this.ids.set(group, (this.nextId += 1));
      const id = `group-${this.ids.get(group)}`;
      const title = make("h2", { id });
      const meta = make("p", { class: "meta" });
      const examples = make("div", { class: "examples" });
      const above = make("button", { type: "button", class: "small", onclick: () => this.onAbove(group) });
      const name = make("button", { type: "button", class: "small", onclick: () => this.onName(group) }, "Name this group …");
      const list = make("div", { class: "cells", role: "listbox", "aria-multiselectable": "true", "aria-labelledby": id });
      const rail = make("div", { class: "rail" }, title, meta, examples, make("div", { class: "buttons" }, above, name));
      const element = make("section", { "aria-labelledby": id }, rail, list);
      section = { element, title, meta, examples, above, name, list, shown: "" };
      this.sections.set(group, section);
      const following = [...this.container.children].find((other) => Number(other.dataset.top) > block.top);
      this.container.insertBefore(element, following ?? null);
      everything = true;
    }
    if (everything) this.#drawSection(block, section);
    return section;
  }

  #drawSection(block, section) {
    const { model } = this;
    const { group } = block;
    section.element.style.top = `${block.top}px`;
    section.element.style.height = `${block.height}px`;
    section.element.dataset.top = block.top;
    section.title.replaceChildren(...breakable(model.title(group)));
    section.title.title = model.title(group);
    const own = group.items.filter((row) => !model.moved(row));
    const open = own.filter((row) => model.isOpen(row));
    const sure = open.length ? open.reduce((sum, row) => sum + model.probability(row), 0) / open.length : 1;
    const named = group.number !== NO_CLASS;
    const state = !own.length ? "" : !open.length ? "all reviewed" : `${open.length === own.length ? "" : `${open.length} open · `}${named ? `${percent(sure)} % sure` : ""}`;
    const gone = group.items.length - own.length;
    section.meta.textContent = [count(own.length, "item"), state, gone ? `${gone} now elsewhere` : ""].filter(Boolean).join(" · ");
    section.element.classList.toggle("done", !open.length);
    section.above.hidden = !named || !open.length;
    section.above.textContent = "Confirm above …";
    section.above.setAttribute("aria-label", `Confirm all items above a probability as ${model.title(group)}`);
    section.name.hidden = !model.nameable(group) || !own.length;
    const examples = model.examples(group.number, 3);
    const shown = examples.map((one) => `${one.which}${one.row}`).join();
    if (shown === section.shown) return;
    section.shown = shown;
    section.examples.replaceChildren(...examples.map((one) => this.#example({ ...one, label: model.title(group) })));
  }

  /** An example of the class; a click enlarges it beside the current item, as the key z does. */
  #example(example) {
    const { which, row, name } = example;
    const face = this.model.kind === "pictures" ? picture(this.model.picture(which, row, 160), { alt: `Example ${name}` }) : name;
    const kind = this.model.kind === "pictures" ? "example" : "example text";
    return make("button", { type: "button", class: kind, title: `${name}: enlarge`, tabindex: "-1", onclick: () => this.onExample(example) }, face);
  }

  #cell(block, index, section, everything) {
    const row = block.items[index];
    let cell = this.cells.get(row);
    if (cell && cell.group !== block.group) {
      cell.element.remove();
      cell = undefined;
    }
    if (!cell) {
      cell = { element: this.#newCell(row), stamp: -1, group: block.group };
      this.cells.set(row, cell);
      const following = [...section.list.children].find((other) => Number(other.dataset.index) > index);
      section.list.insertBefore(cell.element, following ?? null);
      everything = true;
    }
    if (!everything) return;
    const { element } = cell;
    const { x, y } = this.#corner(block, index);
    element.dataset.index = index;
    element.style.transform = `translate(${x}px, ${y - block.top}px)`;
    element.style.width = `${this.cellWidth}px`;
    element.style.height = `${this.cellHeight}px`;
    if (this.model.kind === "names") element.querySelector(".face span").textContent = this.#shortened(this.model.names[row]);
    element.setAttribute("aria-posinset", index + 1);
    element.setAttribute("aria-setsize", block.items.length);
    element.setAttribute("aria-selected", this.selected.has(row));
    element.classList.toggle("current", row === this.current);
    element.tabIndex = row === this.current || (this.current < 0 && row === this.flat[0]) ? 0 : -1;
    if (cell.stamp !== this.model.stamp[row]) {
      cell.stamp = this.model.stamp[row];
      this.#drawCell(row, element);
    }
  }

  #newCell(row) {
    const { model } = this;
    const name = model.names[row];
    const face = make("div", { class: "face" });
    if (model.kind === "pictures") face.append(picture(model.picture("items", row, this.zoom > 3 ? 320 : 160)));
    else face.append(model.ids.length ? make("b", { class: "id" }, model.ids[row]) : "", make("span", {}, name));
    if (model.unread[row] !== undefined) face.classList.add("missing");
    return make("div", { class: `item ${model.kind}`, id: `item-${row}`, role: "option", title: [name, ...model.columns.map(([column, cells]) => `${column}: ${cells[row]}`)].join("\n"), "data-row": row }, face,
      make("div", { class: "caption" }, make("span", { class: "p" }), make("span", { class: "says" })));
  }

  /** A name on two lines. Long ones lose their middle, because names often differ at the end only. */
  #shortened(name) {
    const half = Math.floor((this.cellWidth - 26) / 7.8);
    return name.length <= 2 * half ? name : `${name.slice(0, half - 1)}…${name.slice(-half)}`;
  }

  #drawCell(row, element) {
    const { model } = this;
    const open = model.isOpen(row);
    const changed = open && model.was[row] >= 0;
    const number = model.number(row);
    const [p, says] = element.querySelector(".caption").children;
    element.classList.toggle("reviewed", !open);
    element.classList.toggle("none", model.answer[row] === NO_CLASS);
    element.classList.toggle("changed", changed);
    const known = model.best[row].length > 0;
    p.textContent = open ? (known ? `${percent(model.probability(row))} %` : "–") : "";
    element.dataset.doubt = open && known ? (model.probability(row) < 0.5 ? "high" : model.probability(row) < 0.9 ? "some" : "low") : "";
    const second = model.suggestions(row)[model.unknownGroup[row] >= 0 ? 0 : 1];
    const rival = model.kind !== "pictures" && second && second.probability >= 0.02 ? `or ${model.label(second.number)}` : (model.taken[row] ?? "").slice(5, 16);
    const label = model.label(number);
    const odd = model.by === "unknown" && number !== NO_CLASS ? `? ${percent(model.unknown[row])} %` : "";
    const is = model.moved(row) ? `→ ${label}` : changed ? `was ${model.label(model.was[row])}` : open ? odd || rival : number === NO_CLASS ? "unknown" : "reviewed";
    says.textContent = model.comment[row] ? `✎ ${is}` : is;
    element.classList.toggle("moved", model.moved(row));
    const state = open ? (known ? `suggested ${label}, ${percent(model.probability(row))} per cent` : "no suggestion") : `reviewed, ${label}`;
    element.setAttribute("aria-label", `${model.names[row]}: ${state}${changed ? `, was ${model.label(model.was[row])}` : ""}${model.comment[row] ? `, comment: ${model.comment[row]}` : ""}`);
  }

  // --- the current item and the selection

  /** Make an item the current one; `extend` selects from the anchor to it, `add` keeps the selection. */
  go(row, { extend = false, add = false, focus = true } = {}) {
    if (!this.at.has(row)) return;
    if (extend && this.at.has(this.anchor)) {
      const [a, b] = [this.flat.indexOf(this.anchor), this.flat.indexOf(row)].sort((one, other) => one - other);
      this.selected = new Set(this.flat.slice(a, b + 1));
    } else {
      if (!add) this.selected = new Set([row]);
      this.anchor = row;
    }
    this.current = row;
    this.#show(row);
    this.render(true);
    if (focus) this.cells.get(row)?.element.focus({ preventScroll: true });
    this.onCurrent();
  }

  toggle(row) {
    if (this.selected.has(row)) this.selected.delete(row);
    else this.selected.add(row);
    this.render(true);
    this.onCurrent();
  }

  select(rows) {
    this.selected = new Set(rows);
    this.render(true);
    this.onCurrent();
  }

  /** The selected items in the order of the page; the current one where none is selected. */
  chosen() {
    const rows = this.flat.filter((row) => this.selected.has(row));
    return rows.length ? rows : this.current >= 0 ? [this.current] : [];
  }

  move(key, extend, focus = true) {
    if (this.current < 0) {
      if (this.flat.length) this.go(this.flat[0]);
      return;
    }
    const [block, index] = this.at.get(this.current);
    const at = this.blocks.indexOf(block);
    const n = block.items.length;
    const column = index % this.columns;
    const page = Math.max(1, Math.floor(this.scroll.clientHeight / (this.cellHeight + GAP)) - 1);
    const flat = () => this.flat.indexOf(this.current);
    let to;
    if (key === "ArrowLeft") to = this.flat[flat() - 1];
    else if (key === "ArrowRight") to = this.flat[flat() + 1];
    else if (key === "Home") to = this.flat[0];
    else if (key === "End") to = this.flat.at(-1);
    else if (key === "[") to = this.blocks[at - (index === 0 ? 1 : 0)]?.items[0];
    else if (key === "]") to = this.blocks[at + 1]?.items[0];
    else if (key === "PageDown") to = this.flat[Math.min(this.flat.length - 1, flat() + page * this.columns)];
    else if (key === "PageUp") to = this.flat[Math.max(0, flat() - page * this.columns)];
    else if (key === "ArrowDown") {
      if (index + this.columns < n) to = block.items[index + this.columns];
      else if (Math.floor(index / this.columns) < Math.floor((n - 1) / this.columns)) to = block.items[n - 1];
      else to = this.blocks[at + 1]?.items[Math.min(column, this.blocks[at + 1].items.length - 1)];
    } else if (key === "ArrowUp") {
      if (index >= this.columns) to = block.items[index - this.columns];
      else if (at > 0) {
        const above = this.blocks[at - 1].items;
        const line = Math.floor((above.length - 1) / this.columns) * this.columns;
        to = above[Math.min(line + column, above.length - 1)];
      }
    }
    if (to === undefined) return;
    this.go(to, { extend, focus });
    if (key === "[" || key === "]") this.scroll.scrollTop = this.at.get(to)[0].top;
  }

  /** The open item that follows, in this group first; -1 where none is left. */
  nextOpen(rows) {
    const leaving = new Set(rows);
    const [block, index] = this.at.get(this.current) ?? [this.blocks[0], -1];
    const free = (row) => this.model.isOpen(row) && !leaving.has(row);
    const inside = block.items.slice(index + 1).find(free) ?? block.items.find(free);
    if (inside !== undefined) return inside;
    const at = this.blocks.indexOf(block);
    for (const other of [...this.blocks.slice(at + 1), ...this.blocks.slice(0, at)]) {
      const found = other.items.find(free);
      if (found !== undefined) return found;
    }
    return -1;
  }

  #show(row) {
    const [block, index] = this.at.get(row);
    const { y } = this.#corner(block, index);
    const top = index < this.columns ? block.top : y - 14; // with the class name where it is the first line
    const bottom = y + this.cellHeight + 14;
    const height = this.scroll.clientHeight;
    if (bottom < this.scroll.scrollTop - height || top > this.scroll.scrollTop + 2 * height) {
      this.scroll.scrollTop = (top + bottom - height) / 2; // a jump ends in the middle
    } else if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    else if (bottom > this.scroll.scrollTop + this.scroll.clientHeight) this.scroll.scrollTop = bottom - this.scroll.clientHeight;
  }

  // --- the pointer

  #listenToThePointer() {
    const { scroll, container } = this;
    let start = null;
    const box = make("div", { class: "box", hidden: true });
    container.after(box);
    const place = (event) => {
      const inside = container.getBoundingClientRect();
      return { x: event.clientX - inside.left, y: event.clientY - inside.top };
    };
    const rowAt = (event) => {
      const cell = event.target.closest?.(".item");
      return cell ? Number(cell.dataset.row) : -1;
    };
    scroll.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.target.closest("button, a, input")) return;
      if (event.offsetX > scroll.clientWidth && event.target === scroll) return; // the scroll bar
      start = { ...place(event), row: rowAt(event), mouse: event.pointerType === "mouse", moved: false, before: new Set(event.ctrlKey || event.metaKey ? this.selected : []) };
    });
    window.addEventListener("pointermove", (event) => {
      if (!start?.mouse) return;
      const now = place(event);
      if (!start.moved && Math.hypot(now.x - start.x, now.y - start.y) < 6) return;
      start.moved = true;
      const edge = scroll.getBoundingClientRect();
      if (event.clientY > edge.bottom - 24) scroll.scrollTop += 18;
      if (event.clientY < edge.top + 24) scroll.scrollTop -= 18;
      const [x0, x1] = [start.x, now.x].sort((a, b) => a - b);
      const [y0, y1] = [start.y, now.y].sort((a, b) => a - b);
      box.hidden = false;
      box.style.transform = `translate(${x0}px, ${y0}px)`;
      box.style.width = `${x1 - x0}px`;
      box.style.height = `${y1 - y0}px`;
      this.select([...start.before, ...this.#inBox(x0, y0, x1, y1)]);
      event.preventDefault();
    });
    window.addEventListener("pointerup", (event) => {
      if (!start) return;
      const { row, moved } = start;
      start = null;
      box.hidden = true;
      if (moved) {
        const first = this.chosen()[0];
        if (first !== undefined && this.selected.size) {
          this.current = first;
          this.anchor = first;
          this.render(true);
          this.cells.get(first)?.element.focus({ preventScroll: true });
          this.onCurrent();
        }
      } else if (row >= 0 && rowAt(event) === row) {
        const add = event.ctrlKey || event.metaKey;
        if (add) this.toggle(row);
        this.go(row, { extend: event.shiftKey, add });
      }
    });
    window.addEventListener("pointercancel", () => {
      start = null;
      box.hidden = true;
    });
  }

  #inBox(x0, y0, x1, y1) {
    const found = [];
    for (const block of this.blocks) {
      if (block.top > y1 || block.top + block.height < y0) continue;
      block.items.forEach((row, index) => {
        const { x, y } = this.#corner(block, index);
        if (x < x1 && x + this.cellWidth > x0 && y < y1 && y + this.cellHeight > y0) found.push(row);
      });
    }
    return found;
  }
}
