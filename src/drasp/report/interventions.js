/* Interventions in program and model at once: parts switched off, lines taken from another input, and the program's
   attention in place of a head's own. */

class Interventions {
  /** `known`: what the page knows of the model, { lines, means }; `model` is null where it is too large for the page. */
  constructor(/** @type {Interpreter} */ interpreter, /** @type {Model} */ model, known, means) {
    this.interpreter = interpreter;
    this.model = model;
    this.means = means;
    this.lines = known.lines ?? {};
    this.clear();
  }

  clear() {
    /** Heads and MLPs that stay at their means. */
    this.off = new Set();
    /** Lines that are taken from `source`, { ids, offset }, of as many tokens as the input. */
    this.from = new Set();
    /** Aggregates whose attention weights stand in for their heads' in the model. */
    this.patterns = new Set();
    this.source = null;
  }

  get active() {
    return this.off.size + this.from.size + this.patterns.size > 0;
  }

  /** Heads that a line stands for. */
  headsOf(name) {
    return (this.lines[name]?.components ?? []).filter((component) => component.includes(" head "));
  }

  /** Lines of a head or an MLP, of which all else that they stand for is off as well. */
  linesOff() {
    const { statements } = this.interpreter.program;
    return statements.filter(({ name, kind }) => {
      const components = this.lines[name]?.components ?? [];
      const isValue = kind === "aggregate" || kind === "element_wise_op";
      return isValue && components.length > 0 && components.every((component) => this.off.has(component));
    });
  }

  meanOf(name) {
    return this.means.get(`mean of ${name}`).data;
  }

  /** The program and the model on an input, after all interventions: { program, model }. */
  run(ids, offset, record = []) {
    const program = this.interpreter.run(ids, offset, this.programEdits());
    if (!this.model) return { program, model: null };
    const edits = this.modelEdits(ids, offset, program);
    return { program, model: this.model.run(ids, offset, edits, record) };
  }

  programEdits() {
    /** @type {Edits} */
    const edits = {};
    for (const { name } of this.linesOff()) edits[name] = { replaced: this.meanOf(name) };
    if (!this.from.size) return edits;
    const source = this.interpreter.run(this.source.ids, this.source.offset);
    for (const line of this.from) {
      for (const place of this.lines[line].program) {
        const value = source.values.get(place.split(" -> ")[0]);
        if (value) edits[place] = { replaced: value.scores ?? value.divisor ?? dense(value, source.length) };
      }
    }
    return edits;
  }

  modelEdits(ids, offset, program) {
    /** @type {Edits} */
    const edits = {};
    for (const component of this.off) edits[component] = { replaced: this.meanOf(component) };
    Object.assign(edits, this.fromSource(ids, offset));
    for (const name of this.patterns) {
      const line = this.interpreter.program.statements.find((one) => one.name === name);
      for (const head of this.headsOf(name)) edits[`${head} pattern`] = { replaced: program.weights(line) };
    }
    return edits;
  }

  /** Edits of the model that take from the source what lines stand for. */
  fromSource(ids, offset) {
    const chosen = [...this.from].map((line) => this.lines[line]);
    if (!chosen.length) return {};
    const sites = Object.assign({}, ...chosen.map((line) => line.model));
    const parts = chosen.flatMap((line) => line.through);
    const wanted = Object.keys(Object.assign({}, sites, ...parts.map((part) => part.inputs)));
    const { values } = this.model.run(this.source.ids, this.source.offset, {}, wanted);
    const moved = (places) =>
      Object.fromEntries(
        Object.entries(places).map(([site, factor]) => [
          site,
          factor === 1 ? { replaced: values.get(site) } : { scaled: 1 - factor, ablation: values.get(site) },
        ]),
      );
    const edits = moved(sites);
    for (const { inputs, edges } of parts) {
      // An MLP of which a part of the input is the source's, to those that read this part.
      const inner = this.model.run(ids, offset, moved(inputs), edges).values;
      for (const edge of edges) edits[edge] = { replaced: inner.get(edge) };
    }
    return edits;
  }
}
