/* Numbers of the page: packed tensors, one-hot and dense values, products of matrices, softmax, activations. */

/** The tensors of a page: all in one deflated block, each with its bytes grouped by their place in a number. */
async function unpackTensors(packed) {
  const compressed = Uint8Array.from(atob(packed.data), (character) => character.charCodeAt(0));
  const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const tensors = new Map();
  for (const { name, shape, width, start } of packed.entries) {
    const count = shape.reduce((total, size) => total * size, 1);
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
function entry(/** @type {Activation} */ value, direction, position) {
  if (value.data) return value.data[position * value.size + direction];
  if (value.index[position] !== direction) return 0;
  return value.weight ? value.weight[position] : 1;
}

function denseRow(/** @type {Activation} */ value, position) {
  if (value.data) return value.data.subarray(position * value.size, (position + 1) * value.size);
  const row = new Float64Array(value.size);
  row[value.index[position]] = value.weight ? value.weight[position] : 1;
  return row;
}

/** All entries of an activation, [position × direction]. */
function dense(/** @type {Activation} */ value, length) {
  if (value.data) return value.data;
  const data = new Float64Array(length * value.size);
  for (let i = 0; i < length; i++) data[i * value.size + value.index[i]] = value.weight ? value.weight[i] : 1;
  return data;
}

/** Weights [query × key] from scores: a softmax over the keys that each query sees. */
function causalSoftmax(/** @type {Float64Array} */ scores, length) {
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
function addProduct(out, /** @type {Activation} */ value, /** @type {Matrix} */ matrix, length) {
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
function addDenseProduct(out, /** @type {Activation} */ { size, data: vectors }, { columns, data }, length) {
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

function product(/** @type {Activation} */ value, /** @type {Matrix} */ matrix, length) {
  return addProduct(new Float64Array(length * matrix.columns), value, matrix, length);
}

// ------------------------------------------------------------------------------------------ by position

/** Adds factor × other to a sum. */
function addTo(sum, other, factor = 1) {
  for (let i = 0; i < sum.length; i++) sum[i] += factor * other[i];
  return sum;
}

/** Rows with their means taken away. */
function centred(/** @type {Float64Array} */ data, size) {
  const out = new Float64Array(data.length);
  for (let start = 0; start < data.length; start += size) {
    let mean = 0;
    for (let i = start; i < start + size; i++) mean += data[i];
    mean /= size;
    for (let i = start; i < start + size; i++) out[i] = data[i] - mean;
  }
  return out;
}

// -------------------------------------------------------------------------------------------- matrices

function transposed(/** @type {Matrix} */ { rows, columns, data }) {
  const out = new Float64Array(data.length);
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) out[c * rows + r] = data[r * columns + c];
  return { rows: columns, columns: rows, data: out };
}

function columnsOf(/** @type {Matrix} */ { rows, columns, data }, from, count) {
  const out = new Float64Array(rows * count);
  for (let r = 0; r < rows; r++) out.set(data.subarray(r * columns + from, r * columns + from + count), r * count);
  return { rows, columns: count, data: out };
}

// ----------------------------------------------------------------------------------------- activations

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
  silu: (x) => x / (1 + Math.exp(-x)),
};
