// Sorts tables by a column, filters attacks and marks a client; without it, the page shows the same numbers.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const value = (cell) => {
    const text = cell ? cell.textContent.trim() : "";
    const number = parseFloat(text);
    return Number.isNaN(number) ? text : number;
  };
  const compare = (one, two) => {
    if (one === "" || two === "") return (one === "") - (two === "");
    if (typeof one === "number" && typeof two === "number") return one - two;
    return String(one).localeCompare(String(two));
  };

  // A group of rows, attacks or baselines, is sorted by itself; a second click turns the order, empty cells stay last.
  all("table.sortable").forEach((table) => all("th", table).forEach((head, column) => {
    head.tabIndex = 0;
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      all("tbody", table).forEach((body) => {
        const rows = all("tr:not(.group)", body).map((row) => [value(row.cells[column]), row]);
        rows.sort(([one], [two]) => (down && one !== "" && two !== "" ? compare(two, one) : compare(one, two)));
        body.append(...rows.map(([, row]) => row));
      });
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
  }));

  const filter = document.getElementById("filter");
  filter.addEventListener("input", () => all("tr[data-attack]").forEach((row) => {
    row.hidden = !row.dataset.attack.toLowerCase().includes(filter.value.trim().toLowerCase());
  }));

  const picker = document.getElementById("client");
  const pick = (client) => {
    picker.value = client;
    document.body.classList.toggle("picked", client !== "");
    all("[data-client]").forEach((mark) => mark.classList.toggle("on", mark.dataset.client === client));
  };
  picker.addEventListener("change", () => pick(picker.value));
  all("svg .client").forEach((mark) => mark.addEventListener("click", () => {
    pick(picker.value === mark.dataset.client ? "" : mark.dataset.client);
  }));

  // A link into a part opens it, also where the browser does not; printing opens all.
  const open = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", open);
  addEventListener("beforeprint", () => all("details").forEach((part) => { part.open = true; }));
  document.querySelector(".controls").hidden = false;
  open();
})();
