// The panel beside the grid: the current item, its suggestions, the actions, and the nearest examples.

import { near } from "./api.js";
import { breakable, count, make, percent, picture, visible } from "./dom.js";
import { NO_CLASS } from "./model.js";

export class Panel {
  constructor(model, element, actions) {
    Object.assign(this, { model, element, actions });
    this.shown = "";
    this.timer = 0;
    this.neighbours = new Map();
  }

  draw(row, chosen) {
    const { model } = this;
    if (row < 0) {
      this.shown = "";
      this.element.replaceChildren(make("p", { class: "hint" }, "Select an item to see its suggestions. Press ? for the keys."));
      return;
    }
    const key = [row, model.stamp[row], chosen.length, model.classes.length].join();
    if (key === this.shown) return;
    this.shown = key;
    const open = model.isOpen(row);
    const number = model.number(row);
    const suggested = !open || model.best[row].length > 0;
    const holds = suggested ? model.label(number) : "No suggestion";
    const many = chosen.length > 1;
    const about = model.columns.filter(([, cells]) => cells[row]).slice(0, 6); // all of them are in the title of the card
    const nearest = make("div", { class: "near", "aria-live": "off" });
    this.element.replaceChildren(
      this.#face(row),
      make("div", { class: "who" },
        make("p", { class: "name", title: model.names[row] }, model.kind === "texts" ? model.ids[row] ?? "" : model.names[row]),
        make("p", { class: "class-name" }, ...breakable(holds)),
        make("p", { class: `state${open ? "" : " reviewed"}` }, this.#state(row, open)),
        model.comment[row] ? make("p", { class: "comment" }, `✎ ${model.comment[row]}`) : null,
        many ? make("p", { class: "many" }, `${count(chosen.length, "item")} selected`) : null),
      about.length ? make("dl", { class: "about" }, ...about.map(([column, cells]) => make("div", {}, make("dt", {}, ...breakable(column)), make("dd", {}, cells[row])))) : "",
      make("div", { class: "does" },
        ...this.actions.buttons(!open)),
      this.#suggestions(row),
      nearest,
    );
    clearTimeout(this.timer);
    if (this.neighbours.has(row)) this.#near(nearest, this.neighbours.get(row));
    else this.timer = setTimeout(() => this.#ask(row, nearest), 120); // not for every item that the arrows pass
  }

  #state(row, open) {
    const { model } = this;
    if (!open) return "reviewed";
    if (model.unread[row] !== undefined) return `could not be read: ${model.unread[row]}`;
    const p = `${percent(model.probability(row))} % sure`;
    return model.was[row] >= 0 ? `${p} · was ${model.label(model.was[row])}` : p;
  }

  #face(row) {
    const { model } = this;
    if (model.kind === "pictures") {
      const face = make("div", { class: "portrait" }, picture(model.picture("items", row, 320), { alt: model.names[row], loading: "eager" }));
      face.addEventListener("click", this.actions.enlarge);
      return face;
    }
    return make("div", { class: `portrait ${model.kind}`, tabindex: "0", role: "group", "aria-label": "Current item" }, model.kind === "texts" ? model.names[row] : "");
  }

  #suggestions(row) {
    const { model } = this;
    const list = make("ol", { class: "suggestions", "aria-label": "Suggestions" });
    const found = model.suggestions(row).map((one) => ({ ...one, example: model.kind === "pictures" ? model.examples(one.number, 1)[0] : undefined }));
    const pictures = found.some(({ example }) => example);
    found.forEach(({ number, probability, example }, at) => {
      const bar = make("i", { class: "bar", "aria-hidden": "true" });
      bar.style.transform = `scaleX(${probability})`;
      const button = make("button", { type: "button", onclick: () => this.actions.take(at), "aria-keyshortcuts": String(at + 1) },
        make("kbd", { "aria-hidden": "true" }, String(at + 1)),
        pictures ? make("span", { class: "example" }, example ? picture(model.picture(example.which, example.row, 160)) : "") : null,
        make("span", { class: "label" }, ...breakable(model.label(number))),
        make("span", { class: "p" }, percent(probability)), bar);
      if (model.answer[row] === number) button.setAttribute("aria-current", "true");
      list.append(make("li", {}, button));
    });
    return list;
  }

  async #ask(row, place) {
    try {
      const found = await near(row);
      this.neighbours.set(row, found);
      this.#near(place, found);
    } catch {
      // The grid says that the server is lost.
    }
  }

  #near(place, found) {
    if (!found.length) return;
    const { model } = this;
    const shown = found.map(({ row, name, label }) => make("li", {}, this.#neighbour({ which: "examples", row, name, label })));
    place.replaceChildren(make("h3", {}, "Nearest examples"), make("ul", { class: model.kind }, ...shown));
  }

  /** An example that can be enlarged beside the current item. */
  #neighbour(example) {
    const { model } = this;
    const about = `${visible(example.label)}, ${example.name}`;
    const face = model.kind === "pictures" ? picture(model.picture("examples", example.row, 160), { alt: about })
      : make("span", {}, make("b", {}, visible(example.label)), make("span", {}, example.name));
    return make("button", { type: "button", class: model.kind === "pictures" ? "example" : "words", title: `${about}: enlarge`, onclick: () => this.actions.compare(example) }, face);
  }
}
