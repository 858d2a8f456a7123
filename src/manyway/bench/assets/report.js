"use strict";
// Pages: the section that the address names is shown, the first one otherwise.
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

// Sorting: by the data-value of a cell, numbers as numbers; a second click turns the order round.
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th");
    const table = head.closest("table");
    const column = head.cellIndex;
    const up = head.getAttribute("aria-sort") === "descending" || (!head.hasAttribute("aria-sort") && head.classList.contains("text"));
    const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === ""); // what is not there goes last
      const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return up ? order : -order;
    });
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    table.tBodies[0].append(...rows);
  });
}

// Hover values.
const tip = document.getElementById("tip");
document.addEventListener("pointermove", (event) => {
  const point = event.target.closest?.("[data-tip]");
  tip.hidden = !point;
  if (!point) return;
  tip.textContent = point.dataset.tip;
  const x = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(8, x)}px`;
  tip.style.top = `${event.clientY + 16}px`;
});

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
