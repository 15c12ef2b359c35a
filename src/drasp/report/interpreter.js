/* Runs a D-RASP program in the page, line by line, as drasp's interpreter in Python does.

   What makes it fast enough for every keystroke: one-hot variables stay indices and are looked up, nothing after
   the query is computed, and the first two matrices of an MLP are multiplied beforehand where that is less work.
   Values are 64-bit floats throughout, so that the two interpreters differ by rounding alone. */

// ---------------------------------------------------------------------------------------------- functions

function sum(values) {
  let total = 0;
  for (const x of values) total += x;
  return total;
}

function scaledToOne(values) {
  const total = sum(values);
  return values.map((x) => x / (total === 0 ? 1 : total));
}

/** The library of element-wise functions: the inputs' vectors at one position, then the parameters. */
const FUNCTIONS = {
  no_op: ([x]) => x,
  sharpen: ([x], n) => scaledToOne(x.map((entry) => entry ** n)),
  harden: ([x]) => {
    let best = 0;
    for (let i = 1; i < x.length; i++) if (x[i] > x[best]) best = i;
    return x.map((_, i) => Number(i === best));
  },
  balance_01: ([x], n) => {
    const difference = x[1] - x[0];
    const ones = Math.max(difference, 0) ** n;
    const zeros = Math.max(-difference, 0) ** n;
    return Float64Array.of(ones, zeros, 1 - ones - zeros);
  },
  is_pure: ([x], tau) => {
    const pure = Array.from(x, (entry) => Number(entry > tau));
    return Float64Array.from([...pure, 1 - sum(pure)]);
  },
  compare: ([x]) => {
    const signs = [];
    for (let i = 0; i < x.length; i++) {
      for (let j = i + 1; j < x.length; j++) signs.push(Math.abs(x[i] - x[j]) > 1e-6 ? Math.sign(x[i] - x[j]) : 0);
    }
    return Float64Array.from(signs);
  },
  maximum: ([x, y]) => x.map((entry, i) => Math.max(entry, y[i])),
  keep: (inputs, i) => inputs[i - 1],
  cartesian: (inputs) =>
    scaledToOne(
      inputs.reduce((smallest, x) => {
        const pairs = new Float64Array(smallest.length * x.length);
        for (let i = 0; i < smallest.length; i++) {
          for (let j = 0; j < x.length; j++) pairs[i * x.length + j] = Math.min(smallest[i], x[j]);
        }
        return pairs;
      }),
    ),
  difference_mod: ([x, y], m) => {
    const [first, second] = [x, y].map((values) =>
      values.reduce((shares, v, i) => ((shares[i % m] += v), shares), new Float64Array(m)),
    );
    return first.map((_, r) => second.reduce((total, share, s) => total + first[(r + s) % m] * share, 0));
  },
};

// -------------------------------------------------------------------------------------------- interpreter

class Interpreter {
  constructor(program, /** @type {Map<string, Matrix>} */ tensors) {
    this.program = program;
    this.tensors = tensors;
    this.selects = new Map();
    for (const line of program.statements) if (line.kind === "select") this.selects.set(line.name, line);
    this.multiplied = new Map();
  }

  /** Every variable's value on one input. A line that the page cannot compute, and what reads it, has none.

      Edits are by variable; of "a1 pattern", the attention weights of an aggregate; and of "a1 -> logits1", what one
      line reads of another. */
  run(ids, offset, /** @type {Edits} */ edits = {}) {
    return new Run(this, ids, offset, edits).trace();
  }

  /** The tensors of an MLP, with input × hidden multiplied out where the input has fewer directions. */
  network(name, inputs) {
    if (!this.multiplied.has(name)) {
      const hidden = this.tensors.get(`${name}.hidden`);
      const sources = Array.from({ length: inputs }, (_, i) => {
        const source = this.tensors.get(`${name}.${i}`);
        if (source.rows > source.columns) return { source, through: null };
        const data = product({ size: source.columns, data: source.data }, hidden, source.rows);
        return { source, through: { rows: source.rows, columns: hidden.columns, data } };
      });
      this.multiplied.set(name, sources);
    }
    return this.multiplied.get(name);
  }
}

class Run {
  constructor(/** @type {Interpreter} */ interpreter, ids, offset, /** @type {Edits} */ edits = {}) {
    const { vocabulary, positions } = interpreter.program;
    this.interpreter = interpreter;
    this.edits = edits;
    this.length = ids.length;
    /** @type {Map<string, any>} */
    this.values = new Map([
      ["token", { size: vocabulary.length, index: Int32Array.from(ids), weight: null }],
      ["pos", { size: positions, index: Int32Array.from(ids, (_, i) => offset + i), weight: null }],
      ["one", { size: 1, index: new Int32Array(ids.length), weight: null }],
    ]);
    for (const [name, value] of this.values) this.values.set(name, this.settled(name, value));
    this.attention = new Map();
  }

  trace() {
    for (const line of this.interpreter.program.statements) {
      if (line.reads.every((name) => this.values.has(name))) {
        const value = this.compute(line);
        if (value) this.values.set(line.name, this.settled(line.name, value));
      }
    }
    return this;
  }

  compute(line) {
    switch (line.kind) {
      case "select":
        return { scores: this.scores(line) };
      case "aggregate":
        return { size: this.values.get(line.value[0]).size, data: this.aggregate(line) };
      case "element_wise_op":
        return this.apply(
          line.function,
          line.inputs.map((operand) => this.read(operand, line)),
        );
      case "norm":
        return { divisor: this.rootMeanSquare(this.combine(line), line.eps) };
      case "project": {
        const op = this.tensor(line.op);
        return { size: op.columns, data: product(this.read(line.input, line), op, this.length) };
      }
      case "prediction":
        return this.predict(line);
    }
    throw new Error(`a line of an unknown kind: ${line.kind}`);
  }

  tensor(name) {
    return this.interpreter.tensors.get(name);
  }

  /** A value after the edit of that name, if there is one. */
  settled(name, value) {
    const edit = this.edits[name];
    if (!edit) return value;
    if (value.scores) return { scores: edited(value.scores, edit) };
    if (value.divisor) return { divisor: edited(value.divisor, edit) };
    return { size: value.size, data: edited(dense(value, this.length), edit) };
  }

  /** What a line reads of a variable, divided by a norm where the program says so. */
  read([name, norm], line) {
    const value = this.settled(`${name} -> ${line.name}`, this.values.get(name));
    if (norm === null) return value;
    const { divisor } = this.values.get(norm);
    if (!value.data) return { ...value, weight: divisor.map((x) => 1 / x) };
    return { size: value.size, data: value.data.map((x, i) => x / divisor[Math.floor(i / value.size)]) };
  }

  // ------------------------------------------------------------------------------------------- attention

  /** Scores [query × key], of the keys up to the query alone. */
  scores(line) {
    const { length } = this;
    const op = this.tensor(line.op);
    const key = this.read(line.key, line);
    // All queries are alike where the query is the constant: one row is enough.
    const alike =
      line.query[0] === "one" && line.query[1] === null && !this.edits.one && !this.edits[`one -> ${line.name}`];
    const wanted = alike ? op.data : product(this.read(line.query, line), op, length);
    const scores = new Float64Array(length * length);
    for (let q = 0; q < length; q++) {
      const row = alike ? 0 : q * op.columns;
      for (let k = 0; k <= q; k++) {
        let score = 0;
        if (key.data) {
          const from = k * key.size;
          for (let c = 0; c < key.size; c++) score += wanted[row + c] * key.data[from + c];
        } else {
          score = wanted[row + key.index[k]] * (key.weight ? key.weight[k] : 1);
        }
        scores[q * length + k] = score;
      }
    }
    return scores;
  }

  /** The attention weights of an aggregate: the causal softmax of the sum of its selectors, uniform without any. */
  weights({ name, selectors }) {
    const key = this.edits[`${name} pattern`] ? name : selectors.join("+");
    if (this.attention.has(key)) return this.attention.get(key);
    const { length } = this;
    const scores = new Float64Array(length * length);
    for (const selector of selectors) {
      const own = this.values.get(selector).scores;
      for (let i = 0; i < scores.length; i++) scores[i] += own[i];
    }
    const edit = this.edits[`${name} pattern`];
    const weights = causalSoftmax(scores, length);
    this.attention.set(key, edit ? edited(weights, edit) : weights);
    return this.attention.get(key);
  }

  aggregate(line) {
    const { length } = this;
    const value = this.read(line.value, line);
    const out = new Float64Array(length * value.size);
    const add = (target, key, share) => {
      if (!value.data) {
        out[target + value.index[key]] += share * (value.weight ? value.weight[key] : 1);
        return;
      }
      const from = key * value.size;
      for (let c = 0; c < value.size; c++) out[target + c] += share * value.data[from + c];
    };
    if (!line.selectors.length && !this.edits[`${line.name} pattern`]) {
      for (let i = 0; i < length; i++) {
        if (i) out.copyWithin(i * value.size, (i - 1) * value.size, i * value.size);
        add(i * value.size, i, 1);
      }
      return out.map((x, i) => x / (Math.floor(i / value.size) + 1));
    }
    const weights = this.weights(line);
    for (let q = 0; q < length; q++) {
      for (let k = 0; k < length; k++) {
        const share = weights[q * length + k];
        if (share !== 0) add(q * value.size, k, share);
      }
    }
    return out;
  }

  // ----------------------------------------------------------------------------------- element by element

  /** The weighted sum of variables that a norm begins with. */
  combine(line) {
    const columns = this.tensor(`${line.op}.0`).columns;
    const out = new Float64Array(this.length * columns);
    line.inputs.forEach((operand, i) =>
      addProduct(out, this.read(operand, line), this.tensor(`${line.op}.${i}`), this.length),
    );
    return { size: columns, data: out };
  }

  rootMeanSquare({ size, data }, eps) {
    return Float64Array.from({ length: this.length }, (_, i) => {
      let total = 0;
      for (let c = 0; c < size; c++) total += data[i * size + c] ** 2;
      return Math.sqrt(total / size + eps);
    });
  }

  apply(func, values) {
    if (func.network) return this.mlp(func, values);
    if (!FUNCTIONS[func.primitive]) return null;
    const rows = Array.from({ length: this.length }, (_, i) =>
      FUNCTIONS[func.primitive](
        values.map((value) => denseRow(value, i)),
        ...func.arguments,
      ),
    );
    const size = rows[0].length;
    const data = new Float64Array(this.length * size);
    rows.forEach((row, i) => data.set(row, i * size));
    return { size, data };
  }

  mlp({ network, activation, eps }, values) {
    const { length } = this;
    const hiddenTensor = this.tensor(`${network}.hidden`);
    const sources = this.interpreter.network(network, values.length);
    const hidden = new Float64Array(length * hiddenTensor.columns);
    const stream = new Float64Array(length * hiddenTensor.rows);
    const rest = new Float64Array(length * hiddenTensor.rows); // what was not multiplied out beforehand
    values.forEach((value, i) => {
      const { source, through } = sources[i];
      if (eps !== null) addProduct(stream, value, source, length);
      if (through) addProduct(hidden, value, through, length);
      else addProduct(rest, value, source, length);
    });
    addProduct(hidden, { size: hiddenTensor.rows, data: rest }, hiddenTensor, length);
    const divisor = eps === null ? null : this.rootMeanSquare({ size: hiddenTensor.rows, data: stream }, eps);
    const bias = this.tensor(`${network}.hidden_bias`).data;
    const act = ACTIVATIONS[activation];
    for (let i = 0, at = 0; i < length; i++) {
      const scale = divisor ? 1 / divisor[i] : 1;
      for (let c = 0; c < bias.length; c++, at++) hidden[at] = act(hidden[at] * scale + bias[c]);
    }
    const last = this.tensor(`${network}.out`);
    const data = product({ size: last.rows, data: hidden }, last, length);
    const lastBias = this.tensor(`${network}.out_bias`).data;
    return { size: last.columns, data: data.map((x, i) => x + lastBias[i % last.columns]) };
  }

  predict(line) {
    const size = this.interpreter.program.vocabulary.length;
    const logits = new Float64Array(this.length * size);
    for (const name of line.logits) {
      const { data } = this.values.get(name);
      for (let i = 0; i < logits.length; i++) logits[i] += data[i];
    }
    return { size, data: logits };
  }
}

/** What a row of logits says: the likeliest token (a list of one), or all tokens that may come next. */
function answerOf(logits, position, size, output) {
  const row = logits.subarray(position * size, (position + 1) * size);
  if (output === "sigmoid") return Array.from(row.keys()).filter((token) => row[token] > 0);
  return [row.reduce((best, x, token) => (x > row[best] ? token : best), 0)];
}

/** Probabilities from logits, row by row. */
function probabilities(logits, size, output) {
  if (output === "sigmoid") return logits.map((x) => 1 / (1 + Math.exp(-x)));
  const out = new Float64Array(logits.length);
  for (let start = 0; start < logits.length; start += size) {
    let largest = -Infinity;
    for (let i = start; i < start + size; i++) if (logits[i] > largest) largest = logits[i];
    let total = 0;
    for (let i = start; i < start + size; i++) total += out[i] = Math.exp(logits[i] - largest);
    for (let i = start; i < start + size; i++) out[i] /= total;
  }
  return out;
}
