"use strict";
(() => {
  const all = (query, root = document) => [...root.querySelectorAll(query)];
  const root = document.documentElement;

  // The theme: as the system has it, until the button says otherwise.
  const themes = ["auto", "light", "dark"];
  const button = document.getElementById("theme");
  const show = (theme) => {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.dataset.now = theme;
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => show(themes[(themes.indexOf(button.dataset.now) + 1) % themes.length]));
  show("auto");

  // What a link leads to is open.
  const open = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let at = target; at; at = at.parentElement) {
      if (at.tagName === "DETAILS") at.open = true;
      if (at.matches(".step[hidden]")) at.hidden = false;
    }
    target.scrollIntoView();
  };
  addEventListener("hashchange", open);
  open();
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) open();
  });

  // Long parts are packed; one is unpacked when it is opened.
  let parts = null;
  const unpack = async () => {
    const bytes = Uint8Array.from(atob(document.getElementById("packed").textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  };
  for (const box of all("[data-packed]")) {
    const around = box.parentElement;
    around.addEventListener("toggle", async () => {
      if (!around.open || !box.isConnected) return;
      try {
        parts = parts || unpack();
        const part = (await parts)[Number(box.dataset.packed)];
        if (!box.isConnected) return;
        box.outerHTML = part;
        live(around);
      } catch (error) {
        // A browser that cannot unpack: the line that says so stays.
        parts = null;
      }
    });
  }

  for (const box of all("[data-steps]")) {
    const steps = all("details.step", document.getElementById(box.dataset.steps));
    const input = box.querySelector("input");
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/);
      for (const step of steps) {
        const text = step.querySelector("summary").textContent.toLowerCase();
        step.hidden = !words.every((word) => text.includes(word));
      }
    });
    for (const each of all("button", box)) {
      each.addEventListener("click", () => steps.forEach((step) => { step.open = each.dataset.open === "yes" && !step.hidden; }));
    }
  }

  // One ladder at a time.
  for (const select of all("select[data-ladders]")) {
    const ladders = all("[data-ladder]", document.getElementById(select.dataset.ladders));
    const choose = () => ladders.forEach((each) => { each.hidden = each.dataset.ladder !== select.value; });
    select.addEventListener("change", choose);
    choose();
  }

  // Tables: by a column, by words, by a choice.
  const key = (cell) => {
    const data = cell && cell.querySelector("data");
    return data ? Number(data.value) : cell ? cell.textContent.trim().toLowerCase() : "";
  };
  const order = (a, b) => typeof a === typeof b
    ? (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }))
    : typeof a === "number" ? -1 : 1;
  const live = (within) => {
    for (const table of all("table.sortable", within)) {
      const body = table.tBodies[0];
      all("thead th", table).forEach((head, column) => {
        const press = head.querySelector("button");
        if (!press) return;
        press.addEventListener("click", () => {
          const down = head.getAttribute("aria-sort") === "ascending";
          all("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
          head.setAttribute("aria-sort", down ? "descending" : "ascending");
          const rows = [...body.rows].sort((a, b) => order(key(a.cells[column]), key(b.cells[column])));
          body.append(...(down ? rows.reverse() : rows));
        });
      });
    }
    for (const box of all("[data-table]", within)) {
      const rows = [...document.getElementById(box.dataset.table).tBodies[0].rows];
      const count = box.querySelector("output");
      const filter = () => {
        const words = box.querySelector("input").value.toLowerCase().split(/\s+/);
        const choices = all("select", box).map((select) => select.value).filter(Boolean);
        let shown = 0;
        for (const row of rows) {
          const text = row.textContent.toLowerCase();
          const marks = (row.dataset.is || "").split("|");
          row.hidden = !(words.every((word) => text.includes(word)) && choices.every((choice) => marks.includes(choice)));
          shown += row.hidden ? 0 : 1;
        }
        count.textContent = shown === rows.length ? "" : `${shown} of ${rows.length} lines`;
      };
      box.addEventListener("input", filter);
    }
  };
  live(document);

  // A drawing's point in words, for pointer and keyboard.
  const tip = document.getElementById("tip");
  const tell = (event) => {
    const mark = event.target.closest && event.target.closest("a.mark");
    if (!mark) { tip.hidden = true; return; }
    tip.textContent = mark.dataset.told;
    tip.hidden = false;
    const place = mark.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(place.right + 8, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(4, place.top - tip.offsetHeight - 6)}px`;
  };
  for (const mark of all("a.mark")) {
    const title = mark.querySelector("title");
    mark.dataset.told = (title || mark).textContent;
    if (!title) continue;
    mark.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  for (const kind of ["mouseover", "focusin"]) document.addEventListener(kind, tell);
  addEventListener("scroll", () => { tip.hidden = true; }, true);
})();
