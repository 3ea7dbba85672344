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
  addEventListener("hashchange", () => {
    const hash = location.hash.slice(1);
    if (hash.includes("=")) return location.reload();
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
      if (hash.includes("=")) document.getElementById(state.get("at"))?.scrollIntoView();
    },
  };
})();
