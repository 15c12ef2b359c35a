/* Runs a D-RASP program in the page, line by line, as drasp's interpreter in Python does.

   What makes it fast enough for every keystroke: one-hot variables stay indices and are looked up, nothing after
   the query is computed, and the first two matrices of an MLP are multiplied beforehand where that is less work.
   Values are 64-bit floats throughout, so that the two interpreters differ by rounding alone. */

/** The tensors of a page: all in one deflated block, each with its bytes grouped by their place in a number. */
async function unpackTensors(packed) {
  const compressed = Uint8Array.from(atob(packed.data), (character) => character.charCodeAt(0));
  const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const tensors = new Map();
  for (const { name, shape, width, start } of packed.entries) {
    const count = shape.reduce((product, size) => product * size, 1);
    const plain = new Uint8Array(count * width);
    for (let plane = 0; plane < width; plane++) {
      const from = start + plane * count;
      for (let i = 0; i < count; i++) plain[i * width + plane] = bytes[from + i];
    }
    // All of one type, so that the loops over them are compiled for that type alone.
    const data = { 2: halves, 4: (buffer) => Float64Array.from(new Float32Array(buffer)) }[width]?.(plain.buffer);
    const [rows, columns] = shape.length === 2 ? shape : [1, shape[0]];
    tensors.set(name, { rows, columns, data: data ?? new Float64Array(plain.buffer) });
  }
  return tensors;
}

/** Numbers of 16 bits: a sign, five bits of an exponent, ten of a fraction. */
function halves(buffer) {
  return Float64Array.from(new Uint16Array(buffer), (bits) => {
    const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
  });
}

// ------------------------------------------------------------------------------------------------- values
// An activation is one-hot, { size, index, weight } (weight null: 1 everywhere), or dense, { size, data }.

/** The entry of an activation along one direction at one position. */
function entry(value, direction, position) {
  if (value.data) return value.data[position * value.size + direction];
  if (value.index[position] !== direction) return 0;
  return value.weight ? value.weight[position] : 1;
}

function denseRow(value, position) {
  if (value.data) return value.data.subarray(position * value.size, (position + 1) * value.size);
  const row = new Float64Array(value.size);
  row[value.index[position]] = value.weight ? value.weight[position] : 1;
  return row;
}

/** All entries of an activation, [position × direction]. */
function dense(value, length) {
  if (value.data) return value.data;
  const data = new Float64Array(length * value.size);
  for (let i = 0; i < length; i++) data[i * value.size + value.index[i]] = value.weight ? value.weight[i] : 1;
  return data;
}

/** Weights [query × key] from scores: a softmax over the keys that each query sees. */
function causalSoftmax(scores, length) {
  const weights = new Float64Array(length * length);
  for (let q = 0; q < length; q++) {
    const row = weights.subarray(q * length, q * length + q + 1);
    row.set(scores.subarray(q * length, q * length + q + 1));
    let largest = -Infinity;
    for (const x of row) if (x > largest) largest = x;
    let total = 0;
    for (let k = 0; k <= q; k++) total += row[k] = Math.exp(row[k] - largest);
    for (let k = 0; k <= q; k++) row[k] /= total;
  }
  return weights;
}

/** Adds value × matrix to `out` [length × matrix.columns]. */
function addProduct(out, value, matrix, length) {
  if (value.data) return addDenseProduct(out, value, matrix, length);
  const { columns, data } = matrix;
  for (let i = 0; i < length; i++) {
    const [source, target] = [value.index[i] * columns, i * columns];
    const weight = value.weight ? value.weight[i] : 1;
    for (let c = 0; c < columns; c++) out[target + c] += weight * data[source + c];
  }
  return out;
}

/** Four rows of the matrix at a time, which stay near the processor, and two positions: a number that has been fetched
    is used twice, and a sum is stored once for four products. Rows that meet only zeros are left out. */
function addDenseProduct(out, { size, data: vectors }, { columns, data }, length) {
  for (let r = 0; r < size; r += 4) {
    // Where fewer than four are left, the last one stands in for the rest, with a weight of 0.
    const [r1, r2, r3] = [Math.min(r + 1, size - 1), Math.min(r + 2, size - 1), Math.min(r + 3, size - 1)];
    const [w1, w2, w3] = [Number(r + 1 < size), Number(r + 2 < size), Number(r + 3 < size)];
    const [k0, k1, k2, k3] = [r * columns, r1 * columns, r2 * columns, r3 * columns];
    for (let i = 0; i < length; i += 2) {
      // The last one of an odd number is its own partner, with a weight of 0.
      const other = i + 1 < length ? i + 1 : i;
      const partner = other - i;
      const [from, aside, target, beyond] = [i * size, other * size, i * columns, other * columns];
      const p0 = vectors[from + r];
      const p1 = w1 * vectors[from + r1];
      const p2 = w2 * vectors[from + r2];
      const p3 = w3 * vectors[from + r3];
      const q0 = partner * vectors[aside + r];
      const q1 = partner * w1 * vectors[aside + r1];
      const q2 = partner * w2 * vectors[aside + r2];
      const q3 = partner * w3 * vectors[aside + r3];
      if (p0 === 0 && p1 === 0 && p2 === 0 && p3 === 0 && q0 === 0 && q1 === 0 && q2 === 0 && q3 === 0) continue;
      for (let c = 0; c < columns; c++) {
        const a0 = data[k0 + c];
        const a1 = data[k1 + c];
        const a2 = data[k2 + c];
        const a3 = data[k3 + c];
        out[target + c] += p0 * a0 + p1 * a1 + p2 * a2 + p3 * a3;
        out[beyond + c] += q0 * a0 + q1 * a1 + q2 * a2 + q3 * a3;
      }
    }
  }
  return out;
}

function product(value, matrix, length) {
  return addProduct(new Float64Array(length * matrix.columns), value, matrix, length);
}

// ---------------------------------------------------------------------------------------------- functions

/** The error function: a series whose terms are all positive, so that nothing cancels. */
function erf(x) {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  let term = size;
  let sum = size;
  for (let n = 1; term > sum * 1e-17; n++) {
    term *= (2 * size * size) / (2 * n + 1);
    sum += term;
  }
  return Math.sign(x) * (2 / Math.sqrt(Math.PI)) * Math.exp(-size * size) * sum;
}

const ACTIVATIONS = {
  gelu_new: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  relu: (x) => Math.max(x, 0),
};

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
  constructor(program, tensors) {
    this.program = program;
    this.tensors = tensors;
    this.selects = new Map();
    for (const line of program.statements) if (line.kind === "select") this.selects.set(line.name, line);
    this.multiplied = new Map();
  }

  /** Every variable's value on one input. A line that the page cannot compute, and what reads it, has none.

      Edits are by variable; of "a1 pattern", the attention weights of an aggregate; and of "a1 -> logits1", what one
      line reads of another. */
  run(ids, offset, edits = {}) {
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
  constructor(interpreter, ids, offset, edits = {}) {
    const { vocabulary, positions } = interpreter.program;
    Object.assign(this, { interpreter, edits, length: ids.length });
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
