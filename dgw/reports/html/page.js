"use strict";
(() => {
  const root = document.documentElement;

  // light and dark: as the system has it, until a reader chooses
  const button = document.getElementById("theme");
  const names = { "": "auto", light: "light", dark: "dark" };
  const stored = () => { try { return localStorage.getItem("dgw-theme") || ""; } catch { return ""; } };
  const paint = (theme) => {
    if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
    button.textContent = `Theme: ${names[theme] || names[""]}`;
  };
  const order = ["", "dark", "light"];
  let theme = stored();
  if (!order.includes(theme)) theme = "";
  paint(theme);
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = order[(order.indexOf(theme) + 1) % order.length];
    paint(theme);
    try { localStorage.setItem("dgw-theme", theme); } catch { /* a file may not be allowed to keep anything */ }
  });

  // what a link points at may be folded
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
  for (const fold of document.querySelectorAll("[data-fold]")) {
    fold.parentElement.hidden = false;
    fold.addEventListener("click", () => {
      for (const one of document.querySelectorAll("details.problem")) one.open = fold.dataset.fold === "open";
    });
  }

  const table = document.getElementById("table");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const key = (row, column) => {
    const cell = row.cells[column];
    const number = cell.dataset.v;
    return number === undefined ? cell.textContent.trim() : Number(number);
  };

  // sorting: unknown values last, whichever way
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  };
  const sort = (column, down) => {
    const known = [], unknown = [];
    for (const row of rows) (row.cells[column].textContent.trim() === "-" ? unknown : known).push(row);
    known.sort((a, b) => (down ? -1 : 1) * compare(key(a, column), key(b, column)));
    body.append(...known, ...unknown);
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const sorter = document.createElement("button");
    sorter.type = "button";
    sorter.textContent = head.textContent.trim();
    head.replaceChildren(sorter);
    sorter.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sort(column, down);
    });
  });

  // filtering
  const form = document.getElementById("filter");
  if (!form) return;
  const words = document.getElementById("words");
  const selects = [...form.querySelectorAll("select")];
  const count = document.getElementById("count");
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const fits = wanted.every((word) => texts.get(row).includes(word))
        && selects.every((select) => !select.value || row.dataset[select.dataset.filter] === select.value);
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length} cases`;
  };
  form.hidden = rows.length < 2;
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
})();
