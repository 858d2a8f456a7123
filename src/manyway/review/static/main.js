// The page of a review: load, draw, listen.

import { Actions, follow, load } from "./api.js";
import { ClassSearch, enlarge, openAbove, openCheck, openClasses, openComment, openExports, showFromTheTop } from "./dialogs.js";
import { count, find, percent } from "./dom.js";
import { Grid } from "./grid.js";
import { Model, NO_CLASS } from "./model.js";
import { Panel } from "./panel.js";

const overview = await load();
const model = new Model(overview);
const problems = { unsaved: "", server: "", labels: "" };
document.body.dataset.just = 600; // milliseconds in which nobody has seen a new suggestion yet
let spoken = 0;

function say(sentence, bad = false) {
  const status = find("status");
  status.textContent = sentence;
  status.classList.toggle("bad", bad);
  status.classList.add("on");
  clearTimeout(spoken);
  spoken = setTimeout(() => status.classList.remove("on"), 6000);
}

function complain(kind, sentence) {
  problems[kind] = sentence;
  const shown = Object.values(problems).filter(Boolean).join(" ");
  const place = find("problem");
  if (place.textContent !== shown) place.textContent = shown;
  place.hidden = !shown;
}

const search = new ClassSearch(model);
const actions = new Actions(overview.items, say, (sentence) => complain("unsaved", sentence), (saving) => document.body.classList.toggle("saving", saving));
window.addEventListener("beforeunload", (event) => {
  if (document.body.classList.contains("saving")) event.preventDefault();
});
const grid = new Grid(model, find("scroll"), find("groups"), { onCurrent: draw, onName: nameGroup, onAbove: above });
const panel = new Panel(model, find("panel"), {
  confirm, unknown, clear, take, enlarge: enlargeCurrent, comment,
  name: () => nameItems(true), search: () => nameItems(false),
});

function draw() {
  panel.draw(grid.current, grid.chosen());
}

function drawProgress() {
  const { items, reviewed, errors, right, enough } = model.progress;
  const parts = [`${reviewed.toLocaleString("en")} of ${items.toLocaleString("en")} reviewed`];
  if (reviewed < items) {
    parts.push(`${errors < 10 ? errors.toFixed(1) : Math.round(errors).toLocaleString("en")} errors expected`);
    parts.push(`${percent(right)} % right expected${right >= enough && !model.progress.check ? ": check it" : ""}`);
  } else parts.push("all done");
  find("counts").textContent = parts.join(" · ");
  find("counts").classList.toggle("enough", right >= enough);
  const meter = find("meter");
  meter.setAttribute("aria-valuenow", Math.round((100 * reviewed) / items));
  meter.setAttribute("aria-valuetext", parts.join(", "));
  meter.children[0].style.transform = `scaleX(${right})`;
  meter.children[1].style.transform = `scaleX(${reviewed / items})`;
  drawCheck(model.progress.check);
  find("undo").disabled = !model.canUndo;
  const moved = model.names.filter((_, row) => model.moved(row)).length;
  find("again").hidden = !moved;
  find("again").textContent = `Sort again · ${moved.toLocaleString("en")} moved`;
  document.body.classList.toggle("busy", model.busy);
  document.body.dataset.version = model.version;
}

let asked = -1; // the item that the check asks for

function drawCheck(check) {
  find("checking").hidden = !check;
  find("check").disabled = Boolean(check);
  find("next").textContent = check ? "Next of the check" : "Most useful item";
  find("checking").classList.toggle("done", Boolean(check?.done));
  if (!check) return;
  const sure = `With ${percent(check.confidence)} % confidence`;
  const found = `${check.asked.toLocaleString("en")} answered, ${check.wrong ? `${check.wrong.toLocaleString("en")} wrong` : "none wrong"}`;
  const hint = check.learn ? " Better end it: all labels learn from the answers, and a new check needs fewer." : "";
  find("checking-said").textContent = check.done
    ? `You are done. ${sure} at most ${check.most.toLocaleString("en")} of the ${count(check.rest, "label")} without an answer are wrong, ${percent(check.tolerance)} % or less of ${check.of ? `all ${check.of.toLocaleString("en")}` : "these"}.`
    : `Random check: ${found}, about ${count(check.left, "answer")} left.${hint}`;
}

function redraw() {
  const hadFocus = find("groups").contains(document.activeElement) || document.activeElement === document.body;
  grid.layout();
  if (grid.current < 0 && grid.flat.length && hadFocus) grid.go(grid.flat[0], { focus: document.activeElement !== document.body });
  else if (hadFocus && grid.current >= 0 && document.activeElement === document.body) grid.cells.get(grid.current)?.element.focus({ preventScroll: true });
  find("nothing").hidden = grid.flat.length > 0;
  find("nothing").textContent = { open: "Every item is reviewed.", changed: "The last answer changed no other item." }[model.filter] ?? "No items to show here.";
  drawProgress();
  draw();
}

// --- what the keys and buttons do

function give(rows, labels) {
  if (!rows.includes(grid.current)) grid.go(rows[0]); // the group that was named: the next one follows it
  const next = grid.nextOpen(rows);
  if (next >= 0) grid.go(next);
  actions.send({ kind: "label", rows, labels });
}

function confirm() {
  const chosen = grid.chosen();
  const rows = chosen.filter((row) => model.number(row) !== NO_CLASS);
  if (justChanged(chosen, model.since)) return;
  if (!rows.length && chosen.length && chosen.every((row) => model.unknownGroup[row] >= 0)) {
    unknown();
    return;
  }
  if (!rows.length) {
    say("There is no suggestion to confirm; search a class with / or make one with n.");
    return;
  }
  give(rows, rows.map((row) => model.classes[model.number(row)]));
}

/** Nobody can confirm what nobody has seen: whether a suggestion of these items came in this moment. */
function justChanged(rows, since) {
  const fresh = rows.some((row) => model.isOpen(row) && performance.now() - since[row] < Number(document.body.dataset.just));
  if (fresh) say("The suggestion has just changed; look again and repeat the key.");
  return fresh;
}

function take(at) {
  const rows = grid.chosen();
  const suggestion = grid.current >= 0 ? model.suggestions(grid.current)[at] : undefined;
  if (!suggestion || justChanged([grid.current], model.listed)) return;
  if (suggestion.number === NO_CLASS) unknown();
  else give(rows, rows.map(() => model.classes[suggestion.number]));
}

function unknown() {
  const rows = grid.chosen();
  if (!rows.length) return;
  const next = grid.nextOpen(rows);
  if (next >= 0) grid.go(next);
  actions.send({ kind: "unknown", rows });
}

function clear() {
  const rows = grid.chosen().filter((row) => !model.isOpen(row));
  if (rows.length) actions.send({ kind: "clear", rows });
}

function nameItems(fresh) {
  const rows = grid.chosen();
  if (!rows.length) return;
  const first = model.suggestions(grid.current).map(({ number }) => number).filter((number) => number !== NO_CLASS);
  search.open(fresh ? "New class" : "Class", `For ${rows.length === 1 ? model.names[rows[0]].slice(0, 80) : count(rows.length, "item")}`, fresh, first,
    (name) => give(rows, rows.map(() => name)));
}

function nameGroup(group) {
  const rows = group.items.filter((row) => model.number(row) === NO_CLASS);
  search.open("Name this group", `For ${count(rows.length, "item")}`, true, [], (name) => give(rows, rows.map(() => name)));
}

function above(group) {
  openAbove(model, group, (rows) => give(rows, rows.map(() => model.classes[group.number])));
}

function aboveHere() {
  const group = model.place[grid.current];
  if (group && group.number !== NO_CLASS) above(group);
}

function comment() {
  const rows = grid.chosen();
  if (rows.length) openComment(model.comment[grid.current], (text) => actions.send({ kind: "comment", rows, labels: [text] }));
}

/** Go to the first item of a class, the open ones first. */
function goToClass(number) {
  const rows = grid.flat.filter((row) => model.number(row) === number);
  if (rows.length) grid.go(rows.find((row) => model.isOpen(row)) ?? rows[0]);
  else say("The filter hides the items of this class.");
}

function enlargeCurrent() {
  if (grid.current >= 0) enlarge(model, grid.current);
}

function zoom(step) {
  const zoomed = Math.max(0, Math.min(4, grid.zoom + step));
  if (zoomed === grid.zoom) return;
  grid.zoom = zoomed;
  grid.layout();
  if (grid.current >= 0) grid.go(grid.current, { add: true });
}

/** Go to the item that the check asks for, once. */
function goToAsked() {
  const row = model.progress.check?.next ?? -1;
  if (row === asked) return;
  asked = row;
  if (row >= 0 && !model.progress.check.done) goTo(row);
}

function goTo(row) {
  if (grid.at.has(row)) grid.go(row);
  else say("The filter hides the next item of the check.");
}

function next() {
  if (model.progress.check) {
    goTo(model.progress.check.next);
    return;
  }
  const row = model.order.find((candidate) => grid.at.has(candidate) && candidate !== grid.current && model.isOpen(candidate));
  if (row === undefined) say("Every item is reviewed.");
  else grid.go(row);
}

function selectGroup() {
  const group = model.place[grid.current];
  if (group) grid.select(model.shown(group));
}

function sort() {
  model.sort();
  redraw();
  if (grid.flat.length) grid.go(grid.flat[0], { focus: !document.activeElement?.matches("select, input") });
  say(model.by === "doubt" ? "Sorted: the least certain group first." : "Sorted.");
}

const KEYS = {
  Enter: confirm, x: unknown, u: () => actions.send({ kind: "undo" }), U: () => actions.send({ kind: "redo" }),
  n: () => nameItems(true), "/": () => nameItems(false), a: aboveHere, j: next, s: sort, z: enlargeCurrent,
  m: comment, c: () => openClasses(model, goToClass), f: () => find("filter").focus(),
  Backspace: clear, Delete: clear, "+": () => zoom(1), "=": () => zoom(1), "-": () => zoom(-1), "−": () => zoom(-1),
  e: () => openExports(overview), d: () => model.progress.check || openCheck(model.progress, (tolerance) => actions.send({ kind: "check", labels: [tolerance] })), "?": () => showFromTheTop(find("help-sheet")),
  Escape: () => grid.current >= 0 && grid.select([grid.current]),
  " ": () => grid.current >= 0 && grid.toggle(grid.current),
};
const MOVES = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown", "[", "]"]);

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && ["a", "z"].includes(event.key.toLowerCase()) && !document.querySelector("dialog[open]")) {
    (event.key.toLowerCase() === "a" ? selectGroup : event.shiftKey ? KEYS.U : KEYS.u)();
    event.preventDefault();
    return;
  }
  if (find("large").open && !event.ctrlKey && !event.metaKey && !event.altKey && (MOVES.has(event.key) || /^[1-9x]$/u.test(event.key))) {
    if (MOVES.has(event.key)) grid.move(event.key, false, false);
    else if (event.key === "x") unknown();
    else take(Number(event.key) - 1);
    enlargeCurrent();
    event.preventDefault();
    return;
  }
  // A dialog that a key has just closed has dealt with that key.
  if (event.defaultPrevented || document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey) return;
  const { target } = event;
  if (target.matches("input[type=search], textarea")) {
    if (event.key === "Escape" || event.key === "Enter") grid.go(grid.current >= 0 ? grid.current : grid.flat[0], { add: true });
    return;
  }
  const isField = target.matches("input, select, textarea");
  if ((target.matches("button, a") && ["Enter", " "].includes(event.key)) || (isField && (MOVES.has(event.key) || event.key === " "))) return;
  if (MOVES.has(event.key)) grid.move(event.key, event.shiftKey);
  else if (/^[1-9]$/u.test(event.key)) take(Number(event.key) - 1);
  else if (KEYS[event.key]) KEYS[event.key]();
  else return;
  event.preventDefault();
});

find("undo").addEventListener("click", KEYS.u);
find("check").addEventListener("click", KEYS.d);
find("check-end").addEventListener("click", () => actions.send({ kind: "check" }));
find("again").addEventListener("click", sort);
find("large").addEventListener("close", () => grid.go(grid.current, { add: true }));
find("classes-open").addEventListener("click", KEYS.c);
find("sort").addEventListener("change", () => {
  model.by = find("sort").value;
  sort();
});
find("filter").addEventListener("input", () => {
  model.phrase = find("filter").value.trim().toLocaleLowerCase();
  model.sift();
  redraw();
});
for (const [value, there] of [["unknown", model.openSet], ["time", model.taken.length]]) find("sort").querySelector(`[value=${value}]`).hidden = !there;
find("next").addEventListener("click", next);
find("export").addEventListener("click", KEYS.e);
find("help").addEventListener("click", KEYS["?"]);
find("larger").addEventListener("click", KEYS["+"]);
find("smaller").addEventListener("click", KEYS["-"]);
find("groups").addEventListener("dblclick", (event) => event.target.closest(".item") && enlargeCurrent());
for (const choice of document.querySelectorAll("input[name=filter]")) {
  choice.addEventListener("change", () => {
    model.filter = choice.value;
    model.sift();
    redraw();
    if (grid.current < 0 && grid.flat.length) grid.go(grid.flat[0], { focus: false });
  });
}

redraw();
if (grid.flat.length) grid.go(grid.flat[0]);
goToAsked();
document.body.classList.add("ready");

await follow(model.id, model.version, overview.command, (changes) => {
  if (changes.items !== overview.items) {
    complain("server", "Another review is served at this address now; this page shows the earlier one. Close it, or load it again.");
    return "stop";
  }
  if (changes.id !== model.id) { // the server was started again, so that its versions are others
    if (!document.body.classList.contains("saving")) location.reload();
    return "";
  }
  const others = model.apply(changes);
  complain("labels", model.problem);
  redraw();
  goToAsked();
  if (others.length) say(`${find("status").textContent.replace(/ \d+ other items? changed\.$/u, "")} ${count(others.length, "other item")} changed.`.trim());
  return "";
}, (sentence) => complain("server", sentence));
