/* Runs a GPT-2 on one input, with edits at any of its sites and values recorded there, as drasp's forward pass in Python
   does. Sites are called by the names that they have there: "layer 0 head 1 pattern", "token -> out". */

const NO_COMPONENT = "one";
const BEHIND = " behind its norm";
const CONSTANT = " constant norm";
const SIDES = ["query", "key", "value"];

/** What a site is: of an edge, a read and a product, its ends; of others, its name. */
function parseSite(site) {
  const [left, right] = site.split(" -> ");
  if (right === undefined) return { kind: "plain", name: site };
  if (right.endsWith(BEHIND)) return { kind: "read", sender: left, receiver: right.slice(0, -BEHIND.length) };
  const [query, key] = left.split(" * ");
  if (key === undefined) return { kind: "edge", sender: left, receiver: right };
  return { kind: "product", query, key, head: right.replace(/ pattern$/, "") };
}

const isPath = (sender) => sender.includes(" > ");

/** The divisor of a receiver's layer norm, as a site. */
function normSite(receiver) {
  if (receiver === "out") return "final norm";
  return receiver.endsWith(" mlp input") ? receiver.replace(/ input$/, " norm") : `${receiver} norm`;
}

/** One evaluation on one input. */
class ModelPass {
  constructor(/** @type {Model} */ model, ids, offset, /** @type {Edits} */ edits, record) {
    this.model = model;
    this.ids = ids;
    this.offset = offset;
    this.edits = edits;
    this.length = ids.length;
    this.values = new Map();
    this.record = new Set(record);
    this.sent = new Map();
    this.stream = new Float64Array(ids.length * model.size);
    this.biases = new Float64Array(ids.length * model.size);
    this.roots = new Map();
    this.patterns = new Map();
    this.ways = new Map();
    // By receiver: edges and paths that are edited or recorded, and what is edited behind its norm. By head: products.
    this.asked = { edge: new Map(), path: new Map(), read: new Map(), product: new Map() };
    this.touched = new Set();
    this.bare = new Map(); // what divides the constants of receivers
    this.fixed = new Map(); // what heads make of constants
    for (const site of new Set([...Object.keys(edits), ...record])) this.note(site);
  }

  note(site) {
    const place = parseSite(site);
    if (!this.model.has(site, place)) throw new Error(`The model has no site ${site}.`);
    const add = (kind, key) => {
      if (!this.asked[kind].has(key)) this.asked[kind].set(key, []);
      this.asked[kind].get(key).push({ site, ...place });
    };
    if (site.endsWith(CONSTANT)) {
      const receiver = site === `final${CONSTANT}` ? "out" : site.slice(0, -CONSTANT.length);
      this.bare.set(receiver, this.edits[site].replaced);
      this.touched.add(receiver);
    } else if (place.kind === "plain") {
      const shared = site.match(/^(layer \d+) attention norm$/);
      const sides = (layer) => SIDES.flatMap((side) => this.headsOf(layer).map((head) => `${head} ${side}`));
      for (const receiver of shared ? sides(shared[1]) : [this.normed(site) ?? site]) this.touched.add(receiver);
    } else if (place.kind === "product") {
      add("product", place.head);
      // Parts of queries and keys need the divisors of these.
      this.touched.add(`${place.head} query`).add(`${place.head} key`);
    } else {
      this.touched.add(place.receiver);
      add(place.kind === "edge" && isPath(place.sender) ? "path" : place.kind, place.receiver);
    }
  }

  headsOf(layer) {
    return this.model.components.filter((name) => name.startsWith(`${layer} head `));
  }

  /** The receiver whose norm's divisor a site is, if it is one. */
  normed(site) {
    if (site === "final norm") return "out";
    if (!site.endsWith(" norm")) return null;
    return site.endsWith(" mlp norm") ? site.replace(/ norm$/, " input") : site.replace(/ norm$/, "");
  }

  run() {
    const { model, ids } = this;
    const rows = (table, which) => {
      const out = new Float64Array(this.length * model.size);
      which.forEach((row, i) => out.set(table.data.subarray(row * model.size, (row + 1) * model.size), i * model.size));
      return out;
    };
    this.send("token", rows(model.tensors.get("wte.weight"), ids));
    this.send(
      "pos",
      rows(
        model.tensors.get("wpe.weight"),
        ids.map((_, i) => this.offset + i),
      ),
    );
    for (const layer of model.layers) {
      if (this.bare.size) for (const head of layer.heads) this.fixed.set(head.name, this.fixedBy(head, layer));
      const outputs = layer.heads.map((head) => this.head(head, layer));
      layer.heads.forEach((head, i) => this.send(head.name, outputs[i]));
      for (const stream of [this.stream, this.biases])
        for (let i = 0; i < stream.length; i++) stream[i] += layer.headsBias[i % model.size];
      this.shared = null;
      this.send(layer.mlp, this.mlp(layer));
    }
    const data = this.behindNorm("out", model.output);
    return { logits: product({ size: model.size, data }, model.output.across, this.length), values: this.values };
  }

  send(component, computed) {
    const value = this.settled(component, computed);
    this.sent.set(component, value);
    addTo(this.stream, value);
    this.shared = null;
  }

  /** A value after its edit, recorded where that is asked for. */
  settled(site, computed) {
    const edit = this.edits[site];
    const value = edit ? edited(computed, edit) : computed;
    if (this.record.has(site)) this.values.set(site, value);
    return value;
  }

  // --------------------------------------------------------------------------------------------- reading

  /** What a sender sends: a component, or that part of a head's output that comes along a path. */
  heard(sender) {
    if (!isPath(sender)) return this.sent.get(sender);
    if (!this.ways.has(sender)) this.ways.set(sender, this.along(sender));
    return this.ways.get(sender);
  }

  along(path) {
    const [origin, ...heads] = path.split(" > ");
    let value = this.sent.get(origin);
    let before = origin;
    for (const name of heads) {
      const edit = this.edits[`${before} -> ${name} value`];
      // What an edit puts in place of a sender comes from nowhere, and is no part of what comes along.
      if (edit?.replaced !== undefined) value = new Float64Array(value.length);
      else if (edit?.scaled !== undefined) value = value.map((x) => edit.scaled * x);
      const head = this.headNamed(name);
      const mixed = this.mixed(name, this.part(value, name, 2), head.output.rows);
      value = product({ size: head.output.rows, data: mixed }, head.output, this.length);
      before = name;
    }
    return value;
  }

  headNamed(name) {
    return this.model.layers[Number(name.split(" ")[1])].heads.find((head) => head.name === name);
  }

  /** What a part of the stream makes of a head's query, key or value: given the norm, this is linear. */
  part(value, head, side) {
    const { gain } = this.model.layers[Number(head.split(" ")[1])].attentionNorm;
    const { size } = this.model;
    const root = this.root(`${head} ${SIDES[side]}`);
    const normed = centred(value, size).map((x, i) => (gain[i % size] * x) / root[Math.floor(i / size)]);
    return product({ size, data: normed }, this.headNamed(head).sides[side].matrix, this.length);
  }

  root(receiver) {
    return this.roots.get(this.roots.has(receiver) ? receiver : `layer ${receiver.split(" ")[1]} attention`);
  }

  /** What a receiver reads of the residual stream. */
  read(receiver) {
    let x = this.stream;
    const edges = this.asked.edge.get(receiver) ?? [];
    if (edges.length) {
      x = this.biases.slice();
      for (const sender of this.model.sendersTo(receiver)) addTo(x, this.edgeValue(sender, receiver));
    }
    for (const { site, sender } of this.asked.path.get(receiver) ?? []) {
      const value = this.heard(sender);
      x = addTo(addTo(x.slice(), this.settled(site, value)), value, -1);
    }
    return this.settled(receiver, x);
  }

  edgeValue(sender, receiver) {
    return this.settled(`${sender} -> ${receiver}`, this.heard(sender));
  }

  /** Layer norm of what a receiver reads. Receivers of which nothing is asked share one. */
  behindNorm(receiver, { gain, bias }, group = receiver) {
    const shares = !this.touched.has(receiver);
    if (shares && this.shared?.group === group) return this.shared.value;
    const { size } = this.model;
    let x = this.read(receiver);
    const deviations = centred(x, size);
    const root = this.divisor(receiver, group, deviations);
    this.roots.set(shares ? group : receiver, root);
    let spread = deviations;
    for (const { site, sender } of this.asked.read.get(receiver) ?? []) {
      const value = this.heard(sender);
      x = addTo(addTo(x.slice(), this.settled(site, value)), value, -1);
      spread = centred(x, size);
    }
    const value = new Float64Array(spread.length);
    for (let i = 0, at = 0; i < this.length; i++)
      for (let c = 0; c < size; c++, at++) value[at] = (gain[c] * spread[at]) / root[i] + bias[c];
    if (shares) this.shared = { group, value };
    if (this.bare.has(receiver)) this.divideConstants(value, receiver, gain, root);
    return value;
  }

  /** Divides the constant part of what a receiver reads by something else than the rest. */
  divideConstants(value, receiver, gain, root) {
    const { size } = this.model;
    const part = centred(this.constantPart(receiver), size);
    const by = this.bare.get(receiver);
    for (let i = 0, at = 0; i < this.length; i++) {
      const change = 1 / (typeof by === "number" ? by : by[i]) - 1 / root[i];
      for (let c = 0; c < size; c++, at++) value[at] += gain[c] * part[c] * change;
    }
  }

  /** What of that which a receiver reads is the same for all inputs: biases, and what heads make of constants. */
  constantPart(receiver) {
    const part = this.biases.slice(0, this.model.size);
    for (const sender of this.model.sendersTo(receiver)) {
      const isCut = this.edits[`${sender} -> ${receiver}`]?.replaced !== undefined;
      if (this.fixed.has(sender) && !isCut) addTo(part, this.fixed.get(sender));
    }
    const edit = this.edits[receiver];
    return edit?.shifted === undefined ? part : edited(part, edit);
  }

  /** What a head sends whatever it attends to: its biases, and constants that its norm divides by a number. */
  fixedBy(head, layer) {
    const { size } = this.model;
    const receiver = `${head.name} value`;
    const { gain, bias } = layer.attentionNorm;
    const sites = [normSite(receiver), `layer ${head.name.split(" ")[1]} attention norm`];
    const edit = sites.map((site) => this.edits[site]).find(Boolean);
    const by = edit?.replaced ?? this.bare.get(receiver);
    const data = bias.slice();
    if (typeof by === "number")
      centred(this.constantPart(receiver), size).forEach((x, c) => (data[c] += (gain[c] * x) / by));
    const { matrix, bias: own } = head.sides[2];
    const value = addTo(product({ size, data }, matrix, 1), own);
    return product({ size: value.length, data: value }, head.output, 1);
  }

  divisor(receiver, group, deviations) {
    const { size, eps } = this.model;
    const root = new Float64Array(this.length);
    for (let i = 0; i < this.length; i++) {
      let total = 0;
      for (let c = i * size; c < (i + 1) * size; c++) total += deviations[c] * deviations[c];
      root[i] = Math.sqrt(total / size + eps);
    }
    // A receiver's own divisor, or that of all heads of its layer.
    const sites = [normSite(receiver), `${group} norm`];
    const edit = sites.map((site) => this.edits[site]).find(Boolean);
    const value = edit ? edited(root, edit) : root;
    for (const site of sites) if (this.record.has(site)) this.values.set(site, value);
    return value;
  }

  // ------------------------------------------------------------------------------------------ components

  /** A head's queries, keys or values. */
  side(head, index, layer) {
    const group = `${layer.mlp.replace(/ mlp$/, "")} attention`;
    const data = this.behindNorm(`${head.name} ${SIDES[index]}`, layer.attentionNorm, group);
    const { matrix, bias } = head.sides[index];
    const out = product({ size: this.model.size, data }, matrix, this.length);
    for (let i = 0; i < out.length; i++) out[i] += bias[i % bias.length];
    return out;
  }

  head(head, layer) {
    const values = this.side(head, 2, layer);
    this.patterns.set(head.name, this.pattern(head, layer));
    const width = head.output.rows;
    const data = this.mixed(head.name, values, width);
    return product({ size: width, data }, head.output, this.length);
  }

  /** Values mixed by a head's attention weights. What comes later has no weight, unless an edit gives it one. */
  mixed(head, values, width) {
    const { length } = this;
    const pattern = this.patterns.get(head);
    const out = new Float64Array(length * width);
    for (let q = 0; q < length; q++) {
      for (let k = 0; k < length; k++) {
        const weight = pattern[q * length + k];
        if (weight === 0) continue;
        for (let c = 0; c < width; c++) out[q * width + c] += weight * values[k * width + c];
      }
    }
    return out;
  }

  pattern(head, layer) {
    const { length } = this;
    const [q, k] = [0, 1].map((index) => this.side(head, index, layer));
    const scores = this.scores(q, k, layer.scale);
    for (const asked of this.asked.product.get(head.name) ?? []) {
      const [query, key] = [this.sidePart(asked.query, head.name, 0, q), this.sidePart(asked.key, head.name, 1, k)];
      const own = this.scores(query, key, layer.scale);
      addTo(addTo(scores, this.settled(asked.site, own)), own, -1);
    }
    return this.settled(`${head.name} pattern`, causalSoftmax(scores, length));
  }

  /** Products of queries and keys up to there. */
  scores(q, k, scale) {
    const { length } = this;
    const width = q.length / length;
    const scores = new Float64Array(length * length);
    for (let i = 0; i < length; i++) {
      for (let j = 0; j <= i; j++) {
        let score = 0;
        for (let c = 0; c < width; c++) score += q[i * width + c] * k[j * width + c];
        scores[i * length + j] = score * scale;
      }
    }
    return scores;
  }

  /** What of a head's whole query or key comes from a sender, or from none. */
  sidePart(sender, head, side, whole) {
    if (sender !== NO_COMPONENT) return this.part(this.heard(sender), head, side);
    const rest = whole.slice();
    const receiver = `${head} ${SIDES[side]}`;
    for (const way of this.waysTo(receiver)) {
      const edit = this.edits[`${way.split(" > ").at(-1)} -> ${receiver}`];
      const value = this.heard(way);
      const share = edit?.scaled ?? 1;
      addTo(rest, this.part(value, head, side), -share);
    }
    return rest;
  }

  /** All ways by which a receiver hears embeddings and MLPs. */
  waysTo(receiver) {
    const isCut = (sender) =>
      [`${sender} -> ${receiver}`, `${sender} -> ${receiver}${BEHIND}`].some(
        (site) => this.edits[site]?.replaced !== undefined,
      );
    return this.model
      .sendersTo(receiver)
      .filter((sender) => !isCut(sender))
      .flatMap((sender) =>
        sender.includes(" head ") ? this.waysTo(`${sender} value`).map((way) => `${way} > ${sender}`) : [sender],
      )
      .filter((way) => !isPath(way) || !isCut(way));
  }

  mlp(layer) {
    const { size, activation } = this.model;
    const data = this.behindNorm(`${layer.mlp} input`, layer.mlpNorm);
    const hidden = product({ size, data }, layer.hidden, this.length);
    const act = ACTIVATIONS[activation];
    const width = layer.hiddenBias.length;
    for (let i = 0; i < hidden.length; i++) hidden[i] = act(hidden[i] + layer.hiddenBias[i % width]);
    const out = product({ size: width, data: hidden }, layer.out, this.length);
    for (let i = 0; i < out.length; i++) out[i] += layer.outBias[i % size];
    return out;
  }
}
