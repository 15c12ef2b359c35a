/* The report: reads the page's data, computes the program on every change of the input, and draws. */

const data = JSON.parse(byId("data").textContent);
const { program, record } = data;

// ------------------------------------------------------------------------------------------------- labels

function basisLabels({ vocabulary, positions }, basis) {
  switch (basis.kind) {
    case "token":
      return vocabulary.map(shown);
    case "pos":
      return Array.from({ length: positions }, (_, i) => String(i));
    case "one":
      return ["1"];
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

// -------------------------------------------------------------------------------------------------- input

/** Tokens of a typed text: words, JSON's quotes around what is no plain word; "0110" where only 0 and 1 are tokens. */
function tokenised(text) {
  const ids = new Map(program.vocabulary.map((token, i) => [token, i]));
  return (text.match(/"(?:[^"\\]|\\.)*"|\S+/g) ?? []).flatMap((word) => {
    let token = word;
    try {
      if (word.startsWith('"') && word.length > 1) token = JSON.parse(word);
    } catch {
      // a quotation mark that is itself a token
    }
    if (ids.has(token)) return [ids.get(token)];
    if (ids.has(word)) return [ids.get(word)];
    const letters = Array.from(word);
    if (letters.every((letter) => ids.has(letter))) return letters.map((letter) => ids.get(letter));
    throw new Error(`${isolated(token)} is not one of the program's tokens. They are: ${tokenList()}`);
  });
}

function tokenList() {
  const { vocabulary } = program;
  const some = vocabulary.length > 24 ? [...vocabulary.slice(0, 16), null, ...vocabulary.slice(-4)] : vocabulary;
  return some.map((token) => (token === null ? "…" : isolated(token))).join(" ");
}

function typed(token) {
  return /[\s"]/.test(token) || token === "" ? JSON.stringify(token) : token;
}

const inputKey = (ids, offset) => `${offset}:${ids.join(",")}`;

// --------------------------------------------------------------------------------------------------- head

function showHead() {
  const name = record.task || record.model || "A D-RASP program";
  byId("title").textContent = name;
  if (record.verdict) {
    const good = record.verdict === "decompiled";
    byId("verdict").textContent = good ? "✓ decompiled" : "not decompilable";
    byId("verdict").classList.add(good ? "good" : "bad");
  } else {
    byId("verdict").remove();
  }
  byId("summary").textContent = summary();
  byId("reasons").replaceChildren(...(record.reasons ?? []).map((reason) => el("li", {}, reason)));
  const facts = [];
  const fact = (term, value, more = "") =>
    value && facts.push(el("div", {}, el("dt", {}, term), el("dd", {}, value, more ? el("small", {}, more) : null)));
  if (record.match_accuracy !== undefined) {
    const [low, high] = record.match_interval;
    fact(
      "Agreement",
      percent(record.match_accuracy),
      `95 %: ${percent(low)} to ${percent(high)}, ${plural(record.samples, "input")}`,
    );
  }
  fact("Lines", String(program.statements.length), namedCounts());
  if (record.task_accuracy !== undefined && record.task_accuracy !== null)
    fact("Right on its task", percent(record.task_accuracy), "the program itself");
  if (record.largest_logit_difference !== undefined)
    fact("Exact translation", record.largest_logit_difference.toExponential(1), "largest logit difference");
  if (record.task) fact("Task", record.task, data.about.task);
  if (record.model) fact("Model", shortName(record.model), data.about.model);
  if (record.seconds)
    fact(
      "Time",
      `${record.seconds.toFixed(1)} s`,
      [record.method, record.seed !== undefined ? `seed ${record.seed}` : ""].filter(Boolean).join(", "),
    );
  byId("facts").replaceChildren(...facts);
  const notes = ["Made by drasp. The page needs no network."];
  if (data.rounding.bits)
    notes.push(
      `To keep it small its tensors are rounded: logits differ by at most ${data.rounding.difference.toExponential(1)} on the examples.`,
    );
  byId("foot").textContent = notes.join(" ");
}

function summary() {
  const size = plural(program.statements.length, "line");
  if (record.match_accuracy === undefined)
    return `A program of ${size} for ${plural(program.vocabulary.length, "token")} and ${plural(program.positions, "position")}.`;
  const alike = `answers as the model does on ${percent(record.match_accuracy)} of inputs that the search has not seen`;
  return record.verdict === "decompiled"
    ? `The transformer computes this program of ${size}: it ${alike}.`
    : `No short program does what this transformer does. The best one found has ${size} and ${alike}.`;
}

function namedCounts() {
  const words = { select: "selects", project: "projects", elementwise: "functions" };
  const counts = Object.entries(record.primitives ?? {}).filter(([, count]) => count.total);
  return counts.length
    ? `named: ${counts.map(([kind, { named, total }]) => `${named} of ${total} ${words[kind] ?? kind}`).join(", ")}`
    : "";
}

function shortName(path) {
  return path.split(/[\\/]/).filter(Boolean).pop() ?? path;
}

// ----------------------------------------------------------------------------------------------- variables

const ABOUT = {
  select: "scores: how much each position (row) looks for each earlier one (column), before softmax",
  aggregate: "the mean of the values over earlier positions, weighted by attention",
  element_wise_op: "a function of the variables at each position",
  norm: "the divisor of a layer norm, one number a position",
  project: "a share of the logits",
  prediction: "what the logits make of the next token",
};

/** The figures that a line has: each with a caption and a function from a run to a grid. */
function figuresOf(line) {
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
      if (!line.selectors.length) return [value];
      const weights = {
        caption: `attention: softmax of ${line.selectors.join("+")}`,
        square: true,
        grid: attention((run) => run.weights(line.selectors)),
      };
      return [weights, value];
    }
    case "element_wise_op": {
      const basis = program.bases[line.name];
      return [{ caption: line.name, grid: activation(own, basisLabels(program, basis), basisName(basis)) }];
    }
    case "norm":
      return [{ caption: line.name, grid: activation((run) => ({ size: 1, data: own(run).divisor }), ["norm"], "") }];
    case "project":
      return [{ caption: `${line.name}: logits`, grid: activation(own, vocabulary, "token") }];
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

class Card {
  constructor(line, number_, variables, onPick) {
    this.line = line;
    this.figures = figuresOf(line).map((figure) => ({
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
      el("h3", {}, el("span", { class: "line-number" }, `${number_}.`), el("code", {}, coloured(line, variables))),
      el("p", { class: "about" }, ABOUT[line.kind]),
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
    for (const { heatmap, grid, note, caption } of this.figures) {
      const made = grid(run);
      heatmap.show({ name: caption, ...made });
      note.textContent = made.hidden > 0 ? `(${made.hidden} smaller rows hidden)` : "";
    }
  }

  reason(run) {
    const missing = this.line.reads.find((name) => !run.values.has(name));
    return missing
      ? `This line cannot be computed in the page, because it reads ${missing}.`
      : `This line cannot be computed in the page: the function ${this.line.function.primitive} exists in Python alone. Use drasp run.`;
  }
}

// ------------------------------------------------------------------------------------------------- tensors

function operandName([name, norm]) {
  return norm ? `${name}/${norm}` : name;
}

/** The tensors of a line: title, rows and columns with their labels. */
function tensorsOf(line) {
  const side = (operand, word) => ({
    title: `${word}: ${operandName(operand)}`,
    labels: basisLabels(program, program.bases[operand[0]]),
  });
  const tokens = { title: "out: token", labels: program.vocabulary.map(shown) };
  const counted = (title) => ({ title, labels: null });
  switch (line.kind) {
    case "select":
      return [
        { title: `op of ${line.name}`, name: line.op, rows: side(line.query, "q"), columns: side(line.key, "k") },
      ];
    case "project":
      return [{ title: `op of ${line.name}`, name: line.op, rows: side(line.input, "inp"), columns: tokens }];
    case "norm":
      return line.inputs.map((operand, i) => ({
        title: operandName(operand),
        name: `${line.op}.${i}`,
        rows: side(operand, "in"),
        columns: counted("common space"),
      }));
  }
  if (line.kind !== "element_wise_op" || !line.function.network) return [];
  const { network } = line.function;
  const out = {
    title: `${line.name}: ${basisName(program.bases[line.name])}`,
    labels: basisLabels(program, program.bases[line.name]),
  };
  return [
    ...line.inputs.map((operand, i) => ({
      title: `from ${operandName(operand)}`,
      name: `${network}.${i}`,
      rows: side(operand, "in"),
      columns: counted("common space"),
    })),
    { title: "hidden", name: `${network}.hidden`, rows: counted("common space"), columns: counted("unit") },
    { title: "bias of the units", name: `${network}.hidden_bias`, rows: counted(""), columns: counted("unit") },
    { title: "out", name: `${network}.out`, rows: counted("unit"), columns: out },
    { title: "bias of the result", name: `${network}.out_bias`, rows: counted(""), columns: out },
  ];
}

function tensorGrid(tensor, matrix) {
  const labels = (axis, count) => axis.labels ?? Array.from({ length: count }, (_, i) => String(i));
  const [rowLabels, columnLabels] = [labels(tensor.rows, matrix.rows), labels(tensor.columns, matrix.columns)];
  return {
    name: tensor.title,
    rows: matrix.rows,
    columns: matrix.columns,
    values: matrix.data,
    rowLabels: matrix.rows === 1 ? [""] : rowLabels,
    columnLabels,
    rowTitle: matrix.rows === 1 ? "" : tensor.rows.title,
    columnTitle: tensor.columns.title,
    cell: (r, c) =>
      matrix.rows === 1 ? isolated(columnLabels[c]) : `${isolated(rowLabels[r])} → ${isolated(columnLabels[c])}`,
  };
}

class TensorPanel {
  constructor(tensors) {
    this.tensors = tensors;
    this.heatmap = new Heatmap(byId("tensor-map"), { square: true, maxHeight: 520 });
  }

  show(line, number_) {
    const found = tensorsOf(line);
    byId("tensor-title").replaceChildren(`Line ${number_}: `, el("code", {}, line.name));
    byId("tensor-map").hidden = !found.length;
    const choice = byId("tensor-choice");
    choice.hidden = found.length < 2;
    byId("tensor-about").textContent = found.length ? this.about(line) : `${line.kind} has no tensor of its own.`;
    if (!found.length) return;
    const options = found.map(({ title, name }, i) => {
      const { rows, columns } = this.tensors.get(name);
      return el("option", { value: i }, `${title} (${rows} × ${columns})`);
    });
    const select = el("select", { onchange: () => this.draw(found[Number(select.value)]) }, options);
    choice.replaceChildren(el("label", {}, "tensor ", select));
    this.draw(found[0]);
  }

  draw(tensor) {
    this.heatmap.zoom = 1;
    this.heatmap.show(tensorGrid(tensor, this.tensors.get(tensor.name)));
  }

  about(line) {
    if (line.kind === "select")
      return "Rows are directions of the query, columns of the key. A score is the entry where the two meet.";
    if (line.kind === "project")
      return "Rows are directions of the input, columns the tokens whose logits they raise or lower.";
    return "The matrices that the line multiplies by, one after the other.";
  }
}

// -------------------------------------------------------------------------------------------------- answer

function isCounted(example, ids, position) {
  if (example) return position >= example.counted[0] && position < example.counted[1];
  const separator = program.vocabulary.indexOf("SEP");
  if (program.output !== "softmax" || separator < 0 || !record.task || !ids.includes(separator)) return true;
  return position >= ids.indexOf(separator);
}

function answerCell(tokens, classes) {
  const some = tokens.slice(0, 8).map((token) => el("bdi", {}, shown(program.vocabulary[token])));
  if (tokens.length > 8) some.push(el("bdi", {}, `+${tokens.length - 8}`));
  return el("td", { class: classes }, some.length ? some : "∅");
}

function showAnswers(run, example) {
  const known = run.values.get("prediction");
  const size = program.vocabulary.length;
  const rows = { position: [], token: [], program: [], model: [] };
  let [same, counted] = [0, 0];
  run.ids.forEach((id, i) => {
    const counts = isCounted(example, run.ids, i);
    const answer = known ? answerOf(known.data, i, size, program.output) : [];
    const model = example?.model?.[i];
    const agrees = !model || String(model) === String(answer);
    counted += counts;
    same += counts && agrees;
    const classes = counts ? (agrees ? "counts" : "counts differs") : "aside";
    rows.position.push(el("td", {}, String(run.offset + i)));
    rows.token.push(el("td", {}, el("bdi", {}, run.labels[i])));
    rows.program.push(answerCell(answer, classes));
    rows.model.push(model ? answerCell(model, classes) : el("td", { class: "aside" }, "–"));
  });
  const head = (text) => el("th", { scope: "row" }, text);
  // Columns of one width spare the browser to measure hundreds of them.
  const widest = rows.program
    .concat(rows.token)
    .reduce((most, cell) => Math.max(most, ...Array.from(cell.children, (child) => child.textContent.length)), 2);
  const column = Math.min(14, widest) + 1.6;
  byId("strip").style.width = `calc(8.5rem + ${run.length * column}ch)`;
  byId("strip").replaceChildren(
    el("tr", { class: "positions" }, head("position"), rows.position),
    el("tr", { class: "tokens" }, head("input"), rows.token),
    el(
      "tr",
      { class: "answers" },
      head(program.output === "softmax" ? "program: next" : "program: may follow"),
      rows.program,
    ),
    el("tr", { class: "answers" }, head("model"), rows.model),
  );
  const agreement = byId("agreement");
  agreement.classList.toggle("differs", Boolean(example?.model) && same < counted);
  agreement.textContent = !example?.model
    ? "The model's answers are known for the examples and draws."
    : same === counted
      ? `Program and model agree at all ${plural(counted, "position")} that count${counted === 1 ? "s" : ""}.`
      : `Program and model differ at ${counted - same} of the ${plural(counted, "position")} that count.`;
}

// ------------------------------------------------------------------------------------------ how it was found

function showSearch() {
  const frontier = record.frontier ?? [];
  if (!frontier.length && !record.passes?.length) return;
  byId("search").hidden = false;
  if (frontier.length) {
    const points = frontier.map((point) => ({
      lines: point.lines,
      match: point.match_accuracy,
      interval: point.match_interval,
    }));
    byId("frontier").append(
      el(
        "figcaption",
        {},
        "Programs found: agreement with the model against length. The pick is filled, the broken line is the agreement asked for.",
      ),
      frontierChart([{ name: "", points, pick: program.statements.length }], { minMatch: record.min_match ?? null }),
    );
  }
  if (record.passes?.length) byId("passes").append(passTable(record.passes));
}

/** Steps of the same pass that follow each other are one row. */
function groupedPasses(passes) {
  const groups = [];
  let before = 0;
  for (const step of passes) {
    const last = groups.at(-1);
    if (last && last.name === step.name)
      Object.assign(last, { steps: last.steps + 1, left: step.left, match: step.match_accuracy });
    else groups.push({ name: step.name, steps: 1, left: step.left, match: step.match_accuracy, seconds: 0 });
    groups.at(-1).seconds += Math.max(0, step.seconds - before);
    before = Math.max(before, step.seconds);
  }
  return groups;
}

function passTable(passes) {
  const unit = (name) => (/line|MLP/.test(name) ? "lines" : "edges");
  const rows = groupedPasses(passes).map((group) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, group.name),
      el("td", {}, String(group.steps)),
      el("td", {}, `${group.left} ${unit(group.name)}`),
      el("td", {}, group.match === undefined || group.match === null ? "–" : group.match.toFixed(3)),
      el("td", {}, `${group.seconds.toFixed(1)} s`),
    ),
  );
  const titles = ["pass", "steps kept", "left", "agreement", "time"].map((title) => el("th", { scope: "col" }, title));
  return el(
    "table",
    { class: "table" },
    el("caption", {}, "What was taken away, pass by pass"),
    el("thead", {}, el("tr", {}, titles)),
    el("tbody", {}, rows),
  );
}

// ----------------------------------------------------------------------------------------------- the page

class Report {
  constructor(interpreter) {
    this.interpreter = interpreter;
    this.examples = data.examples.steps;
    this.known = new Map();
    for (const list of Object.values(data.examples))
      for (const example of list) this.known.set(inputKey(example.ids, example.offset), example);
    this.place = 0;
    this.tensorPanel = new TensorPanel(interpreter.tensors);
    this.listing = new Listing(byId("listing"), program, (i) => this.pick(i, true));
    const variables = new Set(["token", "pos", "one", ...program.statements.map((line) => line.name)]);
    this.cards = program.statements.map(
      (line, i) => new Card(line, i + 1, variables, (index) => this.pick(index, false)),
    );
    byId("variables").append(...this.cards.map((card) => card.node), this.rowsSwitch());
    this.listing.also(this.cards.map((card) => card.node));
    this.pick(
      Math.max(
        0,
        program.statements.findIndex((line) => tensorsOf(line).length),
      ),
      false,
    );
    this.connect();
    this.step(0);
    this.showEffects();
  }

  connect() {
    byId("form").addEventListener("submit", (event) => event.preventDefault());
    byId("input").addEventListener("input", () => this.later());
    byId("offset").addEventListener("input", () => this.later());
    byId("previous").addEventListener("click", () => this.step(-1));
    byId("next").addEventListener("click", () => this.step(1));
    byId("draw").addEventListener("click", () =>
      this.choose(data.examples.draws[Math.floor(Math.random() * data.examples.draws.length)]),
    );
    byId("draw").hidden = !data.examples.draws.length;
    const differing = data.examples.differing;
    byId("differ").hidden = !differing.length;
    let shownLast = -1;
    byId("differ").addEventListener("click", () =>
      this.choose(differing[(shownLast = (shownLast + 1) % differing.length)]),
    );
  }

  rowsSwitch() {
    const box = el("input", {
      type: "checkbox",
      onchange: () => {
        allRows = box.checked;
        this.update();
      },
    });
    return el("label", { class: "all-rows" }, box, " show every row of every variable");
  }

  pick(index, scroll) {
    this.listing.pick(index);
    this.tensorPanel.show(program.statements[index], index + 1);
    if (scroll && innerWidth >= 1080) this.cards[index].node.scrollIntoView({ block: "nearest" });
  }

  step(by) {
    if (!this.examples.length) return;
    this.place = (this.place + by + this.examples.length) % this.examples.length;
    this.choose(this.examples[this.place]);
  }

  choose(example) {
    byId("input").value = example.ids.map((id) => typed(program.vocabulary[id])).join(" ");
    byId("offset").value = example.offset;
    this.update();
  }

  /** At most one redraw a frame, however fast the keys come. */
  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.update();
    });
  }

  readInput() {
    const ids = tokenised(byId("input").value);
    const offset = Number(byId("offset").value);
    if (!ids.length) throw new Error(`Type an input: tokens with spaces between them. They are: ${tokenList()}`);
    if (!Number.isInteger(offset) || offset < 0) throw new Error("The offset is a whole number from 0 on.");
    if (offset + ids.length > program.positions) {
      throw new Error(
        `${plural(ids.length, "token")} at offset ${offset} do not fit the program's ${program.positions} positions.`,
      );
    }
    return { ids, offset };
  }

  update() {
    const start = performance.now();
    let input;
    try {
      input = this.readInput();
    } catch (problem) {
      this.complain(problem.message);
      return;
    }
    this.complain("");
    const run = this.interpreter.run(input.ids, input.offset);
    Object.assign(run, input, { labels: input.ids.map((id) => shown(program.vocabulary[id])) });
    showAnswers(run, this.known.get(inputKey(input.ids, input.offset)));
    for (const card of this.cards) card.show(run);
    byId("which").textContent = this.examples.length ? `example ${this.place + 1} of ${this.examples.length}` : "";
    this.milliseconds = performance.now() - start;
    byId("time").textContent = `${plural(input.ids.length, "token")}, drawn in ${this.milliseconds.toFixed(0)} ms`;
  }

  complain(message) {
    byId("message").textContent = message;
    byId("input").setAttribute("aria-invalid", message !== "");
    document.body.classList.toggle("stale", message !== "");
  }

  showEffects() {
    const effects = new Effects(this.interpreter, data.examples, data.effects ?? {});
    const host = byId("effects");
    const readers = new Set(effects.lines.map((line) => line.name));
    const selects = program.statements.filter(
      (line) => line.kind === "select" && (readers.has(line.query[0]) || readers.has(line.key[0])),
    );
    if (!effects.lines.length) return;
    host.hidden = false;
    // Samples take a moment to compute, so they wait until they come into view.
    const seen = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      seen.disconnect();
      for (const line of effects.lines)
        this.showEffect(host, `${line.name}: inputs and their effect on the logits`, logitsPanel(effects, line));
      for (const line of selects) this.showEffect(host, line.text, pairsPanel(effects, line));
    });
    seen.observe(host);
  }

  showEffect(host, title, panel) {
    if (!panel) return;
    host.append(el("h3", {}, el("code", {}, title)), panel);
    panel.lastChild.draw();
  }
}

showHead();
showSearch();
unpackTensors(data.tensors).then((tensors) => {
  globalThis.drasp = { data, report: new Report(new Interpreter(program, tensors)) };
  document.body.classList.add("ready");
});
