/* One card a line: the value of its variable on the input, as heatmaps. */

function basisLabels({ vocabulary, positions }, basis) {
  switch (basis.kind) {
    case "token":
      return vocabulary.map(shown);
    case "pos":
      return Array.from({ length: positions }, (_, i) => String(i));
    case "one":
      return ["always"];
    case "space":
      return Array.from({ length: basis.size }, (_, i) => String(i));
    case "named":
      return basis.names.map(shown);
  }
  const factors = basis.factors.map((factor) => basisLabels({ vocabulary, positions }, factor));
  return factors.reduce((all, labels) => all.flatMap((a) => labels.map((b) => `${a}×${b}`)));
}

function basisName(basis) {
  if (basis.kind === "product") return basis.factors.map(basisName).join("×");
  return { token: "token", pos: "position", one: "one", space: "direction", named: "case" }[basis.kind];
}

const ABOUT = {
  select: "scores: how much each position (row) looks for each earlier one (column), before softmax",
  aggregate: "the mean of the values over earlier positions, weighted by attention",
  element_wise_op: "a function of the variables at each position",
  norm: "the divisor of a layer norm, one number a position",
  project: "a share of the logits",
  prediction: "what the logits make of the next token",
};

/** From which difference of attention weights on a cell is marked. */
const UNLIKE = 0.1;

/** The figures that a line has: each with a caption and a function from a run to a grid, or to null where that is not
    known. `heads` are those that an aggregate stands for, whose own attention is shown beside the line's. */
function figuresOf(line, heads) {
  const tokens = (run) => run.labels;
  const activation = (value, labels, title) => (run) => {
    const own = value(run);
    const rows = visibleRows(own, labels.length, run.length);
    const values = new Float64Array(rows.length * run.length);
    for (let r = 0, at = 0; r < rows.length; r++)
      for (let c = 0; c < run.length; c++) values[at++] = entry(own, rows[r], c);
    return {
      rows: rows.length,
      columns: run.length,
      values,
      rowLabels: rows.map((row) => labels[row]),
      columnLabels: tokens(run),
      rowTitle: title,
      columnTitle: "position",
      cell: (r, c) =>
        `${line.name} [${isolated(labels[rows[r]])}] at position ${run.offset + c} (${isolated(run.labels[c])})`,
      hidden: labels.length - rows.length,
    };
  };
  const attention = (values) => (run) => ({
    rows: run.length,
    columns: run.length,
    values: values(run),
    causal: true,
    rowLabels: tokens(run),
    columnLabels: tokens(run),
    rowTitle: "query",
    columnTitle: "key",
    cell: (q, k) =>
      `query ${run.offset + q} (${isolated(run.labels[q])}), key ${run.offset + k} (${isolated(run.labels[k])})`,
  });
  const vocabulary = program.vocabulary.map(shown);
  const own = (run) => run.values.get(line.name);
  switch (line.kind) {
    case "select":
      return [{ caption: `${line.name}: query × key`, square: true, grid: attention((run) => own(run).scores) }];
    case "aggregate": {
      const basis = program.bases[line.name];
      const value = { caption: line.name, grid: activation(own, basisLabels(program, basis), basisName(basis)) };
      if (!line.selectors.length && !heads.length) return [value];
      const weights = {
        caption: line.selectors.length ? `attention: softmax of ${line.selectors.join("+")}` : "attention: uniform",
        square: true,
        grid: attention((run) => run.weights(line)),
      };
      const theirs = heads.map((head) => ({
        caption: `the model's ${head}`,
        square: true,
        grid: (run) => {
          const pattern = run.patternOf(head);
          return pattern ? besideOwn(attention(() => pattern)(run), run.weights(line)) : null;
        },
      }));
      return [weights, ...theirs, value];
    }
    case "norm":
      return [{ caption: line.name, grid: activation((run) => ({ size: 1, data: own(run).divisor }), ["norm"], "") }];
    case "project":
      return [{ caption: `${line.name}: logits`, grid: activation(own, vocabulary, "token") }];
  }
  if (line.kind !== "prediction") {
    const basis = program.bases[line.name];
    return [{ caption: line.name, grid: activation(own, basisLabels(program, basis), basisName(basis)) }];
  }
  const chances = (run) =>
    (run.chances ??= {
      size: vocabulary.length,
      data: probabilities(own(run).data, vocabulary.length, program.output),
    });
  // One project's logits are shown at its own line.
  const logits =
    line.logits.length > 1
      ? [{ caption: `logits: ${line.logits.join("+")}`, grid: activation(own, vocabulary, "token") }]
      : [];
  return [
    ...logits,
    {
      caption:
        program.output === "softmax" ? "probability of the next token" : "probability that a token may come next",
      grid: activation(chances, vocabulary, "token"),
    },
  ];
}

/** A head's attention with the cells marked in which it differs from the line's, and how much the two overlap. */
function besideOwn(grid, ours) {
  let overlap = 0;
  for (let i = 0; i < ours.length; i++) overlap += Math.min(ours[i], grid.values[i]);
  return {
    ...grid,
    marked: (row, column) =>
      Math.abs(ours[row * grid.columns + column] - grid.values[row * grid.columns + column]) > UNLIKE,
    told: `overlap with the line's ${(overlap / grid.rows).toFixed(2)}`,
  };
}

const FEW_ROWS = 24;
let allRows = false;

/** Of many directions, those that matter on this input: the largest, in their own order. */
function visibleRows(value, count, length) {
  const rows = Array.from({ length: count }, (_, row) => row);
  if (allRows || count <= 12) return rows;
  const sizes = new Float64Array(count);
  for (let i = 0; i < length; i++) {
    for (let row = 0; row < count; row++) sizes[row] = Math.max(sizes[row], Math.abs(entry(value, row, i)));
  }
  const largest = Math.max(...sizes);
  const matter = rows.filter((row) => sizes[row] > 1e-3 * largest).sort((a, b) => sizes[b] - sizes[a]);
  return matter.slice(0, FEW_ROWS).sort((a, b) => a - b);
}

/** What a line is in the model, in a few words. */
function standsFor(name) {
  const known = data.model?.lines?.[name]?.stands_for;
  return known ? el("span", { class: "stands" }, unbroken(` – in the model: ${known}`)) : null;
}

class Card {
  constructor(line, number_, variables, heads, onPick) {
    this.line = line;
    this.figures = figuresOf(line, heads).map((figure) => ({
      ...figure,
      host: el("div"),
      note: el("span", { class: "note" }),
    }));
    this.problem = el("p", { class: "note", hidden: true });
    this.body = el(
      "div",
      { class: "figures" },
      this.figures.map(({ caption, host, note }) => el("figure", {}, el("figcaption", {}, caption, " ", note), host)),
    );
    this.node = el(
      "article",
      { class: "card", id: `line-${number_}`, "aria-label": `line ${number_}` },
      el(
        "h3",
        {},
        el("span", { class: "line-number" }, `${number_}.`),
        el("code", {}, coloured(line, variables)),
        lineBadge(line.name),
      ),
      el("p", { class: "about" }, ABOUT[line.kind], standsFor(line.name)),
      this.problem,
      this.body,
    );
    this.node.querySelector("h3").addEventListener("click", () => onPick(number_ - 1));
    for (const figure of this.figures)
      figure.heatmap = new Heatmap(figure.host, { square: figure.square, maxHeight: figure.square ? 380 : 440 });
  }

  show(run) {
    const known = run.values.has(this.line.name);
    this.body.hidden = !known;
    this.problem.hidden = known;
    if (!known) {
      this.problem.textContent = this.reason(run);
      return;
    }
    for (const { heatmap, grid, note, caption, host } of this.figures) {
      const made = grid(run);
      host.hidden = !made;
      if (!made) {
        note.textContent = "is known for the shorter examples: the model is too large for the page";
        continue;
      }
      heatmap.show({ name: caption, ...made });
      note.textContent = made.hidden > 0 ? `(${made.hidden} smaller rows hidden)` : (made.told ?? "");
    }
  }

  reason(run) {
    const missing = this.line.reads.find((name) => !run.values.has(name));
    return missing
      ? `This line cannot be computed in the page, because it reads ${missing}.`
      : `This line cannot be computed in the page: the function ${this.line.function.primitive} exists in Python alone. Use drasp run.`;
  }
}
