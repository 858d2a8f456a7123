// Small helpers to make elements. Text is always set as text, never as markup.

export const find = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

export const percent = (p) => (p < 0.01 ? "<1" : p > 0.99 && p < 0.9995 ? (100 * p).toFixed(1) : String(Math.floor(100 * p + 0.05)));
export const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

/** A picture that says so when it is missing. */
export function picture(source, attributes = {}) {
  const image = make("img", { loading: "lazy", decoding: "async", draggable: "false", alt: "", ...attributes });
  image.addEventListener("error", () => image.parentElement?.classList.add("missing"));
  image.src = source;
  return image;
}
