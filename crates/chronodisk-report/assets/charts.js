"use strict";
// What the charts of all reports share. Whatever fails is shown on the page and counted in <html data-errors>.
const chronodisk = (function () {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f"];
  const dashes = ["solid", "dashed", "dotted"];
  const colour = (index) => colours[index % colours.length];
  const dash = (index) => dashes[Math.floor(index / colours.length) % dashes.length];
  const charts = [];
  let errors = 0;

  function failed(error) {
    errors += 1;
    root.dataset.errors = errors;
    const note = document.createElement("p");
    note.className = "warning";
    note.textContent = "A chart could not be drawn: " + error;
    document.querySelector("main").prepend(note);
  }
  window.addEventListener("error", (event) => failed(event.message));

  const scaled = (value, steps) => {
    for (const [least, unit] of steps) if (Math.abs(value) >= least) return trimmed(value / least) + " " + unit;
    const [least, unit] = steps[steps.length - 1];
    return trimmed(value / least) + " " + unit;
  };
  const trimmed = (value) => String(Number(value.toPrecision(3)));
  const time = (us) => (us === 0 ? "0" : scaled(us, [[1e6, "s"], [1e3, "ms"], [1, "µs"], [1e-3, "ns"]]));
  const size = (bytes) => scaled(bytes, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]);

  function text() {
    const style = getComputedStyle(root);
    return { text: style.getPropertyValue("--text").trim(), dim: style.getPropertyValue("--dim").trim(),
      line: style.getPropertyValue("--line").trim(), back: style.getPropertyValue("--panel").trim() };
  }
  function axis(extra, name) {
    const tone = text();
    return Object.assign({ name, nameLocation: "middle", nameGap: 28, nameTextStyle: { color: tone.dim },
      axisLabel: { color: tone.dim, hideOverlap: true }, axisLine: { lineStyle: { color: tone.line } },
      splitLine: { lineStyle: { color: tone.line, opacity: 0.6 } } }, extra);
  }
  function base(title) {
    const tone = text();
    return { animation: false, textStyle: { fontFamily: "system-ui, sans-serif" },
      title: { text: title, left: 0, top: 0, textStyle: { fontSize: 14, color: tone.text } },
      grid: { left: 62, right: 18, top: 56, bottom: 44 },
      legend: { top: 22, type: "scroll", textStyle: { color: tone.text }, pageTextStyle: { color: tone.text } },
      tooltip: { confine: true, backgroundColor: tone.back, borderColor: tone.line, textStyle: { color: tone.text } },
      aria: { enabled: true, decal: { show: false } } };
  }
  const escaped = (words) => String(words).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

  const wide = (rows) => rows.every((row) => row.low > 0) &&
    Math.max(...rows.map((row) => row.mean)) > 10 * Math.min(...rows.map((row) => row.mean));

  // Means with their 95 % intervals.
  function intervals(title, name, rows) {
    const whisker = (params, api) => {
      const [low, y] = api.coord([api.value(1), api.value(0)]);
      const [high] = api.coord([api.value(2), api.value(0)]);
      const style = { stroke: api.visual("color"), lineWidth: 2 };
      const line = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style });
      return { type: "group", children: [line(low, y, high, y), line(low, y - 5, low, y + 5), line(high, y - 5, high, y + 5)] };
    };
    const styled = (row) => ({ itemStyle: { color: colour(row.index) } });
    const option = Object.assign(base(title), {
      // Devices can differ by factors of a thousand; differences have signs, and no logarithm.
      xAxis: axis(wide(rows) ? { type: "log" } : { type: "value", scale: true }, wide(rows) ? name + ", logarithmic" : name),
      yAxis: axis({ type: "category", inverse: true, data: rows.map((row) => row.label), nameGap: 0 }, ""),
      series: [
        { type: "custom", renderItem: whisker, encode: { x: [1, 2], y: 0 }, tooltip: { show: false },
          data: rows.map((row, place) => Object.assign({ value: [place, row.low, row.high] }, styled(row))) },
        { type: "scatter", symbolSize: 9, encode: { x: 1, y: 0 },
          data: rows.map((row, place) => Object.assign({ value: [place, row.mean] }, styled(row))),
          markLine: wide(rows) ? undefined : { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: text().dim }, data: [{ xAxis: 0 }] } }] });
    option.grid = { left: 8, right: 24, top: 36, bottom: 44, containLabel: true };
    option.legend.show = false;
    option.tooltip.formatter = (point) => escaped(rows[point.dataIndex].label) + ": " + escaped(rows[point.dataIndex].words);
    return option;
  }

  function draw(id, option, group) {
    const place = document.getElementById(id);
    if (!place) return;
    const made = { place, option, group, chart: null };
    charts.push(made);
    place.tabIndex = 0;
    place.setAttribute("role", "figure");
    place.addEventListener("keydown", (event) => keys(made, event));
  }
  function show(made) {
    try {
      if (made.chart) made.chart.dispose();
      const option = made.option();
      made.place.setAttribute("aria-label", option.title.text + ". Arrow keys move, plus and minus zoom, 0 resets.");
      made.chart = echarts.init(made.place, null, { renderer: "svg" });
      made.chart.setOption(option);
      if (made.group) made.chart.group = made.group;
    } catch (error) {
      failed(error);
    }
  }
  // The charts of one run zoom together, from the keyboard, too.
  function keys(made, event) {
    const zoom = made.chart && made.chart.getOption().dataZoom;
    if (!zoom || !zoom.length || event.ctrlKey || event.altKey || event.metaKey) return;
    let { start, end } = zoom[0];
    const width = end - start;
    const middle = (start + end) / 2;
    const moved = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key];
    const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (moved) {
      const by = Math.max(-start, Math.min(100 - end, moved * width));
      [start, end] = [start + by, end + by];
    } else if (factor) {
      const half = Math.min(50, Math.max(0.05, (width * factor) / 2));
      const centre = Math.min(100 - half, Math.max(half, middle));
      [start, end] = [centre - half, centre + half];
    } else if (event.key === "0") {
      [start, end] = [0, 100];
    } else return;
    event.preventDefault();
    made.chart.dispatchAction({ type: "dataZoom", start, end });
  }

  function visible(made) {
    return made.place.offsetParent !== null;
  }
  function showAll(again) {
    for (const made of charts) if (visible(made) && (again || !made.chart)) show(made);
    root.dataset.drawn = charts.filter((made) => made.chart).length;
    root.dataset.charts = charts.length;
  }
  function theme(name) {
    root.dataset.theme = name;
    showAll(true);
  }
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const toggle = document.getElementById("theme");
  toggle.addEventListener("click", () => theme(root.dataset.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  document.querySelectorAll("details").forEach((details) => details.addEventListener("toggle", () => showAll(false)));
  let pause = 0;
  window.addEventListener("resize", () => {
    clearTimeout(pause);
    pause = setTimeout(() => charts.forEach((made) => made.chart && visible(made) && made.chart.resize()), 100);
  });
  // Paper is white, and has no closed sections.
  let before = "light";
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    document.querySelectorAll("details.charts").forEach((details) => { details.open = true; });
    theme("light");
  });
  window.addEventListener("afterprint", () => theme(before));
  const asked = new URLSearchParams(location.hash.slice(1));
  if (asked.has("open")) document.querySelectorAll("details.charts").forEach((details) => { details.open = true; });
  // After the charts are known.
  function start() {
    theme(asked.get("theme") || (dark.matches ? "dark" : "light"));
  }
  return { data, colour, dash, trimmed, time, size, text, axis, base, escaped, intervals, draw, start };
})();
