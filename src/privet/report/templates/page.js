for (const table of document.querySelectorAll("table[data-sort]")) {
  const value = (row, i) => { const c = row.cells[i]; return c.dataset.value ?? c.textContent.trim(); };
  table.querySelectorAll("th button").forEach((button) => button.addEventListener("click", () => {
    const head = button.closest("th"), i = head.cellIndex, body = table.tBodies[0];
    table.classList.add("sorted");
    const up = head.getAttribute("aria-sort") !== "ascending";
    table.querySelectorAll("th").forEach((th) => th.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const number = (s) => (s === "inf" ? Infinity : s === "" ? -Infinity : Number(s));
    const rows = [...table.querySelectorAll("tbody tr:not(.group)")].sort((a, b) => {
      const x = value(a, i), y = value(b, i), n = number(x) - number(y);
      return (Number.isNaN(n) ? x.localeCompare(y) : n) * (up ? 1 : -1);
    });
    body.append(...rows);
  }));
}
