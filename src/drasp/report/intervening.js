/* What a reader intervenes with: switches for heads and MLPs, a second input to take lines from, and patterns. */

/** A button that is in or out. */
function chip(text, { title = "", pressed, onChange, classes = "" }) {
  const button = el(
    "button",
    { type: "button", class: `chip ${classes}`, title, "aria-pressed": String(pressed()) },
    text,
  );
  button.addEventListener("click", () => {
    onChange(!pressed());
    button.setAttribute("aria-pressed", pressed());
  });
  return button;
}

class InterventionPanel {
  constructor(interventions, report) {
    this.interventions = interventions;
    this.report = report;
    const { model, lines } = interventions;
    const names = program.statements.map((line) => line.name).filter((name) => lines[name]);
    const heads = program.statements.filter(
      ({ name, kind }) => kind === "aggregate" && interventions.headsOf(name).length,
    );
    if (!model || !names.length) return;
    byId("intervene").hidden = false;
    this.sets = [
      ["off", model.components, byId("switches"), (component) => this.component(component)],
      ["from", names, byId("lines-from"), (name) => ({ text: name, title: `stands for ${lines[name].stands_for}` })],
      [
        "patterns",
        heads.map(({ name }) => name),
        byId("patterns"),
        (name) => ({
          text: `${name} → ${interventions.headsOf(name).join(", ")}`,
          title: "The head then looks where the line does; the program stays as it is.",
        }),
      ],
    ];
    byId("source").addEventListener("input", () => this.typedSource());
    byId("source-offset").addEventListener("input", () => this.typedSource());
    byId("draw-source").addEventListener("click", () => this.drawSource());
    byId("clear").addEventListener("click", () => this.clear());
    this.show();
  }

  component(component) {
    const { left_out: gone } = data.model;
    if (gone.components.includes(component))
      return { text: component, classes: "gone", title: "No line stands for it: the program does without." };
    const into = gone.folded[component];
    if (into)
      return {
        text: component,
        classes: "gone",
        title: `It has no line of its own: it has gone into those that read ${into.join(", ")}, and only the model is changed.`,
      };
    const shared = Object.values(data.model.lines).find(
      ({ components }) => components.includes(component) && components.length > 1,
    );
    const title =
      shared && `Its line stands for ${shared.components.join(" and ")}: the program follows when all are off.`;
    return { text: component, title: title ?? "" };
  }

  show() {
    for (const [set, members, host, about] of this.sets) {
      const chosen = this.interventions[set];
      const chips = members.map((member) => {
        const { text, ...more } = about(member);
        const onChange = (isIn) => {
          if (isIn) chosen.add(member);
          else chosen.delete(member);
          this.report.update();
        };
        return chip(text, { ...more, pressed: () => chosen.has(member), onChange });
      });
      host.replaceChildren(...chips);
      host.closest(".choice").hidden = !chips.length;
    }
  }

  clear() {
    const { source } = this.interventions;
    this.interventions.clear();
    this.interventions.source = source;
    this.show();
    this.report.update();
  }

  /** Makes the source one of as many tokens as the input, if it is not. */
  fit({ ids, offset }) {
    if (!this.sets) return;
    byId("source-message").textContent = "";
    if (this.interventions.source?.ids.length !== ids.length) this.setSource(this.anotherInput(ids, offset));
  }

  /** An example of as many tokens, or else the input with one token changed. */
  anotherInput(ids, offset) {
    const others = Object.values(data.examples)
      .flat()
      .filter((example) => example.ids.length === ids.length && !same(example.ids, ids));
    if (others.length) return others[Math.floor(Math.random() * others.length)];
    const ordinary = [...program.vocabulary.keys()].filter((id) => !program.special.includes(program.vocabulary[id]));
    const places = [...ids.keys()].filter((i) => ordinary.includes(ids[i]));
    const changed = [...ids];
    const place = places[Math.floor(Math.random() * places.length)] ?? 0;
    const choices = ordinary.filter((id) => id !== ids[place]);
    if (choices.length) changed[place] = choices[Math.floor(Math.random() * choices.length)];
    return { ids: changed, offset };
  }

  setSource({ ids, offset }) {
    this.interventions.source = { ids, offset };
    byId("source").value = asTyped(ids);
    byId("source-offset").value = offset;
  }

  drawSource() {
    const { ids, offset } = this.report.input;
    this.setSource(this.anotherInput(ids, offset));
    this.report.update();
  }

  typedSource() {
    try {
      const source = readInput(byId("source").value, byId("source-offset").value);
      const wanted = this.report.input.ids.length;
      if (source.ids.length !== wanted)
        throw new Error(
          `The other input must have as many tokens as the input: ${wanted}, and it has ${source.ids.length}.`,
        );
      this.interventions.source = source;
      byId("source-message").textContent = "";
      this.report.update();
    } catch (problem) {
      byId("source-message").textContent = problem.message;
    }
  }
}
