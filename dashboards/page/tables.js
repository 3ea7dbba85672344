// Tables: sort by a column, show rows as cards, and let the header of a table that fits stick to the page.
(() => {
  "use strict";
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const text = cell?.dataset.value ?? cell?.textContent.trim() ?? "";
    const number = /^[+-]?[\d,.]+(e[+-]?\d+)?(?![\w-])/.exec(text);
    return number ? Number(number[0].replaceAll(",", "")) : text;
  };
  const order = (one, other) => {
    if (typeof one !== typeof other) return typeof one === "number" ? -1 : 1;
    return typeof one === "number" ? one - other : one.localeCompare(other, "en", { numeric: true });
  };
  const sort = (table, column, sign) => {
    const keyed = [...table.tBodies[0].rows].map((row) => [valueOf(row, column), row]);
    const known = keyed.filter(([value]) => value !== "").sort(([one], [other]) => sign * order(one, other));
    const empty = keyed.filter(([value]) => value === "");
    table.tBodies[0].append(...[...known, ...empty].map(([, row]) => row));
  };
  const unsort = (table) => {
    for (const head of table.querySelectorAll("[aria-sort]")) head.removeAttribute("aria-sort");
  };
  for (const table of document.querySelectorAll("table")) {
    for (const [column, head] of [...table.tHead.rows[table.tHead.rows.length - 1].cells].entries()) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const descends = head.getAttribute("aria-sort") === "ascending";
        unsort(table);
        head.setAttribute("aria-sort", descends ? "descending" : "ascending");
        sort(table, column, descends ? -1 : 1);
      });
    }
  }
  // On narrow screens the rows of these tables become cards, whose cells name their columns.
  for (const table of document.querySelectorAll(".samples, .settings")) {
    const names = [...table.tHead.rows[0].cells].map((head) => head.textContent);
    table.classList.add("cards");
    for (const row of table.tBodies[0].rows) {
      for (const cell of row.cells) cell.dataset.column = names[cell.cellIndex];
    }
  }
  // The table of two methods gets new rows when the reader picks a method.
  for (const two of document.querySelectorAll(".two")) two.addEventListener("change", () => unsort(two));

  const bar = document.querySelector("div.bar");
  new ResizeObserver(() => {
    document.documentElement.style.setProperty("--bar", `${bar.offsetHeight}px`);
  }).observe(bar);
  const fit = new ResizeObserver((found) => {
    for (const { target: box } of found) {
      const fits = !box.classList.contains("long") && box.firstElementChild.offsetWidth <= box.clientWidth;
      box.classList.toggle("fits", fits);
    }
  });
  for (const box of document.querySelectorAll(".scroll")) fit.observe(box);
})();
