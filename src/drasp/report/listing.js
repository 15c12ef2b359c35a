/* The program as coloured text, with what each line reads and what reads it. */

const OPERATIONS = new Set(["select", "aggregate", "element_wise_op", "norm", "project", "softmax", "sigmoid"]);
const WORDS = /"(?:[^"\\]|\\.)*"|[A-Za-z_][A-Za-z_0-9]*|\d[\d.]*(?:e[+-]?\d+)?|\s+|->|./gu;

/** A statement's text as coloured pieces. */
function coloured(line, variables) {
  const words = line.text.match(WORDS);
  return words.map((word, i) => {
    if (word.startsWith('"')) return el("span", { class: "c-string" }, el("bdi", {}, word));
    if (word === "->") return el("span", { class: "whole" }, word);
    if (/^\d/.test(word)) return el("span", { class: "c-number" }, word);
    if (OPERATIONS.has(word) && words[i + 1] === "(") return el("span", { class: "c-operation" }, word);
    const argument = words[i + 1] === "=" && words[i + 2] !== "=" && words[i - 1] !== "=" && i > 0;
    if (argument) return el("span", { class: "c-argument" }, word);
    if (i === 0) return el("span", { class: "c-defined" }, word);
    if (variables.has(word)) return el("span", { class: "c-variable" }, word);
    return word;
  });
}

/** Names read by each line, and lines that read it: indices into the program. */
function relations(statements) {
  const place = new Map(statements.map((line, i) => [line.name, i]));
  const reads = statements.map((line) => line.reads.filter((name) => place.has(name)).map((name) => place.get(name)));
  const readBy = statements.map((_, i) => reads.flatMap((names, j) => (names.includes(i) ? [j] : [])));
  return { reads, readBy };
}

class Listing {
  constructor(host, program, onPick) {
    this.rows = [];
    this.links = relations(program.statements);
    const variables = new Set(["token", "pos", "one", ...program.statements.map((line) => line.name)]);
    program.statements.forEach((line, i) => {
      const row = el(
        "li",
        { class: "line", tabindex: "0", role: "button", "data-name": line.name },
        el(
          "code",
          {},
          coloured(line, variables),
          line.comment ? el("span", { class: "c-comment" }, unbroken(`  # ${line.comment}`)) : null,
        ),
        lineBadge(line.name),
      );
      row.addEventListener("click", () => onPick(i));
      row.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          onPick(i);
        }
        const next = { ArrowDown: i + 1, ArrowUp: i - 1 }[event.key];
        if (this.rows[next]) {
          event.preventDefault();
          this.rows[next].focus();
        }
      });
      this.follow(row, i);
      this.rows.push(row);
      host.append(row);
    });
    this.marked = [this.rows];
  }

  /** Lights up what a line reads and what reads it, here and wherever else lines are shown. */
  follow(node, index) {
    for (const name of ["pointerenter", "focusin"]) node.addEventListener(name, () => this.light(index));
    for (const name of ["pointerleave", "focusout"]) node.addEventListener(name, () => this.light(null));
  }

  also(nodes) {
    this.marked.push(nodes);
    nodes.forEach((node, i) => this.follow(node, i));
  }

  light(index) {
    const reads = index === null ? [] : this.links.reads[index];
    const readBy = index === null ? [] : this.links.readBy[index];
    for (const nodes of this.marked) {
      nodes.forEach((node, i) => {
        node.classList.toggle("is-here", i === index);
        node.classList.toggle("is-read", reads.includes(i));
        node.classList.toggle("is-reader", readBy.includes(i));
      });
    }
  }

  /** Says of a line that its op= was edited, or no longer. */
  mark(line) {
    const row = this.rows.find((one) => one.dataset.name === line.name);
    row.querySelector(".edited")?.remove();
    if (line.edited) row.querySelector("code").append(el("span", { class: "edited" }, `  edited: ${line.edited}`));
  }

  pick(index) {
    this.rows.forEach((row, i) => {
      row.classList.toggle("is-picked", i === index);
      row.setAttribute("aria-pressed", i === index);
    });
  }
}
