/* A GPT-2 as the page holds it: its weights taken apart, head by head, and which places it has. */

class Model {
  /** `shape`: { heads, activation, eps, scales: one a layer }; tensors by the names that drasp.report.model gives. */
  constructor(shape, /** @type {Map<string, Matrix>} */ tensors) {
    this.heads = shape.heads;
    this.activation = shape.activation;
    this.eps = shape.eps;
    this.tensors = tensors;
    this.size = tensors.get("token").columns;
    this.layers = shape.scales.map((scale, layer) => this.layer(scale, layer));
    const components = this.layers.flatMap(({ heads, mlp }) => [...heads.map((head) => head.name), mlp]);
    this.senders = ["token", "pos", ...components];
    this.components = components;
    const across = transposed(tensors.get("unembedding") ?? tensors.get("token"));
    this.output = { gain: tensors.get("final.gain").data, bias: tensors.get("final.bias").data, across };
  }

  layer(scale, layer) {
    const tensor = (name) => this.tensors.get(`${layer}.${name}`);
    const width = this.size / this.heads;
    const [qkv, qkvBias, output] = [tensor("qkv"), tensor("qkv_bias"), tensor("heads_out")];
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
      attentionNorm: { gain: tensor("attention.gain").data, bias: tensor("attention.bias").data },
      mlpNorm: { gain: tensor("mlp.gain").data, bias: tensor("mlp.bias").data },
      headsBias: tensor("heads_out_bias").data,
      hidden: tensor("hidden"),
      hiddenBias: tensor("hidden_bias").data,
      out: tensor("out"),
      outBias: tensor("out_bias").data,
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
