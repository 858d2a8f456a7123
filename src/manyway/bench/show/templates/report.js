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
let current = [];
function showTips(points) {
  for (const point of current) point.classList.remove("on");
  current = points;
  tip.hidden = !points.length;
  if (!points.length) return;
  for (const point of points) point.classList.add("on");
  tip.textContent = points.map((point) => point.dataset.tip).join("\n");
  const place = points[0].getBoundingClientRect();
  const x = Math.min(place.right + 4, window.innerWidth - tip.offsetWidth - 8);
  const below = place.bottom + 6;
  tip.style.left = `${Math.max(8, x)}px`;
  tip.style.top = `${below + tip.offsetHeight < window.innerHeight ? below : place.top - tip.offsetHeight - 6}px`;
}
// Points may lie on top of each other: all of those under the pointer are shown.
function pointed(event) {
  if (!event.target.closest?.(".panels") && !current.length) return;
  const under = document.elementsFromPoint(event.clientX, event.clientY);
  const points = under.filter((element) => element.classList.contains("hit"));
  showTips(points.sort((a, b) => a.cy.baseVal.value - b.cy.baseVal.value));
}
document.addEventListener("pointermove", pointed);
document.addEventListener("pointerdown", pointed);
document.addEventListener("scroll", () => showTips([]), true);
for (const svg of document.querySelectorAll(".panels svg")) {
  svg.tabIndex = 0;
  svg.addEventListener("blur", () => showTips([]));
  svg.addEventListener("keydown", (event) => {
    const lines = [...svg.querySelectorAll("g[data-line]:not(.off)")].filter((line) => line.querySelector(".hit"));
    lines.sort((a, b) => a.dataset.line - b.dataset.line);
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Escape") showTips([]);
    if (!step || !lines.length) return;
    event.preventDefault();
    const line = lines.indexOf(current[0]?.closest("g[data-line]"));
    const place = line < 0 ? 0 : [...lines[line].querySelectorAll(".hit")].indexOf(current[0]) + step[1];
    const hits = lines[line < 0 ? 0 : (line + step[0] + lines.length) % lines.length].querySelectorAll(".hit");
    showTips([hits[Math.min(Math.max(place, 0), hits.length - 1)]]);
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
