/* Element-wise operations without a name: what goes in, and what that does to the logits or to attention.

   Samples are positions of the example inputs. What an output does is traced along every path to a project or a
   select, as if attention on the way looked at that position alone. */

const SHOWN_SAMPLES = 12;
const SHOWN_COLUMNS = 18;
const CONTEXT = 16; // letters

/** A position of an input, with the tokens that lead up to it, the last of which is its own. */
function contextLabel({ ids, offset }, position) {
  let text = "";
  for (let i = position; i >= 0; i--) {
    const longer = `${shown(program.vocabulary[ids[i]])} ${text}`.trim();
    if (text && longer.length > CONTEXT) return `${offset + position}: … ${text}`;
    text = longer;
  }
  return `${offset + position}: ${text}`;
}

/** Labels of which no two are alike. */
function distinct(labels) {
  const seen = new Map();
  return labels.map((label) => {
    seen.set(label, (seen.get(label) ?? 0) + 1);
    return seen.get(label) === 1 ? label : `${label} (${seen.get(label)})`;
  });
}

function isUnnamed(line) {
  return line.kind === "element_wise_op" && Boolean(line.function.network);
}

/** Where a variable goes: ways to projects and selects through aggregates and functions of it alone. */
function waysFrom(program, name, through = []) {
  return program.statements.flatMap((line) => {
    if (line.kind === "project" && line.input[0] === name) return [{ end: line, through }];
    if (line.kind === "select" && (line.query[0] === name || line.key[0] === name)) return [{ end: line, through }];
    if (line.kind === "aggregate" && line.value[0] === name) return waysFrom(program, line.name, [...through, line]);
    const alone = line.kind === "element_wise_op" && line.inputs.every(([input]) => input === name || input === "one");
    return alone && line.inputs.some(([input]) => input === name)
      ? waysFrom(program, line.name, [...through, line])
      : [];
  });
}

/** Attention before a further function mixes what the function should see one by one. */
function mixes(way) {
  const first = way.through.findIndex((line) => line.kind === "aggregate");
  return first >= 0 && way.through.slice(first).some((line) => line.kind === "element_wise_op");
}

class Effects {
  constructor(interpreter, examples) {
    this.interpreter = interpreter;
    this.examples = examples;
    this.program = interpreter.program;
    this.computed = null;
  }

  get lines() {
    return this.program.statements.filter(isUnnamed);
  }

  /** Selects that an unnamed output reaches. */
  get selects() {
    const ends = this.lines.flatMap((line) => waysFrom(this.program, line.name)).map((way) => way.end);
    return [...new Set(ends)].filter((end) => end.kind === "select");
  }

  /** Operations that read an output together with other variables. */
  mixedInto({ name }) {
    const others = this.program.statements.filter((line) => line.kind === "element_wise_op");
    return others.filter(({ inputs }) => {
      const names = inputs.map(([input]) => input);
      return names.includes(name) && names.some((input) => input !== name && input !== "one");
    });
  }

  get runs() {
    const short = [...this.examples.steps, ...this.examples.draws].filter((example) => example.ids.length <= 60);
    return (this.computed ??= short
      .slice(0, 24)
      .map((example) => ({ example, run: this.interpreter.run(example.ids, example.offset) })));
  }

  /** Inputs of a line that vary, as one vector at a position, and the names of its entries. */
  inputsOf(line) {
    return line.inputs.filter(([name]) => name !== "one");
  }

  inputLabels(line) {
    const operands = this.inputsOf(line);
    const prefix = operands.length > 1 ? (name) => `${name}:` : () => "";
    return operands.flatMap(([name]) =>
      basisLabels(this.program, this.program.bases[name]).map((label) => prefix(name) + label),
    );
  }

  inputAt(line, run, position) {
    return this.inputsOf(line).flatMap((operand) => Array.from(denseRow(run.read(operand, line), position)));
  }

  /** What an output at a position adds to the logits, summed over all ways that end in a project. */
  logitsOf(line, ways, run, position) {
    const total = new Float64Array(this.program.vocabulary.length);
    for (const { end, through } of ways) {
      const single = new Run(this.interpreter, [0], 0);
      let value = { size: run.values.get(line.name).size, data: denseRow(run.values.get(line.name), position) };
      for (const step of through) {
        if (step.kind !== "element_wise_op") continue;
        const one = single.values.get("one");
        value = single.apply(
          step.function,
          step.inputs.map(([name]) => (name === "one" ? one : value)),
        );
      }
      const scale = end.input[1] ? 1 / run.values.get(end.input[1]).divisor[position] : 1;
      const logits = product(value, this.interpreter.tensors.get(end.op), 1);
      for (let i = 0; i < total.length; i++) total[i] += scale * logits[i];
    }
    return total;
  }

  /** { labels, samples: [{ label, input, logits }], warning }, without two samples of the same input. */
  samplesOf(line) {
    const ways = waysFrom(this.program, line.name).filter((way) => way.end.kind === "project");
    if (!ways.length) return null;
    const seen = new Map();
    for (const { example, run } of this.runs) {
      if (!run.values.has(line.name)) return null;
      example.ids.forEach((_, position) => {
        if (!isCounted(example, example.ids, position)) return;
        const input = this.inputAt(line, run, position);
        const key = input.map((x) => x.toFixed(2)).join(" ");
        if (seen.has(key) || seen.size > 2000) return;
        const label = contextLabel(example, position);
        seen.set(key, { label, input, logits: this.logitsOf(line, ways, run, position) });
      });
    }
    return { labels: this.inputLabels(line), samples: [...seen.values()], warning: ways.some(mixes) };
  }

  /** Queries and keys of a select that reads an unnamed output: [{ query, key, score }], scores centred by query. */
  pairsOf(select, queryToken) {
    const pairs = [];
    for (const { example, run } of this.runs) {
      const value = run.values.get(select.name);
      if (!value) return [];
      example.ids.forEach((id, q) => {
        if (queryToken !== null && id !== queryToken) return;
        const row = value.scores.subarray(q * run.length, q * run.length + q + 1);
        const mean = sum(row) / row.length;
        row.forEach((score, k) => pairs.push({ run, example, q, k, score: score - mean }));
      });
    }
    return pairs;
  }

  /** What one side of a select is, at a position: the inputs of the unnamed operation, or the variable itself. */
  sideLabels([name]) {
    const line = this.program.statements.find((one) => one.name === name);
    if (line && isUnnamed(line)) return this.inputLabels(line);
    return basisLabels(this.program, this.program.bases[name]);
  }

  sideAt(select, operand, run, position) {
    const line = this.program.statements.find((one) => one.name === operand[0]);
    if (line && isUnnamed(line)) return this.inputAt(line, run, position);
    return Array.from(denseRow(run.read(operand, select), position));
  }
}

/** The columns with the largest entries, in their own order. */
function largestColumns(rows, count, always = []) {
  if (!rows.length) return [];
  const size = (c) => rows.reduce((most, row) => Math.max(most, Math.abs(row[c])), 0);
  const sizes = Array.from(rows[0], (_, c) => size(c));
  const order = [...sizes.keys()]
    .filter((c) => sizes[c] > 1e-3 * Math.max(...sizes))
    .sort((a, b) => sizes[b] - sizes[a]);
  return [...new Set([...always, ...order.slice(0, count)])].sort((a, b) => a - b);
}

function rowsGrid(name, rowLabels, rows, labels, columns, columnTitle) {
  return {
    name,
    rows: rows.length,
    columns: columns.length,
    values: Float64Array.from(rows.flatMap((row) => columns.map((c) => row[c]))),
    rowLabels,
    columnLabels: columns.map((c) => labels[c]),
    columnTitle,
  };
}

/** The highest and the lowest of a sorted list. */
function extremes(sorted) {
  if (sorted.length <= SHOWN_SAMPLES) return sorted;
  return [...sorted.slice(0, SHOWN_SAMPLES / 2), ...sorted.slice(-SHOWN_SAMPLES / 2)];
}

/** As under softmax: only what is above the runner-up promotes a token. */
function aboveSecond(logits) {
  const second = Array.from(logits).sort((a, b) => b - a)[1] ?? 0;
  return logits.map((x) => x - second);
}

function tokenChooser(vocabulary, label, first) {
  const options = vocabulary.map((token, i) => el("option", { value: i }, shown(token)));
  return el("label", {}, `${label} `, el("select", {}, first ? el("option", { value: "" }, first) : null, options));
}

/** The token on which the samples differ most. */
function mostTelling(rows) {
  const spread = (token) => Math.max(...rows.map((row) => row[token])) - Math.min(...rows.map((row) => row[token]));
  const spreads = Array.from(rows[0], (_, token) => spread(token));
  return spreads.indexOf(Math.max(...spreads));
}

/** Samples of a line's inputs beside what each does to the logits, sorted by a token: { node, draw }. */
function logitsPanel(effects, line) {
  const found = effects.samplesOf(line);
  if (!found || !found.samples.length) return null;
  const { vocabulary, output } = effects.program;
  const samples = found.samples.map(({ label, input, logits }) => {
    const effect = Float64Array.from(logits);
    return { label, input, effect: output === "softmax" ? aboveSecond(effect) : effect };
  });
  const chooser = tokenChooser(vocabulary, "sorted by the logit of");
  const choice = chooser.querySelector("select");
  choice.value = mostTelling(samples.map((sample) => sample.effect));
  const hosts = [el("div"), el("div")];
  const [inputMap, effectMap] = hosts.map((host) => new Heatmap(host, { maxCell: 34, labelRoom: 190 }));
  const draw = () => {
    const token = Number(choice.value);
    const rows = extremes(samples.sort((a, b) => b.effect[token] - a.effect[token]));
    const labels = distinct(rows.map((sample) => sample.label));
    const [inputs, results] = [rows.map((sample) => sample.input), rows.map((sample) => sample.effect)];
    const directions = largestColumns(inputs, SHOWN_COLUMNS);
    const tokens = largestColumns(results, Math.min(12, vocabulary.length), [token]);
    inputMap.show(rowsGrid(`inputs of ${line.name}`, labels, inputs, found.labels, directions, "input"));
    effectMap.show(
      rowsGrid(`effects of ${line.name}`, labels, results, vocabulary.map(shown), tokens, "effect on logits"),
    );
  };
  choice.addEventListener("change", draw);
  const warning =
    "Attention mixes positions before a later function: shown is what a position does if attended to alone.";
  const node = el(
    "div",
    { class: "effect" },
    el("p", { class: "controls" }, chooser),
    found.warning ? el("p", { class: "note" }, warning) : null,
    el("div", { class: "pair" }, hosts),
  );
  return { node, draw };
}

/** Pairs of query and key with the highest scores of a select and the lowest: { node, draw }. */
function pairsPanel(effects, select) {
  const { vocabulary } = effects.program;
  const chooser = tokenChooser(vocabulary, "for queries at", "any token");
  const choice = chooser.querySelector("select");
  const hosts = [el("div"), el("div"), el("div")];
  const [queryMap, keyMap, scoreMap] = hosts.map((host) => new Heatmap(host, { maxCell: 34, labelRoom: 190 }));
  const side = (map, title, operand, rows, place) => {
    const values = rows.map((pair) => effects.sideAt(select, operand, pair.run, pair[place]));
    const labels = distinct(rows.map((pair) => contextLabel(pair.example, pair[place])));
    const columns = largestColumns(values, SHOWN_COLUMNS);
    map.show(rowsGrid(`${title} of ${select.name}`, labels, values, effects.sideLabels(operand), columns, title));
  };
  const draw = () => {
    const pairs = effects.pairsOf(select, choice.value === "" ? null : Number(choice.value));
    const rows = extremes(pairs.sort((a, b) => b.score - a.score));
    for (const host of hosts) host.hidden = !rows.length;
    if (!rows.length) return;
    side(queryMap, "query", select.query, rows, "q");
    side(keyMap, "key", select.key, rows, "k");
    const scores = rows.map((pair) => [pair.score]);
    const blank = rows.map(() => "");
    scoreMap.show(rowsGrid(`score of ${select.name}`, blank, scores, ["score"], [0], ""));
  };
  choice.addEventListener("change", draw);
  const about = "pairs of query and key, the highest scores and the lowest, each query's mean taken away;";
  const node = el(
    "div",
    { class: "effect" },
    el("p", { class: "controls" }, `${about} `, chooser),
    el("div", { class: "triple" }, hosts),
  );
  return { node, draw };
}

/** Everything that is known of the operations without a name. */
function showEffects(effects, host) {
  if (!effects.lines.length) return;
  host.hidden = false;
  const add = (title, panel) => {
    if (!panel) return;
    host.append(el("h3", {}, el("code", {}, title)), panel.node);
    panel.draw();
  };
  let waiting = true;
  const show = () => {
    if (!waiting) return;
    waiting = false;
    for (const line of effects.lines) {
      add(`${line.name}: inputs and their effect on the logits`, logitsPanel(effects, line));
      for (const other of effects.mixedInto(line)) {
        const text = `${line.name} also goes into ${other.name}, together with other variables: not traced further.`;
        host.append(el("p", { class: "note" }, text));
      }
    }
    for (const line of effects.selects) add(line.text, pairsPanel(effects, line));
  };
  // Samples take a moment to compute, so they wait until there is time for them, or somebody prints.
  whenIdle(show)();
  addEventListener("beforeprint", show);
}
