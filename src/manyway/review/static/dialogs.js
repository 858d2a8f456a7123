// The dialogs: search or name a class, name a group, confirm above a probability, export, enlarge, history, check.

import { history, planned, write } from "./api.js";
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

  /** Let the user choose a class; `take` gets its name. With `fresh` a new one is expected; `first` come first. */
  open({ title, about, fresh, first = [], take, group = null }) {
    Object.assign(this, { fresh, first, take, group });
    find("search-title").textContent = title;
    find("search-about").textContent = about;
    find("search-group").hidden = !group;
    this.dialog.classList.toggle("of-group", Boolean(group));
    group?.draw();
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
    if (this.group && !this.group.rows().length) return; // nothing would get the name
    this.dialog.close();
    this.take(this.options[at].name);
  }
}

/** The items of a group that get a name: those that are like its middle, and what was clicked. */
export class GroupPreview {
  /** `likeness` promises the item in the middle, how like it each of the rows is, and below which value they are strays. */
  constructor(model, rows, likeness) {
    this.model = model;
    this.medoid = -1;
    this.members = rows.map((row) => ({ row, value: 1 })); // all belong together until the server has answered
    this.clicked = new Set();
    this.slider = find("search-threshold");
    this.slider.value = 0;
    this.slider.oninput = () => {
      this.clicked.clear();
      this.draw();
    };
    find("search-preview").ariaBusy = "true";
    this.ready = likeness
      .then((answer) => this.#arrange(rows, answer), () => {}) // without an answer all members get the name
      .then(() => { find("search-preview").ariaBusy = "false"; });
  }

  #arrange(rows, { medoid, values, threshold }) {
    this.medoid = medoid;
    this.members = rows.map((row, at) => ({ row, value: values[at] })).sort((a, b) => b.value - a.value);
    this.slider.value = Math.floor(100 * threshold) / 100;
    this.draw();
  }

  #belongs({ row, value }) {
    return (value >= Number(this.slider.value)) !== this.clicked.has(row);
  }

  rows() {
    return this.members.filter((member) => this.#belongs(member)).map(({ row }) => row);
  }

  draw() {
    const { model, members } = this;
    find("search-threshold-shown").textContent = `${Math.round(100 * Number(this.slider.value))} %`;
    const named = this.rows().length;
    find("search-group-count").textContent = `${count(named, "item")} will get the name; ${count(members.length - named, "item stays", "items stay")} open. Click an item to add it or to leave it out.`;
    find("search-preview").replaceChildren(...members.map((member) => {
      const name = model.names[member.row];
      const about = `${name}, ${percent(member.value)} % like the middle of the group`;
      const face = model.kind === "pictures" ? picture(model.picture("items", member.row, 160), { alt: name }) : name;
      const button = make("button", { type: "button", class: model.kind === "pictures" ? "example" : "example text", title: about, "aria-label": about, "aria-pressed": String(this.#belongs(member)) }, face);
      button.classList.toggle("medoid", member.row === this.medoid);
      button.addEventListener("click", () => {
        if (!this.clicked.delete(member.row)) this.clicked.add(member.row);
        this.draw();
      });
      return button;
    }));
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
  const tell = (sentence, bad = false) => {
    const said = find("exports-said");
    said.textContent = sentence;
    said.classList.toggle("bad", bad);
    said.setAttribute("role", bad ? "alert" : "status");
  };
  find("exports-folder").textContent = overview.folder;
  find("exports-pictures").hidden = !overview.exports.some(({ folder }) => folder);
  tell("");
  find("exports-list").replaceChildren(...overview.exports.map(({ name, about, folder }) => {
    const button = make("button", { type: "button", class: "quiet" }, make("b", {}, folder ? `${name}/` : name), make("span", {}, about));
    button.addEventListener("click", async () => {
      button.disabled = true;
      tell(`Writing ${name} …`);
      try {
        const { said, download } = await write(name);
        tell(said);
        if (download) make("a", { href: download, download: name }).click();
      } catch (error) {
        tell(error.refused ? error.message : "The server does not answer.", true);
      }
      button.disabled = false;
    });
    return button;
  }));
  find("exports").showModal();
}

/** What was done, newest first; `go` gets the item of an entry. */
export async function openHistory(go) {
  const entries = await history();
  find("history-list").replaceChildren(...entries.map(({ sentence, row, time }) => make("li", {},
    make("time", { datetime: time }, new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })),
    make("button", { type: "button", disabled: row < 0, onclick: () => { find("history").close(); go(row); } }, sentence))));
  find("history-about").textContent = entries.length ? "Newest first. Click an entry to go to its item." : "Nothing was done yet.";
  showFromTheTop(find("history"));
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

/** The current item enlarged, with an example beside it. */
export class Enlarged {
  constructor(model) {
    this.model = model;
    this.dialog = find("large");
    this.row = -1;
    this.beside = 0;
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
  }

  get isOpen() {
    return this.dialog.open;
  }

  /** Show an item; `example`: what is wanted beside it, otherwise an example of the class that is suggested. */
  show(row, example = null) {
    const { model } = this;
    this.row = row;
    this.examples = this.#examples();
    this.beside = 0;
    if (example) {
      const same = (one) => one.which === example.which && one.row === example.row;
      if (!this.examples.some(same)) this.examples.unshift(example);
      this.beside = this.examples.findIndex(same);
    }
    find("large-what").classList.remove("missing");
    find("large-what").replaceChildren(this.#face("items", row, model.names[row]));
    const own = `${model.label(model.number(row))}${model.isOpen(row) ? "" : " ✓"}`;
    find("large-name").textContent = model.kind === "pictures" ? `${model.names[row]} · ${own}` : own;
    this.#drawBeside();
    if (!this.dialog.open) {
      this.dialog.showModal();
      this.dialog.scrollTop = 0;
      this.dialog.focus(); // and not the button, so that Enter confirms
    }
  }

  next() {
    if (!this.isOpen || !this.examples.length) return;
    this.beside = (this.beside + 1) % this.examples.length;
    this.#drawBeside();
  }

  /** Examples of what is suggested: three of the first class, one of each that follows. */
  #examples() {
    const { model } = this;
    const suggested = model.suggestions(this.row).map(({ number }) => number);
    const numbers = [...new Set([model.number(this.row), ...suggested])].filter((number) => number >= 0).slice(0, 5);
    const label = (number) => (suggested.includes(number) ? `${suggested.indexOf(number) + 1} · ${model.label(number)}` : model.label(number)); // with its key
    return numbers.flatMap((number, at) => model.examples(number, at ? 1 : 3).map((one) => ({ ...one, label: label(number) })));
  }

  #face(which, row, name) {
    const { model } = this;
    return model.kind === "pictures" ? picture(model.picture(which, row, 1280), { alt: name, loading: "eager" }) : make("p", { class: "whole" }, name);
  }

  #drawBeside() {
    const { model, examples, beside } = this;
    find("large-beside").hidden = !examples.length;
    find("large-strip").hidden = examples.length < 2;
    if (!examples.length) return;
    const { which, row, name, label } = examples[beside];
    find("large-example").classList.remove("missing");
    find("large-example").replaceChildren(this.#face(which, row, name));
    find("large-example-name").textContent = `Example: ${label}`;
    find("large-strip").replaceChildren(...examples.map((one, at) => {
      const face = model.kind === "pictures" ? picture(model.picture(one.which, one.row, 160), { alt: `${one.label}, ${one.name}` }) : one.label;
      const button = make("button", { type: "button", class: model.kind === "pictures" ? "example" : "example text", title: one.label, "aria-pressed": String(at === beside) }, face);
      button.addEventListener("click", () => {
        this.beside = at;
        this.#drawBeside();
        this.dialog.focus();
      });
      return button;
    }));
  }
}

/** Open a dialog that may be higher than the window. Its focus is on the button at the end. */
export function showFromTheTop(dialog) {
  dialog.showModal();
  dialog.scrollTop = 0;
}

/** Offer a random check; `begin` gets the chosen one. */
export async function openCheck(items, begin) {
  const dialog = find("check-sheet");
  const offers = await planned();
  const usual = offers.findLast(({ of, tolerance }) => of === "all" && tolerance <= 0.05) ?? offers[0];
  const name = ({ tolerance, of }) => `${tolerance} ${of}`;
  const choices = (wanted) => offers.filter(({ of }) => of === wanted).map((offer) => {
    const early = offer.early ? ", too early: more errors are expected" : "";
    return make("label", {},
      make("input", { type: "radio", name: "tolerance", value: name(offer), ...(offer === usual ? { checked: "", autofocus: "" } : {}) }),
      make("span", {}, `${percent(offer.tolerance)} %: about ${count(offer.answers, "answer")}${early}`));
  });
  find("check-choices").replaceChildren(
    make("p", {}, `At most so many of all ${count(items, "label")} are wrong:`), ...choices("all"),
    make("p", {}, "At most so many of the labels that stay without an answer:"), ...choices("rest"));
  find("check-choices").onkeydown = (event) => {
    if (event.key !== "Enter") return; // the first button of the form, which Enter would press, is Cancel
    event.preventDefault();
    dialog.close("go");
  };
  dialog.onclose = () => {
    if (dialog.returnValue !== "go") return;
    const chosen = dialog.querySelector("input:checked").value;
    const { tolerance, of } = offers.find((offer) => name(offer) === chosen);
    begin(tolerance, of);
  };
  dialog.returnValue = "";
  dialog.showModal();
}
