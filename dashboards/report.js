(() => {
  "use strict";
  let kept = null;
  const all = (selector) => document.querySelectorAll(selector);
  const light = (method) => {
    for (const series of all("g[data-series], .legend button")) {
      series.classList.toggle("dim", method !== null && series.dataset.method !== method);
    }
    for (const row of all(".overview tr[data-method]")) {
      row.classList.toggle("lit", row.dataset.method === method);
    }
  };
  const pointed = (event) => {
    const part = event.target instanceof Element ? event.target.closest("[data-method]") : null;
    light(part ? part.dataset.method : kept);
  };
  document.addEventListener("pointerover", pointed);
  document.addEventListener("focusin", pointed);
  document.addEventListener("pointerleave", () => light(kept));
  for (const button of all(".legend button")) {
    button.addEventListener("click", () => {
      kept = kept === button.dataset.method ? null : button.dataset.method;
      for (const other of all(".legend button")) {
        other.setAttribute("aria-pressed", String(other.dataset.method === kept));
      }
      light(kept);
    });
  }
})();
