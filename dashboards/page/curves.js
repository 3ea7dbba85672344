// Interactive curves: all lines of a figure in one chart, with zoom. Its data are the marks of the
// figure's panels. Vega-Lite draws it; its scripts run after the page has loaded.
(() => {
  "use strict";
  const { all, key, light, tell } = page;
  const run = (source) => {
    const script = document.createElement("script");
    script.textContent = source.textContent;
    source.replaceWith(script);
  };
  const sources = [...all("script[data-vendored]")];
  const load = () => sources.splice(0).forEach(run);
  // Work ahead between other work, in small steps, so that charts open at once: load the scripts, parse
  // each chart, and draw charts that are never shown, because the browser compiles functions when they
  // first run.
  const whenIdle = window.requestIdleCallback ?? setTimeout; // Safari has only the latter
  const workAhead = (figures) => whenIdle(async () => {
    if (sources.length) {
      run(sources.shift());
      workAhead(figures);
    } else if (figures.length) {
      const view = viewOf(figures[0], document.createElement("div"));
      await view.runAsync();
      view.finalize();
      workAhead(figures.slice(1));
    }
  });

  const rowsOf = (figure) => {
    const found = new Map(); // the base model is in every panel
    for (const line of all(".series", figure)) {
      const colour = getComputedStyle(line).getPropertyValue("--colour");
      for (const mark of all("[data-value]", line)) {
        const { x, value, lowest, highest, run, tooltip } = mark.dataset;
        const row = { method: key(line), tuned: line.dataset.frozen === "false", colour, tooltip, run: run ?? "0" };
        Object.assign(row, { x: +x, y: +value, low: +lowest, high: +highest });
        if (mark.matches(".mark")) row.shape = mark.getAttribute("d");
        found.set(`${row.method} ${x}`, row);
      }
    }
    return [...found.values()];
  };

  const specOf = (figure, rows) => {
    const axes = JSON.parse(figure.querySelector(".line-panel").dataset.axes);
    const shown = { test: "length(lit) === 0 || indexof(lit, datum.method) >= 0", value: 1 };
    const scaleOf = (log, base) => ({ ...(log ? { type: "log", base, nice: false } : { zero: false }), padding: 12 });
    const steps = [...new Set(rows.map((row) => row.x))];
    const x = { field: "x", type: "quantitative", title: axes.x, scale: scaleOf(axes.log_x, 2), axis: { format: ",~r", ...(steps.length < 9 ? { values: steps } : {}) } };
    const y = { field: "y", type: "quantitative", title: axes.y, scale: scaleOf(axes.log_y, 10), axis: { format: "~g" } };
    const own = { color: { field: "colour", type: "nominal", scale: null }, opacity: { condition: shown, value: 0.1 } };
    const rules = (values, channel) => {
      const known = Object.entries(values).filter(([, at]) => at !== null).map(([name, at]) => ({ name, at }));
      if (!known.length) return [];
      const place = { [channel]: { field: "at", type: "quantitative" } };
      const edge = channel === "x" ? { y: { value: 0 } } : { x: { value: 4 } };
      return [
        { data: { values: known }, mark: { type: "rule", strokeDash: [2, 3], color: "var(--soft)" }, encoding: place },
        {
          data: { values: known },
          mark: { type: "text", align: "left", baseline: "top", dx: 4, dy: 2, color: "var(--soft)" },
          encoding: { ...place, ...edge, text: { field: "name" } },
        },
      ];
    };
    const marked = rows.some((row) => row.shape);
    return {
      data: { values: rows },
      width: "container",
      height: 420,
      background: null,
      params: [{ name: "lit", value: [] }],
      layer: [
        ...rules(axes.landmarks, "x"),
        ...rules(axes.levels, "y"),
        {
          mark: { type: "line", strokeWidth: 1.8, clip: true },
          encoding: {
            x, y, ...own,
            detail: [{ field: "method" }, { field: "run" }],
            strokeDash: { condition: { test: "datum.tuned", value: [] }, value: [5, 3] },
          },
        },
        {
          mark: { type: "rule", clip: true, strokeOpacity: 0.45 },
          encoding: { x, y: { ...y, field: "low" }, y2: { field: "high" }, ...own },
        },
        {
          params: [{
            name: "zoom",
            // The plain wheel scrolls the page.
            select: { type: "interval", zoom: "wheel![event.ctrlKey || event.shiftKey]" },
            bind: "scales",
          }],
          mark: { type: "point", clip: true, size: marked ? 4 : 40, strokeWidth: 1.4, cursor: "pointer" },
          encoding: {
            x, y, ...own,
            ...(marked ? { shape: { field: "shape", type: "nominal", scale: null } } : {}),
            fill: { condition: { test: marked ? "datum.tuned" : "false", field: "colour", type: "nominal", scale: null }, value: "var(--page)" },
            ...(marked ? {} : { fillOpacity: { value: 0 }, strokeOpacity: { value: 0 } }),
            tooltip: { field: "tooltip", type: "nominal" },
          },
        },
      ],
      config: {
        aria: false, // one label for the chart; the table has the values
        font: "system-ui, sans-serif",
        view: { stroke: null },
        axis: {
          labelColor: "var(--soft)", titleColor: "var(--soft)", domainColor: "var(--soft)", gridColor: "var(--grid)",
          tickColor: "var(--soft)", labelFontSize: 11, titleFontSize: 12, titleFontWeight: 400,
        },
      },
    };
  };

  // Zoom both axes around their middle: by a factor below 1 to come closer; null shows everything.
  const zoom = (view, axes, factor) => {
    for (const [axis, log] of [["x", axes.log_x], ["y", axes.log_y]]) {
      const [to, from] = log ? [Math.log, Math.exp] : [Number, Number];
      const [low, high] = view.scale(axis).domain().map(to);
      const [middle, half] = [(low + high) / 2, ((high - low) / 2) * factor];
      view.signal(`zoom_${axis}`, factor === null ? null : [from(middle - half), from(middle + half)]);
    }
    view.runAsync();
  };

  const button = (text, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", act);
    return made;
  };
  const legendOf = (figure) => {
    const legend = document.createElement("div");
    legend.className = "keys";
    const keys = new Map([...all("svg .key", figure)].map((one) => [key(one), one]));
    for (const [method, one] of keys) {
      const entry = legend.appendChild(document.createElement("button"));
      entry.type = "button";
      entry.className = one.getAttribute("class");
      entry.classList.remove("dim");
      entry.style.cssText = one.style.cssText;
      Object.assign(entry.dataset, one.dataset);
      const shape = one.querySelector(".mark").getAttribute("d");
      entry.innerHTML = `<svg width="12" height="12" viewBox="-6 -6 12 12" aria-hidden="true"><path class="mark" d="${shape}"/></svg>`;
      entry.append(method);
      entry.setAttribute("aria-pressed", "false");
    }
    return legend;
  };

  const parsed = new Map();
  const viewOf = (figure, container) => {
    if (!parsed.has(figure)) {
      const { spec } = vegaLite.compile(specOf(figure, rowsOf(figure)));
      parsed.set(figure, vega.parse(spec, null, { ast: true }));
    }
    const options = { expr: vegaInterpreter.expressionInterpreter, renderer: "svg", container };
    return new vega.View(parsed.get(figure), options).signal("lit", [...page.lit()]);
  };
  const draw = async (figure) => {
    load();
    const box = document.createElement("div");
    const chart = box.appendChild(document.createElement("div"));
    box.className = "curves";
    chart.className = "drawing";
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", `${figure.dataset.figure}, all methods; the table below has the values`);
    const drawing = chart.appendChild(document.createElement("div"));
    drawing.setAttribute("aria-hidden", "true"); // instead of a role for each of the marks
    const tools = document.createElement("div");
    tools.className = "tools";
    box.prepend(legendOf(figure));
    box.append(tools);
    figure.querySelector(".panels").after(box);
    const view = viewOf(figure, drawing);
    view.tooltip((_, event, item, value) => tell(value, event));
    view.addEventListener("pointermove", (_, item) => light(item?.datum?.method ?? ""));
    const axes = JSON.parse(figure.querySelector(".line-panel").dataset.axes);
    for (const [text, factor] of [["Zoom in", 0.7], ["Zoom out", 1 / 0.7], ["Show all", null]]) {
      tools.append(button(text, () => zoom(view, axes, factor)));
    }
    tools.append("Drag moves the chart; Ctrl or Shift with the wheel zooms; a click in the legend highlights.");
    page.follow((methods) => view.signal("lit", [...methods]).runAsync());
    page.show();
    await view.runAsync();
    figure.view = view; // for tests
    return box;
  };

  const opened = new Set(address.values("chart"));
  const figures = all("figure:has(.line-panel)");
  for (const figure of figures) {
    const name = `${figure.closest("section").id}/${figure.dataset.figure}`;
    const open = button("All methods in one chart, with zoom", () => {
      if (!opened.delete(name)) opened.add(name);
      address.keep("chart", opened);
      show();
    });
    open.className = "open";
    const show = () => {
      const live = opened.has(name);
      open.setAttribute("aria-pressed", live);
      figure.classList.toggle("live", live);
      if (live && !figure.querySelector(".curves")) draw(figure);
    };
    figure.querySelector("figcaption").append(open);
    show();
  }
  addEventListener("load", () => workAhead([...figures]));
  address.follow();
})();
