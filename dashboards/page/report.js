const page = (() => {
  "use strict";
  const all = (selector, root = document) => root.querySelectorAll(selector);
  const picker = document.getElementById("picker");
  const tooltip = document.getElementById("tooltip");
  for (const part of all(".tools, .picker, .two")) part.hidden = false;

  // Close the menu of sections after a choice, a click elsewhere, and Escape.
  const menu = document.querySelector(".menu");
  document.addEventListener("click", ({ target }) => {
    if (!menu.contains(target) || target.closest("a")) menu.open = false;
  });
  menu.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape") return;
    menu.open = false;
    menu.firstElementChild.focus();
  });

  // Highlight methods in all pictures: the chosen ones, and the one under the pointer.
  const key = (part) => part.dataset.method + (part.dataset.frozen === "true" ? "" : " tuned");
  const known = new Set([...picker.options].map((option) => option.value));
  const chosen = new Set(address.values("lit").filter((method) => method && known.has(method)));
  const chips = document.getElementById("chosen");
  const followers = [];
  let lit = new Set();
  const light = (pointed) => {
    const methods = new Set(pointed ? [...chosen, pointed] : chosen);
    if (methods.size === lit.size && [...methods].every((method) => lit.has(method))) return;
    lit = methods;
    for (const part of all(".series, svg .key, .dot, .depth-grid > g, .scatter > g")) {
      part.classList.toggle("dim", lit.size > 0 && !lit.has(key(part)));
    }
    for (const row of all(".row, tr[data-method]")) row.classList.toggle("lit", lit.has(key(row)));
    for (const follow of followers) follow(lit);
  };
  const show = () => {
    picker.value = chosen.size === 0 ? "" : [...chosen].at(-1);
    chips.replaceChildren(...[...chosen].map((method) => {
      const chip = document.createElement("button");
      chip.type = "button";
      chip.textContent = `${method} \u00d7`;
      chip.setAttribute("aria-label", `stop highlighting ${method}`);
      chip.addEventListener("click", () => toggle(method));
      return chip;
    }));
    for (const button of all("button.key")) button.setAttribute("aria-pressed", chosen.has(key(button)));
    light("");
  };
  const toggle = (method) => {
    if (!chosen.delete(method)) chosen.add(method);
    address.keep("lit", chosen);
    show();
  };
  const pointed = (event) => {
    const target = event.target instanceof Element ? event.target : null;
    const part = target?.closest("[data-method]");
    light(part ? key(part) : "");
    tell(target?.closest("[data-tooltip]")?.dataset.tooltip, event);
  };
  const tell = (sentence, event) => {
    tooltip.hidden = !sentence;
    if (!sentence) return;
    tooltip.textContent = sentence;
    const box = tooltip.getBoundingClientRect();
    const right = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8));
    const above = event.clientY - box.height - 12;
    tooltip.style.left = `${right}px`;
    tooltip.style.top = `${above < 4 ? event.clientY + 18 : above}px`;
  };
  document.addEventListener("pointerover", pointed);
  document.addEventListener("pointerleave", () => { light(""); tooltip.hidden = true; });
  document.addEventListener("scroll", () => { tooltip.hidden = true; }, { passive: true });
  // Typing a name passes through other options: they do not stay highlighted.
  let typed = null;
  picker.addEventListener("keydown", () => { typed ??= ""; });
  for (const kind of ["pointerdown", "blur"]) picker.addEventListener(kind, () => { typed = null; });
  picker.addEventListener("change", () => {
    if (typed !== null) {
      chosen.delete(typed);
      typed = chosen.has(picker.value) ? "" : picker.value;
    }
    if (!picker.value) chosen.clear();
    else chosen.add(picker.value);
    address.keep("lit", chosen);
    show();
  });
  document.addEventListener("click", (event) => {
    const name = event.target instanceof Element ? event.target.closest(".key, .row .name") : null;
    if (name) toggle(key(name.closest("[data-method]")));
  });

  // Compare the two methods that the reader picked. The address keeps the choice.
  for (const two of all(".two")) {
    const { methods, columns, pairs } = JSON.parse(two.querySelector("script").textContent);
    const [first, second] = all("select", two);
    const { id } = two.closest("section");
    const names = [...all("thead th", two)].map((head) => head.textContent);
    const compare = () => {
      const [one, other] = [first, second].map((list) => methods.indexOf(list.value));
      const rows = (pairs[`${one} ${other}`] ?? []).map(([column, ...texts]) => [...columns[column], ...texts]);
      const [table] = all("table", two);
      const [body] = table.tBodies;
      table.classList.toggle("cards", rows.length > 0);
      body.replaceChildren();
      const reason =
        one === other ? "Both are the same method." : "no scores of both methods on the same prompts";
      for (const texts of rows.length ? rows : [[reason]]) {
        const row = body.insertRow();
        for (const text of texts) {
          const cell = row.appendChild(document.createElement(row.cells.length ? "td" : "th"));
          cell.textContent = text;
          cell.dataset.column = names[cell.cellIndex];
          if (cell.tagName === "TH") cell.scope = "row";
        }
      }
    };
    const picked = address.values(id);
    if (picked.length === 2 && picked.every((name) => methods.includes(name))) [first.value, second.value] = picked;
    two.addEventListener("change", () => {
      address.keep("at", [id]);
      address.keep(id, [first.value, second.value]);
      compare();
    });
    compare();
  }

  // Save the figure's table as CSV with unrounded numbers, or its pictures as one SVG.
  const save = (name, text, type) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const csv = (table) => {
    const said = (cell) => cell.dataset.csv ?? cell.dataset.value ?? cell.textContent.trim();
    const ranged = new Set([...all("[data-low]", table)].map((cell) => cell.cellIndex));
    const ends = (cell, name) => cell.dataset[name] ?? (cell.closest("thead") ? `${said(cell)} ${name}` : "");
    const line = (row) =>
      [...row.cells].flatMap((cell) => [
        said(cell),
        ...(ranged.has(cell.cellIndex) ? [ends(cell, "low"), ends(cell, "high")] : []),
        ...Array(cell.colSpan - 1).fill(""),
      ]).map(quoted).join(",");
    return [...table.rows].map(line).join("\n") + "\n";
  };
  const svg = (charts) => {
    const gap = 24;
    const columns = Math.ceil(Math.sqrt(charts.length));
    const sizes = charts.map((chart) => chart.viewBox.baseVal);
    const wide = Math.max(...sizes.map((size) => size.width));
    const high = Math.max(...sizes.map((size) => size.height));
    const parts = charts.map((chart, number) => {
      const copy = chart.cloneNode(true);
      copy.setAttribute("x", gap + (number % columns) * (wide + gap));
      copy.setAttribute("y", gap + Math.floor(number / columns) * (high + gap));
      return new XMLSerializer().serializeToString(copy);
    });
    const width = gap + columns * (wide + gap);
    const height = gap + Math.ceil(charts.length / columns) * (high + gap);
    const style = document.getElementById("of-figures").textContent;
    return (
      `<svg xmlns="${charts[0].namespaceURI}" viewBox="0 0 ${width} ${height}" width="${width}" ` +
      `height="${height}"><style>${style}</style>` +
      `<rect width="100%" height="100%" style="fill: var(--page)"/>${parts.join("")}</svg>\n`
    );
  };
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-save]") : null;
    if (!button) return;
    const figure = button.closest("[data-figure]");
    // With several base models, the section's id ends with the name of its base model.
    const of = figure.closest("section")?.id.split("-").slice(1).join("-") ?? "";
    const name = [document.title, of, figure.dataset.figure].filter(Boolean).join("-").replaceAll(/[^\w]+/g, "-");
    if (button.dataset.save === "csv") {
      save(`${name}.csv`, csv(figure.querySelector("table")), "text/csv");
    } else {
      save(`${name}.svg`, svg([...all(".chart", figure)]), "image/svg+xml");
    }
  });
  show();
  return { all, key, show, light, tell, lit: () => lit, follow: (follower) => followers.push(follower) };
})();
