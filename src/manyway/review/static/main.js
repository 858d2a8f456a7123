// The page of a review: load, draw, listen.

import { Actions, follow, likeness, load } from "./api.js";
import { Commands } from "./commands.js";
import { ClassSearch, Enlarged, GroupPreview, openAbove, openCheck, openClasses, openComment, openExports, openHistory, showFromTheTop } from "./dialogs.js";
import { count, find, percent } from "./dom.js";
import { Grid } from "./grid.js";
import { Model, NO_CLASS } from "./model.js";
import { Panel } from "./panel.js";

const overview = await load();
const model = new Model(overview);
const problems = { unsaved: "", server: "", labels: "", items: "" };
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
const enlarged = new Enlarged(model);
const actions = new Actions(overview.items, say, (sentence) => complain("unsaved", sentence), (saving) => document.body.classList.toggle("saving", saving));
window.addEventListener("beforeunload", (event) => {
  if (document.body.classList.contains("saving")) event.preventDefault();
});
const grid = new Grid(model, find("scroll"), find("groups"), { onCurrent: draw, onName: nameGroup, onAbove: above, onExample: compare });
const commands = new Commands(overview.actions, {
  confirm, take: (key) => take(Number(key) - 1), newClass: () => nameItems(true), search: () => nameItems(false),
  confirmAbove: aboveHere, nameGroup: nameGroupHere, unknown, clear, comment,
  undo: () => takeBack("undo"), redo: () => takeBack("redo"), check, endCheck,
  move: () => {}, groups: () => {}, // see MOVES
  mostUseful, toggle: () => grid.current >= 0 && grid.toggle(grid.current), selectGroup,
  selectCurrent: () => grid.current >= 0 && grid.select([grid.current]),
  enlarge: enlargeCurrent, nextExample: () => enlarged.next(), classes: () => openClasses(model, goToClass),
  history: () => openHistory(goToShown), filter: () => find("filter").focus(), larger: () => zoom(1), smaller: () => zoom(-1),
  sort, export: () => openExports(overview), help: () => showFromTheTop(find("help-sheet")),
});
const panel = new Panel(model, find("panel"), { take, compare, enlarge: enlargeCurrent, buttons: (reviewed) => commands.buttons(reviewed) });

function draw() {
  panel.draw(grid.current, grid.chosen());
  if (enlarged.isOpen && grid.current >= 0) enlarged.show(grid.current);
}

function drawProgress() {
  const { items, reviewed, errors, right, enough, explained, differs } = model.progress;
  const parts = [`${reviewed.toLocaleString("en")} of ${items.toLocaleString("en")} reviewed`];
  if (reviewed < items) {
    parts.push(`${errors < 10 ? errors.toFixed(1) : Math.round(errors).toLocaleString("en")} errors expected`);
    parts.push(`${percent(right)} % right expected${right >= enough && !model.progress.check ? ": check it" : ""}`);
  } else parts.push("all done");
  find("counts").textContent = parts.join(" · ");
  find("counts").title = explained;
  complain("items", differs);
  find("counts").classList.toggle("enough", right >= enough);
  const meter = find("meter");
  meter.setAttribute("aria-valuenow", Math.round((100 * reviewed) / items));
  meter.setAttribute("aria-valuetext", parts.join(", "));
  meter.children[0].style.transform = `scaleX(${right})`;
  meter.children[1].style.transform = `scaleX(${reviewed / items})`;
  drawCheck(model.progress.check, model.progress.shown_by_check);
  find("undo").disabled = !model.canUndo;
  find("history-undo").disabled = !model.canUndo;
  find("history-redo").disabled = !model.canRedo;
  const moved = model.names.filter((_, row) => model.moved(row)).length;
  find("again").hidden = !moved;
  find("again").textContent = `Sort again · ${moved.toLocaleString("en")} moved`;
  document.body.classList.toggle("busy", model.busy);
  document.body.dataset.version = model.version;
}

let asked = -1; // the item that the check asks for

/** `ended`: what the last check has shown; the server forgets it with the next answer. */
function drawCheck(check, ended) {
  find("checking").hidden = !check && !ended;
  find("check-end").hidden = !check;
  find("check").disabled = Boolean(check);
  find("next").textContent = check ? "Next of the check" : "Most useful item";
  find("checking").classList.toggle("done", Boolean(check?.done));
  find("checking-said").textContent = check ? sayCheck(check) : ended;
}

function sayCheck(check) {
  const bound = `with ${percent(check.confidence)} % confidence at most ${check.most.toLocaleString("en")} of the ${count(check.rest, "label")} without an answer are wrong`;
  if (!check.rest) return "You are done. Every item is reviewed.";
  if (check.done) {
    const whole = check.of ? `all ${check.of.toLocaleString("en")}` : "these";
    return `You are done: ${bound}, ${percent(check.tolerance)} % or less of ${whole}.`;
  }
  const found = `${check.asked.toLocaleString("en")} answered, ${check.wrong ? `${check.wrong.toLocaleString("en")} wrong` : "none wrong"}`;
  const hint = check.learn ? " Better end it: all labels learn from the answers, and a new check needs fewer." : "";
  return `Random check: ${found}; ${bound}. About ${count(check.left, "answer")} left.${hint}`;
}

/** Why nothing is shown. */
function sayNothing() {
  if (model.phrase) return `No item has “${find("filter").value.trim()}” in its name, class, folder, date, comment or columns.`;
  return { open: "Every item is reviewed.", changed: "The last answer changed no other item." }[model.filter] ?? "No items to show here.";
}

function redraw() {
  const hadFocus = find("groups").contains(document.activeElement) || document.activeElement === document.body;
  grid.layout();
  if (grid.current < 0 && grid.flat.length && hadFocus) grid.go(grid.flat[0], { focus: document.activeElement !== document.body });
  else if (hadFocus && grid.current >= 0 && document.activeElement === document.body) grid.cells.get(grid.current)?.element.focus({ preventScroll: true });
  find("nothing").hidden = grid.flat.length > 0;
  find("nothing").textContent = sayNothing();
  drawProgress();
  draw();
}

// --- actions

const selections = new Set(); // items that were answered together because they were selected

const underWay = new Set(); // items of answers that the page does not show yet: whoever is fast must not meet them again

function goOn(rows) {
  const next = grid.nextOpen([...rows, ...[...underWay].flat()]);
  if (next >= 0) grid.go(next);
}

async function answer(action) {
  const rows = [...action.rows];
  underWay.add(rows);
  const { version } = await actions.send(action);
  await shown(version);
  underWay.delete(rows);
}

function give(rows, labels) {
  if (!rows.includes(grid.current)) grid.go(rows[0]); // the group that was named: the next one follows it
  goOn(rows);
  answer({ kind: "label", rows, labels });
}

/** Give one class to the selected items. */
function giveSelected(rows, name) {
  selections.add(rows.join());
  give(rows, rows.map(() => name));
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
    say("There is no suggestion to confirm; search a class with / or make one with n.", true);
    return;
  }
  selections.add(rows.join());
  give(rows, rows.map((row) => model.classes[model.number(row)]));
}

/** Nobody can confirm what nobody has seen: whether a suggestion of these items came in this moment. */
function justChanged(rows, since) {
  const fresh = rows.some((row) => model.isOpen(row) && performance.now() - since[row] < Number(document.body.dataset.just));
  if (fresh) say("The suggestion has just changed; look again and repeat the key.", true);
  return fresh;
}

function take(at) {
  const suggestion = grid.current >= 0 ? model.suggestions(grid.current)[at] : undefined;
  if (!suggestion || justChanged([grid.current], model.listed)) return;
  if (suggestion.number === NO_CLASS) unknown();
  else giveSelected(grid.chosen(), model.classes[suggestion.number]);
}

function unknown() {
  const rows = grid.chosen();
  if (!rows.length) return;
  selections.add(rows.join());
  goOn(rows);
  answer({ kind: "unknown", rows });
}

function clear() {
  const rows = grid.chosen().filter((row) => !model.isOpen(row));
  if (!rows.length) return;
  selections.add(rows.join());
  actions.send({ kind: "clear", rows });
}

function comment() {
  const rows = grid.chosen();
  if (!rows.length) return;
  selections.add(rows.join());
  openComment(model.comment[grid.current], (text) => actions.send({ kind: "comment", rows, text }));
}

function nameItems(fresh) {
  const rows = grid.chosen();
  if (!rows.length) return;
  const first = model.suggestions(grid.current).map(({ number }) => number).filter((number) => number !== NO_CLASS);
  const about = `For ${rows.length === 1 ? model.names[rows[0]].slice(0, 80) : count(rows.length, "item")}`;
  search.open({ title: fresh ? "New class" : "Class", about, fresh, first, take: (name) => giveSelected(rows, name) });
}

/** Name the items of a group that are alike; strays stay as they are. It is one action. */
function nameGroup(group) {
  const members = group.items.filter((row) => model.number(row) === NO_CLASS);
  if (!members.length) return;
  const preview = new GroupPreview(model, members, likeness(members)); // whoever types at once types into the dialog
  search.open({
    title: "Name this group", about: `${model.title(group)}, ${count(members.length, "item")}`, fresh: true, group: preview,
    take: (name) => actions.unsaved(preview.ready.then(() => {
      const rows = preview.rows(); // the most typical item first
      give(rows, rows.map(() => name));
    })),
  });
}

function nameGroupHere() {
  const group = model.place[grid.current];
  if (group && model.nameable(group)) nameGroup(group);
  else say("Only groups of unknown items are named; n makes a new class of the selected items.", true);
}

function above(group) {
  openAbove(model, group, (rows) => give(rows, rows.map(() => model.classes[group.number])));
}

function aboveHere() {
  const group = model.place[grid.current];
  if (group && group.number !== NO_CLASS) above(group);
}

function check() {
  if (!model.progress.check) openCheck(model.progress.items, (tolerance, of) => actions.send({ kind: "check", tolerance, of }));
}

function endCheck() {
  if (model.progress.check) actions.send({ kind: "end check" });
}

// --- undo and redo go to what they change, so that the next key answers the item that was meant

let returning = false; // an undo or redo was sent and has not been answered
const held = []; // keys that were pressed since

function takeBack(kind) {
  if (returning) held.push({ key: kind === "undo" ? "u" : "U" });
  else actions.unsaved(returned(kind));
}

async function returned(kind) {
  returning = true;
  const { rows, version } = await actions.send({ kind });
  await shown(version); // what the keys answer is what one sees
  returning = false;
  goBack(rows);
  while (held.length && !returning) press(held.shift());
}

const awaited = []; // versions that the page shall show, and what is done then

function shown(version) {
  return model.version >= version ? Promise.resolve() : new Promise((done) => awaited.push({ version, done }));
}

function goBack(rows) {
  const first = goToShown(rows[0] ?? -1, rows);
  if (first >= 0 && selections.has(rows.join())) grid.select(rows); // as they were when they were answered
}

/** Go to the first of some items in the order of the page, whatever the filter hides; returns it. */
function goToShown(row, rows = [row]) {
  if (row < 0) return -1;
  if (rows.some((one) => !grid.at.has(one))) {
    model.reveal(rows);
    redraw();
  }
  const wanted = new Set(rows);
  const first = grid.flat.find((one) => wanted.has(one)) ?? row;
  grid.go(first);
  return first;
}

// --- what concerns this page alone

/** Go to the first item of a class, the open ones first. */
function goToClass(number) {
  const rows = grid.flat.filter((row) => model.number(row) === number);
  if (rows.length) grid.go(rows.find((row) => model.isOpen(row)) ?? rows[0]);
  else say("The filter hides the items of this class.", true);
}

function enlargeCurrent() {
  if (enlarged.isOpen) find("large").close();
  else if (grid.current >= 0) enlarged.show(grid.current);
}

/** Enlarge an example beside the current item. */
function compare(example) {
  if (grid.current < 0) return;
  enlarged.show(grid.current, example);
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
  else say("The filter hides the next item of the check.", true);
}

function mostUseful() {
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

// --- keys

const MOVES = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown", "[", "]"]);

/** Do what a key stands for; whether it stands for something. */
function press({ key, shiftKey = false }) {
  const large = enlarged.isOpen;
  if (MOVES.has(key)) grid.move(key, shiftKey && !large, !large);
  else return commands.press(key, large);
  return true;
}

document.addEventListener("keydown", (event) => {
  const { key, shiftKey, target } = event;
  const other = document.querySelector("dialog[open]:not(#large)"); // it deals with its own keys
  // A dialog that a key has just closed has dealt with that key.
  if (event.defaultPrevented || other || event.altKey) return;
  if (event.ctrlKey || event.metaKey) {
    const letter = key.toLowerCase();
    if (target.matches("input[type=search], textarea") || !["a", "z"].includes(letter)) return;
    if (letter === "a") selectGroup();
    else takeBack(shiftKey ? "redo" : "undo");
    event.preventDefault();
    return;
  }
  if (target.matches("input[type=search], textarea")) {
    if (key === "Escape" || key === "Enter") grid.go(grid.current >= 0 ? grid.current : grid.flat[0], { add: true });
    return;
  }
  if (target.matches("button, a") && ["Enter", " "].includes(key)) return;
  if (target.matches("input, select") && (MOVES.has(key) || key === " ")) return;
  if (enlarged.isOpen && key === "Escape") return; // it closes the enlarged view
  if (returning) {
    held.push({ key, shiftKey });
    event.preventDefault();
  } else if (press({ key, shiftKey })) event.preventDefault();
});

find("check-end").addEventListener("click", endCheck);
find("history-undo").addEventListener("click", () => { find("history").close(); takeBack("undo"); });
find("history-redo").addEventListener("click", () => { find("history").close(); takeBack("redo"); });
find("large").addEventListener("close", () => grid.go(grid.current, { add: true }));
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

/** Say what an answer has changed: other items, and the errors that are expected. */
function sayChanged(others, explained) {
  const before = find("status").textContent.replace(/ \d[\d,]* other items? changed\..*$/u, "");
  const changed = others.length ? `${count(others.length, "other item")} changed.` : "";
  if (changed || explained) say(`${before} ${changed} ${explained}`.replace(/\s+/gu, " ").trim());
}

await follow(model.id, model.version, overview.command, (changes) => {
  if (changes.items !== overview.items) {
    complain("server", "Another review is served at this address now; this page shows the earlier one. Close it, or load it again.");
    return "stop";
  }
  if (changes.id !== model.id) { // the server was started again, so that its versions are others
    if (!document.body.classList.contains("saving")) location.reload();
    return "";
  }
  const before = model.progress.explained;
  const others = model.apply(changes);
  const { explained } = model.progress;
  complain("labels", model.problem);
  redraw();
  goToAsked();
  sayChanged(others, explained === before ? "" : explained);
  for (const { version, done } of awaited.splice(0)) shown(version).then(done);
  return "";
}, (sentence) => complain("server", sentence));
