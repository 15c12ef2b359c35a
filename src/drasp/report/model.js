/* A GPT-2 as the page holds it: its weights taken apart, head by head, and which places it has. */

class Model {
  /** `shape`: { heads, activation, eps, scales: one a layer }; tensors by their Hugging Face names. */
  constructor(shape, /** @type {Map<string, Matrix>} */ tensors) {
    this.heads = shape.heads;
    this.activation = shape.activation;
    this.eps = shape.eps;
    this.tensors = tensors;
    this.size = tensors.get("wte.weight").columns;
    this.layers = shape.scales.map((scale, layer) => this.layer(scale, layer));
    const components = this.layers.flatMap(({ heads, mlp }) => [...heads.map((head) => head.name), mlp]);
    this.senders = ["token", "pos", ...components];
    this.components = components;
    const across = transposed(tensors.get("lm_head.weight") ?? tensors.get("wte.weight"));
    this.output = { ...this.norm("ln_f"), across };
  }

  norm(name) {
    return { gain: this.tensors.get(`${name}.weight`).data, bias: this.tensors.get(`${name}.bias`).data };
  }

  layer(scale, layer) {
    const tensor = (name) => this.tensors.get(`h.${layer}.${name}`);
    const width = this.size / this.heads;
    const [qkv, qkvBias, output] = ["attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight"].map(tensor);
    const heads = Array.from({ length: this.heads }, (_, head) => ({
      name: `layer ${layer} head ${head}`,
      sides: [...SIDES.keys()].map((side) => {
        const from = side * this.size + head * width;
        return { matrix: columnsOf(qkv, from, width), bias: qkvBias.data.subarray(from, from + width) };
      }),
      output: {
        rows: width,
        columns: this.size,
        data: output.data.subarray(head * width * this.size, (head + 1) * width * this.size),
      },
    }));
    return {
      scale,
      heads,
      mlp: `layer ${layer} mlp`,
      attentionNorm: this.norm(`h.${layer}.ln_1`),
      mlpNorm: this.norm(`h.${layer}.ln_2`),
      headsBias: tensor("attn.c_proj.bias").data,
      hidden: tensor("mlp.c_fc.weight"),
      hiddenBias: tensor("mlp.c_fc.bias").data,
      out: tensor("mlp.c_proj.weight"),
      outBias: tensor("mlp.c_proj.bias").data,
    };
  }

  /** Who can send to a receiver, in the order of the forward pass. */
  sendersTo(receiver) {
    if (receiver === "out") return this.senders;
    const before = 2 + Number(receiver.split(" ")[1]) * (this.heads + 1);
    return this.senders.slice(0, receiver.endsWith(" mlp input") ? before + this.heads : before);
  }

  /** Whether the model has such a place: every component that it names, and a receiver or a pattern to lead to. */
  has(site, place = parseSite(site)) {
    const named = [...site.matchAll(/layer \d+ (?:head \d+|mlp)/g)].map(([name]) => name);
    if (!named.every((name) => this.components.includes(name))) return false;
    const end = place.receiver ?? (place.kind === "product" ? `${place.head} pattern` : site);
    return /^(token|pos|out|final( constant)? norm|layer \d+ (attention norm|mlp( input| norm)?|head \d+( .+)?))$/.test(
      end,
    );
  }

  /** { logits, values }: [position × token], and what is at the recorded sites. */
  run(ids, offset, /** @type {Edits} */ edits = {}, record = []) {
    return new ModelPass(this, ids, offset, edits, record).run();
  }
}
