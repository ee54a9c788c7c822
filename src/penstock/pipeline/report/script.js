"use strict";
// Everything is on the page without this. It only shows the numbers of a chart under the pointer, or by the arrow keys.
for (const figure of document.querySelectorAll("figure")) {
  const plot = figure.querySelector(".plot"), svg = plot && plot.querySelector("svg");
  const rows = [...figure.querySelectorAll("tbody tr")];
  if (!svg || !rows.length) continue;
  const heads = [...figure.querySelectorAll("thead th")].map((head) => head.textContent);
  const number = Number(plot.dataset.slots), box = svg.viewBox.baseVal;
  const tip = plot.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.setAttribute("role", "status");
  const line = svg.appendChild(document.createElementNS(svg.namespaceURI, "path"));
  line.setAttribute("class", "cursor");
  let place = -1;
  const hide = () => { tip.hidden = true; line.style.display = "none"; place = -1; };
  const show = (next) => {
    place = Math.max(0, Math.min(number - 1, next));
    const row = rows[place];
    if (!row) return hide();
    tip.replaceChildren(...[...row.cells].map((cell, at) => {
      const text = document.createElement(at ? "div" : "strong");
      text.textContent = at ? `${heads[at]}: ${cell.textContent}` : cell.textContent;
      return text;
    }));
    const share = (place + 0.5) / number, left = svg.getBoundingClientRect().left - plot.getBoundingClientRect().left;
    line.setAttribute("d", `M${share * box.width} 0V${box.height}`);
    line.style.display = "";
    tip.hidden = false;
    const at = left + share * svg.clientWidth;
    tip.style.left = `${share < 0.5 ? at + 10 : at - 10 - tip.offsetWidth}px`;
  };
  hide();
  const under = (event) => {
    const edge = svg.getBoundingClientRect();
    show(Math.floor((event.clientX - edge.left) / edge.width * number));
  };
  svg.addEventListener("pointermove", under);
  svg.addEventListener("pointerdown", under);
  svg.addEventListener("pointerleave", hide);
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step) return;
    event.preventDefault();
    show(place < 0 ? (step > 0 ? 0 : number - 1) : place + step);
  });
}
