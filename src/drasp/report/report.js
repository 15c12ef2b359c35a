/* The report: reads the page's data, computes the program on every change of the input, and draws. */

const data = JSON.parse(byId("data").textContent);
const { program, record } = data;

// ----------------------------------------------------------------------------------------------- the page

class Report {
  /** `recorded`: where heads look on some examples, for a model that is too large for the page. */
  constructor(interpreter, model, { means, recorded }) {
    this.interpreter = interpreter;
    this.model = model;
    this.recorded = recorded;
    this.examples = data.examples.steps;
    this.known = new Map();
    this.said = new Map();
    for (const list of Object.values(data.examples))
      for (const example of list) this.known.set(inputKey(example.ids, example.offset), example);
    this.place = 0;
    this.interventions = new Interventions(interpreter, model, data.model ?? {}, means);
    this.tensorPanel = new TensorPanel(interpreter.tensors, (row, column) => this.editor.choose(row, column));
    this.editor = new OpEditor(
      interpreter,
      (example) => this.answersOfModel(example),
      (line) => this.edited(line),
    );
    this.listing = new Listing(byId("listing"), program, (i) => this.pick(i, true));
    const variables = new Set(["token", "pos", "one", ...program.statements.map((line) => line.name)]);
    this.cards = program.statements.map(
      (line, i) =>
        new Card(line, i + 1, variables, this.interventions.headsOf(line.name), (index) => this.pick(index, false)),
    );
    byId("variables").append(...this.cards.map((card) => card.node), this.rowsSwitch());
    this.listing.also(this.cards.map((card) => card.node));
    const first = program.statements.findIndex((line) => tensorsOf(line).length);
    this.pick(Math.max(0, first), false);
    this.panel = new InterventionPanel(this.interventions, this);
    this.connect();
    if (!this.follow(location.hash)) this.step(0);
    this.effects = new Effects(interpreter, data.examples);
    showEffects(this.effects, byId("effects"));
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
    addEventListener("scroll", () => this.followScroll(), { passive: true });
    addEventListener("hashchange", () => {
      if (this.follow(location.hash)) byId("try-title").scrollIntoView({ block: "nearest" });
    });
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
    const line = program.statements[index];
    this.listing.pick(index);
    this.tensorPanel.show(line, index + 1);
    this.editor.show(line);
    if (scroll && innerWidth >= 1080) {
      this.cards[index].node.scrollIntoView({ block: "nearest" });
      this.followScroll();
      // Below a long program its tensor would be out of view.
      const [side, tensor] = [byId("program-side"), byId("tensor")];
      const hidden = tensor.offsetTop + tensor.offsetHeight - side.clientHeight;
      if (side.scrollTop < hidden) side.scrollTop = Math.min(hidden, tensor.offsetTop);
    }
  }

  /** Beside the variables the program stays in view, as much of it as there is room for; at the top of the page, and
      so in a picture of the whole page, all of it is shown. */
  followScroll() {
    const columns = byId("columns");
    columns.classList.toggle("following", columns.getBoundingClientRect().top < 0);
  }

  /** After the op= of a line has changed. */
  edited(line) {
    this.listing.mark(line);
    this.pick(program.statements.indexOf(line), false);
    this.update();
  }

  step(by) {
    if (!this.examples.length) return;
    this.place = (this.place + by + this.examples.length) % this.examples.length;
    this.choose(this.examples[this.place]);
  }

  choose(example) {
    byId("input").value = asTyped(example.ids);
    byId("offset").value = example.offset;
    this.update();
  }

  // -------------------------------------------------------------------------------------------------- links

  /** What a link to this page says: the input, and what is intervened with. */
  get address() {
    const { off, from, patterns, source } = this.interventions;
    const parts = { input: asTyped(this.input.ids), offset: this.input.offset };
    if (this.interventions.active) {
      Object.assign(parts, { off: [...off].join(","), from: [...from].join(","), patterns: [...patterns].join(",") });
      if (from.size) Object.assign(parts, { source: asTyped(source.ids), "source-offset": source.offset });
    }
    return linkTo(parts);
  }

  /** Shows what a link says; false where it says nothing. */
  follow(hash) {
    const parts = new URLSearchParams(hash.slice(1));
    if (!parts.has("input")) return false;
    byId("input").value = parts.get("input");
    byId("offset").value = parts.get("offset") ?? "0";
    const listed = (name, members) => (parts.get(name) ?? "").split(",").filter((member) => members.includes(member));
    if (this.panel.sets) {
      for (const [set, members] of this.panel.sets) this.interventions[set] = new Set(listed(set, members));
      if (parts.has("source")) {
        byId("source").value = parts.get("source");
        byId("source-offset").value = parts.get("source-offset") ?? "0";
        try {
          this.interventions.source = readInput(byId("source").value, byId("source-offset").value);
        } catch {
          this.interventions.source = null; // another one is drawn
        }
      }
      this.panel.show();
      byId("intervene").open ||= this.interventions.active;
    }
    this.update();
    return true;
  }

  // ------------------------------------------------------------------------------------------------ drawing

  /** At most one redraw a frame, however fast the keys come. */
  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.update();
    });
  }

  /** What the model says on an example: computed once, or as it was recorded. */
  answersOfModel(example) {
    if (!this.model) return example.model ?? null;
    if (!this.said.has(example)) {
      const { logits } = this.model.run(example.ids, example.offset);
      this.said.set(example, answersOf(logits, example.ids.length));
    }
    return this.said.get(example);
  }

  update() {
    const start = performance.now();
    try {
      this.input = readInput(byId("input").value, byId("offset").value);
    } catch (problem) {
      this.complain(problem.message);
      return;
    }
    this.complain("");
    const { ids, offset } = this.input;
    const example = this.known.get(inputKey(ids, offset));
    this.panel.fit(this.input);
    const patterns = this.model ? this.model.components.filter((name) => name.includes(" head ")) : [];
    const both = this.interventions.run(
      ids,
      offset,
      patterns.map((head) => `${head} pattern`),
    );
    const run = Object.assign(both.program, this.input, { labels: ids.map((id) => shown(program.vocabulary[id])) });
    run.patternOf = (head) =>
      both.model?.values.get(`${head} pattern`) ?? this.recorded.get(`${inputKey(ids, offset)} ${head} pattern`)?.data;
    const answers = { program: programAnswers(run), model: this.modelAnswers(both.model, example) };
    if (this.interventions.active) answers.before = this.untouched(ids, offset);
    showAnswers(run, example, answers);
    for (const card of this.cards) card.show(run);
    const step = this.examples[this.place];
    const isHere = step && same(step.ids, ids) && step.offset === offset;
    const count = this.examples.length;
    byId("which").textContent = isHere ? `example ${this.place + 1} of ${count}` : plural(count, "example");
    byId("link").href = this.address;
    this.milliseconds = performance.now() - start;
    byId("time").textContent = `${plural(ids.length, "token")}, drawn in ${this.milliseconds.toFixed(0)} ms`;
  }

  /** What program and model say without interventions; kept for as long as neither the input nor an op= changes. */
  untouched(ids, offset) {
    const key = `${inputKey(ids, offset)} ${this.editor.history.length}`;
    if (this.before?.key !== key) {
      const model = answersOf(this.model.run(ids, offset).logits, ids.length);
      this.before = { key, program: programAnswers(this.interpreter.run(ids, offset)), model };
    }
    return this.before;
  }

  modelAnswers(run, example) {
    return run ? answersOf(run.logits, this.input.ids.length) : (example?.model ?? null);
  }

  complain(message) {
    byId("message").textContent = message;
    byId("input").setAttribute("aria-invalid", String(message !== ""));
    document.body.classList.toggle("stale", message !== "");
  }
}

async function openReport() {
  showIntroduction();
  showHead();
  showEvidence();
  showSearch();
  const tensors = await unpackTensors(data.tensors);
  const { model } = data;
  const weights = model?.tensors ? new Model(model.shape, await unpackTensors(model.tensors)) : null;
  const unpacked = async (packed) => (packed ? await unpackTensors(packed) : new Map());
  const known = { means: await unpacked(model?.means), recorded: await unpacked(model?.patterns) };
  globalThis.drasp = { data, report: new Report(new Interpreter(program, tensors), weights, known) };
  document.body.classList.add("ready");
}

openReport();
