// The dialogs: search or name a class, confirm above a probability, export, enlarge, help.

import { planned, write } from "./api.js";
import { breakable, count, find, make, percent, picture, visible } from "./dom.js";
import { NO_CLASS } from "./model.js";

const MOST = 60; // classes in the list

/** A name without case and accents, however these are encoded. */
const plainly = (name) => name.normalize("NFD").replace(/\p{M}/gu, "").toLocaleLowerCase();

/** How well a name fits what was typed: earlier and at the start of a word is better; -1 if it does not fit. */
function fit(name, words) {
  const plain = plainly(name);
  let total = 0;
  for (const word of words) {
    const at = plain.indexOf(word);
    if (at < 0) return -1;
    total += at === 0 ? 0 : /\s/u.test(plain[at - 1]) ? 1 : 2 + at / plain.length;
  }
  return total;
}

export class ClassSearch {
  constructor(model) {
    this.model = model;
    this.dialog = find("search");
    this.text = find("search-text");
    this.list = find("search-found");
    this.text.addEventListener("input", () => this.#list());
    this.text.addEventListener("keydown", (event) => this.#key(event));
    this.dialog.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
  }

  /** Let the user choose a class; `take` gets its name. With `fresh` a new one is expected. */
  open(title, about, fresh, first, take) {
    Object.assign(this, { fresh, first, take });
    find("search-title").textContent = title;
    find("search-about").textContent = about;
    this.text.value = "";
    this.text.placeholder = fresh ? "Name of the class" : "Type a part of its name";
    this.dialog.showModal();
    this.#list();
    this.text.focus();
  }

  #list() {
    const { model } = this;
    const typed = this.text.value.trim().replace(/\s+/gu, " ");
    const words = plainly(typed).split(" ").filter(Boolean);
    let found = [];
    if (words.length) {
      found = model.classes.map((name, number) => [number, fit(name, words)]).filter(([, score]) => score >= 0)
        .sort((a, b) => a[1] - b[1] || a[0] - b[0]).map(([number]) => number);
    } else if (!this.fresh) {
      found = [...new Set([...this.first, ...model.classes.keys()])];
    }
    this.options = found.slice(0, MOST).map((number) => ({ name: model.classes[number], number }));
    const alike = model.classes.some((name) => plainly(name) === plainly(typed));
    if (typed && !model.classes.includes(typed)) this.options.push({ name: typed, number: -1 });
    // A new class comes first where one is wanted, so that Enter makes it, but not where a class is called almost the same.
    if (this.fresh && !alike && this.options.at(-1)?.number === -1) this.options.unshift(this.options.pop());
    this.at = 0;
    this.list.replaceChildren(...this.options.map((option, at) => this.#option(option, at)));
    this.#mark();
  }

  #option({ name, number }, at) {
    const [example] = number >= 0 && this.model.kind === "pictures" ? this.model.examples(number, 1) : [];
    return make("li", { role: "option", id: `class-${at}`, onclick: () => this.#choose(at) },
      example ? make("span", { class: "example" }, picture(this.model.picture(example.which, example.row, 160))) : null,
      number < 0 ? make("span", { class: "new" }, "New class") : null, make("span", { class: "label" }, ...breakable(visible(name))));
  }

  #mark() {
    [...this.list.children].forEach((option, at) => option.setAttribute("aria-selected", at === this.at));
    const marked = this.list.children[this.at];
    if (marked) {
      this.text.setAttribute("aria-activedescendant", marked.id);
      marked.scrollIntoView({ block: "nearest" });
    } else this.text.removeAttribute("aria-activedescendant");
  }

  #key(event) {
    if (event.isComposing) return; // this Enter ends the input of a character
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      this.at = Math.max(0, Math.min(this.options.length - 1, this.at + step));
      this.#mark();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (this.options[this.at]) this.#choose(this.at);
    }
  }

  #choose(at) {
    this.dialog.close();
    this.take(this.options[at].name);
  }
}

/** Ask for a probability and confirm the open items of a group that reach it. */
export function openAbove(model, group, take) {
  const dialog = find("above");
  const slider = find("above-value");
  const own = group.items.filter((row) => !model.moved(row));
  const rows = () => own.filter((row) => model.isOpen(row) && model.probability(row) >= Number(slider.value));
  const draw = () => {
    find("above-shown").textContent = Number(slider.value).toFixed(2);
    find("above-count").textContent = `${count(rows().length, "open item")} of ${own.length} reach this probability.`;
    find("above-go").disabled = !rows().length;
  };
  const highest = Math.max(0, ...own.filter((row) => model.isOpen(row)).map((row) => model.probability(row)));
  slider.value = Math.min(0.9, Math.floor(100 * highest) / 100);
  find("above-class").textContent = model.title(group);
  slider.oninput = draw;
  dialog.onclose = () => dialog.returnValue === "go" && rows().length && take(rows());
  dialog.returnValue = "";
  slider.onkeydown = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    dialog.close(rows().length ? "go" : "cancel");
  };
  draw();
  dialog.showModal();
  slider.focus();
}

export function openExports(overview) {
  find("exports-folder").textContent = overview.folder;
  find("exports-pictures").hidden = Object.keys(overview.exports).every((name) => name.includes("."));
  find("exports-said").textContent = "";
  find("exports-list").replaceChildren(...Object.entries(overview.exports).map(([name, about]) => {
    const button = make("button", { type: "button", class: "quiet" }, make("b", {}, name.includes(".") ? name : `${name}/`), make("span", {}, about));
    button.addEventListener("click", async () => {
      button.disabled = true;
      find("exports-said").textContent = `Writing ${name} …`;
      try {
        const { said, download } = await write(name);
        find("exports-said").textContent = said;
        if (download) make("a", { href: download, download: name }).click();
      } catch (error) {
        find("exports-said").textContent = error.refused ? error.message : "The server does not answer.";
      }
      button.disabled = false;
    });
    return button;
  }));
  find("exports").showModal();
}

/** The classes with what is known about each; `take` gets the number of one. */
export function openClasses(model, take) {
  const cells = (one) => [one.count, one.reviewed, one.count > one.reviewed ? `${percent(one.sure / (one.count - one.reviewed))} %` : "", one.presence === null ? "" : `${percent(one.presence)} %`];
  const rows = model.summary().map((one) => make("tr", {},
    make("th", { scope: "row" }, make("button", { type: "button", disabled: !one.count, onclick: () => { find("classes").close(); take(one.number); } }, ...breakable(model.label(one.number)))),
    ...cells(one).map((text) => make("td", {}, String(text)))));
  find("classes-list").replaceChildren(...rows);
  const there = model.summary().filter(({ number, count: n }) => n && number !== NO_CLASS).length;
  find("classes-about").textContent = `${count(there, "class", "classes")} of ${model.classes.length.toLocaleString("en")} have items.${model.openSet ? ` About ${count(Math.round(model.expectedUnknown()), "item")} of ${model.n.toLocaleString("en")} are expected to be unknown.` : ""}`;
  showFromTheTop(find("classes"));
}

/** Write a comment; `take` gets the text. */
export function openComment(before, take) {
  const dialog = find("comment");
  find("comment-text").value = before;
  find("comment-text").onkeydown = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    dialog.close("go");
  };
  dialog.returnValue = "";
  dialog.onclose = () => dialog.returnValue === "go" && take(find("comment-text").value.trim());
  dialog.showModal();
  find("comment-text").focus();
}

export function enlarge(model, row) {
  const dialog = find("large");
  const what = model.kind === "pictures" ? picture(model.picture("items", row, 1280), { alt: model.names[row], loading: "eager" })
    : make("p", { class: "whole" }, model.names[row]);
  find("large-what").replaceChildren(what);
  find("large-name").textContent = [model.kind === "pictures" ? model.names[row] : "", `${model.label(model.number(row))}${model.isOpen(row) ? "" : " ✓"}`].filter(Boolean).join(" · ");
  find("large-what").classList.remove("missing");
  dialog.onclick = (event) => event.target === dialog && dialog.close();
  if (!dialog.open) showFromTheTop(dialog);
}

/** Open a dialog that may be higher than the window. Its focus is on the button at the end. */
export function showFromTheTop(dialog) {
  dialog.showModal();
  dialog.scrollTop = 0;
}

/** Offer a random check; `begin` gets the name of the chosen one. */
export async function openCheck({ items, reviewed, errors }, begin) {
  const dialog = find("check-sheet");
  const offers = await planned();
  const choices = (wanted) => offers.map(([name, answers]) => [name, answers, ...name.split(" ")]).filter(([, , , of]) => of === wanted).map(([name, answers, tolerance]) => {
    const early = errors * answers > 0.5 * (items - reviewed) ? ", too early" : ""; // it is expected to find a wrong label
    return make("label", {},
      make("input", { type: "radio", name: "tolerance", value: name, ...(name === "0.05 all" ? { checked: "", autofocus: "" } : {}) }),
      make("span", {}, `${percent(tolerance)} %: about ${count(answers, "answer")}${early}`));
  });
  find("check-choices").replaceChildren(
    make("p", {}, `At most so many of all ${count(items, "label")} are wrong:`), ...choices("all"),
    make("p", {}, "At most so many of the labels that stay without an answer:"), ...choices("rest"));
  dialog.onclose = () => dialog.returnValue === "go" && begin(dialog.querySelector("input:checked").value);
  dialog.returnValue = "";
  dialog.showModal();
}
