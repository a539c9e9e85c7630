"use strict";
// Draws the data of a report with ECharts. Whatever fails is shown on the page and counted in <html data-errors>.
(function () {
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
  const dropped = (series) => series.filter((one) => one.data.length > 0);

  // Cumulative distributions on a logarithmic axis.
  function distribution(title, name, format, lines, logBase) {
    const series = dropped(lines).map((line) => ({ type: "line", step: "start", showSymbol: false, name: line.name,
      data: line.data, lineStyle: { width: 2, type: dash(line.index), color: colour(line.index) },
      itemStyle: { color: colour(line.index) }, emphasis: { disabled: true } }));
    const option = Object.assign(base(title), { series,
      xAxis: axis({ type: "log", logBase, axisLabel: { color: text().dim, formatter: format, hideOverlap: true } }, name),
      yAxis: axis({ type: "value", min: 0, max: 100 }, "requests (%)"),
      dataZoom: [{ type: "inside", xAxisIndex: 0, filterMode: "none" }] });
    option.tooltip.trigger = "axis";
    option.tooltip.formatter = (points) => escaped(format(points[0].axisValue)) + points.map((point) =>
      "<br>" + point.marker + escaped(point.seriesName) + ": " + trimmed(point.data[1]) + " %").join("");
    return option;
  }
  const escaped = (words) => String(words).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

  function overTime(title, name, run, lines, extra) {
    const bin = run.charts.series.bin_s;
    const count = run.charts.series.depth.length;
    const series = lines.map((line, index) => ({ type: "line", step: "end", showSymbol: false, name: line.name,
      connectNulls: false, data: line.data.map((value, place) => [place * bin, value]),
      lineStyle: { width: 1.5, color: colour(index) }, itemStyle: { color: colour(index) },
      areaStyle: line.filled ? { color: colour(index), opacity: 0.2 } : undefined, emphasis: { disabled: true } }));
    const option = Object.assign(base(title), { series,
      xAxis: axis({ type: "value", min: 0, max: bin * count, axisLabel: { color: text().dim, hideOverlap: true } }, "time (s)"),
      yAxis: axis(Object.assign({ type: "value", min: 0 }, extra), name),
      dataZoom: [{ type: "inside", xAxisIndex: 0, filterMode: "none" }, { type: "slider", xAxisIndex: 0, height: 12, bottom: 2, filterMode: "none", brushSelect: true }] });
    option.grid.bottom = 58;
    option.tooltip.trigger = "axis";
    return option;
  }

  function heat(run) {
    const map = run.charts.heat;
    const most = map.cells.reduce((most, cell) => Math.max(most, cell[2]), 1);
    const tone = text();
    const cell = (params, api) => {
      const [x, y] = api.coord([api.value(0) * map.bin_s, map.first_byte + (api.value(1) + 1) * map.bin_bytes]);
      const [width, height] = api.size([map.bin_s, map.bin_bytes]);
      const shape = echarts.graphic.clipRectByRect({ x, y, width: width + 0.5, height: height + 0.5 }, params.coordSys);
      return shape && { type: "rect", shape, style: { fill: api.visual("color") } };
    };
    const option = Object.assign(base("Addresses over time"), {
      xAxis: axis({ type: "value", min: 0, max: map.bins[0] * map.bin_s, splitLine: { show: false } }, "time (s)"),
      yAxis: axis({ type: "value", min: map.first_byte, max: map.first_byte + map.bins[1] * map.bin_bytes,
        splitLine: { show: false }, axisLabel: { color: tone.dim, formatter: size } }, "address (bytes)"),
      visualMap: { min: 1, max: most, dimension: 2, hoverLink: false, orient: "horizontal", right: 10, top: 0, itemHeight: 90, itemWidth: 12,
        text: [most + " requests", "1"], textStyle: { color: tone.dim }, inRange: { color: ["#c6dbef", "#6baed6", "#2171b5", "#d55e00"] } },
      series: [{ type: "custom", renderItem: cell, data: map.cells, encode: { x: 0, y: 1 }, progressive: 0 }],
      dataZoom: [{ type: "inside", xAxisIndex: 0, filterMode: "none" }, { type: "slider", xAxisIndex: 0, height: 12, bottom: 2, filterMode: "none", brushSelect: true }] });
    option.grid = { left: 76, right: 18, top: 40, bottom: 58 };
    option.yAxis.nameGap = 56;
    option.legend.show = false;
    option.tooltip.formatter = (point) => point.value[2] + " requests at " + trimmed(point.value[0] * map.bin_s) + " s, " +
      size(map.first_byte + point.value[1] * map.bin_bytes);
    return option;
  }

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

  const runs = data.runs;
  const operations = [...new Set(runs.flatMap((run) => Object.keys(run.charts.service_us)))];
  for (const operation of operations) {
    draw("service-" + operation, () => distribution("Service time: " + operation, "service time, logarithmic", time,
      runs.map((run, index) => ({ name: run.label, index, data: run.charts.service_us[operation] || [] })), 10));
  }
  draw("distance", () => distribution("Distance from the request before", "distance (bytes), logarithmic", size,
    runs.map((run, index) => ({ name: run.label, index, data: run.charts.distance_bytes })), 32));
  const rowsOf = (estimate, unit) => runs.map((run, index) => ({ index, label: run.label, value: run[estimate] }))
    .filter((row) => row.value).map(({ index, label, value }) => {
      const half = value.half_width_95 || 0;
      const sure = value.half_width_95 === null ? " (one repetition)" : " ± " + half.toPrecision(3);
      return { index, label, mean: value.mean, low: value.mean - half, high: value.mean + half, words: value.mean.toPrecision(4) + sure + " " + unit };
    });
  draw("run-times", () => intervals("Run time with 95 % interval", "run time (s)", rowsOf("run_time_s", "s")));
  draw("differences", () => intervals("Paired difference to " + runs[0].label + " with 95 % interval", "difference of run time (%)", rowsOf("difference_percent", "%")));
  runs.forEach((run, index) => {
    const group = "run-" + index;
    const { series } = run.charts;
    draw("time-" + index, () => overTime("Service time", "service time (µs)", run,
      [{ name: "median", data: series.p50_us }, { name: "99th percentile", data: series.p99_us }],
      { type: "log", min: undefined, axisLabel: { color: text().dim, formatter: (us) => trimmed(us), hideOverlap: true } }), group);
    draw("depth-" + index, () => overTime("Queue depth", "outstanding requests", run,
      [{ name: "outstanding", data: series.depth, filled: true }]), group);
    draw("rate-" + index, () => overTime("Transfer rate", "MB/s", run,
      [{ name: "read", data: series.read_mb_s }, { name: "written", data: series.write_mb_s }]), group);
    draw("heat-" + index, () => heat(run), group);
    echarts.connect(group);
  });

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
  theme(asked.get("theme") || (dark.matches ? "dark" : "light"));
})();
