// Everything that keys and buttons can do, in one list: the actions of the review, which the server names, and what
// concerns this page alone. Buttons, keys and the list of keys are made from it.

import { find, make } from "./dom.js";

/** What concerns this page alone. `large`: it works in the enlarged view too. */
const OWN = [
  { name: "move", key: "← → ↑ ↓", about: "move; with Shift select" },
  { name: "mostUseful", key: "j", about: "go to the item whose answer helps most", large: true },
  { name: "toggle", key: "Space", about: "add the item to the selection, or remove it" },
  { name: "selectGroup", key: "Ctrl a", about: "select all items of this group" },
  { name: "selectCurrent", key: "Esc", about: "select the current item only" },
  { name: "enlarge", key: "z", about: "enlarge the item and an example beside it; all keys of answers work there", large: true },
  { name: "nextExample", key: ".", about: "another example beside the enlarged item", large: true },
  { name: "classes", key: "c", about: "list of classes" },
  { name: "history", key: "h", about: "what was done" },
  { name: "filter", key: "f", about: "filter by name, class, folder, date …" },
  { name: "larger", key: "+", about: "larger items" },
  { name: "smaller", key: "-", about: "smaller items" },
  { name: "sort", key: "s", about: "sort again, least certain group first" },
  { name: "groups", key: "[ ]", about: "previous and next group" },
  { name: "export", key: "e", about: "export" },
  { name: "help", key: "?", about: "this list" },
];
const ALSO = { Backspace: ["Delete"], "+": ["="], "-": ["−"], Esc: ["Escape"], Space: [" "] }; // other names of a key
const SHORT = { Backspace: "⌫" };

export class Commands {
  #byKey = new Map();

  /** `actions`: those of the server; `handlers`: the function of each command, by its name. */
  constructor(actions, handlers) {
    const gestures = actions.flatMap(({ gestures: own }) => own).map((gesture) => ({ ...gesture, large: true }));
    this.list = [...gestures, ...OWN];
    for (const command of this.list) {
      const run = handlers[command.name];
      if (!run) throw new Error(`The page cannot do ${command.name}.`);
      command.run = run;
      const [first, last] = command.key.split(" – ");
      if (last === undefined) for (const key of [first, ...(ALSO[first] ?? [])]) this.#byKey.set(key, command);
      else for (let digit = Number(first); digit <= Number(last); digit += 1) this.#byKey.set(String(digit), command);
    }
    for (const button of document.querySelectorAll("[data-command]")) {
      const command = this.named(button.dataset.command);
      button.title = `${button.title || command.about} (${command.key})`;
      button.addEventListener("click", () => command.run());
    }
    find("keys").replaceChildren(...this.list.map(({ key, about }) => make("div", {},
      make("dt", {}, ...key.split(" ").map((one) => (one === "–" ? " – " : make("kbd", {}, one)))),
      make("dd", {}, about))));
  }

  named(name) {
    return this.list.find((command) => command.name === name);
  }

  /** Do what a key stands for; whether it stands for something. `large`: in the enlarged view. */
  press(key, large = false) {
    const command = this.#byKey.get(key);
    if (!command || (large && !command.large)) return false;
    command.run(key);
    return true;
  }

  /** The buttons beside the current item. */
  buttons(reviewed) {
    return this.list.filter(({ button, only }) => button && (reviewed || only !== "reviewed")).map(({ button, key, only, run }) =>
      make("button", { type: "button", class: only === "main" ? "main" : "quiet", onclick: () => run() },
        button, make("kbd", { "aria-hidden": "true" }, SHORT[key] ?? key)));
  }
}
