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

/** A picture that says so when it is missing; where the server is stopped, the page says that once. */
export function picture(source, attributes = {}) {
  const image = make("img", { loading: "lazy", decoding: "async", draggable: "false", alt: "", ...attributes });
  image.addEventListener("error", async () => {
    const answered = await fetch(source, { credentials: "same-origin" }).then(() => true, () => false);
    if (answered) image.parentElement?.classList.add("missing");
  });
  image.src = source;
  return image;
}

/** A name with its invisible characters shown, so that names that differ look different. */
export const visible = (name) => name
  .replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]|(?! )\p{Zs}|(?<= ) /gu, (one) => `[U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);

/** A name that may be broken after its words, also where these are joined by something else than blanks. */
export const breakable = (name) => name.split(/(?<=[_./\\-])(?=[^_./\\-])|(?<=\p{Ll})(?=\p{Lu})/u)
  .flatMap((part, at) => (at ? [document.createElement("wbr"), part] : [part]));
