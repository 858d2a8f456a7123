"use strict";
// Pages: the section that the address names is shown, or else the first one.
const sections = [...document.querySelectorAll("main > section")];
function showPage() {
  const wanted = decodeURIComponent(location.hash.slice(1));
  const shown = sections.find((section) => section.id === wanted) || sections[0];
  for (const section of sections) section.classList.toggle("shown", section === shown);
  for (const link of document.querySelectorAll("nav a")) {
    if (decodeURIComponent(link.hash.slice(1)) === shown.id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  window.scrollTo(0, 0);
}
document.body.classList.add("paged");
window.addEventListener("hashchange", showPage);
showPage();

// Sorting: by the data-value of a cell, numbers as numbers. A second click reverses the order.
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th");
    const table = head.closest("table");
    const before = head.getAttribute("aria-sort");
    const up = before ? before === "descending" : head.classList.contains("text");
    const value = (row) => row.cells[head.cellIndex].dataset.value;
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === ""); // missing values go last
      const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return up ? order : -order;
    });
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    table.tBodies[0].append(...rows);
  });
}

// Values of points, under the pointer or chosen by the arrow keys.
const tip = document.getElementById("tip");
let current = null;
function showTip(point) {
  current?.classList.remove("on");
  current = point;
  tip.hidden = !point;
  if (!point) return;
  point.classList.add("on");
  tip.textContent = point.dataset.tip;
  const place = point.getBoundingClientRect();
  const x = Math.min(place.right + 4, window.innerWidth - tip.offsetWidth - 8);
  const below = place.bottom + 6;
  tip.style.left = `${Math.max(8, x)}px`;
  tip.style.top = `${below + tip.offsetHeight < window.innerHeight ? below : place.top - tip.offsetHeight - 6}px`;
}
document.addEventListener("pointermove", (event) => showTip(event.target.closest?.(".hit") ?? null));
document.addEventListener("pointerdown", (event) => showTip(event.target.closest?.(".hit") ?? null));
document.addEventListener("scroll", () => showTip(null), true);
for (const svg of document.querySelectorAll(".panels svg")) {
  svg.tabIndex = 0;
  svg.addEventListener("blur", () => showTip(null));
  svg.addEventListener("keydown", (event) => {
    const lines = [...svg.querySelectorAll("g[data-line]:not(.off)")].filter((line) => line.querySelector(".hit"));
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Escape") showTip(null);
    if (!step || !lines.length) return;
    event.preventDefault();
    const line = lines.indexOf(current?.closest("g[data-line]"));
    const place = line < 0 ? 0 : [...lines[line].querySelectorAll(".hit")].indexOf(current) + step[1];
    const hits = lines[line < 0 ? 0 : (line + step[0] + lines.length) % lines.length].querySelectorAll(".hit");
    showTip(hits[Math.min(Math.max(place, 0), hits.length - 1)]);
  });
}

// A click in a legend hides or shows a line in all panels of its figure.
for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", on);
    for (const line of button.closest("figure").querySelectorAll("g[data-line]")) {
      if (line.dataset.line === button.dataset.line) line.classList.toggle("off", !on);
    }
  });
}
