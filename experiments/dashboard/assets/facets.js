// Small charts of one kind side by side.
"use strict";

/** Charts beside each other in one figure, each under its name. */
class Facets {
  constructor(figure, make) {
    Object.assign(this, { figure, make, frame: html("div", { class: "facets" }), charts: [] });
    figure.append(this.frame);
  }

  /** Have as many charts as names, and draw(chart, place) each. */
  show(names, draw) {
    while (this.charts.length < names.length) {
      const id = `${this.figure.id}-${this.charts.length}`;
      const part = html("div", { class: "facet", id, "data-name": this.figure.dataset.name }, html("h3", {}));
      this.frame.append(part);
      this.charts.push(this.make(part));
    }
    this.charts.forEach((chart, place) => {
      chart.figure.hidden = place >= names.length;
      if (chart.figure.hidden) return;
      chart.figure.querySelector("h3").textContent = names[place];
      draw(chart, place);
    });
  }
}
