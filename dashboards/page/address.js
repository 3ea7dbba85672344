// The page's address keeps what the reader chose: #at=length&lit=yarn+tuned&lit=pi has the section
// `at` and any number of values under other names. A plain #length is a link to a section.
const address = (() => {
  "use strict";
  const hash = location.hash.slice(1);
  const state = new URLSearchParams(!hash || hash.includes("=") ? hash : { at: hash });
  const write = () => {
    const plain = [...state.keys()].every((name) => name === "at");
    history.replaceState(null, "", `#${plain ? (state.get("at") ?? "") : state}`);
  };
  // Sections are folded: open the one that a link leads to.
  const unfold = (id) => {
    const target = document.getElementById(id);
    const inner = target?.querySelector(":scope > details.part");
    for (let one = inner ?? target; one; one = one.parentElement) if (one.matches("details")) one.open = true;
    return target;
  };
  addEventListener("hashchange", () => {
    const hash = location.hash.slice(1);
    if (hash.includes("=")) return location.reload();
    unfold(hash)?.scrollIntoView();
    state.set("at", hash);
    write();
  });
  return {
    values: (name) => state.getAll(name),
    keep: (name, values) => {
      state.delete(name);
      for (const value of values) state.append(name, value);
      write();
    },
    // The browser follows plain links only.
    follow: () => {
      const target = unfold(state.get("at"));
      if (hash.includes("=")) target?.scrollIntoView();
    },
  };
})();
