/* Elements, labels and numbers. Whatever comes from the data enters the page as text, never as markup. */

const SVG = "http://www.w3.org/2000/svg";

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined)
      node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** @param {string} tag @returns {any} An element of that kind. */
function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** @param {string} id @returns {PageElement} An element that the page has. */
function byId(id) {
  return /** @type {any} */ (document.getElementById(id));
}

/** A token as a label: what would not be seen is quoted. */
function shown(token) {
  return /^\s*$/.test(token) ? JSON.stringify(token) : token.replace(/[\n\r]/g, "⏎").replace(/\t/g, "⇥");
}

/** A token that stands in a sentence of another direction without disturbing it. */
function isolated(token) {
  return `\u2068${shown(token)}\u2069`;
}

/** A text in which the arrows of sites are not broken at the end of a line. */
function unbroken(text) {
  return text.split(/(->)/).map((part) => (part === "->" ? el("span", { class: "whole" }, part) : part));
}

function number(x) {
  if (!Number.isFinite(x)) return String(x);
  const size = Math.abs(x);
  if (size === 0) return "0";
  if (size < 0.005) return x.toExponential(0);
  return size < 10 ? x.toFixed(2) : size < 1000 ? x.toFixed(1) : x.toFixed(0);
}

function percent(x, digits = 1) {
  return x === null || x === undefined ? "–" : `${(100 * x).toFixed(digits)} %`;
}

function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

/** A function that does something once the browser has nothing else to do, however often it is asked to. */
function whenIdle(action) {
  let waiting = false;
  const start = globalThis.requestIdleCallback ?? ((callback) => setTimeout(callback, 100));
  return () => {
    if (waiting) return;
    waiting = true;
    start(() => {
      waiting = false;
      action();
    });
  };
}

/** A text beside the pointer. */
const tip = {
  show(text, x, y) {
    const node = byId("tip");
    node.textContent = text;
    node.hidden = false;
    const { width, height } = node.getBoundingClientRect();
    node.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
    node.style.top = `${y + height + 24 > innerHeight ? y - height - 12 : y + 16}px`;
  },
  hide() {
    byId("tip").hidden = true;
  },
};
